// Selections and functions choose first, because they save the most; sums and products take what is left, from the
// outputs on, so that chains are as long as they can be.
#include "stepnet/core/regions/region_patterns.h"

#include <algorithm>
#include <initializer_list>
#include <utility>
#include <vector>

#include "stepnet/core/regions/region_pattern_finder.h"

namespace stepnet {
namespace {

using Kind = RegionPattern::Kind;

bool IsFunction(ExprOp op) {
  return op == ExprOp::kTanh || op == ExprOp::kSigmoid || op == ExprOp::kExp || op == ExprOp::kSqrt ||
         op == ExprOp::kAbs;
}

bool IsComparison(ExprOp op) {
  return op == ExprOp::kEqual || op == ExprOp::kNotEqual || op == ExprOp::kLess || op == ExprOp::kLessEqual;
}

// The step that makes `op` of a value, which is its operand k, and another operand.
ChainStep StepOf(ExprOp op, int k) {
  const ChainStep step = StepOf(op);
  if (k == 0 || step == ChainStep::kAdd || step == ChainStep::kMultiply) return step;
  return step == ChainStep::kSubtract ? ChainStep::kSubtractFrom : ChainStep::kNone;
}

class Finder : private PatternFinder {
 public:
  Finder(std::span<RegionValue> values, const PatternOptions& options) : PatternFinder(values), options_(options) {}

  void Run() {
    for (RegionValue& value : values_) {
      if (value.level == RegionLevel::kElement && value.expr->op == ExprOp::kWhere) FindSelect(&value);
    }
    for (RegionValue& value : values_) {
      if (MayEnd(value) && value.expr->op == ExprOp::kMulAdd) FindBlend(&value);
      if (MayEnd(value) && value.expr->op == ExprOp::kMultiply) FindGate(&value);
    }
    for (RegionValue& value : values_) {
      const bool is_mul_add = value.expr->op == ExprOp::kMulAdd;
      if (!MayEnd(value) || (!is_mul_add && StepOf(value.expr->op) == ChainStep::kNone)) continue;
      for (int k = 0; k < 2; ++k) {
        if (IsFunction(values_[value.operands[k]].expr->op) && EndFunctionChain(&value, k)) break;
      }
    }
    for (RegionValue& value : values_) {
      if (MayEnd(value) && IsFunction(value.expr->op)) StartFunctionChain(&value);
    }
    for (size_t i = values_.size(); i-- > 0;) {
      const bool multiplies = values_[i].expr->op == ExprOp::kMultiply || values_[i].expr->op == ExprOp::kMulAdd;
      if (multiplies && MayEnd(values_[i])) FindSlope(&values_[i]);
    }
    if (options_.has_several) FindGradients();
    for (RegionValue& value : values_) {
      if (MayEnd(value) && value.expr->op == ExprOp::kMulAdd) FindNegMulAdd(&value);
    }
    for (size_t i = values_.size(); i-- > 0;) {
      RegionValue& value = values_[i];
      if (!MayEnd(value) || StepOf(value.expr->op) == ChainStep::kNone) continue;
      if (!FindPair(&value)) EndStepChain(&value);
    }
  }

 private:
  void FindSelect(RegionValue* value) {
    RegionValue* comparison = LinkOf(*value, 0);
    if (comparison == nullptr || !IsComparison(comparison->expr->op)) return;
    const DType dtype = value->expr->dtype;
    if (dtype == DType::kBool || values_[comparison->operands[0]].expr->dtype != dtype) return;
    const ExprOp op = comparison->expr->op;
    Take(value, {.kind = Kind::kSelect, .op = op}, SelectKernelOf(op, dtype),
         {comparison->operands[0], comparison->operands[1], value->operands[1], value->operands[2]}, {comparison});
  }

  // The negated operand of a MulAdd.
  RegionValue* NegationOf(const RegionValue& value) const {
    return value.num_operands == 3 ? LinkOf(value, 0, {ExprOp::kNegate}) : nullptr;
  }

  void FindNegMulAdd(RegionValue* value) {
    RegionValue* negation = NegationOf(*value);
    if (negation == nullptr) return;
    Take(value, {.kind = Kind::kNegMulAdd}, NegMulAddKernelOf(value->expr->dtype),
         {negation->operands[0], value->operands[1], value->operands[2]}, {negation});
  }

  bool IsOne(int value) const {
    const ExprNode& node = *values_[value].expr;
    if (node.op != ExprOp::kConstant) return false;
    const ExprScalar scalar{.dtype = node.dtype, .bits = node.bits};
    return node.dtype == DType::kFloat ? scalar.As<float>() == 1 : scalar.As<double>() == 1;
  }

  // sigmoid(a) * tanh(b), in any order.
  void FindGate(RegionValue* value) {
    for (int k = 0; k < 2; ++k) {
      RegionValue* sigmoid = LinkOf(*value, k, {ExprOp::kSigmoid});
      RegionValue* tanh = LinkOf(*value, 1 - k, {ExprOp::kTanh});
      if (sigmoid == nullptr || tanh == nullptr) continue;
      Take(value, {.kind = Kind::kGate}, GateKernelOf(value->expr->dtype), {sigmoid->operands[0], tanh->operands[0]},
           {sigmoid, tanh});
      return;
    }
  }

  // MulAdd(a, b, (1 - b) * c), with factors in any order.
  void FindBlend(RegionValue* value) {
    RegionValue* product = LinkOf(*value, 2, {ExprOp::kMultiply});
    if (product == nullptr) return;
    for (int k = 0; k < 2; ++k) {
      RegionValue* rest = LinkOf(*product, k, {ExprOp::kSubtract});
      if (rest == nullptr || !IsOne(rest->operands[0])) continue;
      const int share = rest->operands[1];
      const int place = value->operands[1] == share ? 1 : 0;
      if (value->operands[place] != share) continue;
      const int a = value->operands[1 - place];
      RegionValue* tanh = LinkOf(*product, 1 - k, {ExprOp::kTanh});
      RegionValue* sigmoid = tanh == nullptr ? nullptr : SigmoidOfBlend(share);
      const RegionBlend blend = sigmoid != nullptr ? RegionBlend::kSigmoidTanh
                                : tanh != nullptr  ? RegionBlend::kTanh
                                                   : RegionBlend::kPlain;
      const int b = sigmoid != nullptr ? sigmoid->operands[0] : share;
      const int c = tanh != nullptr ? tanh->operands[0] : product->operands[1 - k];
      Take(value, {.kind = Kind::kBlend, .blend = blend}, BlendKernelOf(blend, value->expr->dtype), {a, b, c},
           {product, rest, tanh != nullptr ? tanh : rest, sigmoid != nullptr ? sigmoid : rest});
      return;
    }
  }

  // The share of a blend, where it is a sigmoid that nothing else uses.
  RegionValue* SigmoidOfBlend(int share) {
    RegionValue& value = values_[share];
    constexpr int kUsesOfBlend = 2;
    const bool can = value.expr->op == ExprOp::kSigmoid && value.uses == kUsesOfBlend && MayEnd(value);
    return can ? &value : nullptr;
  }

  // Gradients of one sigmoid, and of the tanh that it is multiplied or blended with.
  void FindGradients() {
    readers_.assign(values_.size(), {});
    for (int i = 0; i < static_cast<int>(values_.size()); ++i) {
      if (values_[i].is_absorbed) continue;
      for (int k = 0; k < values_[i].num_operands; ++k) {
        std::vector<int>& readers = readers_[values_[i].operands[k]];
        if (readers.empty() || readers.back() != i) readers.push_back(i);
      }
    }
    for (int i = 0; i < static_cast<int>(values_.size()); ++i) {
      const RegionValue& sigmoid = values_[i];
      if (!IsElement(i) || !IsFloatOrDouble(sigmoid.expr->dtype) || sigmoid.is_absorbed || sigmoid.is_output_element)
        continue;
      if (sigmoid.expr->op != ExprOp::kSigmoid) continue;
      if (!FindGradientOfBlend(i) && !FindGradientOfGate(i)) FindGradientOfScale(i);
    }
  }

  // Whether these values, and no output, read the value.
  bool HasReaders(int value, std::initializer_list<int> readers) const {
    return !values_[value].is_output_element && std::ranges::is_permutation(readers_[value], readers);
  }
  bool IsSlope(const RegionValue& value, RegionSlope::Left left, RegionSlope::Top top) const {
    const RegionPattern& pattern = value.pattern;
    return !value.is_absorbed && pattern.kind == Kind::kSlope && pattern.slope.left == left && pattern.slope.top == top;
  }
  // The factor beside `factor` in a product of two, or -1.
  static int OtherFactor(const RegionValue& product, int factor) {
    if (product.operands[0] == factor) return product.operands[1];
    return product.operands[1] == factor ? product.operands[0] : -1;
  }
  bool IsPlain(int value, ExprOp op) const { return values_[value].expr->op == op && MayEnd(values_[value]); }

  // `results` as one instruction, where its operands are there when the first of them is computed.
  bool TakeGradient(const RegionGradient& gradient, std::initializer_list<int> results,
                    std::initializer_list<int> operands, std::initializer_list<int> absorbed) {
    const int first = *std::ranges::min_element(results);
    const auto is_late = [&](int operand) { return operand >= first && values_[operand].is_in_blocks(); };
    if (std::ranges::any_of(operands, is_late)) return false;
    RegionValue& value = values_[first];
    Take(&value, {.kind = Kind::kGradient, .gradient = gradient}, nullptr, operands, {});
    value.several_kernel = GradientKernelOf(gradient, value.expr->dtype);
    value.num_results = static_cast<int>(results.size());
    std::ranges::copy(results, value.results);
    for (const int result : results) values_[result].is_absorbed = result != first;
    for (const int link : absorbed) values_[link].is_absorbed = true;
    return true;
  }

  bool FindGradientOfBlend(int s) {
    if (!IsPlain(s, ExprOp::kSigmoid) || readers_[s].size() != 3) return false;
    int product = -1, share = -1, rest = -1;
    for (const int reader : readers_[s]) {
      const RegionValue& value = values_[reader];
      if (IsPlain(reader, ExprOp::kMultiply)) product = reader;
      if (IsSlope(value, RegionSlope::Left::kDifference, RegionSlope::Top::kOwn)) share = reader;
      if (IsSlope(value, RegionSlope::Left::kRest, RegionSlope::Top::kOne)) rest = reader;
    }
    if (product < 0 || share < 0 || rest < 0) return false;
    const int* const of_share = values_[share].operands;  // u, b, s, t
    const int* const of_rest = values_[rest].operands;    // u, s, t
    const int u = OtherFactor(values_[product], s), t = of_share[3];
    const bool fits = of_share[0] == u && of_rest[0] == u && of_share[2] == s && of_rest[1] == s && of_rest[2] == t;
    if (!fits || u == s || !IsPlain(t, ExprOp::kTanh) || !HasReaders(t, {share, rest})) return false;
    return TakeGradient({.kind = RegionGradient::Kind::kBlend}, {product, share, rest},
                        {u, values_[s].operands[0], of_share[1], values_[t].operands[0]}, {s, t});
  }

  bool FindGradientOfGate(int s) {
    if (!IsPlain(s, ExprOp::kSigmoid) || readers_[s].size() != 2) return false;
    for (const bool is_first : {true, false}) {
      const int of_s = readers_[s][is_first ? 0 : 1], of_t = readers_[s][is_first ? 1 : 0];
      const RegionValue& slope = values_[of_s];
      const RegionValue& other = values_[of_t];
      if (!IsSlope(slope, RegionSlope::Left::kProduct, RegionSlope::Top::kOwn) || slope.pattern.slope.adds) continue;
      if (!IsSlope(other, RegionSlope::Left::kProduct, RegionSlope::Top::kOne)) continue;
      const int t = other.operands[2], u = OtherFactor(slope, t);
      const bool fits = slope.operands[2] == s && u >= 0 && OtherFactor(other, u) == s && u != s && u != t;
      if (!fits || !IsPlain(t, ExprOp::kTanh) || !HasReaders(t, {of_s, of_t})) continue;
      const int a = values_[s].operands[0], b = values_[t].operands[0];
      const RegionGradient gradient{.kind = RegionGradient::Kind::kGate, .adds = other.pattern.slope.adds};
      if (gradient.adds) return TakeGradient(gradient, {of_s, of_t}, {u, a, b, other.operands[3]}, {s, t});
      return TakeGradient(gradient, {of_s, of_t}, {u, a, b}, {s, t});
    }
    return false;
  }

  bool FindGradientOfScale(int s) {
    const RegionValue& sigmoid = values_[s];
    const RegionChain& chain = sigmoid.pattern.chain;
    const bool adds = sigmoid.pattern.kind == Kind::kChain && chain.before == ChainStep::kAdd &&
                      chain.after == ChainStep::kNone && chain.last == ChainStep::kNone;
    if ((!adds && HasKernel(sigmoid)) || readers_[s].size() != 2) return false;
    for (const bool is_first : {true, false}) {
      const int slope = readers_[s][is_first ? 0 : 1], product = readers_[s][is_first ? 1 : 0];
      const RegionValue& value = values_[slope];
      if (!IsSlope(value, RegionSlope::Left::kProduct, RegionSlope::Top::kOwn) || value.pattern.slope.adds) continue;
      if (!IsPlain(product, ExprOp::kMultiply) || value.operands[2] != s) continue;
      const int u = OtherFactor(values_[product], s), b = OtherFactor(value, u);
      if (u == s || b < 0 || b == s) continue;
      const RegionGradient gradient{.kind = RegionGradient::Kind::kScale, .adds = adds};
      const int a = sigmoid.operands[0];
      if (adds) return TakeGradient(gradient, {product, slope}, {u, a, b, sigmoid.operands[1]}, {s});
      return TakeGradient(gradient, {product, slope}, {u, a, b}, {s});
    }
    return false;
  }

  // (a * b) * (d - c * c), in any order, or MulAdd of the factors.
  void FindSlope(RegionValue* value) {
    for (int k = 0; k < 2; ++k) {
      RegionValue* slope = LinkOf(*value, k, {ExprOp::kMulAdd});
      RegionValue* product = LinkOf(*value, 1 - k, {ExprOp::kMultiply});
      RegionValue* negation = slope == nullptr ? nullptr : NegationOf(*slope);
      if (product == nullptr || negation == nullptr || negation->operands[0] != slope->operands[1]) continue;
      if (TakeSlope(value, product, {slope, negation})) return;
    }
  }

  struct SlopeFactor {  // d - c * c
    RegionValue* sum;
    RegionValue* negation;
  };
  bool TakeSlope(RegionValue* value, RegionValue* product, const SlopeFactor& factor) {
    using Top = RegionSlope::Top;
    const int c = factor.sum->operands[1], top = factor.sum->operands[2];
    const RegionSlope slope{.top = top == c     ? Top::kOwn
                                   : IsOne(top) ? Top::kOne
                                                : Top::kAny,
                            .adds = value->expr->op == ExprOp::kMulAdd};
    if (TakeSlopeOfDifference(value, product, factor, slope)) return true;
    const RegionKernel kernel = SlopeKernelOf(slope, value->expr->dtype);
    if (kernel == nullptr) return false;
    const int a = product->operands[0], b = product->operands[1];
    const RegionPattern pattern{.kind = Kind::kSlope, .slope = slope};
    if (slope.adds || slope.top == Top::kAny) {
      const int d = slope.adds ? value->operands[2] : top;
      Take(value, pattern, kernel, {a, b, c, d}, {product, factor.sum, factor.negation});
    } else {
      Take(value, pattern, kernel, {a, b, c}, {product, factor.sum, factor.negation});
    }
    return true;
  }

  // Where a factor of the product is a difference.
  bool TakeSlopeOfDifference(RegionValue* value, RegionValue* product, const SlopeFactor& factor, RegionSlope slope) {
    if (slope.adds || slope.top == RegionSlope::Top::kAny) return false;
    for (int k = 0; k < 2; ++k) {
      RegionValue* difference = LinkOf(*product, k, {ExprOp::kSubtract});
      if (difference == nullptr) continue;
      const bool is_rest = IsOne(difference->operands[0]);
      slope.left = is_rest ? RegionSlope::Left::kRest : RegionSlope::Left::kDifference;
      const RegionPattern pattern{.kind = Kind::kSlope, .slope = slope};
      const RegionKernel kernel = SlopeKernelOf(slope, value->expr->dtype);
      const int a = product->operands[1 - k], c = factor.sum->operands[1];
      const std::initializer_list<RegionValue*> absorbed = {product, factor.sum, factor.negation, difference};
      if (is_rest) {
        Take(value, pattern, kernel, {a, difference->operands[1], c}, absorbed);
      } else {
        Take(value, pattern, kernel, {a, difference->operands[0], c, difference->operands[1]}, absorbed);
      }
      return true;
    }
    return false;
  }

  // `value` as the step after the function that is its operand k, with what comes before that.
  bool EndFunctionChain(RegionValue* value, int k) {
    RegionValue* function = LinkOf(*value, k);
    if (function == nullptr) return false;
    const bool is_mul_add = value->expr->op == ExprOp::kMulAdd;
    RegionChain chain{.f = function->expr->op, .after = is_mul_add ? ChainStep::kMulAdd : StepOf(value->expr->op, k)};
    if (chain.after == ChainStep::kNone) return false;  // c / f(a)
    const auto take = [&](int a, int b, std::initializer_list<RegionValue*> absorbed) {
      const RegionKernel kernel = ChainKernelOf(chain, value->expr->dtype);
      if (kernel == nullptr) return false;
      const RegionPattern pattern{.kind = Kind::kChain, .chain = chain};
      const int c = value->operands[1 - k];
      if (is_mul_add) {
        Take(value, pattern, kernel, {a, b, c, value->operands[2]}, absorbed);
      } else {
        Take(value, pattern, kernel, {a, b, c}, absorbed);
      }
      return true;
    };
    if (RegionValue* sum = LinkOf(*function, 0, {ExprOp::kAdd, ExprOp::kSubtract})) {
      chain.before = StepOf(sum->expr->op);
      if (take(sum->operands[0], sum->operands[1], {sum, function})) return true;
      chain.before = ChainStep::kNone;
    }
    const int a = function->operands[0];
    return take(a, a, {function});
  }

  // `value` as a function of a sum or difference.
  void StartFunctionChain(RegionValue* value) {
    RegionValue* sum = LinkOf(*value, 0, {ExprOp::kAdd, ExprOp::kSubtract});
    if (sum == nullptr) return;
    const RegionChain chain{.before = StepOf(sum->expr->op), .f = value->expr->op};
    const RegionKernel kernel = ChainKernelOf(chain, value->expr->dtype);
    if (kernel == nullptr) return;
    Take(value, {.kind = Kind::kChain, .chain = chain}, kernel, {sum->operands[0], sum->operands[1]}, {sum});
  }

  // Whether an operand would have to be spread for a kernel that reads elements alone.
  bool HasRepeated(const RegionValue& value) const {
    return options_.spares_repeated &&
           std::ranges::any_of(std::span(value.operands, static_cast<size_t>(value.num_operands)), [&](int operand) {
             return values_[operand].level == RegionLevel::kRow || values_[operand].is_of_columns;
           });
  }

  // `value` as a step of two values that are steps themselves.
  bool FindPair(RegionValue* value) {
    if (value->operands[0] == value->operands[1]) return false;
    const RegionValue* left = LinkOf(*value, 0);
    const RegionValue* right = LinkOf(*value, 1);
    if (left == nullptr || right == nullptr) return false;
    const RegionPair pair{
        .left = StepOf(left->expr->op), .op = StepOf(value->expr->op), .right = StepOf(right->expr->op)};
    const RegionKernel kernel = PairKernelOf(pair, value->expr->dtype);
    if (kernel == nullptr || HasRepeated(*left) || HasRepeated(*right)) return false;
    Take(value, {.kind = Kind::kPair, .pair = pair}, kernel,
         {left->operands[0], left->operands[1], right->operands[0], right->operands[1]},
         {&values_[value->operands[0]], &values_[value->operands[1]]});
    return true;
  }

  // `value` as the last of three steps or, where there are no three, of two.
  void EndStepChain(RegionValue* value) {
    for (int k = 0; k < 2; ++k) {
      RegionValue* middle = LinkOf(*value, k);
      if (middle == nullptr || StepOf(middle->expr->op) == ChainStep::kNone) continue;
      for (int j = 0; j < 2; ++j) {
        RegionValue* first = LinkOf(*middle, j);
        if (first == nullptr || StepOf(first->expr->op) == ChainStep::kNone) continue;
        const RegionChain chain{.before = StepOf(first->expr->op),
                                .after = StepOf(middle->expr->op, j),
                                .last = StepOf(value->expr->op, k)};
        if (chain.last == ChainStep::kNone) continue;
        if (HasRepeated(*first) || HasRepeated(*middle) || HasRepeated(*value)) continue;
        if (TakeSteps(value, chain, *first, middle->operands[1 - j], value->operands[1 - k], {first, middle})) return;
      }
    }
    for (int k = 0; k < 2; ++k) {
      RegionValue* first = LinkOf(*value, k);
      if (first == nullptr || StepOf(first->expr->op) == ChainStep::kNone) continue;
      const RegionChain chain{.before = StepOf(first->expr->op), .after = StepOf(value->expr->op, k)};
      const int other = value->operands[1 - k];
      if (TakeSteps(value, chain, *first, other, other, {first})) return;
    }
  }

  static bool TakeSteps(RegionValue* value, const RegionChain& chain, const RegionValue& first, int c, int d,
                        std::initializer_list<RegionValue*> absorbed) {
    const RegionKernel kernel = ChainKernelOf(chain, value->expr->dtype);
    if (kernel == nullptr) return false;
    if (chain.last == ChainStep::kNone) {
      Take(value, {.kind = Kind::kChain, .chain = chain}, kernel, {first.operands[0], first.operands[1], c}, absorbed);
    } else {
      Take(value, {.kind = Kind::kChain, .chain = chain}, kernel, {first.operands[0], first.operands[1], c, d},
           absorbed);
    }
    return true;
  }

  const PatternOptions options_;
  std::vector<std::vector<int>> readers_;  // of each value, what has an instruction or may have one
};

}  // namespace

void FindPatterns(std::span<RegionValue> values, const PatternOptions& options) { Finder(values, options).Run(); }

}  // namespace stepnet

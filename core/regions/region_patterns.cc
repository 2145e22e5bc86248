// Selections and functions choose first, because they save the most; sums and products take what is left, from the
// outputs on, so that chains are as long as they can be.
#include "stepnet/core/regions/region_patterns.h"

#include <algorithm>
#include <initializer_list>

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

bool IsFloat(DType dtype) { return dtype == DType::kFloat || dtype == DType::kDouble; }

ChainStep StepOf(ExprOp op) {
  switch (op) {
    case ExprOp::kAdd: return ChainStep::kAdd;
    case ExprOp::kSubtract: return ChainStep::kSubtract;
    case ExprOp::kMultiply: return ChainStep::kMultiply;
    case ExprOp::kDivide: return ChainStep::kDivide;
    default: return ChainStep::kNone;
  }
}

// The step that makes `op` of a value, which is its operand k, and another operand.
ChainStep StepOf(ExprOp op, int k) {
  const ChainStep step = StepOf(op);
  if (k == 0 || step == ChainStep::kAdd || step == ChainStep::kMultiply) return step;
  return step == ChainStep::kSubtract ? ChainStep::kSubtractFrom : ChainStep::kNone;
}

class Finder {
 public:
  explicit Finder(std::span<RegionValue> values) : values_(values) {}

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
    for (RegionValue& value : values_) {
      if (MayEnd(value) && value.expr->op == ExprOp::kMulAdd) FindNegMulAdd(&value);
    }
    for (size_t i = values_.size(); i-- > 0;) {
      RegionValue& value = values_[i];
      if (!MayEnd(value) || StepOf(value.expr->op) == ChainStep::kNone) continue;
      if (!FindPair(&value)) EndStepChain(&value);
    }
  }

  // Sums of products, and of floats in double.
  void FindRowSums() {
    for (RegionValue& value : values_) {
      const DType dtype = value.expr->dtype;
      if (value.expr->op != ExprOp::kRowSum || !IsFloat(dtype)) continue;
      RegionValue* const cast = LinkOf(value, 0, {ExprOp::kCast});
      const bool casts = cast != nullptr && values_[cast->operands[0]].expr->dtype == DType::kFloat;
      RegionValue* const product = LinkOf(casts ? *cast : value, 0, {ExprOp::kMultiply});
      if (product != nullptr && TakeSumOfProducts(&value, product, casts)) {
        product->is_absorbed = true;
      } else if (casts) {
        TakeRowSum(&value, {.kind = Kind::kRowSum, .casts = casts}, {cast->operands[0]}, SumInDoubleKernel());
      }
      if (value.rows_kernel != nullptr && casts) cast->is_absorbed = true;
    }
  }

  // Which values read values of rows and columns as they are.
  void FindRowOperands() {
    for (RegionValue& value : values_) {
      if (value.level == RegionLevel::kRow || value.is_of_columns) value.is_spread = value.is_output_element;
    }
    for (RegionValue& value : values_) {
      if (MayEnd(value) && value.expr->op == ExprOp::kMultiply) FindScaledRest(&value);
    }
    for (RegionValue& value : values_) {
      if (!value.is_in_blocks()) continue;
      RepeatedOperands repeated;
      for (int k = 0; k < value.num_operands; ++k) {
        const RegionValue& operand = values_[value.operands[k]];
        if (operand.level == RegionLevel::kRow) repeated.of_rows |= 1U << k;
        if (operand.is_of_columns) repeated.of_columns |= 1U << k;
      }
      if (repeated == value.repeated) continue;  // none, or a sum knows
      const RowOperandKernel kernel = value.is_reduction() ? nullptr : RowOperandKernelOf(value);
      if (kernel != nullptr) {
        value.repeated = repeated;
        value.row_operand_kernel = kernel;
      }
      for (int k = 0; k < value.num_operands; ++k) {
        RegionValue& operand = values_[value.operands[k]];
        if (repeated.Has(k) && !value.repeated.Has(k)) operand.is_spread = true;
        if (operand.is_of_columns && value.repeated.Has(k)) operand.is_read_as_is = true;
      }
    }
    for (RegionValue& value : values_) {
      if (value.is_of_columns) value.is_spread &= value.is_read_as_is;  // else there is no other array
    }
  }

 private:
  static RowOperandKernel RowOperandKernelOf(const RegionValue& value) {
    const DType dtype = value.expr->dtype;
    if (!IsFloat(dtype)) return nullptr;
    if (value.pattern.kind == Kind::kScaledRest) return ScaledRestKernelOf(dtype);
    if (value.pattern.kind == Kind::kChain) return RowOperandChainOf(value.pattern.chain, dtype);
    if (value.pattern.kind != Kind::kNone) return nullptr;
    if (value.expr->op == ExprOp::kMulAdd) return RowOperandMulAddOf(dtype);
    const ChainStep step = StepOf(value.expr->op);
    return step == ChainStep::kNone ? nullptr : RowOperandChainOf({.before = step}, dtype);
  }

  bool IsElement(int value) const { return values_[value].level == RegionLevel::kElement; }
  bool IsOfRow(int value) const { return values_[value].level == RegionLevel::kRow; }

  // MulAdd(a, b, c - d) * e, in any order, where a and c alone are elements.
  void FindScaledRest(RegionValue* value) {
    for (int k = 0; k < 2; ++k) {
      RegionValue* sum = LinkOf(*value, k, {ExprOp::kMulAdd});
      RegionValue* rest = sum == nullptr ? nullptr : LinkOf(*sum, 2, {ExprOp::kSubtract});
      if (rest == nullptr) continue;
      const int share = IsElement(sum->operands[0]) ? 1 : 0;  // the place of b
      const int a = sum->operands[1 - share], b = sum->operands[share];
      const int c = rest->operands[0], d = rest->operands[1], e = value->operands[1 - k];
      if (!IsElement(a) || !IsOfRow(b) || !IsElement(c) || !IsOfRow(d) || !IsOfRow(e)) continue;
      return Take(value, {.kind = Kind::kScaledRest}, nullptr, {a, b, c, d, e}, {sum, rest});
    }
  }

  static void TakeRowSum(RegionValue* sum, const RegionPattern& pattern, std::initializer_list<int> operands,
                         RowsKernel kernel) {
    Take(sum, pattern, nullptr, operands, {});
    sum->rows_kernel = kernel;
  }

  // Also of squares of what differs from a value of the row: the difference is computed again where others use it.
  bool TakeSumOfProducts(RegionValue* sum, const RegionValue* product, bool casts) {
    const DType from = product->expr->dtype, to = sum->expr->dtype;
    const int a = product->operands[0], b = product->operands[1];
    RegionValue& difference = values_[a];
    if (a == b && difference.expr->op == ExprOp::kSubtract && IsElement(difference.operands[0]) &&
        values_[difference.operands[1]].level == RegionLevel::kRow) {
      difference.uses -= 2;
      difference.is_absorbed = difference.uses == 0;
      TakeRowSum(sum, {.kind = Kind::kRowSum, .casts = casts, .term = " (-)^2"},
                 {difference.operands[0], difference.operands[1]}, SumOfSquaresKernelOf(from, to));
      sum->repeated.of_rows = 2;
      return true;
    }
    if (!IsElement(a) || !IsElement(b)) return false;
    TakeRowSum(sum, {.kind = Kind::kRowSum, .casts = casts, .term = " *"}, {a, b}, SumOfProductsKernelOf(from, to));
    return true;
  }

  static bool MayEnd(const RegionValue& value) {
    return value.level == RegionLevel::kElement && IsFloat(value.expr->dtype) && !value.is_absorbed &&
           value.kernel == nullptr;
  }

  // Operand k, where a pattern of `value` may absorb it.
  RegionValue* LinkOf(const RegionValue& value, int k) const {
    RegionValue& operand = values_[value.operands[k]];
    const bool can = operand.level == RegionLevel::kElement && operand.uses == 1 && operand.kernel == nullptr &&
                     !operand.is_absorbed && operand.expr->op != ExprOp::kInput;
    return can ? &operand : nullptr;
  }
  RegionValue* LinkOf(const RegionValue& value, int k, std::initializer_list<ExprOp> ops) const {
    RegionValue* link = LinkOf(value, k);
    return link != nullptr && std::ranges::find(ops, link->expr->op) != ops.end() ? link : nullptr;
  }

  static void Take(RegionValue* value, const RegionPattern& pattern, RegionKernel kernel,
                   std::initializer_list<int> operands, std::initializer_list<RegionValue*> absorbed) {
    value->pattern = pattern;
    value->kernel = kernel;
    value->num_operands = static_cast<int>(operands.size());
    std::ranges::copy(operands, value->operands);
    for (RegionValue* link : absorbed) link->is_absorbed = true;
  }

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
      const bool is_of_tanh = tanh != nullptr;
      const int c = is_of_tanh ? tanh->operands[0] : product->operands[1 - k];
      Take(value, {.kind = Kind::kBlend, .is_of_tanh = is_of_tanh}, BlendKernelOf(is_of_tanh, value->expr->dtype),
           {a, share, c}, {product, rest, is_of_tanh ? tanh : rest});
      return;
    }
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

  // `value` as a step of two values that are steps themselves.
  bool FindPair(RegionValue* value) {
    if (value->operands[0] == value->operands[1]) return false;
    const RegionValue* left = LinkOf(*value, 0);
    const RegionValue* right = LinkOf(*value, 1);
    if (left == nullptr || right == nullptr) return false;
    const RegionPair pair{
        .left = StepOf(left->expr->op), .op = StepOf(value->expr->op), .right = StepOf(right->expr->op)};
    const RegionKernel kernel = PairKernelOf(pair, value->expr->dtype);
    if (kernel == nullptr) return false;
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

  const std::span<RegionValue> values_;
};

}  // namespace

void FindPatterns(std::span<RegionValue> values) { Finder(values).Run(); }
void FindRowSums(std::span<RegionValue> values) { Finder(values).FindRowSums(); }
void FindRowOperands(std::span<RegionValue> values) { Finder(values).FindRowOperands(); }

}  // namespace stepnet

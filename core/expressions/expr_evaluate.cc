#include "stepnet/core/expressions/expr_evaluate.h"

#include <algorithm>
#include <cmath>
#include <unordered_map>

#include "stepnet/core/expressions/expr_functions.h"
#include "stepnet/core/expressions/expr_text.h"
#include "stepnet/core/random.h"
#include "stepnet/core/stored_float.h"
#include "stepnet/core/strings.h"
#include "stepnet/core/vector_math.h"

namespace stepnet {
namespace {

template <typename T>
T ThroughVector(void (*function)(const T*, T*, std::int64_t), T x) {
  T y;
  function(&x, &y, 1);
  return y;
}

template <typename T>
T FloatUnary(ExprOp op, T x) {
  switch (op) {
    case ExprOp::kSqrt: return std::sqrt(x);
    case ExprOp::kExp: return ThroughVector<T>(VectorExp, x);
    case ExprOp::kLog: return ThroughVector<T>(VectorLog, x);
    case ExprOp::kTanh: return ThroughVector<T>(VectorTanh, x);
    case ExprOp::kSigmoid: return ThroughVector<T>(VectorSigmoid, x);
    case ExprOp::kErfc: return ThroughVector<T>(VectorErfc, x);
    case ExprOp::kSin: return ThroughVector<T>(VectorSin, x);
    case ExprOp::kCos: return ThroughVector<T>(VectorCos, x);
    default: return FindExprFunction(op)->Of<T>()(x);
  }
}

template <typename T>
T Number(ExprOp op, std::span<const ExprScalar> operands) {
  const T a = operands[0].As<T>();
  const T b = operands.size() > 1 ? operands[1].As<T>() : T{};
  switch (op) {
    case ExprOp::kAdd: return scalar::Add(a, b);
    case ExprOp::kSubtract: return scalar::Subtract(a, b);
    case ExprOp::kMultiply: return scalar::Multiply(a, b);
    case ExprOp::kDivide: return scalar::Divide(a, b);
    case ExprOp::kMod: return scalar::Mod(a, b);
    case ExprOp::kMin: return scalar::Min(a, b);
    case ExprOp::kMax: return scalar::Max(a, b);
    case ExprOp::kMulAdd: return scalar::MulAdd(a, b, operands[2].As<T>());
    case ExprOp::kNegate: return scalar::Negate(a);
    case ExprOp::kAbs: return scalar::Abs(a);
    case ExprOp::kSign: return scalar::Sign(a);
    default: break;
  }
  if constexpr (scalar::kIsFloat<T>) return op == ExprOp::kPow ? scalar::Pow(a, b) : FloatUnary(op, a);
  return a;
}

bool Compared(ExprOp op, std::span<const ExprScalar> operands) {
  return ForExprType(operands[0].dtype, [&](auto zero) {
    using T = decltype(zero);
    const T a = operands[0].As<T>(), b = operands[1].As<T>();
    switch (op) {
      case ExprOp::kEqual: return scalar::Equal(a, b);
      case ExprOp::kNotEqual: return scalar::NotEqual(a, b);
      case ExprOp::kLess: return scalar::Less(a, b);
      default: return scalar::LessEqual(a, b);
    }
  });
}

ExprScalar CastScalar(DType to, const ExprScalar& x) {
  if (to == x.dtype) return x;
  if (IsStoredFloat(x.dtype)) return CastScalar(to, ScalarOf(Loaded(x)));
  if (IsStoredFloat(to)) {
    return ForExprType(x.dtype, [&](auto zero) { return Stored(to, FloatToStore(x.As<decltype(zero)>())); });
  }
  return ForExprType(to, [&](auto target) {
    return ForExprType(x.dtype,
                       [&](auto source) { return ScalarOf(scalar::Cast<decltype(target)>(x.As<decltype(source)>())); });
  });
}

ExprScalar UniformScalar(DType dtype, std::span<const ExprScalar> operands) {
  const auto whole = [&](int i) { return operands[i].As<std::int64_t>(); };
  const RandomStream stream(static_cast<std::uint64_t>(whole(0)), static_cast<std::uint64_t>(whole(1)),
                            static_cast<std::uint64_t>(whole(2)), whole(3));
  const auto element = static_cast<std::uint64_t>(whole(4));
  if (dtype == DType::kFloat) return ScalarOf(stream.Uniform(element));
  return ScalarOf(scalar::UniformOf<double>(stream.Word(element)));
}

template <typename T, typename Fn>
T Reduced(std::span<const ExprScalar> row, T first, Fn fn) {
  T partial[kExprPartials];
  std::fill_n(partial, kExprPartials, first);
  for (size_t j = 0; j < row.size(); ++j) {
    partial[j % kExprPartials] = fn(partial[j % kExprPartials], row[j].As<T>());
  }
  for (int width = kExprPartials / 2; width > 0; width /= 2) {
    for (int i = 0; i < width; ++i) partial[i] = fn(partial[i], partial[i + width]);
  }
  return partial[0];
}

ExprScalar ReducedRow(ExprOp op, DType dtype, std::span<const ExprScalar> row) {
  return ForExprType(dtype, [&](auto zero) {
    using T = decltype(zero);
    using Limits = std::numeric_limits<T>;
    if constexpr (!std::is_same_v<T, bool>) {
      if (op == ExprOp::kRowSum) return ScalarOf(Reduced<T>(row, 0, scalar::Add<T>));
      const T lowest = Limits::has_infinity ? -Limits::infinity() : Limits::lowest();
      return ScalarOf(Reduced<T>(row, lowest, scalar::Max<T>));
    }
    return ScalarOf(zero);
  });
}

std::vector<ExprScalar> RowOf(const ExprNode& node, const ExprRow& row,
                              const std::unordered_map<const ExprNode*, std::vector<ExprScalar>>& values) {
  std::vector<ExprScalar> out(static_cast<size_t>(std::max<std::int64_t>(row.columns, 1)));
  if (node.op == ExprOp::kRowSum || node.op == ExprOp::kRowMax) {
    const std::span<const ExprScalar> elements = values.at(node.operands[0]);
    std::ranges::fill(out, ReducedRow(node.op, node.dtype, elements.first(static_cast<size_t>(row.columns))));
    return out;
  }
  std::vector<ExprScalar> operands(node.num_operands);
  for (std::int64_t j = 0; j < std::ssize(out); ++j) {
    for (int k = 0; k < node.num_operands; ++k) operands[k] = values.at(node.operands[k])[j];
    switch (node.op) {
      case ExprOp::kInput: out[j] = row.input(node, j); break;
      case ExprOp::kConstant: out[j] = {.dtype = node.dtype, .bits = node.bits}; break;
      case ExprOp::kIndex: out[j] = ScalarOf(node.number == 3 ? j : row.index[node.number]); break;
      case ExprOp::kRequire: out[j] = operands[0]; break;
      default: out[j] = EvaluatePrimitive(node.op, node.dtype, operands);
    }
  }
  return out;
}

}  // namespace

ExprScalar EvaluatePrimitive(ExprOp op, DType dtype, std::span<const ExprScalar> operands) {
  switch (op) {
    case ExprOp::kEqual:
    case ExprOp::kNotEqual:
    case ExprOp::kLess:
    case ExprOp::kLessEqual: return ScalarOf(Compared(op, operands));
    case ExprOp::kAnd: return ScalarOf(operands[0].As<bool>() && operands[1].As<bool>());
    case ExprOp::kOr: return ScalarOf(operands[0].As<bool>() || operands[1].As<bool>());
    case ExprOp::kNot: return ScalarOf(!operands[0].As<bool>());
    case ExprOp::kWhere: return operands[0].As<bool>() ? operands[1] : operands[2];
    case ExprOp::kCast: return CastScalar(dtype, operands[0]);
    case ExprOp::kUniform: return UniformScalar(dtype, operands);
    default: break;
  }
  return ForExprType(dtype, [&](auto zero) {
    using T = decltype(zero);
    if constexpr (std::is_same_v<T, bool>)
      return operands[0];
    else
      return ScalarOf(Number<T>(op, operands));
  });
}

ExprRowValues EvaluateRow(std::span<const Expr> roots, const ExprRow& row) {
  std::unordered_map<const ExprNode*, std::vector<ExprScalar>> values;
  ExprRowValues result;
  for (const ExprNode* node : ExprNodes(roots)) {
    const std::vector<ExprScalar>& of_node = values.emplace(node, RowOf(*node, row, values)).first->second;
    if (node->op != ExprOp::kRequire || row.columns == 0) continue;
    const auto fails = std::ranges::find_if(of_node, [](const ExprScalar& holds) { return !holds.As<bool>(); });
    const std::int64_t column = fails - of_node.begin();
    if (fails == of_node.end() || (result.fault && result.fault->column <= column)) continue;
    result.fault = {.require = node, .column = column, .values = {}};
    for (const ExprNode* shown : node->Operands().subspan(1)) result.fault->values.push_back(values.at(shown)[column]);
  }
  for (const Expr& root : roots) result.values.push_back(values.at(root.node()));
  return result;
}

std::string FaultMessage(const ExprNode& require, std::span<const ExprScalar> values) {
  std::string message;
  size_t begin = 0;
  for (const ExprScalar& value : values) {
    const size_t at = require.text.find("{}", begin);
    if (at == std::string::npos) break;
    message += StrCat(require.text.substr(begin, at - begin), ScalarText(value));
    begin = at + 2;
  }
  return message + require.text.substr(begin);
}

std::string WithElement(std::string message, std::int64_t element) {
  constexpr std::string_view kPlace = "{element}";
  const std::string number = StrCat(element);
  for (size_t at = 0; (at = message.find(kPlace, at)) != std::string::npos; at += number.size()) {
    message.replace(at, kPlace.size(), number);
  }
  return message;
}

}  // namespace stepnet

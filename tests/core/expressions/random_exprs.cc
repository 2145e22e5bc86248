#include "random_exprs.h"

#include <limits>

#include "stepnet/core/error.h"
#include "stepnet/core/expressions/expr_functions.h"
#include "stepnet/core/expressions/expr_table.h"
#include "stepnet/core/stored_float.h"

namespace stepnet {
namespace {

int Below(int limit, std::mt19937& random) { return static_cast<int>(random() % static_cast<unsigned>(limit)); }

template <typename T>
T RandomNumber(std::mt19937& random) {
  using Limits = std::numeric_limits<T>;
  const std::uint64_t bits = static_cast<std::uint64_t>(random()) << 32 | random();
  if constexpr (std::is_same_v<T, bool>) {
    return (bits & 1) != 0;
  } else if constexpr (std::is_integral_v<T>) {
    constexpr T kOdd[] = {0, 1, T(-1), 2, Limits::min(), Limits::max()};
    const int choice = Below(12, random);
    if (choice < 6) return kOdd[choice];
    return choice < 10 ? static_cast<T>(static_cast<std::int64_t>(bits % 21) - 10) : static_cast<T>(bits);
  } else {
    const T odd[] = {0,
                     -T{0},
                     1,
                     -1,
                     Limits::infinity(),
                     -Limits::infinity(),
                     Limits::quiet_NaN(),
                     Limits::denorm_min(),
                     -Limits::min(),
                     Limits::max(),
                     T{0.5},
                     2};
    const int choice = Below(30, random);
    if (choice < 12) return odd[choice];
    if (choice < 15) return std::ldexp(static_cast<T>(bits % 1000), Below(200, random) - 100);
    return (static_cast<T>(bits >> 12) / static_cast<T>(std::int64_t{1} << 51) - 1) * 4;
  }
}

bool IsOfLibrary(ExprOp op) {
  const ExprFunction* function = FindExprFunction(op);
  return op == ExprOp::kPow || (function != nullptr && !function->is_exact);
}

bool IsUsual(ExprOp op) {
  switch (op) {
    case ExprOp::kAdd:
    case ExprOp::kSubtract:
    case ExprOp::kMultiply:
    case ExprOp::kDivide:
    case ExprOp::kMulAdd:
    case ExprOp::kNegate:
    case ExprOp::kAbs:
    case ExprOp::kSqrt:
    case ExprOp::kExp:
    case ExprOp::kTanh:
    case ExprOp::kSigmoid:
    case ExprOp::kLess:
    case ExprOp::kLessEqual:
    case ExprOp::kWhere:
    case ExprOp::kCast:
    case ExprOp::kRowSum:
    case ExprOp::kRowMax: return true;
    default: return false;
  }
}

bool Wanted(ExprOp op, const RandomExprOptions& options) {
  if (options.only_usual && !IsUsual(op)) return false;
  switch (op) {
    case ExprOp::kInput:
    case ExprOp::kConstant:
    case ExprOp::kLiteral: return false;
    case ExprOp::kIndex:
    case ExprOp::kRowSum:
    case ExprOp::kRowMax: return options.reductions;
    case ExprOp::kRequire: return options.requires_too;
    default: return !options.only_simple || !IsOfLibrary(op);
  }
}

// How many operands an op may have: tried in turn until a builder takes them.
int RandomCount(ExprOp op, std::mt19937& random) {
  switch (op) {
    case ExprOp::kIndex: return 0;
    case ExprOp::kMulAdd:
    case ExprOp::kWhere: return 3;
    case ExprOp::kUniform: return 5;
    case ExprOp::kRequire: return 1 + Below(kMaxExprOperands, random);
    case ExprOp::kAdd:
    case ExprOp::kSubtract:
    case ExprOp::kMultiply:
    case ExprOp::kDivide:
    case ExprOp::kMod:
    case ExprOp::kMin:
    case ExprOp::kMax:
    case ExprOp::kPow:
    case ExprOp::kEqual:
    case ExprOp::kNotEqual:
    case ExprOp::kLess:
    case ExprOp::kLessEqual:
    case ExprOp::kAnd:
    case ExprOp::kOr: return 2;
    default: return 1;
  }
}

// Operands of which most have one dtype, so that a builder may take them.
std::vector<int> RandomOperands(const std::vector<RandomExprStep>& steps, ExprOp op, std::mt19937& random) {
  std::vector<int> operands(static_cast<size_t>(RandomCount(op, random)));
  const bool late = Below(2, random) == 0;  // deep expressions, and wide ones
  const auto any = [&] {
    const int size = static_cast<int>(steps.size());
    return late ? size - 1 - Below(std::min(size, 6), random) : Below(size, random);
  };
  for (int& operand : operands) operand = any();
  const size_t first = op == ExprOp::kWhere ? 1 : 0;
  for (size_t i = 0; i < operands.size(); ++i) {
    const DType wanted = op == ExprOp::kWhere && i == 0 ? DType::kBool : steps[operands[first]].result.dtype();
    for (int tries = 0; tries < 50 && steps[operands[i]].result.dtype() != wanted; ++tries) {
      operands[i] = Below(static_cast<int>(steps.size()), random);
    }
  }
  return operands;
}

}  // namespace

ExprScalar RandomScalar(DType dtype, std::mt19937& random) {
  if (IsStoredFloat(dtype)) {
    if (Below(2, random) == 0) return {.dtype = dtype, .bits = random() & 0xffffu};
    return Stored(dtype, RandomNumber<float>(random));
  }
  return ForExprType(dtype, [&](auto zero) { return ScalarOf(RandomNumber<decltype(zero)>(random)); });
}

bool SameScalar(const ExprScalar& a, const ExprScalar& b) {
  if (a.dtype != b.dtype) return false;
  if (IsFloating(a.dtype) && std::isnan(DoubleOf(a))) return std::isnan(DoubleOf(b));
  return a.bits == b.bits;
}

std::vector<RandomExprStep> RandomExprSteps(const std::vector<Expr>& leaves, const RandomExprOptions& options,
                                            std::mt19937& random) {
  std::vector<RandomExprStep> steps;
  for (const Expr& leaf : leaves) steps.push_back({.op = leaf->op, .result = leaf});
  std::span<const DType> dtypes = kExprTypes;
  if (options.stored_too) dtypes = kOperandTypes;
  for (const DType dtype : dtypes) {
    for (int i = 0; i < 2; ++i) {
      steps.push_back({.op = ExprOp::kConstant, .result = ConstantOf(RandomScalar(dtype, random))});
    }
  }
  const size_t size = steps.size() + static_cast<size_t>(options.steps);
  for (int tries = 0; steps.size() < size && tries < 100 * options.steps; ++tries) {
    RandomExprStep step{.op = static_cast<ExprOp>(Below(kNumExprOps, random))};
    if (!Wanted(step.op, options)) continue;
    step.operands = RandomOperands(steps, step.op, random);
    step.parts = {.dtype = dtypes[Below(static_cast<int>(dtypes.size()), random)],
                  .number = Below(4, random),
                  .text = "value {} is \"bad\""};
    std::vector<Expr> operands;
    for (const int operand : step.operands) operands.push_back(steps[operand].result);
    try {
      step.result = MakeExpr(step.op, operands, step.parts);
      steps.push_back(std::move(step));
    } catch (const Error&) {  // dtypes that do not fit
    }
  }
  return steps;
}

}  // namespace stepnet

#include "stepnet/core/expressions/expr_range.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "random_exprs.h"
#include "stepnet/core/expressions/expr_evaluate.h"
#include "stepnet/core/expressions/expr_text.h"
#include "stepnet/core/strings.h"

namespace stepnet {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

// "none", or the bounds, and "not 0" where 0 lies between them and is none of the numbers.
std::string RangeText(const std::string& expr) {
  const std::vector<Expr> parsed = ParseExprs("in 0 x: float\nin 1 y: float\nout " + expr + "\n");
  const std::optional<ExprRange> range = RangeOf(parsed[0], {});
  if (!range) return "none";
  const bool is_said = range->low <= 0 && range->high >= 0 && range->is_without_zero;
  return StrCat(range->low, " ", range->high, is_said ? " not 0" : "");
}

TEST(ExprRange, FollowsFromThatOfOperands) {
  EXPECT_EQ(RangeText("x"), "-inf inf");
  EXPECT_EQ(RangeText("x * x"), "0 inf");
  EXPECT_EQ(RangeText("abs(x) + 1"), "1 inf");
  EXPECT_EQ(RangeText("2 - abs(x)"), "-inf 2");
  EXPECT_EQ(RangeText("tanh(x) * 3"), "-3 3");
  EXPECT_EQ(RangeText("sigmoid(max(x, 0))"), "0.5 1");
  EXPECT_EQ(RangeText("exp(min(x, 0))"), "0 1");
  EXPECT_EQ(RangeText("log1p(exp(-abs(x)))"), "0 0.693147");
  EXPECT_EQ(RangeText("1 / (1 + x * x)"), "0 1");
  EXPECT_EQ(RangeText("pow(abs(x), 0.5)"), "0 inf");
  EXPECT_EQ(RangeText("x % 3"), "-inf inf");
}

TEST(ExprRange, IsNoneWhereAValueMayBeInfinite) {
  for (const char* const expr :
       {"1 / x", "x / (1 - tanh(x))", "exp(x)", "expm1(x * x)", "log(abs(x))", "sqrt(x)", "sqrt(1 - x * x)", "log1p(x)",
        "pow(x, 0.5)", "pow(abs(x), -1)", "pow(2, x)", "pow(x, 20)", "1 % x", "1 / exp(min(x, 0))", "tanh(1 / x)",
        "x / row_sum(exp(min(x, 0)))"}) {
    EXPECT_EQ(RangeText(expr), "none") << expr;
  }
}

TEST(ExprRange, OfARowLessItsMaximumIsNegative) {
  EXPECT_EQ(RangeText("exp(x - row_max(x))"), "0 1");
  EXPECT_EQ(RangeText("1 / row_sum(exp(x - row_max(x)))"), "0 1");
  EXPECT_EQ(RangeText("exp(x - row_max(y))"), "none");
}

TEST(ExprRange, KnowsConditionsInTheirBranches) {
  EXPECT_EQ(RangeText("where(x < 0, exp(x), 1)"), "0 1");
  EXPECT_EQ(RangeText("where(0 < x, log(x), y)"), "-inf inf");
  EXPECT_EQ(RangeText("where(0 <= x, log(x), y)"), "none");
  EXPECT_EQ(RangeText("where(x == 0, 0, y / x)"), "-inf inf");
  EXPECT_EQ(RangeText("where(x == 1, 0, y / x)"), "none");
  EXPECT_EQ(RangeText("where(x != 0 && y < 0, exp(y) / x, 0)"), "-inf inf");
  EXPECT_EQ(RangeText("where(x == 0 || 0 < y, 0, exp(y) / x)"), "-inf inf");
  EXPECT_EQ(RangeText("where(x == 0, 1, x)"), "-inf inf not 0");
  EXPECT_EQ(RangeText("where(x < 0, exp(y), 1)"), "none");
}

TEST(ExprRange, OfInputsIsGiven) {
  const Expr x = Expr::Input(0, "x", DType::kFloat), y = Expr::Input(1, "y", DType::kFloat);
  const ExprRange positive[] = {{.low = 0.5, .high = 2}};
  EXPECT_EQ(RangeOf(1 / x, positive)->high, 2);
  EXPECT_FALSE(RangeOf(1 / y, positive));
}

double NumberOf(const ExprScalar& scalar) {
  return ForExprType(scalar.dtype, [&](auto zero) { return static_cast<double>(scalar.As<decltype(zero)>()); });
}

// What numbers of usual size give.
bool IsUsual(const ExprNode& node, double value) {
  const bool is_whole = node.dtype == DType::kInt32 || node.dtype == DType::kInt64;
  return std::fabs(value) < (is_whole ? 1e4 : 1e6);
}

std::vector<std::vector<float>> RandomInputs(size_t count, std::int64_t columns, std::mt19937& random) {
  std::vector<std::vector<float>> inputs(count, std::vector<float>(columns));
  for (std::vector<float>& row : inputs) {
    for (float& number : row) {
      const float usual = std::uniform_real_distribution<float>(-3, 3)(random);
      number = random() % 4 == 0 ? std::round(usual) : random() % 5 == 0 ? usual * 40 : usual;
    }
  }
  return inputs;
}

// Values of random expressions lie where they are said to, as far as what they are computed from is of usual size.
TEST(ExprRange, HoldsForRandomExpressions) {
  constexpr std::int64_t kColumns = 6;
  const std::vector<Expr> leaves = {Expr::Input(0, "x", DType::kFloat), Expr::Input(1, "y", DType::kFloat)};
  std::mt19937 random(11);
  int num_bounded = 0;
  for (int trial = 0; trial < 2000; ++trial) {
    std::vector<Expr> roots = leaves;
    for (const RandomExprStep& step : RandomExprSteps(leaves, {.steps = 25, .reductions = true}, random)) {
      if (step.result->op != ExprOp::kLiteral) roots.push_back(step.result);
    }
    const std::vector<std::vector<float>> inputs = RandomInputs(leaves.size(), kColumns, random);
    const auto input = [&](const ExprNode& node, std::int64_t i) { return ScalarOf(inputs[node.number][i]); };
    std::vector<Expr> nodes;
    for (const ExprNode* node : ExprNodes(roots)) nodes.push_back(Expr::Of(node));
    const ExprRowValues row = EvaluateRow(nodes, {.columns = kColumns, .input = input});
    std::set<const ExprNode*> unusual;
    for (size_t i = 0; i < nodes.size(); ++i) {
      const ExprNode& node = *nodes[i];
      const bool is_of_usual =
          std::ranges::none_of(node.Operands(), [&](const ExprNode* operand) { return unusual.contains(operand); });
      const std::optional<ExprRange> range = RangeOf(nodes[i], {});
      for (const ExprScalar& scalar : row.values[i]) {
        const double value = NumberOf(scalar);
        if (!is_of_usual || !IsUsual(node, value)) unusual.insert(&node);
        if (!range || !is_of_usual || node.op == ExprOp::kPow) continue;
        SCOPED_TRACE(StrCat(PrintExpr(nodes[i]), " is ", value));
        constexpr double kRounding = 1e-5, kSmallest = 1e-37;
        ASSERT_GE(value, range->low - kRounding * std::fabs(range->low) - kSmallest);
        ASSERT_LE(value, range->high + kRounding * std::fabs(range->high) + kSmallest);
        ASSERT_TRUE(std::isfinite(value));
        ASSERT_TRUE(range->HasZero() || value != 0);
        if (range->low > -kInfinity || range->high < kInfinity) ++num_bounded;
      }
    }
  }
  EXPECT_GT(num_bounded, 10'000);
}

}  // namespace
}  // namespace stepnet

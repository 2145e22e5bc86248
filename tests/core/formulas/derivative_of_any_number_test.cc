// Derivatives of formulas over any number of inputs: one gradient for each.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "stepnet/core/formulas/formula.h"
#include "stepnet/nets/gradient.h"
#include "stepnet/tests/executor/recurrent_case.h"
#include "stepnet/tests/operators/op_test.h"

namespace stepnet {
namespace {

Operator OfMany(const char* type, Expr (*join)(const Expr&, const Expr&)) {
  Operator op(type);
  op.Private()
      .Doc("For tests.")
      .Inputs("x", "one or more, repeated over each other")
      .Output("y", "the shape of all")
      .InPlace({{0, 0}})
      .DerivedGradient({"y", "dy", "x"}, {"dx"})
      .Formula([join](Formula& f) {
        const std::vector<Expr> all = f.Ins("x");
        Expr y = all[0];
        for (size_t i = 1; i < all.size(); ++i) y = join(y, all[i]);
        f.Out({y});
      });
  return op;
}
const Registration product = OfMany("test.ProductOfAll", [](const Expr& a, const Expr& b) { return a * b; });
const Registration greatest = OfMany("test.GreatestOfAll", Max);

// Beside what it has one of; reads the last of them alone, by a name that another input has.
const Registration mixed = Operator("test.MixOfAll")
                               .Private()
                               .Doc("For tests.")
                               .Input("x0", "any shape")
                               .Input("rate", "[C]")
                               .OptionalInputs("x", "any number, each of the shape of x0")
                               .Output("y", "the shape of x0")
                               .DerivedGradient({"dy", "x0", "rate", "x"}, {"dx0", "drate", "dx"})
                               .Formula([](Formula& f) {
                                 const Expr first = f.In("x0") * Tanh(f.Column("rate"));
                                 const std::vector<Expr> all = f.Ins("x");
                                 f.Out({all.empty() ? first : first * Sigmoid(all.back())});
                               });

TEST(DerivativeOfAnyNumber, IsCentralDifferences) {
  for (int count = 1; count <= 4; ++count) {
    OpTest op("test.ProductOfAll");
    for (int i = 0; i < count; ++i) op.Random(StrCat("x", i), {3, 5}, i + 1);
    op.GradientMatches();
  }
  OpTest("test.ProductOfAll").Random("a", {3, 5}, 1).Random("b", {5}, 2).Random("c", {3, 1}, 3).GradientMatches();
  OpTest("test.ProductOfAll").Random("a", {2, 3, 5}, 1).Random("b", {1}, 2).GradientMatches();
}

TEST(DerivativeOfAnyNumber, GoesBesideWhatThereIsOneOf) {
  OpTest("test.MixOfAll").Random("x0", {3, 5}, 1).Random("rate", {5}, 2).GradientMatches();
  OpTest op("test.MixOfAll");
  op.Random("x0", {3, 5}, 1).Random("rate", {5}, 2).Random("a", {3, 5}, 3).Random("b", {3, 5}, 4);
  op.GradientMatches();
  NetDef net;
  *net.add_op() = ParseOp("y = test.MixOfAll(x0, rate, a, b)");
  const OperatorGradient gradient = MakeGradient(net.op(0), {{.dense = "y_grad"}});
  ASSERT_EQ(gradient.ops.size(), 1u);
  EXPECT_EQ(gradient.ops[0].input_size(), 5);
  EXPECT_EQ(gradient.ops[0].output_size(), 4);
}

// The bits of MaxGradient, which says its formula itself: ties get it all, NaN none.
TEST(DerivativeOfAnyNumber, OfTheGreatestIsThatOfMax) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const std::vector<std::vector<float>> x = {
      {1, 2, 0, nan, 5, -1, 7}, {1, 3, -0.0f, 1, 5, nan, 7}, {0, 2, -1, 2, 5, 3, 8}};
  std::vector<float> y(7);
  for (size_t i = 0; i < y.size(); ++i) {
    y[i] = x[0][i];
    for (int k = 1; k < 3; ++k) y[i] = std::isnan(y[i]) ? y[i] : y[i] > x[k][i] ? y[i] : x[k][i];
  }
  std::vector<std::vector<Tensor>> results;
  for (const char* type : {"MaxGradient", "test.GreatestOfAllGradient"}) {
    OpTest op(type, 3);
    op.Input("y", Tensor::Of<float>({7}, y)).Input("dy", Tensor::Of<float>({7}, {1, -2, 3, 4, 5, 6, 0.5f}));
    for (int k = 0; k < 3; ++k) op.Input(StrCat("x", k), Tensor::Of<float>({7}, x[k]));
    results.push_back(op.Run());
  }
  for (int k = 0; k < 3; ++k) ExpectSame(results[1][k], results[0][k], StrCat("dx", k));
}

TEST(DerivativeOfAnyNumber, HasNoMoreOutputsThanThereAreInputs) {
  OpTest op("test.ProductOfAllGradient", 2);
  op.Random("y", {2}, 1).Random("dy", {2}, 2).Random("x", {2}, 3);
  ExpectError([&] { op.Run(); }, "…test.ProductOfAllGradient has 2 outputs for gradients of 1 inputs");
}

}  // namespace
}  // namespace stepnet

#include "stepnet/compiler/shape_check.h"

#include <gtest/gtest.h>

#include "stepnet/core/formulas/formula.h"
#include "stepnet/core/strings.h"
#include "stepnet/tests/executor/recurrent_case.h"

namespace stepnet {
namespace {

// Right for floats alone.
const Registration adds_a_float =
    Operator("test.AddsAFloat").Private().Input("x", "any shape").Output("y", "the shape of x").Formula([](Formula& f) {
      f.Out({f.In("x") + Expr::Constant(DType::kFloat, 1)});
    });

// [4, 3, 2] and [3, 2].
std::map<std::string, TensorInfo> Given(DType dtype) {
  return {{"x", {.dtype = dtype, .shape = {4, 3, 2}}}, {"h0", {.dtype = dtype, .shape = {3, 2}}}};
}

std::vector<std::string> ProblemsOf(const NetDef& net, DType dtype) {
  std::vector<std::string> texts;
  for (const NetProblem& problem : CheckShapes(net, Given(dtype))) texts.push_back(problem.Text());
  return texts;
}

std::string Problem(const std::string& where, const std::string& inputs) {
  return StrCat(where,
                ": test.AddsAFloat: x + 1: x is double and float(1) float; Cast makes them alike; its inputs are ",
                inputs);
}

RecurrentCase Loop(const std::string& step) {
  RecurrentCase net;
  net.Sequence("x", "x_t").State("h", "h0", "h_prev", "h").Step("s = Add(x_t, h_prev)").Step(step);
  net.Output("hs", "h", 1);
  return net;
}

TEST(CheckShapes, FindsDTypesThatDoNotMeetInAFormula) {
  NetDef net;
  net.set_name("n");
  *net.add_op() = ParseOp("y = test.AddsAFloat(x)");
  EXPECT_EQ(ProblemsOf(net, DType::kFloat), std::vector<std::string>());
  EXPECT_EQ(ProblemsOf(net, DType::kDouble),
            std::vector{Problem("net \"n\", op 0 `y = test.AddsAFloat(x)`", "x double [4, 3, 2]")});
}

TEST(CheckShapes, FindsThemWithinStepNets) {
  const NetDef net = Loop("h = test.AddsAFloat(s)").Build();
  EXPECT_EQ(ProblemsOf(net, DType::kFloat), std::vector<std::string>());
  EXPECT_EQ(ProblemsOf(net, DType::kDouble),
            std::vector{Problem("net \"step\", op 1 `h = test.AddsAFloat(s)`", "s double [1, 3, 2]")});
}

TEST(CheckShapes, KnowsWhatLoopsGive) {
  NetDef net = Loop("h = Tanh(s)").Build();
  *net.add_op() = ParseOp("y = test.AddsAFloat(hs)");
  *net.add_op() = ParseOp("z = MatMul(hs, x)");
  EXPECT_EQ(
      ProblemsOf(net, DType::kDouble),
      (std::vector<std::string>{Problem("net \"case\", op 1 `y = test.AddsAFloat(hs)`", "hs double [4, 3, 2]"),
                                "net \"case\", op 2 `z = MatMul(hs, x)`: MatMul needs a [M, K] and b [K, N]; hs is "
                                "double [4, 3, 2] and x is double [4, 3, 2]"}));
}

}  // namespace
}  // namespace stepnet

#include "stepnet/nets/side_effects.h"

#include <gtest/gtest.h>

#include "stepnet/core/formulas/formula.h"
#include "stepnet/io/proto_io.h"
#include "stepnet/nets/op_builder.h"
#include "stepnet/tests/executor/recurrent_case.h"

namespace stepnet {
namespace {

RunFn Nothing(const OperatorCall& /*op*/) {
  return [](const OpRun&) {};
}

const Registration checks_on_cuda = Operator("test.ChecksOnCuda")
                                        .Input("x", "")
                                        .Shapes(SameAsInput(0))
                                        .Cpu(Nothing)
                                        .On(DeviceKind::kCuda, {.make = Nothing, .checks_values = true});
const Registration shapes_by_value = Operator("test.ShapesByValue")
                                         .Input("x", "")
                                         .Input("sizes", "")
                                         .Shapes(SameAsInput(0))
                                         .ShapesReadValues({1})
                                         .Cpu(Nothing);
const Registration divides_unless_told = Operator("test.DividesUnlessTold")
                                             .Input("a", "any shape")
                                             .Input("b", "the shape of a")
                                             .Output("c", "the shape of a")
                                             .Arg("divides", true, "or multiplies")
                                             .Formula([](Formula& f) {
                                               const Expr a = f.In("a"), b = f.In("b");
                                               f.Out({f.Bool("divides") ? a / b : a * b});
                                             });

TEST(SideEffects, RandomNumbersAreFoundInStepNetsToo) {
  NetDef fills, steps, tests, none;
  AddOp(&fills, "ConstantFill", {}, {"x"}).Ints("shape", {2});
  AddOp(&none, "RecurrentNetwork", {"x"}, {"y"}).Net("step_net", fills);
  EXPECT_FALSE(DrawsRandomNumbers(none));
  AddOp(&fills, "UniformFill", {}, {"u"}).Ints("shape", {2});
  EXPECT_TRUE(DrawsRandomNumbers(fills));
  AddOp(&steps, "RecurrentNetwork", {"x"}, {"y"}).Net("step_net", fills);
  EXPECT_TRUE(DrawsRandomNumbers(steps));
  EXPECT_TRUE(DrawsRandomNumbers(steps.op(0)));

  NetDef of_text;
  AddOp(&of_text, "RecurrentNetwork", {"x"}, {"y"}).String("step_net", PrintMessageText(fills));
  EXPECT_TRUE(DrawsRandomNumbers(of_text));

  AddOp(&tests, "Dropout", {"x"}, {"y", "mask"}).Int("is_test", 1);
  EXPECT_FALSE(DrawsRandomNumbers(tests));
  AddOp(&tests, "Dropout", {"x"}, {"z", "mask"});
  EXPECT_TRUE(DrawsRandomNumbers(tests));
}

// What an operator leaves as it is, or adds to, somebody may read; requests are by output.
TEST(SideEffects, MostOperatorsOnlyWrite) {
  NetDef net;
  AddOp(&net, "Tanh", {"x"}, {"y"});
  AddOp(&net, "Print", {"x"}, {});
  AddOp(&net, "RecurrentNetworkGradient", {"x"}, {"a", "b", "c"})
      .Net("step_net", NetDef())
      .Strings("gradient_requests", {"write", "add", "none"});
  AddOp(&net, "RecurrentNetworkGradient", {"x"}, {"a"}).Net("step_net", NetDef());
  const auto only_writes = [&](int op, int output) { return OnlyWrites(OperatorCall(net.op(op)), output); };
  EXPECT_TRUE(only_writes(0, 0));
  EXPECT_FALSE(only_writes(1, 0));
  EXPECT_TRUE(only_writes(2, 0));
  EXPECT_FALSE(only_writes(2, 1));
  EXPECT_FALSE(only_writes(2, 2));
  EXPECT_TRUE(only_writes(3, 0));
}

TEST(SideEffects, OperatorsMayFailForValuesThatTheirKernelsOrShapeRulesRead) {
  const auto may_fail = [](const std::string& text, DeviceKind device = DeviceKind::kCpu) {
    return MayFindFaults(OperatorCall(ParseOp(text)), device);
  };
  EXPECT_FALSE(may_fail("test.ChecksOnCuda(x)"));
  EXPECT_TRUE(may_fail("test.ChecksOnCuda(x)", DeviceKind::kCuda));
  EXPECT_TRUE(may_fail("test.ShapesByValue(x, sizes)")) << "its shape rule reads values";
  EXPECT_TRUE(may_fail("x = Load()")) << "its kernel takes blobs";
  EXPECT_FALSE(may_fail("c = Add(a, b)"));
  EXPECT_TRUE(may_fail("c = Div(a, b)")) << "of whole numbers";
}

// What one operator does says nothing of others of its type.
TEST(SideEffects, OperatorsMayFailByTheirOwnArguments) {
  OperatorDef op = ParseOp("c = test.DividesUnlessTold(a, b)");
  EXPECT_TRUE(MayFindFaults(OperatorCall(op), DeviceKind::kCpu));
  OpBuilder(&op).Int("divides", 0);
  EXPECT_FALSE(MayFindFaults(OperatorCall(op), DeviceKind::kCpu));
}

}  // namespace
}  // namespace stepnet

#include "stepnet/nets/side_effects.h"

#include <gtest/gtest.h>

#include "stepnet/io/proto_io.h"
#include "stepnet/nets/op_builder.h"

namespace stepnet {
namespace {

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

}  // namespace
}  // namespace stepnet

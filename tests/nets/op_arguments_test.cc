#include "stepnet/nets/op_arguments.h"

#include <gtest/gtest.h>

#include "stepnet/nets/op_builder.h"

namespace stepnet {
namespace {

TEST(OpArguments, AreFoundByName) {
  NetDef net;
  AddOp(&net, "FC", {"x", "w", "b"}, {"y"}).Int("axis", 1).Int("axis_w", 2);
  ASSERT_NE(FindArgument(net.op(0), "axis_w"), nullptr);
  EXPECT_EQ(FindArgument(net.op(0), "axis_w")->i(), 2);
  EXPECT_EQ(FindArgument(net.op(0), "ax"), nullptr);
}

TEST(OpArguments, ANewOneTakesThePlaceOfTheOldOneWithoutItsValue) {
  NetDef net;
  AddOp(&net, "FC", {"x", "w", "b"}, {"y"}).Int("axis", 1).Int("axis_w", 2);
  OperatorDef* op = net.mutable_op(0);
  NewArgument(op, "axis")->set_f(3);
  EXPECT_FALSE(op->arg(0).has_i());
  EXPECT_EQ(op->arg(0).f(), 3);
  NewArgument(op, "no_bias")->set_i(1);
  ASSERT_EQ(op->arg_size(), 3);
  EXPECT_EQ(op->arg(2).name(), "no_bias");
}

}  // namespace
}  // namespace stepnet

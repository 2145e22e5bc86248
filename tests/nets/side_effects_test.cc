#include "stepnet/nets/side_effects.h"

#include <gtest/gtest.h>

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

  AddOp(&tests, "Dropout", {"x"}, {"y", "mask"}).Int("is_test", 1);
  EXPECT_FALSE(DrawsRandomNumbers(tests));
  AddOp(&tests, "Dropout", {"x"}, {"z", "mask"});
  EXPECT_TRUE(DrawsRandomNumbers(tests));
}

}  // namespace
}  // namespace stepnet

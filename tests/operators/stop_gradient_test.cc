#include "op_test.h"
#include "stepnet/nets/gradient.h"

namespace stepnet {
namespace {

TEST(StopGradient, GivesNoGradient) {
  OperatorDef op;
  op.set_type("StopGradient");
  op.add_input("x");
  op.add_output("y");
  const OperatorGradient gradient = MakeGradient(op, {{.dense = "y_grad"}});
  EXPECT_TRUE(gradient.ops.empty());
  EXPECT_TRUE(gradient.input_gradients.at(0).absent());
}

TEST(ZeroGradient, GivesAGradientOfZeros) {
  OpTest("ZeroGradient", 0).Random("x", {2, 3}, 1).GradientMatches();
  OpTest("ZeroGradient", 0).Input("x", {0, 3}, {}).GradientMatches();
}

}  // namespace
}  // namespace stepnet

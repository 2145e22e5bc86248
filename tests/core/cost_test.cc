#include "stepnet/core/cost.h"

#include <gtest/gtest.h>

#include "stepnet/nets/op_builder.h"

namespace stepnet {
namespace {

TensorInfo Floats(const Shape& shape) { return {.dtype = DType::kFloat, .shape = shape}; }

TEST(Cost, OfATypeThatDeclaresNoneIsWhatItReadsAndWrites) {
  NetDef net;
  AddOp(&net, "Relu", {"x"}, {"y"});
  const OperatorCall relu(net.op(0));
  const Cost cost = EstimateCost(relu, std::vector{Floats({3, 4})}, std::vector{Floats({3, 4})});
  EXPECT_EQ(cost.bytes, 2 * 12 * 4);
  EXPECT_EQ(cost.flops, 12);
}

TEST(Cost, OfAProductCountsEachTensorOnce) {
  NetDef net;
  AddOp(&net, "FC", {"x", "w", "b"}, {"y"});
  const OperatorCall fc(net.op(0));
  const std::vector<TensorInfo> inputs = {Floats({2, 3}), Floats({5, 3}), Floats({5})};
  const Cost cost = EstimateCost(fc, inputs, std::vector{Floats({2, 5})});
  EXPECT_EQ(cost.bytes, (6 + 15 + 5 + 10) * 4);
  EXPECT_EQ(cost.flops, 2.0 * 2 * 3 * 5);
}

}  // namespace
}  // namespace stepnet

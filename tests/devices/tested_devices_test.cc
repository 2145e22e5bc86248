// How tensors of two devices are compared.
#include "tested_devices.h"

#include <gtest/gtest-spi.h>

namespace stepnet {
namespace {

constexpr Tolerance kTolerance = {.of_float = 1e-5, .of_double = 1e-12};

TEST(TestedDevices, SmallTensorsAreComparedByTheirOwnSize) {
  static const Tensor expected = Tensor::Of<float>({3}, {0, 1e-6F, -2e-6F});
  ExpectNearTensor(Tensor::Of<float>({3}, {1e-12F, 1e-6F, -2e-6F}), expected, kTolerance, "small");
  EXPECT_FATAL_FAILURE(ExpectNearTensor(Tensor::Of<float>({3}, {0, 1e-6F, -2.1e-6F}), expected, kTolerance, "small"),
                       "element 2");
  static const Tensor zeros = Tensor::Of<double>({2}, {0, 0});
  EXPECT_FATAL_FAILURE(ExpectNearTensor(Tensor::Of<double>({2}, {0, 1e-30}), zeros, kTolerance, "zeros"), "element 1");
}

TEST(TestedDevices, LargeElementsSayHowOthersRound) {
  const Tensor expected = Tensor::Of<float>({2}, {1e3F, 1});
  ExpectNearTensor(Tensor::Of<float>({2}, {1e3F, 1.005F}), expected, kTolerance, "large");
}

}  // namespace
}  // namespace stepnet

#include "stepnet/tools/rnn_runner/differences.h"

#include <gtest/gtest.h>

#include <cmath>

namespace stepnet::runner {
namespace {

constexpr double kRounding = 1e-16;

TEST(Differences, FindTheDerivativeOfASmoothFunction) {
  for (const double at : {-3.0, 0.0, 0.7, 40.0}) {
    const Derivative found = Differentiate([](double x) { return std::sin(x); }, at, kRounding);
    EXPECT_NEAR(found.value, std::cos(at), 1e-9) << at;
    EXPECT_LT(found.doubt, 1e-8) << at;
  }
}

// As where a layer is normalised whose elements are all zero: the step that suits others is a thousand times too large.
TEST(Differences, FindTheDerivativeOfWhatCurvesFast) {
  for (const double width : {1e-3, 1e-5, 1e-7}) {
    const Derivative found = Differentiate([=](double x) { return x / std::hypot(x, width); }, 0, kRounding);
    EXPECT_NEAR(found.value * width, 1, 1e-6) << width;
    EXPECT_LT(found.doubt * width, 1e-5) << width;
  }
}

TEST(Differences, AreInDoubtWhereThereIsNoDerivative) {
  const Derivative steep = Differentiate([](double x) { return std::cbrt(x); }, 0, kRounding);
  EXPECT_GT(steep.doubt, 0.1 * std::abs(steep.value));
  const Derivative jump = Differentiate([](double x) { return x < 0 ? -1.0 : 1.0; }, 0, kRounding);
  EXPECT_GT(jump.doubt, 0.1 * std::abs(jump.value));
}

TEST(Differences, AreInDoubtWhereRoundingIsAllThatTheyShow) {
  const Derivative found = Differentiate([](double x) { return 1e9 + std::round(1e3 * x) / 1e3; }, 0.2, 1e-3);
  EXPECT_GE(found.doubt, std::abs(found.value - 1));
}

TEST(Differences, ShowTheSidesOfAKink) {
  const Derivative found = Differentiate([](double x) { return std::max(x, 0.0) + std::sin(x); }, 0, kRounding);
  EXPECT_NEAR(found.value, 1.5, 1e-8);
  EXPECT_NEAR(found.below, 1, 1e-8);
  EXPECT_NEAR(found.above, 2, 1e-8);
}

}  // namespace
}  // namespace stepnet::runner

#include "stepnet/core/floating.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace stepnet {
namespace {

// What the bits of a number with a sign, `exponent_bits` and a fraction mean, by IEEE 754.
double Meaning(unsigned bits, int exponent_bits, int fraction_bits) {
  const unsigned fraction = bits & ((1U << fraction_bits) - 1);
  const auto exponent = static_cast<int>((bits >> fraction_bits) & ((1U << exponent_bits) - 1));
  const double sign = (bits >> (exponent_bits + fraction_bits)) != 0 ? -1 : 1;
  const int bias = (1 << (exponent_bits - 1)) - 1;
  const double part = std::ldexp(static_cast<double>(fraction), -fraction_bits);
  if (exponent == (1 << exponent_bits) - 1) {
    if (fraction != 0) return std::numeric_limits<double>::quiet_NaN();
    return sign * std::numeric_limits<double>::infinity();
  }
  return sign * (exponent == 0 ? std::ldexp(part, 1 - bias) : std::ldexp(1 + part, exponent - bias));
}

template <typename Stored>
void ExpectEveryValue(int exponent_bits, int fraction_bits) {
  constexpr int kCount = 1 << 16;
  const Tensor stored(kDTypeOf<Stored>, {kCount});
  for (int i = 0; i < kCount; ++i) stored.data<Stored>()[i] = {static_cast<std::uint16_t>(i)};
  const Tensor wide = Widened(stored);
  ASSERT_EQ(wide.Description(), "float [65536]");
  for (int i = 0; i < kCount; ++i) {
    const double expected = Meaning(static_cast<unsigned>(i), exponent_bits, fraction_bits);
    const double found = wide.data<float>()[i];
    if (std::isnan(expected)) {
      EXPECT_TRUE(std::isnan(found)) << i;
    } else {
      EXPECT_EQ(found, expected) << i;
      EXPECT_EQ(std::signbit(found), std::signbit(expected)) << i;
    }
  }
}

TEST(Floating, WidensEveryFloat16) { ExpectEveryValue<Float16>(5, 10); }
TEST(Floating, WidensEveryBFloat16) { ExpectEveryValue<BFloat16>(8, 7); }

TEST(Floating, LeavesOtherTensorsAsTheyAre) {
  for (const DType dtype : {DType::kFloat, DType::kDouble, DType::kInt32}) {
    const Tensor tensor = Tensor::Zeros(dtype, {2});
    EXPECT_EQ(Widened(tensor).raw(), tensor.raw());
  }
}

}  // namespace
}  // namespace stepnet

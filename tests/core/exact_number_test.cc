#include "stepnet/core/exact_number.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <random>

#include "stepnet/core/arguments.h"
#include "stepnet/proto/net.pb.h"

namespace stepnet {
namespace {

TEST(ExactNumber, AFloatStandsForWhatWasWritten) {
  EXPECT_EQ(AsWritten(0.1f), 0.1);
  EXPECT_EQ(AsWritten(-1e-5f), -1e-5);
  EXPECT_EQ(AsWritten(0.5f), 0.5);
  EXPECT_EQ(AsWritten(16777216.0f), 16777216.0);
  EXPECT_TRUE(std::isnan(AsWritten(std::nanf(""))));
  EXPECT_EQ(AsWritten(-std::numeric_limits<float>::infinity()), -std::numeric_limits<double>::infinity());
  std::mt19937 random(3);
  for (int k = 0; k < 100'000; ++k) {
    const auto bits = static_cast<std::uint32_t>(random());
    float value = 0;
    std::memcpy(&value, &bits, sizeof(value));
    if (std::isnan(value)) continue;
    ASSERT_EQ(static_cast<float>(AsWritten(value)), value) << value;
  }
}

TEST(ExactNumber, ArgumentsHoldDoubles) {
  Argument argument;
  SetDouble(0.5, &argument);
  EXPECT_TRUE(argument.has_f());
  EXPECT_EQ(DoubleOf(argument), std::nullopt);
  SetDouble(0.1, &argument);
  EXPECT_FALSE(argument.has_f());
  EXPECT_EQ(DoubleOf(argument), 0.1);
  EXPECT_EQ(ParseArgument(argument).f, 0.1);
  SetDouble(2, &argument);
  EXPECT_FALSE(argument.has_t());
  EXPECT_EQ(ParseArgument(argument).f, 2);
}

TEST(ExactNumber, ShortDecimalsStayFloats) {
  Argument argument;
  SetWritten(0.1, &argument);
  EXPECT_EQ(argument.f(), 0.1f);
  EXPECT_FALSE(argument.has_t());
  SetWritten(1.0 / 3, &argument);
  EXPECT_EQ(DoubleOf(argument), 1.0 / 3);
}

TEST(ExactNumber, ListsHoldDoubles) {
  Argument argument;
  SetDoubles({0.5, 2}, &argument);
  EXPECT_EQ(argument.floats_size(), 2);
  EXPECT_TRUE(DoublesOf(argument).empty());
  SetDoubles({0.1, 2}, &argument);
  EXPECT_EQ(argument.floats_size(), 0);
  EXPECT_EQ(DoublesOf(argument), (std::vector<double>{0.1, 2}));
  EXPECT_EQ(ParseArgument(argument).strings, (std::vector<std::string>{"0.1", "2"}));
  SetWritten({0.1, 2}, &argument);
  EXPECT_FALSE(argument.has_t());
  EXPECT_EQ(argument.floats(0), 0.1f);
  SetWritten({0.1, 1.0 / 3}, &argument);
  EXPECT_EQ(DoublesOf(argument), (std::vector<double>{0.1, 1.0 / 3}));
}

TEST(ExactNumber, DecimalsAreNumbersAsAWhole) {
  EXPECT_EQ(NumberOfDecimal("-1e-3"), -1e-3);
  EXPECT_EQ(NumberOfDecimal("0.1x"), std::nullopt);
  EXPECT_EQ(NumberOfDecimal(""), std::nullopt);
  EXPECT_EQ(NumberOfDecimal("a"), std::nullopt);
}

TEST(ExactNumber, OtherTensorsAreNone) {
  Argument argument;
  argument.mutable_t()->set_data_type(TensorProto::DOUBLE);
  EXPECT_EQ(DoubleOf(argument), std::nullopt);
  argument.mutable_t()->add_double_data(1);
  argument.mutable_t()->add_double_data(2);
  EXPECT_EQ(DoubleOf(argument), std::nullopt);
  EXPECT_TRUE(ParseArgument(argument).empty());
}

}  // namespace
}  // namespace stepnet

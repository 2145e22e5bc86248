#include <cmath>
#include <limits>
#include <random>
#include <type_traits>

#include "op_test.h"
#include "stepnet/nets/gradient.h"

namespace stepnet {
namespace {

TEST(Cast, ConvertsAmongAllTypes) {
  const std::vector<Tensor> ones = {
      Tensor::Of<float>({2}, {0, 1}),
      Tensor::Of<double>({2}, {0, 1}),
      Tensor::Of<Float16>({2}, {ToFloat16(0), ToFloat16(1)}),
      Tensor::Of<BFloat16>({2}, {ToBFloat16(0), ToBFloat16(1)}),
      Tensor::Of<std::int8_t>({2}, {0, 1}),
      Tensor::Of<std::int16_t>({2}, {0, 1}),
      Tensor::Of<std::int32_t>({2}, {0, 1}),
      Tensor::Of<std::int64_t>({2}, {0, 1}),
      Tensor::Of<std::uint8_t>({2}, {0, 1}),
      Tensor::Of<std::uint16_t>({2}, {0, 1}),
      Tensor::Of<bool>({2}, {false, true}),
  };
  for (const Tensor& from : ones) {
    for (const Tensor& to : ones) {
      const Tensor got = OpTest("Cast").Arg("to", DTypeName(to.dtype())).Input("x", from).Run()[0];
      ASSERT_EQ(got.Description(), to.Description());
      EXPECT_EQ(std::string(static_cast<const char*>(got.raw()), got.size_bytes()),
                std::string(static_cast<const char*>(to.raw()), to.size_bytes()))
          << from.dtype() << " to " << to.dtype();
    }
  }
}

TEST(Cast, TakesNamesAndNumbers) {
  const Tensor x = Tensor::Of<float>({1}, {2});
  OpTest("Cast").Arg("to", "INT32").Input("x", x).GivesExactly(Tensor::Of<std::int32_t>({1}, {2}));
  OpTest("Cast").Arg("to", "byte").Input("x", x).GivesExactly(Tensor::Of<std::uint8_t>({1}, {2}));
  OpTest("Cast").Arg("to", 10).Input("x", x).GivesExactly(Tensor::Of<std::int64_t>({1}, {2}));
  OpTest("Cast").Arg("to", 1000).Input("x", x).Run()[0].data<BFloat16>();
}

TEST(Cast, HoldsNumbersWithinTheRange) {
  const float big = std::numeric_limits<float>::max();
  const Tensor x = Tensor::Of<float>({6}, {-1.9f, 2.9f, big, -big, std::nanf(""), 127.5f});
  const auto to = [&](const char* type) { return ToDoubles(OpTest("Cast").Arg("to", type).Input("x", x).Run()[0]); };
  EXPECT_EQ(to("int32"), (std::vector<double>{-1, 2, 2147483647, -2147483648.0, 0, 127}));
  EXPECT_EQ(to("int64"), (std::vector<double>{-1, 2, 0x1p63, -0x1p63, 0, 127}));
  EXPECT_EQ(to("uint8"), (std::vector<double>{0, 2, 255, 0, 0, 127}));
  EXPECT_EQ(to("bool"), (std::vector<double>{1, 1, 1, 1, 1, 1}));
  OpTest("Cast")
      .Arg("to", "uint8")
      .Input("x", Tensor::Of<std::int32_t>({2}, {257, -1}))
      .GivesExactly(Tensor::Of<std::uint8_t>({2}, {1, 255}));
}

// What C++ says of numbers that the type holds; the nearest one of others, and 0 of NaN.
template <typename To>
double Held(double x) {
  if constexpr (std::is_same_v<To, bool>) return x != 0 ? 1 : 0;
  if constexpr (std::is_floating_point_v<To>) return static_cast<double>(static_cast<To>(x));
  if (std::isnan(x)) return 0;
  const auto low = std::numeric_limits<To>::min(), high = std::numeric_limits<To>::max();
  if (x <= static_cast<double>(low)) return static_cast<double>(low);
  return x >= static_cast<double>(high) ? static_cast<double>(high) : static_cast<double>(static_cast<To>(x));
}

template <typename To>
void ExpectCasts(const Tensor& x) {
  const char* to = DTypeName(DTypeOfT<To>::value);
  const std::vector<double> values = ToDoubles(x);
  const Tensor like(DTypeOfT<To>::value, x.shape());
  const std::vector<double> cast = ToDoubles(OpTest("Cast").Arg("to", to).Input("x", x).Run()[0]);
  const std::vector<double> gradient = ToDoubles(OpTest("CastGradient").Input("dy", x).Input("x", like).Run()[0]);
  for (size_t i = 0; i < values.size(); ++i) {
    const double want = Held<To>(values[i]);
    for (const double got : {cast[i], gradient[i]}) {
      ASSERT_TRUE(std::isnan(want) ? std::isnan(got) : got == want)
          << values[i] << " in " << x.dtype() << " to " << to << ": " << got << ", not " << want;
    }
  }
}

TEST(Cast, GivesWhatCppSaysOfNumbersInTheRange) {
  std::vector<double> numbers = {0, -0.0, 0.5, -0.5, -0.99, 0x1p31, -0x1p31, 0x1p31 - 1, 0x1p63, -0x1p63, 0x1p24 + 1};
  std::mt19937_64 random(1);
  std::uniform_real_distribution<double> uniform(-1, 1);
  for (const double scale : {1.0, 1e3, 1e6, 1e10, 1e19, 1e30, 1e300}) {
    for (int i = 0; i < 60; ++i) numbers.push_back(uniform(random) * scale);
  }
  for (const double odd : {std::numeric_limits<double>::infinity(), std::nan("")}) {
    numbers.push_back(odd);
    numbers.push_back(-odd);
  }
  const Shape shape({static_cast<std::int64_t>(numbers.size())});
  const Tensor floats = Tensor::Of<float>(shape, std::vector<float>(numbers.begin(), numbers.end()));
  for (const Tensor& x : {floats, Tensor::Of<double>(shape, numbers)}) {
    ExpectCasts<float>(x);
    ExpectCasts<double>(x);
    ExpectCasts<std::int32_t>(x);
    ExpectCasts<std::int64_t>(x);
    ExpectCasts<bool>(x);
  }
}

// Beside the middle of 1 and the next number: by less than a float sees, the nearer one is taken all the same.
TEST(Cast, RoundsOnceTo16Bits) {
  const double of_half = 1 + 0x1p-11 + 0x1p-40, of_bfloat = 1 + 0x1p-8 + 0x1p-40;
  const Tensor doubles = Tensor::Of<double>({2}, {of_half, -of_bfloat});
  const auto cast = [](const char* to, const Tensor& x) { return OpTest("Cast").Arg("to", to).Input("x", x).Run()[0]; };
  EXPECT_EQ(ToFloat(cast("float16", doubles).data<Float16>()[0]), 1 + 0x1p-10f);
  EXPECT_EQ(ToFloat(cast("bfloat16", doubles).data<BFloat16>()[1]), -1 - 0x1p-7f);
  const Tensor whole = Tensor::Of<std::int64_t>({1}, {(std::int64_t{1} << 50) + (std::int64_t{1} << 42) + 1});
  EXPECT_EQ(ToFloat(cast("bfloat16", whole).data<BFloat16>()[0]), 0x1p50f + 0x1p43f);
  const Tensor shorter = Tensor::Of<std::int32_t>({1}, {(1 << 30) + (1 << 22) + 1});
  EXPECT_EQ(ToFloat(cast("bfloat16", shorter).data<BFloat16>()[0]), 0x1p30f + 0x1p23f);
}

TEST(Cast, AcceptsNoElements) {
  OpTest("Cast").Arg("to", "int32").Input("x", {0, 3}, {}).GivesExactly(Tensor::Zeros(DType::kInt32, {0, 3}));
}

TEST(Cast, GradientMatchesDifferences) {
  OpTest("Cast").Arg("to", "double").Random("x", {2, 3}, 1).GradientMatches();
  const auto gradients = [](const char* to, const char* from_type) {
    OperatorDef op;
    op.set_type("Cast");
    op.add_input("x");
    op.add_output("y");
    const std::vector<std::pair<std::string, std::string>> arguments = {{"to", to}, {"from_type", from_type}};
    for (const auto& [name, value] : arguments) {
      if (value.empty()) continue;
      Argument& argument = *op.add_arg();
      argument.set_name(name);
      argument.set_s(value);
    }
    return MakeGradient(op, {{.dense = "dy"}}).ops.size();
  };
  EXPECT_EQ(gradients("float", ""), 1);
  EXPECT_EQ(gradients("float", "double"), 1);
  EXPECT_EQ(gradients("float", "int32"), 0);
  EXPECT_EQ(gradients("int32", ""), 0);
}

TEST(Cast, GradientHasTheTypeOfTheInput) {
  OpTest("CastGradient")
      .Input("dy", Tensor::Of<float>({1}, {2}))
      .Input("x", Tensor::Of<double>({1}, {5}))
      .GivesExactly(Tensor::Of<double>({1}, {2}));
}

TEST(Cast, RefusesBadInput) {
  const auto cast = [] { return OpTest("Cast").Input("x", {1}, {1}); };
  ExpectError([&] { cast().Arg("to", "flaot").Run(); },
              "invalid net: Cast: to is \"flaot\", must name one of float, double, float16, bfloat16, int8, int16, "
              "int32, int64, uint8, uint16, bool\n"
              "  at op 0 `output0 = Cast(x)`\n"
              "  in net \"test\"");
  ExpectError([&] { cast().Arg("to", 4).Run(); }, "…invalid net: Cast: to is 4, must name one of float, ");
  ExpectError([&] { cast().Arg("to", 99).Run(); }, "…invalid net: to is 99, which is no dtype; ");
  ExpectError([&] { cast().Arg("to", 1.5f).Run(); }, "…Cast: to is 1.5, must name one of float, ");
  ExpectError([&] { cast().Run(); }, "…Cast needs the argument \"to\": ");
  ExpectError(
      [] { OpTest("Cast").Arg("to", "float").Input("x", Tensor::Of<std::string>({1}, {"1"})).Run(); },
      "…type mismatch: Cast works on float, double, float16, bfloat16, int8, int16, int32, int64, uint8, uint16 "
      "and bool; x is string [1]\n");
}

}  // namespace
}  // namespace stepnet

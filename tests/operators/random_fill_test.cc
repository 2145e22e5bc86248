#include <google/protobuf/text_format.h>

#include <algorithm>
#include <limits>
#include <numbers>

#include "op_test.h"
#include "stepnet/core/random.h"
#include "stepnet/core/run_context.h"
#include "stepnet/core/strings.h"
#include "stepnet/nets/net.h"

namespace stepnet {
namespace {

struct Moments {
  double mean;
  double deviation;
  double min;
  double max;
};

Moments MomentsOf(const Tensor& tensor) {
  const std::vector<double> values = ToDoubles(tensor);
  double sum = 0;
  double squares = 0;
  for (const double value : values) {
    sum += value;
    squares += value * value;
  }
  const double mean = sum / static_cast<double>(values.size());
  return {mean, std::sqrt(squares / static_cast<double>(values.size()) - mean * mean),
          *std::ranges::min_element(values), *std::ranges::max_element(values)};
}

// Numbers that depend on nothing but the seed, so that the bounds below hold always or never.
OpTest Fill(const char* type) { return OpTest(type).Ints("shape", {100, 101}).Seed(1); }

TEST(UniformFill, FillsItsRangeEvenly) {
  for (const int dtype : {1, 13}) {
    const Moments m = MomentsOf(Fill("UniformFill").Arg("min", -1.0f).Arg("max", 3.0f).Arg("dtype", dtype).Run()[0]);
    EXPECT_NEAR(m.mean, 1, 0.05);
    EXPECT_NEAR(m.deviation, 4 / std::sqrt(12), 0.02);
    EXPECT_GE(m.min, -1);
    EXPECT_LE(m.max, 3);
    EXPECT_LT(m.min, -0.99);
    EXPECT_GT(m.max, 2.99);
  }
}

TEST(UniformIntFill, GivesEachNumberAsOften) {
  const Tensor tensor = Fill("UniformIntFill").Arg("min", -2).Arg("max", 2).Run()[0];
  const std::vector<double> values = ToDoubles(tensor);
  for (int number = -2; number <= 2; ++number) EXPECT_NEAR(std::ranges::count(values, number), 10100 / 5, 120);
  EXPECT_EQ(tensor.dtype(), DType::kInt32);
  const Moments widest = MomentsOf(Fill("UniformIntFill").Arg("min", INT32_MIN).Arg("max", INT32_MAX).Run()[0]);
  EXPECT_LT(widest.min, -0x1p30);
  EXPECT_GT(widest.max, 0x1p30);
}

TEST(GaussianFill, HasItsMeanAndDeviation) {
  const Tensor tensor = Fill("GaussianFill").Arg("mean", 2.0f).Arg("std", 0.5f).Run()[0];
  const Moments m = MomentsOf(tensor);
  EXPECT_NEAR(m.mean, 2, 0.02);
  EXPECT_NEAR(m.deviation, 0.5, 0.02);
  const std::vector<double> values = ToDoubles(tensor);
  const auto within = [&](double reach) {
    return static_cast<double>(std::ranges::count_if(values, [&](double v) { return std::abs(v - 2) < reach; })) /
           10100;
  };
  EXPECT_NEAR(within(0.5), 0.6827, 0.02);
  EXPECT_NEAR(within(1.0), 0.9545, 0.01);
  Fill("GaussianFill").Arg("mean", 2.0f).Arg("std", 0.0f).Gives({100, 101}, std::vector<double>(10100, 2));
}

TEST(XavierFill, ScalesByTheFanIn) {
  const Moments m = MomentsOf(Fill("XavierFill").Run()[0]);
  const double scale = std::sqrt(3.0 / 101);
  EXPECT_NEAR(m.deviation, scale / std::sqrt(3), 0.002);
  EXPECT_LE(m.max, scale);
  EXPECT_GE(m.min, -scale);
}

TEST(MSRAFill, ScalesByTheFanOut) {
  EXPECT_NEAR(MomentsOf(Fill("MSRAFill").Run()[0]).deviation, std::sqrt(2.0 / 100), 0.002);
}

constexpr std::int64_t kElements = 1003;

// What the fill gives that an operator of this text is, and the words that its stream has.
struct Filled {
  explicit Filled(const std::string& text) {
    OperatorDef def;
    EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(
        StrCat(text, " output: 'y' arg { name: 'shape' ints: ", kElements, " }"), &def));
    const OperatorCall call(def);
    const TensorInfo info = call.schema().shapes(ShapeQuery(call, {}))[0];
    const Tensor y(info.dtype, info.shape);
    RunContext context;
    const std::vector<TensorView> outputs = {y.View()};
    call.schema().FindKernel(DeviceKind::kCpu)->make(call)(OpRun({}, outputs, context));
    values = ToDoubles(y);
    const RandomStream stream(call.seed(), call.random_id(), context.RunNumber(), /*step=*/0);
    for (std::int64_t i = 0; i < kElements + 1; ++i) words.push_back(stream.Word(static_cast<std::uint64_t>(i)));
  }
  std::vector<double> values;
  std::vector<std::uint32_t> words;
};

TEST(UniformFill, TakesTheWordsOfItsStream) {
  const Filled filled("type: 'UniformFill' arg { name: 'min' f: -0.25 } arg { name: 'max' f: 3 }");
  for (size_t i = 0; i < kElements; ++i) {
    ASSERT_EQ(filled.values[i], static_cast<float>(-0.25 + 3.25 * (filled.words[i] * 0x1p-32))) << i;
  }
}

TEST(UniformIntFill, TakesTheUpperHalfOfWordTimesCount) {
  const std::pair<std::int64_t, std::int64_t> ranges[] = {
      {-5, 1'000'000'000}, {INT32_MIN, INT32_MAX}, {3, 3}, {-7, INT32_MAX}, {INT32_MIN, 12345}};
  for (const auto& [low, high] : ranges) {
    const Filled filled(
        StrCat("type: 'UniformIntFill' arg { name: 'min' i: ", low, " } arg { name: 'max' i: ", high, " }"));
    for (size_t i = 0; i < kElements; ++i) {
      const auto count = static_cast<std::uint64_t>(high - low + 1);
      ASSERT_EQ(filled.values[i], static_cast<double>(low + static_cast<std::int64_t>(filled.words[i] * count >> 32)))
          << i << " of " << low << " to " << high;
    }
  }
}

TEST(GaussianFill, TurnsTwoWordsIntoTwoNumbers) {
  for (const bool is_double : {false, true}) {
    const Filled filled(StrCat("type: 'GaussianFill' arg { name: 'mean' f: 0.5 } arg { name: 'std' f: 2 } ",
                               "arg { name: 'dtype' i: ", is_double ? 13 : 1, " }"));
    for (size_t i = 0; i < kElements; ++i) {
      const size_t pair = i - i % 2;
      const long double radius = std::sqrt(-2 * std::log((filled.words[pair] + 1.0L) * 0x1p-32L));
      const long double angle = 2 * std::numbers::pi_v<long double> * (filled.words[pair + 1] * 0x1p-32L);
      const long double expected = 0.5L + 2 * radius * (i % 2 == 0 ? std::cos(angle) : std::sin(angle));
      ASSERT_NEAR(filled.values[i], static_cast<double>(expected), is_double ? 4e-15 : 1e-6) << i;
    }
  }
}

// The input has one shape, whatever it says.
TEST(RandomFill, HasTheShapeThatAnInputSaysInEachRun) {
  NetDef net;
  ASSERT_TRUE(google::protobuf::TextFormat::ParseFromString(
      "op { type: 'UniformFill' input: 'sizes' output: 'y' arg { name: 'input_as_shape' i: 1 } "
      "arg { name: 'min' f: 1 } arg { name: 'max' f: 2 } }",
      &net));
  Workspace workspace;
  Blob& sizes = workspace.CreateBlob("sizes");
  sizes.SetTensor(Tensor::Of<std::int64_t>({2}, {1, 5}));
  const auto running = Net::Create(net, workspace, {.seed = 5});
  for (const std::int64_t rows : {3, 700, 2}) {
    sizes.SetTensor(Tensor::Of<std::int64_t>({2}, {rows, 5}));
    running->Run();
    const Tensor& y = workspace.GetTensor("y");
    EXPECT_EQ(y.shape(), Shape({rows, 5}));
    for (const double value : ToDoubles(y)) EXPECT_TRUE(value >= 1 && value <= 2) << value;
  }
}

TEST(RandomFill, IsAFunctionOfSeedOperatorAndRun) {
  const auto values = [](unsigned seed) {
    return ToDoubles(OpTest("UniformFill").Ints("shape", {8}).Seed(seed).Run()[0]);
  };
  EXPECT_EQ(values(1), values(1));
  EXPECT_NE(values(1), values(2));

  NetDef net;
  for (const char* output : {"a", "b"}) {
    OperatorDef& op = *net.add_op();
    op.set_type("UniformFill");
    op.add_output(output);
    op.add_arg()->set_name("shape");
    op.mutable_arg(0)->add_ints(8);
  }
  Workspace workspace;
  const auto running = Net::Create(net, workspace, {.seed = 5});
  running->Run();
  const std::vector<double> first = ToDoubles(workspace.GetTensor("a"));
  EXPECT_NE(first, ToDoubles(workspace.GetTensor("b")));
  running->Run();
  EXPECT_NE(first, ToDoubles(workspace.GetTensor("a")));
  running->SetRunCounter(0);
  running->Run();
  EXPECT_EQ(first, ToDoubles(workspace.GetTensor("a")));
}

TEST(RandomFill, TakesShapeAndDTypeOfItsInput) {
  EXPECT_EQ(OpTest("GaussianFill").Random("x", {2, 3}, 1).Run(DType::kDouble)[0].Description(), "double [2, 3]");
  EXPECT_EQ(OpTest("UniformFill").Random("x", {2, 3}, 1).Run()[0].Description(), "float [2, 3]");
}

TEST(RandomFill, AcceptsNoElements) {
  for (const char* type : {"XavierFill", "MSRAFill", "GaussianFill", "UniformFill", "UniformIntFill"}) {
    EXPECT_EQ(OpTest(type).Ints("shape", {0, 0}).Run()[0].shape(), Shape({0, 0})) << type;
  }
}

TEST(RandomFill, RefusesBadArguments) {
  ExpectError([] { Fill("UniformFill").Arg("min", 2.0f).Run(); },
              "invalid net: UniformFill: min is 2, must not exceed max, 1\n"
              "  at op 0 `output0 = UniformFill()`\n"
              "  in net \"test\"");
  ExpectError([] { Fill("UniformFill").Arg("max", std::numeric_limits<float>::infinity()).Run(); },
              "…UniformFill: min is 0, must be finite, as max, inf");
  ExpectError([] { Fill("UniformIntFill").Arg("min", 2).Run(); }, "…UniformIntFill: min is 2, must not exceed max, 1");
  ExpectError([] { Fill("GaussianFill").Arg("std", -1.0f).Run(); }, "…GaussianFill: std is -1, must be at least 0");
  ExpectError([] { Fill("GaussianFill").Arg("dtype", 2).Run(); }, "…GaussianFill makes float or double, not int32");
  ExpectError([] { OpTest("XavierFill").Run(); }, "…XavierFill needs a shape of at least 1 dimensions, has []");
  ExpectError([] { OpTest("MSRAFill").Ints("shape", {3}).Run(); },
              "…MSRAFill needs a shape of at least 2 dimensions, has [3]");
}

}  // namespace
}  // namespace stepnet

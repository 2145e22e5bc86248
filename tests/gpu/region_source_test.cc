#include "stepnet/gpu/region_source.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>
#include <vector>

#include "joined_regions.h"
#include "region_runner.h"
#include "stepnet/core/error.h"
#include "stepnet/core/formulas/formula_sample.h"
#include "stepnet/core/operator.h"
#include "stepnet/core/strings.h"
#include "stepnet/tests/core/expressions/random_exprs.h"
#include "stepnet/tests/core/regions/random_region.h"

namespace stepnet {
namespace {

const Expr x = Expr::Input(0, "x", DType::kFloat);

// A region over dense [rows, columns] operands of float.
struct Dense {
  std::int64_t rows = 1;
  std::int64_t columns = 1;

  RegionOperand Elements(DType dtype = DType::kFloat) const {
    return {.dtype = dtype, .size = rows * columns, .strides = {0, 0, std::max<std::int64_t>(columns, 1), 1}};
  }
  RegionOperand Rows() const { return {.dtype = DType::kFloat, .size = rows, .strides = {0, 0, 1, 0}}; }
  RegionOperand Columns() const { return {.dtype = DType::kFloat, .size = columns, .strides = {0, 0, 0, 1}}; }
  RegionIndex Sizes() const { return {1, 1, rows, columns}; }
};

// A sample, which has a million elements, with rows enough for sums that are added in tiles.
Region WithFewerRows(Region region) {
  constexpr std::int64_t kRows = 67;
  const auto shrink = [](std::int64_t* count) {
    if (*count % kSampleRows == 0) *count = *count / kSampleRows * kRows;
  };
  const auto shrink_operand = [&](RegionOperand* operand) {
    shrink(&operand->size);
    for (std::int64_t& stride : operand->strides) shrink(&stride);
  };
  for (std::int64_t& size : region.sizes) shrink(&size);
  for (RegionOperand& input : region.inputs) shrink_operand(&input);
  for (RegionOutput& output : region.outputs) shrink_operand(&output.memory);
  CheckRegion(region);
  return region;
}

PrintedRegion Printed(const Region& region, const RegionSourceOptions& options) {
  CheckRegion(region);
  return {.region = region, .source = PrintRegion(region, options)};
}

class RegionSourceOnHost : public ::testing::Test {
 protected:
  void SetUp() override {
    if (const std::string why = HostRegionRunner::WhyNot(); !why.empty()) GTEST_SKIP() << why;
  }
  void ExpectLikeDefinition(const std::vector<Region>& regions, const RegionSourceOptions& options = {}) {
    EXPECT_EQ(FirstDifference(PrintedOf(regions, options), runner_), "");
  }
  static std::vector<Region> RandomRegions(unsigned first_seed, int count, const RandomRegionOptions& options) {
    std::vector<Region> regions;
    for (int i = 0; i < count; ++i) {
      std::mt19937 random(first_seed + static_cast<unsigned>(i));
      regions.push_back(RandomRegion(options, random));
    }
    return regions;
  }

  HostRegionRunner runner_;
};

TEST(RegionSource, PrintsSizesAsParameters) {
  const auto text_of = [](std::int64_t rows, std::int64_t columns) {
    const Dense dense{.rows = rows, .columns = columns};
    const Expr bias = Expr::Input(1, "b", DType::kFloat);
    const Region region{.sizes = dense.Sizes(),
                        .inputs = {dense.Elements(), dense.Columns()},
                        .outputs = {{.value = Tanh(x + bias) * 3, .memory = dense.Elements()}}};
    return PrintRegion(region, {.name = "AddBias"}).kernels;
  };
  EXPECT_EQ(text_of(2, 3), R"(struct AddBias_elements_parameters {
  const float* in0;
  const float* in1;
  float* out0;
  unsigned char* scratch;
  DeviceFault* fault;
  FaultSite site;
  const DeviceFault* stop;
  long long elements;
  Word<float> c4;
  long long n3;
  Divisor d3;
};
extern "C" __global__ void __launch_bounds__(256) AddBias_elements(const AddBias_elements_parameters p) {
  typedef int Index;
  WaitForKernelsBefore();
  if (IsStopped(p.stop)) return;
  const Index e = static_cast<Index>(blockIdx.x) * 256 + static_cast<Index>(threadIdx.x);
  if (e >= Index(p.elements)) return;
  const Index q3 = Quotient(e, p.d3);
  const Index i3 = e - q3 * Index(p.n3);
  const float v0 = p.in0[e];
  const float v1 = p.in1[i3];
  const float v2 = Add(v0, v1);
  const float v3 = Tanh(v2);
  const float v5 = Multiply(v3, p.c4.value);
  p.out0[e] = v5;
}
)");
  EXPECT_EQ(text_of(2, 3), text_of(640, 1 << 20));
  EXPECT_NE(text_of(2, 3), text_of(1 << 20, 1 << 20)) << "indices of 32 and of 64 bits";
}

TEST_F(RegionSourceOnHost, ComputesWhatIsDefined) { ExpectLikeDefinition(RandomRegions(0, 450, {})); }

TEST_F(RegionSourceOnHost, ComputesWhatIsDefinedWithWideIndices) {
  ExpectLikeDefinition(RandomRegions(1000, 60, {}), {.is_always_wide = true});
}

TEST_F(RegionSourceOnHost, ComputesUsualExpressions) {
  ExpectLikeDefinition(RandomRegions(2000, 200, {.steps = 8, .only_usual = true}));
}

TEST_F(RegionSourceOnHost, ComputesLargeExpressions) { ExpectLikeDefinition(RandomRegions(3000, 10, {.steps = 200})); }

TEST_F(RegionSourceOnHost, ComputesEveryFormula) {
  std::vector<PrintedRegion> printed;
  for (const std::string& type : OperatorTypes()) {
    if (type.starts_with("test.")) continue;  // of other tests
    const std::optional<FormulaRegion> formula = SampleFormula(GetOperator(type));
    if (!formula) continue;
    Region region = WithFewerRows(formula->region);
    EXPECT_LE(region.NumElements(), 67 * kSampleColumns) << type;
    RegionSource source = PrintRegion(region, SourceOptionsOf(*formula, type));
    printed.push_back({.region = std::move(region), .source = std::move(source)});
  }
  EXPECT_GT(printed.size(), 60u);
  EXPECT_EQ(FirstDifference(printed, runner_), "");
}

TEST_F(RegionSourceOnHost, ConvertsEveryStoredNumber) { EXPECT_EQ(FirstWrongConversion(runner_), ""); }

TEST_F(RegionSourceOnHost, ComputesEveryPrimitive) {
  const std::vector<Region> regions = PrimitiveRegions();
  EXPECT_GT(regions.size(), 130u);
  ExpectLikeDefinition(regions);
}

// Rows of all lengths around those of a warp, of its partial sums and of what a block computes at once; in place.
TEST_F(RegionSourceOnHost, ComputesSoftmaxOfShortAndLongRows) {
  const Expr e = Exp(x - RowMax(x));
  std::vector<Region> regions;
  const auto add = [&](std::int64_t rows, std::int64_t columns) {
    const Dense dense{.rows = rows, .columns = columns};
    regions.push_back({.sizes = dense.Sizes(),
                       .inputs = {dense.Elements()},
                       .outputs = {{.value = e / RowSum(e), .memory = dense.Elements()},
                                   {.value = RowSum(e), .memory = dense.Rows(), .kind = RegionOutputKind::kRows}},
                       .in_place = {{.input = 0, .output = 0}}});
  };
  for (const std::int64_t columns : {0,   1,   2,   31,   32,   33,   63,   64,   65,   127,  128,  129,
                                     256, 257, 511, 1000, 1023, 1024, 1025, 1279, 2048, 2500, 4096, 4097}) {
    add(/*rows=*/5, columns);
  }
  // More rows have blocks of fewer threads.
  for (const std::int64_t columns : {256, 257, 1100, 2048, 2049}) add(/*rows=*/130, columns);
  ExpectLikeDefinition(regions);
}

// More reductions of long rows than a block has room for at once, also by blocks of fewer threads.
TEST_F(RegionSourceOnHost, ReducesLongRowsInSeveralWays) {
  std::vector<Region> regions;
  for (const DType dtype : {DType::kFloat, DType::kDouble, DType::kInt32}) {
    for (const auto& [rows, columns] : {std::pair(3, 257), {3, 1500}, {3, 4096}, {130, 2047}}) {
      const Dense dense{.rows = rows, .columns = columns};
      const Expr a = Expr::Input(0, "a", dtype), b = Expr::Input(1, "b", dtype);
      regions.push_back({.sizes = dense.Sizes(),
                         .inputs = {dense.Elements(dtype), dense.Elements(dtype)},
                         .outputs = {{.value = a * RowSum(b) - b * RowSum(a) + RowSum(a * b) * RowMax(b),
                                      .memory = dense.Elements(dtype)}}});
    }
  }
  ExpectLikeDefinition(regions);
}

// Reductions and what is written read the same elements: from registers, while a thread has few.
TEST(RegionSource, ReadsAndComputesElementsOfRowsOnce) {
  const Expr e = Exp(x - RowMax(x));
  const auto text_of = [&](std::int64_t columns) {
    const Dense dense{.rows = 5, .columns = columns};
    const Region region{.sizes = dense.Sizes(),
                        .inputs = {dense.Elements()},
                        .outputs = {{.value = e / RowSum(e), .memory = dense.Elements()}}};
    return PrintRegion(region, {.name = "Softmax"}).kernels;
  };
  const auto count = [](const std::string& text, const std::string& what) {
    int found = 0;
    for (size_t at = text.find(what); at != std::string::npos; at = text.find(what, at + 1)) ++found;
    return found;
  };
  for (const std::int64_t columns : {1, 256, 4096}) {
    EXPECT_EQ(count(text_of(columns), "p.in0["), 1) << columns << "\n" << text_of(columns);
    EXPECT_EQ(count(text_of(columns), "Exp("), 1) << columns;
  }
  EXPECT_EQ(count(text_of(4097), "p.in0["), 3) << "too many for registers";
}

// All of a row that the first reduction needs is on its way before the rest, which arrives while that goes on.
TEST(RegionSource, ReadsFirstWhatTheFirstReductionNeeds) {
  const Dense dense{.rows = 5, .columns = 1000};
  const Expr gain = Expr::Input(1, "gain", DType::kFloat);
  const Region region{.sizes = dense.Sizes(),
                      .inputs = {dense.Elements(), dense.Columns()},
                      .outputs = {{.value = gain * (x - RowSum(x) / 1000), .memory = dense.Elements()}}};
  const std::string text = PrintRegion(region, {.name = "Centre"}).kernels;
  const size_t first = text.find("p.in0["), later = text.find("p.in1["), loop = text.find("for (int j", first);
  ASSERT_NE(first, std::string::npos) << text;
  EXPECT_LT(loop, later) << text;
}

// Sums over rows of what a whole row says: through scratch memory, before what is in place is written, or after.
TEST_F(RegionSourceOnHost, SumsOverRowsWhatWholeRowsSay) {
  std::vector<Region> regions;
  const Expr dy = Expr::Input(1, "dy", DType::kFloat);
  for (const std::int64_t rows : {0, 1, 7, 40, 63, 64, 65, 130}) {
    for (const std::int64_t columns : {0, 1, 5, 70, 1100}) {
      if (rows * columns > 50'000) continue;
      for (const bool is_in_place : {false, true}) {
        const Dense dense{.rows = rows, .columns = columns};
        const Expr centred = x - RowSum(x) / 7;
        const Expr scaled = centred / Sqrt(RowSum(centred * centred) + 1);
        Region region{.sizes = dense.Sizes(), .inputs = {dense.Elements(), dense.Elements()}};
        region.outputs = {{.value = scaled * dy - RowMax(dy), .memory = dense.Elements()},
                          {.value = dy * scaled, .memory = dense.Columns(), .kind = RegionOutputKind::kSums},
                          {.value = dy, .memory = dense.Columns(), .kind = RegionOutputKind::kSums, .adds = true},
                          {.value = RowMax(dy), .memory = dense.Rows(), .kind = RegionOutputKind::kRows}};
        if (is_in_place) region.in_place = {{.input = 1, .output = 0}};
        regions.push_back(region);
      }
    }
  }
  ExpectLikeDefinition(regions);
}

// Sums of many terms, which a block adds in tiles: over two dimensions that are apart, of whole numbers, of doubles
// that are added to, of two outputs at once, and of so many that tiles do not fit.
TEST_F(RegionSourceOnHost, JoinedRegionsGiveWhatTheyGiveOneAfterTheOther) { EXPECT_EQ(FirstWrongJoined(runner_), ""); }

TEST_F(RegionSourceOnHost, SumsManyTerms) {
  std::vector<Region> regions;
  for (const std::int64_t rows : {64, 127, 128, 200}) {
    for (const std::int64_t kept : {1, 31, 33, 64}) {
      for (const DType dtype : {DType::kFloat, DType::kDouble, DType::kInt64}) {
        const std::int64_t size = 3 * kept * rows * 2;
        const RegionOperand all{.dtype = dtype, .size = size, .strides = {kept * rows * 2, rows * 2, 2, 1}};
        const RegionOperand sums{.dtype = dtype, .size = kept * 2, .strides = {0, 2, 0, 1}};
        const Expr y = Expr::Input(0, "y", dtype);
        Region region{.sizes = {3, kept, rows, 2}, .inputs = {all}};
        const int num_outputs = rows == 200 ? 7 : 2;
        for (int o = 0; o < num_outputs; ++o) {
          region.outputs.push_back(
              {.value = o == 0 ? y : y * y, .memory = sums, .kind = RegionOutputKind::kSums, .adds = o % 2 == 0});
        }
        regions.push_back(region);
      }
    }
  }
  ExpectLikeDefinition(regions);
}

// What fills a tile behind the last term is no 0, which would make -0 a 0.
TEST_F(RegionSourceOnHost, SumsOfNegativeZerosAreNegative) {
  constexpr int kTerms = 100, kSums = 3;
  const RegionOperand terms{.dtype = DType::kFloat, .size = kTerms * kSums, .strides = {0, 0, kSums, 1}};
  const RegionOperand sums{.dtype = DType::kFloat, .size = kSums, .strides = {0, 0, 0, 1}};
  const Region region{.sizes = {1, 1, kTerms, kSums},
                      .inputs = {terms},
                      .outputs = {{.value = x, .memory = sums, .kind = RegionOutputKind::kSums, .adds = true}}};
  const std::vector<PrintedRegion> printed = {Printed(region, {.name = "zeros"})};
  runner_.Compile(printed);
  const std::vector<float> in(kTerms * kSums, -0.0f);
  std::vector<float> out(kSums, -0.0f);
  const void* inputs[] = {in.data()};
  void* outputs[] = {out.data()};
  runner_.Run(printed[0], inputs, outputs, nullptr);
  for (const float sum : out) EXPECT_TRUE(sum == 0 && std::signbit(sum)) << sum;
}

TEST(RegionSource, TypesOfOperatorsMayHaveDots) {
  const Dense dense{.rows = 2, .columns = 3};
  const Region region{.sizes = dense.Sizes(),
                      .inputs = {dense.Elements()},
                      .outputs = {{.value = Tanh(x), .memory = dense.Elements()}}};
  const RegionSource source = PrintRegion(region, {.name = "acme.Clip-2"});
  EXPECT_EQ(source.launches.at(0).kernel, "acme_Clip_2_elements");
  EXPECT_NE(source.kernels.find("struct acme_Clip_2_elements_parameters {"), std::string::npos);
}

TEST_F(RegionSourceOnHost, NotesTheFirstFault) {
  const Dense dense{.rows = 300, .columns = 5};
  Region region{
      .sizes = dense.Sizes(),
      .inputs = {dense.Elements()},
      .outputs = {{.value = x, .memory = dense.Elements()}},
      .requirements = {Require(x < 1000, "{} is not below {}", x, Index(2)), Require(x >= 0, "{} is below 0", x)}};
  const std::vector<PrintedRegion> printed = {Printed(region, {.name = "check"})};
  runner_.Compile(printed);
  std::vector<float> in(1500, 1), out(1500);
  for (const int bad : {7, 1203, 404}) in[bad] = bad == 404 ? 2000 : -2;
  const void* inputs[] = {in.data()};
  void* outputs[] = {out.data()};
  DeviceFault record;
  runner_.Run(printed[0], inputs, outputs, &record);
  ASSERT_TRUE(record.any());
  EXPECT_EQ(PlaceOf(record), (FaultPlace{.step = kStepOfTests, .op = kInstructionOfTests, .element = 7}));
  EXPECT_EQ(FaultOf(record).error.message(), "-2 is below 0");
  EXPECT_EQ(record.lock, 0u);
  EXPECT_EQ(out, in) << "the kernel goes on";

  record = {};
  in[7] = 1;
  runner_.Run(printed[0], inputs, outputs, &record);
  EXPECT_EQ(FaultOf(record).error.message(), "2000 is not below 80");
  runner_.Run(printed[0], inputs, outputs, nullptr);  // nobody asks
}

// As the formula of an operator has it, whose author said nothing of 0.
TEST_F(RegionSourceOnHost, NotesTheFirstDivisionByZero) {
  constexpr std::int64_t kCount = 3000;
  constexpr std::int32_t kLowest = std::numeric_limits<std::int32_t>::min();
  OperatorDef def;
  def.set_type("Div");
  for (const char* input : {"a", "b"}) def.add_input(input);
  def.add_output("c");
  const OperatorCall call(def);
  const std::vector<TensorInfo> infos(2, {.dtype = DType::kInt32, .shape = Shape({kCount})});
  const FormulaRegion formula = MakeFormulaRegion(ShapeQuery(call, infos));
  const std::vector<PrintedRegion> printed = {Printed(formula.region, {.name = "quotient"})};
  runner_.Compile(printed);
  std::vector<std::int32_t> a(kCount, 7), b(kCount, -1), c(kCount);
  a[3] = kLowest;
  for (const int bad : {2999, 1203, 1404}) b[bad] = 0;
  a[1203] = 77;
  const void* inputs[] = {a.data(), b.data()};
  void* outputs[] = {c.data()};
  DeviceFault record;
  runner_.Run(printed[0], inputs, outputs, &record);
  ASSERT_TRUE(record.any());
  EXPECT_EQ(PlaceOf(record), (FaultPlace{.step = kStepOfTests, .op = kInstructionOfTests, .element = 1203}));
  EXPECT_EQ(FaultOf(record).error.message(),
            "Div of the integer 77 by 0 for element {element} of the output, in a / b");
  EXPECT_EQ(c[3], kLowest) << "by -1";
  EXPECT_EQ(c[4], -7);
  EXPECT_EQ(c[1203], 0);
}

TEST_F(RegionSourceOnHost, TakesValuesWithTheLaunch) {
  const Expr seed = Expr::Input(0, "seed", DType::kInt64), run = Expr::Input(1, "run", DType::kInt64);
  const RegionOperand scalar{.dtype = DType::kInt64, .size = 1};
  const Region region{.sizes = {1, 1, 1, 100},
                      .inputs = {scalar, scalar},
                      .outputs = {{.value = Uniform(DType::kFloat, seed, 5, run, 2, Index(3)),
                                   .memory = {.dtype = DType::kFloat, .size = 100, .strides = {0, 0, 0, 1}}}}};
  const std::vector<PrintedRegion> printed = {Printed(region, {.name = "draw", .values = {0}})};
  EXPECT_NE(printed[0].source.kernels.find("long long in0;\n  const long long* in1;"), std::string::npos);
  EXPECT_EQ(FirstDifference(printed, runner_), "");
}

TEST(RegionSource, ReadsTheRunFromMemory) {
  FormulaRegion formula;
  formula.inputs = {kStepOfRun, 0, kSeedOfRun, kNumberOfRun, kOperatorOfRun};
  const RegionSourceOptions options = SourceOptionsOf(formula, "my.cell/2é");
  EXPECT_EQ(options.name, "my.cell/2é");
  EXPECT_EQ(options.values, (std::vector<int>{2, 4})) << "step and run change between replays";
}

TEST(RegionSource, RefusesValuesThatAreNone) {
  const Dense dense{.rows = 2, .columns = 2};
  const Region region{
      .sizes = dense.Sizes(), .inputs = {dense.Elements()}, .outputs = {{.value = x, .memory = dense.Elements()}}};
  EXPECT_THROW(PrintRegion(region, {.values = {0}}), Error);
}

}  // namespace
}  // namespace stepnet

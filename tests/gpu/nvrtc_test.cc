#include "stepnet/gpu/nvrtc.h"

#include <gtest/gtest.h>

#include "no_device_compiler.h"
#include "region_runner.h"
#include "stepnet/core/formulas/formula_sample.h"
#include "stepnet/core/operator.h"
#include "stepnet/core/strings.h"
#include "stepnet/gpu/region_source.h"
#include "stepnet/tests/core/error_of.h"
#include "stepnet/tests/core/regions/random_region.h"

namespace stepnet {
namespace {

constexpr const char* kArchitectures[] = {"sm_80", "sm_90a"};

class Nvrtc : public ::testing::Test {
 protected:
  void SetUp() override {
    if (const std::string why = WhyNoDeviceCompilerHere(); !why.empty()) GTEST_SKIP() << why;
  }
};

TEST_F(Nvrtc, TellsWhatAKernelTakes) {
  const DeviceCode code = CompileDeviceCode(R"(
      extern "C" __global__ void twice(float* x) { x[threadIdx.x] *= 2; }
      extern "C" __global__ void power(double* x) { x[threadIdx.x] = pow(x[threadIdx.x], 1.5); })",
                                            "sm_80");
  EXPECT_TRUE(
      code.cubin.starts_with("\x7f"
                             "ELF"));
  const std::vector<KernelResources> resources = ResourcesIn(code.log);
  ASSERT_EQ(resources.size(), 2u);
  for (const KernelResources& kernel : resources) {
    EXPECT_TRUE(kernel.kernel == "twice" || kernel.kernel == "power") << kernel.kernel;
    EXPECT_GT(kernel.registers, 1);
    EXPECT_EQ(kernel.spill_bytes, 0);
  }
  EXPECT_EQ(WarningsIn(code.log), "");
}

TEST_F(Nvrtc, ShowsLogAndSource) {
  const std::string error = ErrorOf([] { CompileDeviceCode("int a;\nerror here;\n", "sm_80"); });
  EXPECT_NE(error.find("NVRTC does not compile kernels for sm_80"), std::string::npos) << error;
  EXPECT_NE(error.find("kernels.cu(2)"), std::string::npos) << error;
  EXPECT_NE(error.find("2: error here;"), std::string::npos) << error;
  EXPECT_NE(ErrorOf([] { CompileDeviceCode("", "sm_1"); }), "no error");
}

TEST_F(Nvrtc, TellsSpillsAndWarnings) {
  const DeviceCode code = CompileDeviceCode(R"(
      extern "C" __global__ void __launch_bounds__(1024) spills(float* x, int n) {
        float v[100];
        for (int i = 0; i < 100; ++i) v[i] = x[i * 1024 + threadIdx.x];
        for (int k = 0; k < n; ++k) for (int i = 0; i < 100; ++i) v[i] = v[i] * v[(i + 1) % 100] + v[(i + 7) % 100];
        for (int i = 0; i < 100; ++i) x[i * 1024 + threadIdx.x] = v[i];
        int unused = 3;
      })",
                                            "sm_80");
  ASSERT_EQ(ResourcesIn(code.log).size(), 1u);
  EXPECT_GT(ResourcesIn(code.log)[0].spill_bytes, 0) << code.log;
  EXPECT_NE(WarningsIn(code.log).find("unused"), std::string::npos) << code.log;
}

// The kernels of all operators that have a formula, for inputs of few elements and of shapes that fit.
TEST_F(Nvrtc, CompilesEveryFormulaWithoutWarningOrSpill) {
  std::string kernels;
  int operators = 0, of_whole_numbers = 0;
  for (const std::string& type : OperatorTypes()) {
    if (type.starts_with("test.")) continue;  // of other tests
    const OperatorSchema& schema = GetOperator(type);
    const std::optional<FormulaRegion> formula = SampleFormula(schema);
    if (!formula) continue;
    const RegionSource source = PrintRegion(formula->region, SourceOptionsOf(*formula, type));
    EXPECT_FALSE(source.launches.empty()) << type;
    kernels += source.kernels;
    ++operators;
    if (!MayDivideByZero(schema)) continue;  // which of whole numbers is another kernel
    const std::optional<SampledFormula> of_wholes = SampleFormula(schema, {.dtype = DType::kInt64});
    if (!of_wholes || !of_wholes->is_ruled) continue;
    kernels += PrintRegion(of_wholes->region, SourceOptionsOf(*of_wholes, type + "OfWholes")).kernels;
    ++of_whole_numbers;
  }
  EXPECT_GT(operators, 60);
  EXPECT_GT(of_whole_numbers, 0);
  const std::string text = StrCat(DeviceCodeText(), "\nusing namespace stepnet::device;\n", kernels);
  for (const char* architecture : kArchitectures) {
    const DeviceCode code = CompileDeviceCode(text, architecture);
    EXPECT_EQ(WarningsIn(code.log), "");
    const std::vector<KernelResources> resources = ResourcesIn(code.log);
    EXPECT_GE(resources.size(), static_cast<size_t>(operators));
    for (const KernelResources& kernel : resources) {
      EXPECT_EQ(kernel.spill_bytes, 0) << kernel.kernel << " for " << architecture;
    }
  }
}

TEST_F(Nvrtc, CompilesRandomRegionsAndPrimitivesWithoutWarningOrSpill) {
  std::string text = StrCat(DeviceCodeText(), "\nusing namespace stepnet::device;\n");
  for (unsigned seed = 0; seed < 40; ++seed) {
    std::mt19937 random(seed);
    const Region region = RandomRegion({}, random);
    text += PrintRegion(region, {.name = StrCat("random", seed), .is_always_wide = seed % 4 == 0}).kernels;
  }
  for (const PrintedRegion& printed : PrintedOf(PrimitiveRegions())) {
    text += printed.source.kernels;
  }
  const Expr x = Expr::Input(0, "x", DType::kFloat), e = Exp(x - RowMax(x));
  const RegionOperand rows{.dtype = DType::kFloat, .size = 3 * 5000, .strides = {0, 0, 5000, 1}};
  const Region softmax{
      .sizes = {1, 1, 3, 5000}, .inputs = {rows}, .outputs = {{.value = e / RowSum(e), .memory = rows}}};
  const std::string by_blocks = PrintRegion(softmax, {.name = "long_rows"}).kernels;
  EXPECT_NE(by_blocks.find("__syncthreads"), std::string::npos);
  text += by_blocks;
  const DeviceCode code = CompileDeviceCode(text, "sm_80");
  EXPECT_EQ(WarningsIn(code.log), "");
  for (const KernelResources& kernel : ResourcesIn(code.log)) EXPECT_EQ(kernel.spill_bytes, 0) << kernel.kernel;
}

}  // namespace
}  // namespace stepnet

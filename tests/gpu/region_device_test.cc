// The kernels of regions on a GPU, against the definition. Bit for bit where expressions have nothing whose last bits
// are a library's own.
#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <vector>

#include "joined_regions.h"
#include "region_runner.h"
#include "stepnet/core/error.h"
#include "stepnet/core/expressions/expr_evaluate.h"
#include "stepnet/core/strings.h"
#include "stepnet/gpu/nvrtc.h"
#include "stepnet/tests/core/expressions/random_exprs.h"
#include "stepnet/tests/core/regions/random_region.h"

namespace stepnet {
namespace {

void Check(cudaError_t status, const char* what) {
  if (status != cudaSuccess) throw Error(ErrorCode::kFailed, StrCat(what, ": ", cudaGetErrorString(status)));
}

// "" or why there are no such runs here.
std::string WhyNoGpu() {
  int count = 0;
  const cudaError_t status = cudaGetDeviceCount(&count);
  if (status != cudaSuccess) return StrCat("no GPU: ", cudaGetErrorString(status));
  return count == 0 ? "no GPU" : WhyNoDeviceCompiler();
}

std::string ArchitectureOfGpu() {
  int major = 0, minor = 0;
  Check(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, 0), "attribute");
  Check(cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, 0), "attribute");
  return StrCat("sm_", major, minor, major >= 9 ? "a" : "");
}

// Memory of the device that stands for memory of the host.
class DeviceMemory {
 public:
  DeviceMemory() = default;
  DeviceMemory(const DeviceMemory&) = delete;
  DeviceMemory& operator=(const DeviceMemory&) = delete;
  ~DeviceMemory() {
    for (const auto& [host, copy] : copies_) cudaFree(copy.device);
  }
  // The copy of so many bytes at `host`; what is asked for again is the same memory.
  void* Of(const void* host, std::int64_t bytes) {
    const auto [found, is_new] = copies_.try_emplace(host);
    Copy& copy = found->second;
    if (is_new) {
      copy.bytes = static_cast<size_t>(bytes);
      Check(cudaMalloc(&copy.device, copy.bytes + 8), "memory");
      Check(cudaMemcpy(copy.device, host, copy.bytes, cudaMemcpyHostToDevice), "copy to the GPU");
    }
    return copy.device;
  }
  void CopyBack(void* host) {
    const Copy& copy = copies_.at(host);
    Check(cudaMemcpy(host, copy.device, copy.bytes, cudaMemcpyDeviceToHost), "copy from the GPU");
  }

 private:
  struct Copy {
    void* device = nullptr;
    size_t bytes = 0;
  };
  std::map<const void*, Copy> copies_;
};

class DeviceRegionRunner : public RegionRunner {
 public:
  ~DeviceRegionRunner() override { Unload(); }

  void Compile(std::span<const PrintedRegion> printed) override {
    std::string text = StrCat(DeviceCodeText(), "\nusing namespace stepnet::device;\n");
    for (const PrintedRegion& one : printed) text += one.source.kernels;
    const DeviceCode code = CompileDeviceCode(text, ArchitectureOfGpu());
    Unload();
    Check(cudaLibraryLoadData(&library_, code.cubin.data(), nullptr, nullptr, 0, nullptr, nullptr, 0), "loading");
  }

  void Run(const PrintedRegion& printed, std::span<const void* const> inputs, std::span<void* const> outputs,
           DeviceFault* fault) override {
    const Region& region = printed.region;
    const std::vector<int>& values = printed.source.options.values;
    DeviceMemory memory;
    const auto bytes = [](const RegionOperand& operand) { return operand.size * DTypeBytes(operand.dtype); };
    std::vector<const void*> device_inputs;
    for (size_t i = 0; i < inputs.size(); ++i) {
      const bool is_value = std::ranges::count(values, static_cast<int>(i)) > 0;
      device_inputs.push_back(is_value ? inputs[i] : memory.Of(inputs[i], bytes(region.inputs[i])));
    }
    std::vector<void*> device_outputs;
    for (size_t o = 0; o < outputs.size(); ++o) {
      device_outputs.push_back(memory.Of(outputs[o], bytes(region.outputs[o].memory)));
    }
    std::vector<char> scratch(static_cast<size_t>(printed.source.scratch_bytes + 1));
    const RegionPointers pointers{.inputs = device_inputs,
                                  .outputs = device_outputs,
                                  .scratch = memory.Of(scratch.data(), static_cast<std::int64_t>(scratch.size())),
                                  .fault = fault == nullptr ? nullptr : memory.Of(fault, sizeof(DeviceFault)),
                                  .site = SiteOfTests(printed)};
    for (const RegionLaunch& launch : printed.source.launches) Launch(launch, printed.source.Bind(launch, pointers), 0);
    Check(cudaDeviceSynchronize(), "kernels");
    for (void* output : outputs) memory.CopyBack(output);
    if (fault != nullptr) memory.CopyBack(fault);
  }

  void Launch(const RegionLaunch& launch, std::vector<std::uint64_t> words, cudaStream_t stream) const {
    cudaKernel_t kernel = nullptr;
    Check(cudaLibraryGetKernel(&kernel, library_, launch.kernel.c_str()), "kernel");
    void* parameters[] = {words.data()};
    Check(cudaLaunchKernel(reinterpret_cast<const void*>(kernel), dim3(static_cast<unsigned>(launch.blocks)),
                           dim3(static_cast<unsigned>(launch.threads)), parameters, 0, stream),
          launch.kernel.c_str());
  }

 private:
  void Unload() {
    if (library_ != nullptr) cudaLibraryUnload(library_);
    library_ = nullptr;
  }
  cudaLibrary_t library_ = nullptr;
};

bool IsExact(ExprOp op) {
  switch (op) {
    case ExprOp::kExp:
    case ExprOp::kExpm1:
    case ExprOp::kLog:
    case ExprOp::kLog1p:
    case ExprOp::kTanh:
    case ExprOp::kSigmoid:
    case ExprOp::kErf:
    case ExprOp::kErfc:
    case ExprOp::kSin:
    case ExprOp::kCos:
    case ExprOp::kPow: return false;
    default: return true;
  }
}

bool IsExact(const Region& region) {
  const std::vector<Expr> roots = region.Roots();
  return std::ranges::all_of(ExprNodes(roots), [](const ExprNode* node) { return IsExact(node->op); });
}

class RegionOnDevice : public ::testing::Test {
 protected:
  void SetUp() override {
    if (const std::string why = WhyNoGpu(); !why.empty()) GTEST_SKIP() << why;
  }
  // The first so many that are exact.
  static std::vector<PrintedRegion> ExactRegions(unsigned first_seed, size_t count,
                                                 const RandomRegionOptions& random_options,
                                                 RegionSourceOptions options = {}) {
    std::vector<PrintedRegion> printed;
    for (unsigned seed = first_seed; printed.size() < count; ++seed) {
      std::mt19937 random(seed);
      Region region = RandomRegion(random_options, random);
      if (!IsExact(region)) continue;
      options.name = StrCat("r", printed.size());
      RegionSource source = PrintRegion(region, options);
      printed.push_back({.region = std::move(region), .source = std::move(source)});
    }
    return printed;
  }

  DeviceRegionRunner runner_;
};

TEST_F(RegionOnDevice, ComputesWhatIsDefined) { EXPECT_EQ(FirstDifference(ExactRegions(0, 1200, {}), runner_), ""); }

TEST_F(RegionOnDevice, ComputesWhatIsDefinedWithWideIndices) {
  EXPECT_EQ(FirstDifference(ExactRegions(40000, 100, {}, {.is_always_wide = true}), runner_), "");
}

TEST_F(RegionOnDevice, ConvertsEveryStoredNumber) { EXPECT_EQ(FirstWrongConversion(runner_), ""); }

TEST_F(RegionOnDevice, ComputesEveryExactPrimitive) {
  std::vector<Region> regions = PrimitiveRegions();
  std::erase_if(regions, [](const Region& region) { return !IsExact(region); });
  EXPECT_EQ(FirstDifference(PrintedOf(regions), runner_), "");
}

// By a warp, and by a block where rows are few and long.
TEST_F(RegionOnDevice, ComputesLongRows) {
  const Expr x = Expr::Input(0, "x", DType::kFloat), y = Expr::Input(1, "y", DType::kInt64);
  std::vector<Region> regions;
  for (const std::int64_t columns : {1, 63, 64, 65, 1000, 1023, 1024, 1025, 4096, 5000, 100003}) {
    const std::int64_t rows = 7;
    const auto elements = [&](DType dtype) {
      return RegionOperand{.dtype = dtype, .size = rows * columns, .strides = {0, 0, columns, 1}};
    };
    const RegionOperand of_rows{.dtype = DType::kFloat, .size = rows, .strides = {0, 0, 1, 0}};
    const Expr centred = x - RowSum(x) / 7;
    regions.push_back(
        {.sizes = {1, 1, rows, columns},
         .inputs = {elements(DType::kFloat), elements(DType::kInt64)},
         .outputs = {{.value = centred / Sqrt(RowSum(centred * centred)), .memory = elements(DType::kFloat)},
                     {.value = y - RowMax(y) + RowSum(y), .memory = elements(DType::kInt64)},
                     {.value = RowMax(x), .memory = of_rows, .kind = RegionOutputKind::kRows}},
         .in_place = {{.input = 0, .output = 0}}});
  }
  EXPECT_EQ(FirstDifference(PrintedOf(regions), runner_), "");
}

TEST_F(RegionOnDevice, JoinedRegionsGiveWhatTheyGiveOneAfterTheOther) { EXPECT_EQ(FirstWrongJoined(runner_), ""); }

TEST_F(RegionOnDevice, ComputesRowsAndSums) {
  EXPECT_EQ(FirstDifference(ExactRegions(50000, 300, {.requires_too = false, .steps = 6}), runner_), "");
}

template <typename T>
double UlpsApart(T a, T b) {
  if (std::isnan(a) || std::isnan(b)) return std::isnan(a) && std::isnan(b) ? 0 : 1e30;
  if (a == b) return 0;
  if (std::isinf(a) || std::isinf(b)) return 1e30;
  const T greatest = std::max(std::fabs(a), std::fabs(b));
  return static_cast<double>(std::fabs(a - b)) /
         static_cast<double>(std::nextafter(greatest, std::numeric_limits<T>::infinity()) - greatest);
}

// The functions over their whole ranges; limits are in units in the last place.
template <typename T>
void ExpectCloseFunctions(RegionRunner& runner, double limit) {
  std::vector<T> x;
  std::mt19937 random(5);
  for (int i = 0; i < 20000; ++i) {
    x.push_back(static_cast<T>(std::ldexp(1 + random() * 0x1p-32, static_cast<int>(random() % 24) - 16)));
    if (i % 2 == 0) x.back() = -x.back();
  }
  const T infinity = std::numeric_limits<T>::infinity();
  for (const T odd : {T{0}, -T{0}, infinity, -infinity, std::numeric_limits<T>::quiet_NaN(),
                      std::numeric_limits<T>::denorm_min(), T{-100}, T{-95}, T{88.7}, T{-740}, T{709}}) {
    x.push_back(odd);
  }
  const auto count = static_cast<std::int64_t>(x.size());
  const RegionOperand operand{.dtype = kDTypeOf<T>, .size = count, .strides = {0, 0, 0, 1}};
  const Expr input = Expr::Input(0, "x", kDTypeOf<T>);
  for (const ExprOp op : {ExprOp::kExp, ExprOp::kExpm1, ExprOp::kLog, ExprOp::kLog1p, ExprOp::kTanh, ExprOp::kSigmoid,
                          ExprOp::kErf, ExprOp::kErfc, ExprOp::kSin, ExprOp::kCos, ExprOp::kPow}) {
    const Expr operands[] = {input, Expr::Constant(kDTypeOf<T>, 1.7)};
    const Expr value = MakeExpr(op, std::span(operands).first(op == ExprOp::kPow ? 2 : 1));
    Region region{.sizes = {1, 1, 1, count}, .inputs = {operand}, .outputs = {{.value = value, .memory = operand}}};
    const PrintedRegion printed{.region = region, .source = PrintRegion(region, {.name = "function"})};
    std::vector<T> want(x.size()), got(x.size());
    const void* inputs[] = {x.data()};
    void *want_outputs[] = {want.data()}, *got_outputs[] = {got.data()};
    EvaluateRegion(region, inputs, want_outputs);
    runner.Compile({&printed, 1});
    runner.Run(printed, inputs, got_outputs, nullptr);
    double worst = 0;
    T worst_x = 0;
    for (size_t i = 0; i < x.size(); ++i) {
      const double apart = UlpsApart(want[i], got[i]);
      if (apart > worst) worst = apart, worst_x = x[i];
    }
    EXPECT_LE(worst, limit) << static_cast<int>(op) << " of " << worst_x;
  }
}

TEST_F(RegionOnDevice, ComputesFunctionsWithinAFewUnitsInTheLastPlace) {
  ExpectCloseFunctions<float>(runner_, 8);
  ExpectCloseFunctions<double>(runner_, 8);
}

// All elements of many blocks are at fault at once: the first one is kept, whoever comes first.
TEST_F(RegionOnDevice, NotesTheFirstOfManyFaults) {
  constexpr std::int64_t kCount = 1 << 20;
  const Expr x = Expr::Input(0, "x", DType::kFloat);
  const RegionOperand operand{.dtype = DType::kFloat, .size = kCount, .strides = {0, 0, 0, 1}};
  const Region region{
      .sizes = {1, 1, 1, kCount}, .inputs = {operand}, .requirements = {Require(x < 3, "{} is no digit", x)}};
  const PrintedRegion printed{.region = region, .source = PrintRegion(region, {.name = "check"})};
  runner_.Compile({&printed, 1});
  std::vector<float> values(kCount, 7);
  const void* inputs[] = {values.data()};
  for (int run = 0; run < 5; ++run) {
    for (int i = 0; i < 100 * run; ++i) values[i] = 1;
    DeviceFault fault;
    runner_.Run(printed, inputs, {}, &fault);
    EXPECT_EQ(PlaceOf(fault), (FaultPlace{.step = kStepOfTests, .op = kInstructionOfTests, .element = 100 * run}));
    EXPECT_EQ(FaultOf(fault).error.message(), "7 is no digit");
    EXPECT_EQ(fault.lock, 0u);
  }
}

// What changes between replays is read from memory of the device.
TEST_F(RegionOnDevice, DrawsNewNumbersWhenAGraphIsReplayed) {
  constexpr std::int64_t kCount = 1000;
  std::vector<Expr> keys;
  const RegionOperand scalar{.dtype = DType::kInt64, .size = 1};
  for (int i = 0; i < 4; ++i) keys.push_back(Expr::Input(i, StrCat("key", i), DType::kInt64));
  const Region region{.sizes = {1, 1, 1, kCount},
                      .inputs = {4, scalar},
                      .outputs = {{.value = Uniform(DType::kFloat, keys[0], keys[1], keys[2], keys[3], Index(3)),
                                   .memory = {.dtype = DType::kFloat, .size = kCount, .strides = {0, 0, 0, 1}}}}};
  const PrintedRegion printed{.region = region, .source = PrintRegion(region, {.name = "draw", .values = {0, 1}})};
  runner_.Compile({&printed, 1});
  std::int64_t values[] = {11, 12, 13, 14};  // seed, operator, run, step
  const void* host_inputs[] = {&values[0], &values[1], &values[2], &values[3]};
  std::vector<float> want(kCount), got(kCount);
  void* want_outputs[] = {want.data()};

  DeviceMemory memory;
  const void* inputs[] = {&values[0], &values[1], memory.Of(&values[2], 8), memory.Of(&values[3], 8)};
  void* outputs[] = {memory.Of(got.data(), kCount * 4)};
  cudaStream_t stream = nullptr;
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t replay = nullptr;
  Check(cudaStreamCreate(&stream), "stream");
  Check(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), "capture");
  for (const RegionLaunch& launch : printed.source.launches) {
    runner_.Launch(launch, printed.source.Bind(launch, {.inputs = inputs, .outputs = outputs}), stream);
  }
  Check(cudaStreamEndCapture(stream, &graph), "end of capture");
  Check(cudaGraphInstantiate(&replay, graph, 0), "graph");
  for (int k = 0; k < 3; ++k) {
    for (int i = 2; i < 4; ++i) {
      values[i] += 5;
      Check(cudaMemcpy(const_cast<void*>(inputs[i]), &values[i], 8, cudaMemcpyHostToDevice), "copy");
    }
    EvaluateRegion(region, host_inputs, want_outputs);
    Check(cudaGraphLaunch(replay, stream), "launch");
    Check(cudaStreamSynchronize(stream), "wait");
    memory.CopyBack(got.data());
    EXPECT_EQ(got, want);
  }
  cudaGraphExecDestroy(replay);
  cudaGraphDestroy(graph);
  cudaStreamDestroy(stream);
}

}  // namespace
}  // namespace stepnet

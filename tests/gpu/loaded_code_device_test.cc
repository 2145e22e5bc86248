// Code that a GPU has loaded: it goes when nobody needs it any more, and not before.
#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <thread>

#include "stepnet/core/op_run.h"
#include "stepnet/core/strings.h"
#include "stepnet/gpu/code_cache.h"
#include "stepnet/gpu/cuda/cuda_runtime.h"
#include "stepnet/gpu/cuda/loaded_code.h"
#include "stepnet/gpu/cuda/region_kernel.h"
#include "stepnet/nets/net.h"
#include "stepnet/tests/devices/tested_devices.h"
#include "stepnet/tests/examples/cell_case.h"

namespace stepnet {
namespace {

class LoadedCodeOnAGpu : public testing::Test {
 protected:
  using Holder = std::shared_ptr<const LoadedCode>;

  void SetUp() override {
    if (const std::string why = WhyNoDeviceHere(kCuda); !why.empty()) GTEST_SKIP() << why;
  }
  static CudaRuntime& Gpu() { return CudaRuntimeOf(0); }

  // A kernel that adds 1 to a number, loaded anew for each key.
  static Holder Adder(const std::string& key) {
    static const std::shared_ptr<const DeviceCode> code =
        SharedCodeCache().Get("extern \"C\" __global__ void AddOne(int* x) { atomicAdd(x, 1); }", Gpu().architecture());
    return Gpu().loaded_code().Get(key, [] { return std::make_unique<const LoadedCode>(*code, Gpu()); });
  }
  static void AddOne(const LoadedCode& adder, void* number) {
    void* parameters[] = {&number};
    CheckCuda(cudaLaunchKernel(reinterpret_cast<const void*>(adder.Kernel("AddOne")), dim3(1), dim3(1), parameters, 0,
                               static_cast<CudaQueue&>(Gpu().queue()).stream()),
              "AddOne");
  }
  static std::int32_t ValueOf(const Tensor& number) { return *number.To({}).data<std::int32_t>(); }

  // Lets go of so many that all which were unused before are gone, from the GPU too.
  static void LoadOthers(const std::string& keys) {
    for (size_t k = 0; k <= kMaxUnusedCode; ++k) Adder(StrCat(keys, k));
    Gpu().queue().Wait();
    Adder(StrCat(keys, "last"));
    Gpu().queue().Wait();
  }
  static std::int64_t FreeBytes() {
    size_t free = 0, total = 0;
    EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);
    EXPECT_EQ(cudaMemGetInfo(&free, &total), cudaSuccess);
    return static_cast<std::int64_t>(free);
  }
};

TEST_F(LoadedCodeOnAGpu, TakesNoMoreMemoryHoweverMuchIsLoaded) {
  constexpr int kLoads = 6000;
  const Tensor number = Tensor::Zeros(DType::kInt32, Shape({1}), kCuda);
  std::int64_t at_first = 0;
  for (int k = 0; k < kLoads; ++k) {
    AddOne(*Adder(StrCat("load ", k)), number.raw(kCuda));
    if (k == kLoads / 3) at_first = FreeBytes();
  }
  EXPECT_EQ(ValueOf(number), kLoads);
  EXPECT_GE(FreeBytes(), at_first - (4 << 20));
  EXPECT_EQ(Gpu().code().unused, static_cast<std::int64_t>(kMaxUnusedCode));
}

// Why code is given up.
TEST_F(LoadedCodeOnAGpu, TakesMemoryWhileItIsHeld) {
  constexpr int kHeld = 4000;
  const Tensor number = Tensor::Zeros(DType::kInt32, Shape({1}), kCuda);
  LoadOthers("before");
  const std::int64_t free = FreeBytes();
  {
    std::vector<Holder> held;
    for (int k = 0; k < kHeld; ++k) AddOne(*held.emplace_back(Adder(StrCat("held ", k))), number.raw(kCuda));
    const std::int64_t bytes = free - FreeBytes();
    std::cout << kHeld << " modules take " << bytes / kHeld << " bytes each of the GPU's memory\n";
    EXPECT_GT(bytes, 4 << 20);
  }
  LoadOthers("after");
  EXPECT_GE(FreeBytes(), free - (4 << 20));
}

TEST_F(LoadedCodeOnAGpu, IsKeptByTheGraphThatPlaysIt) {
  const Tensor number = Tensor::Zeros(DType::kFloat, Shape({1}), kCuda);
  const RegionOperand one = {.dtype = DType::kFloat, .size = 1, .strides = {0, 0, 0, 1}};
  const Region add_one = {
      .sizes = {1, 1, 1, 1},
      .inputs = {one},
      .outputs = {{.value = Expr::Input(0, "x", DType::kFloat) + Expr::Constant(DType::kFloat, 1), .memory = one}},
      .in_place = {{.input = 0, .output = 0}}};
  auto recorder = Gpu().MakeRecorder();
  LoadOthers("before");
  const std::int64_t in_use = Gpu().code().in_use;
  std::string refusal;
  recorder->Record(
      [&] {
        const GpuRegion region(add_one, {.name = "AddOne"}, Gpu());
        RunContext context;
        context.queue = &Gpu().queue();
        const void* const inputs[] = {number.raw(kCuda)};
        void* const outputs[] = {number.raw(kCuda)};
        region.Run(OpRun({}, {}, context), inputs, outputs);
      },
      &refusal);
  EXPECT_EQ(refusal, "");
  EXPECT_EQ(Gpu().code().in_use, in_use + 1);
  LoadOthers("beside");
  while (recorder->num_pieces() == 0) std::this_thread::yield();
  for (int play = 0; play < 3; ++play) recorder->Play(0);
  EXPECT_EQ(*number.To({}).data<float>(), 3);
  recorder.reset();
  EXPECT_EQ(Gpu().code().in_use, in_use);
}

TEST_F(LoadedCodeOnAGpu, GoesBehindTheKernelsOfAllThreads) {
  constexpr int kThreads = 8, kLaunches = 1000;
  const Tensor number = Tensor::Zeros(DType::kInt32, Shape({1}), kCuda);
  {
    std::vector<std::jthread> threads;
    for (int thread = 0; thread < kThreads; ++thread) {
      threads.emplace_back([&, thread] {
        for (int k = 0; k < kLaunches; ++k) AddOne(*Adder(StrCat(thread, " launches ", k)), number.raw(kCuda));
      });
    }
  }
  EXPECT_EQ(ValueOf(number), kThreads * kLaunches);
}

// What a long session does that tries one cell after the other, here on several threads.
TEST_F(LoadedCodeOnAGpu, IsBoundedForManyCells) {
  constexpr int kThreads = 4, kCellsOfEach = 100;
  const std::int64_t in_use = Gpu().code().in_use, loaded = Gpu().code().loaded;
  std::atomic<std::int64_t> free_at_half = 0;
  std::atomic<int> num_made = 0;
  const auto run_cell = [&](int number) {
    const auto function = [&](int place) {  // whose kernels have a text of their own for each number
      return std::array{"Tanh", "Sigmoid", "Sin", "Abs"}[number >> 2 * place & 3];
    };
    std::string value = "x + h";
    for (int place = 0; place < 5; ++place) value = StrCat(function(place), "(", value, ")");
    const std::string text =
        StrCat("cell many(x[D]; h[H]) {\n  size D = 3\n  size H = 3\n  h = ", value, "\n  output h\n}\n");
    const CellCase test{.cell = ParseCell(text, "many"), .num_steps = 4, .batch = 2};
    const CellNet cell = test.Expand();
    Workspace found, expected;
    for (Workspace* workspace : {&found, &expected}) FeedAs(DType::kFloat, test.RandomValues(cell), *workspace);
    RunNetOnce(cell.net, expected, Reference());
    const auto net = Net::Create(cell.net, found, OnDevice({}, kCuda));
    for (int run = 0; run < 5; ++run) net->Run();  // launched, recorded, played
    ExpectNearBlobs(found, expected, {.of_float = 1e-5}, text);
  };
  {
    std::vector<std::jthread> threads;
    for (int thread = 0; thread < kThreads; ++thread) {
      threads.emplace_back([&, thread] {
        for (int k = 0; k < kCellsOfEach; ++k) {
          run_cell(thread * kCellsOfEach + k);
          if (++num_made == kThreads * kCellsOfEach / 2) free_at_half = FreeBytes();
        }
      });
    }
  }
  Gpu().queue().Wait();
  const CodeUse code = Gpu().code();
  EXPECT_GT(code.loaded - loaded, static_cast<std::int64_t>(kMaxUnusedCode)) << "too few cells";
  EXPECT_EQ(code.in_use, in_use);
  EXPECT_LE(code.unused, static_cast<std::int64_t>(kMaxUnusedCode));
  EXPECT_GE(FreeBytes(), free_at_half - (16 << 20));
}

}  // namespace
}  // namespace stepnet

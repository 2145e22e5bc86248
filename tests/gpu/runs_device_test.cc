// Nets on a GPU, where tests need to know that it is one: its limit of memory, and what its driver says of it.
#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "stepnet/core/error.h"
#include "stepnet/core/strings.h"
#include "stepnet/gpu/cuda/cuda_runtime.h"
#include "stepnet/nets/net.h"
#include "stepnet/tests/core/error_of.h"
#include "stepnet/tests/devices/recorded_nets.h"
#include "stepnet/tests/devices/small_training.h"
#include "stepnet/tests/executor/layers.h"
#include "stepnet/tests/executor/recurrent_case.h"

namespace stepnet {
namespace {

class RunsOnAGpu : public testing::Test {
 protected:
  void SetUp() override {
    if (const std::string why = WhyNoDeviceHere(kCuda); !why.empty()) GTEST_SKIP() << why;
  }
  static CudaRuntime& Gpu() { return CudaRuntimeOf(0); }
};

// Less memory than there is, until the scope ends.
class LittleMemory {
 public:
  LittleMemory(CudaRuntime& gpu, std::int64_t more) : gpu_(gpu), before_(gpu.memory().limit) {
    gpu.SetMemoryLimit(gpu.memory().current + more);
  }
  ~LittleMemory() { gpu_.SetMemoryLimit(before_); }
  LittleMemory(const LittleMemory&) = delete;
  LittleMemory& operator=(const LittleMemory&) = delete;

 private:
  CudaRuntime& gpu_;
  const std::int64_t before_;
};

TEST_F(RunsOnAGpu, WithoutMemoryNameTheOperatorAndTheNextOneWorks) {
  const NetDef def = Layers(2, /*training=*/true);
  Workspace expected;
  FeedLayers(2, 50, 1, expected);
  RunNetOnce(def, expected, Reference());
  int refused = 0;
  for (std::int64_t bytes = 0; bytes < (1 << 20); bytes = 2 * bytes + 512) {
    Workspace workspace;
    FeedLayers(2, 50, 1, workspace);
    const auto net = Net::Create(def, workspace, OnDevice({}, kCuda));
    {
      const LittleMemory little(Gpu(), bytes);
      try {
        net->Run();
        net->Wait();
      } catch (const Error& error) {
        EXPECT_EQ(error.code(), ErrorCode::kOutOfMemory) << error.what();
        const auto is_of_operator = [](const Place& place) { return place.op_index >= 0; };
        EXPECT_TRUE(std::ranges::any_of(error.places(), is_of_operator)) << error.what();
        ++refused;
      }
    }
    for (int run = 0; run < 3; ++run) net->Run();
    ExpectNearBlobs(workspace, expected, {.of_float = 1e-5, .of_double = 1e-9}, StrCat("after ", bytes, " bytes"));
  }
  EXPECT_GT(refused, 3);
}

TEST_F(RunsOnAGpu, WithoutMemoryChangeNoParameter) {
  SmallTraining training(OnDevice({}, kCuda));
  const NamedInputs start = training.Kept();
  training.Iterate();
  const NamedInputs after = training.Kept();
  int refused = 0;
  for (std::int64_t bytes = 0; bytes < (1 << 16); bytes += 1024) {
    SmallTraining again(OnDevice({}, kCuda));
    {
      const LittleMemory little(Gpu(), bytes);
      const std::string error = ErrorOf([&] { again.Iterate(); });
      if (error == "no error") break;
      ++refused;
      EXPECT_NE(error.find("  at op "), std::string::npos) << error;
    }
    const NamedInputs kept = again.Kept();
    for (const auto& [name, tensor] : start) ExpectSame(kept.at(name), tensor, StrCat(name, " after ", bytes));
    again.Iterate();
    const NamedInputs found = again.Kept();
    for (const auto& [name, tensor] : after) ExpectSame(found.at(name), tensor, StrCat(name, ", next iteration"));
    if (HasFailure()) return;
  }
  EXPECT_GT(refused, 3);
}

// Patches of all of these images would be 906 MB, of those that are at hand at once they are 264.
TEST_F(RunsOnAGpu, ConvolveSomeImagesAtATime) {
  Workspace workspace;
  const auto feed = [&](const std::string& name, const Shape& shape) {
    workspace.CreateBlob(name).SetTensor(Tensor::Zeros(DType::kFloat, shape, kCuda));
  };
  feed("x", {24, 64, 128, 128});
  feed("filter", {4, 64, 3, 3});
  feed("dy", {24, 4, 128, 128});
  NetDef forward = NetOf({"y = Conv(x, filter)"}), backward = NetOf({"dfilter, dx = ConvGradient(x, filter, dy)"});
  AddInt(backward.mutable_op(0), "no_bias", 1);
  for (NetDef* def : {&forward, &backward}) {
    AddInt(def->mutable_op(0), "kernel", 3);
    AddInt(def->mutable_op(0), "pad", 1);
    const LittleMemory little(Gpu(), 450 << 20);
    EXPECT_NO_THROW(RunNetOnce(*def, workspace, OnDevice({}, kCuda)));
  }
}

// What the driver gives: graphs take memory that the runtime does not count.
TEST_F(RunsOnAGpu, TenThousandLoseNoMemoryOfTheDriver) {
  const auto free_bytes = [] {
    size_t free = 0, total = 0;
    EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);
    EXPECT_EQ(cudaMemGetInfo(&free, &total), cudaSuccess);
    return static_cast<std::int64_t>(free);
  };
  constexpr int kRuns = 10'000;
  Workspace workspace;
  FeedLayers(1, 1, 1, workspace);
  const auto net = Net::Create(Layers(1, /*training=*/true), workspace, OnDevice({}, kCuda));
  std::int64_t at_first = 0;
  for (int run = 0; run < kRuns; ++run) {
    // New addresses each time; the same sizes come back, so that graphs are recorded, played and thrown away.
    FeedLayers(1, 1 + run / 3 % 9, static_cast<unsigned>(run % 5), workspace);
    net->Run();
    if (run == kRuns / 5) at_first = free_bytes();
  }
  EXPECT_GE(free_bytes(), at_first - (16 << 20));
}

}  // namespace
}  // namespace stepnet

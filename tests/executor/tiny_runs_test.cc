// Runs so short that one begins while threads of the last are still on their way out.
#include <gtest/gtest.h>

#include <thread>

#include "layers.h"
#include "recurrent_case.h"
#include "stepnet/core/strings.h"
#include "stepnet/nets/net.h"

namespace stepnet {
namespace {

// A net of two layers for each number of steps from 1 to 4, and what it gives.
class TinyNets {
 public:
  explicit TinyNets(int threads) {
    const NetDef def = Layers(2, /*training=*/false);
    for (std::int64_t steps = 1; steps <= kMaxSteps; ++steps) {
      Workspace serial;
      FeedLayers(2, steps, 1, serial);
      RunNetOnce(def, serial, {.executor = "serial"});
      expected_.push_back(serial.GetTensor("l1_all"));
      workspaces_.push_back(std::make_unique<Workspace>());
      FeedLayers(2, steps, 1, *workspaces_.back());
      nets_.push_back(Net::Create(def, *workspaces_.back(), {.executor = "parallel", .threads = threads}));
    }
  }

  void Run(int times) {
    for (int run = 0; run < times; ++run) {
      const size_t k = run % kMaxSteps;
      nets_[k]->Run();
      ExpectSame(workspaces_[k]->GetTensor("l1_all"), expected_[k], StrCat(k + 1, " steps, run ", run));
      if (testing::Test::HasFailure()) return;
    }
  }

 private:
  static constexpr int kMaxSteps = 4;
  std::vector<Tensor> expected_;
  std::vector<std::unique_ptr<Workspace>> workspaces_;
  std::vector<std::unique_ptr<Net>> nets_;
};

class ParallelTinyRuns : public testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Threads, ParallelTinyRuns, testing::Values(2, 4));

TEST_P(ParallelTinyRuns, S6S7TenThousandOneAfterTheOther) { TinyNets(GetParam()).Run(10'000); }

TEST_P(ParallelTinyRuns, S7M3TenThousandInFourThreadsAtOnce) {
  std::vector<std::jthread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([] { TinyNets(GetParam()).Run(2'500); });
  }
}

}  // namespace
}  // namespace stepnet

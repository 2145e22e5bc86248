// Runs of very many steps on a GPU: played as several graphs, in memory that does not grow with them.
#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include "stepnet/compiler/step_plan.h"
#include "stepnet/core/cancellation.h"
#include "stepnet/core/recording_times.h"
#include "stepnet/core/strings.h"
#include "stepnet/gpu/cuda/cuda_runtime.h"
#include "stepnet/nets/net.h"
#include "stepnet/tests/core/error_of.h"
#include "stepnet/tests/devices/tested_devices.h"
#include "stepnet/tests/examples/cell_case.h"

namespace stepnet {
namespace {

constexpr std::int64_t kManySteps = 100'000;

class LongRunsOnAGpu : public testing::Test {
 protected:
  void SetUp() override {
    if (const std::string why = WhyNoDeviceHere(kCuda); !why.empty()) GTEST_SKIP() << why;
  }

  // lstm.cell, forward, and its inputs.
  static NetDef LstmOf(std::int64_t steps, Workspace& workspace) {
    CellCase test{.cell = ReadExampleCell("lstm"), .num_steps = steps, .batch = 1};
    test.use.sizes = SmallSizes(test.cell.def);
    const CellNet cell = test.Expand();
    FeedAs(DType::kFloat, test.RandomValues(cell), workspace);
    return cell.net;
  }
  static std::int64_t FreeBytes() {
    size_t free = 0, total = 0;
    EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);
    EXPECT_EQ(cudaMemGetInfo(&free, &total), cudaSuccess);
    return static_cast<std::int64_t>(free);
  }
};

// What steps compute lies in rings, what stages pass to each other in blocks, which many chunks bound here.
TEST_F(LongRunsOnAGpu, TakeTheArenaOfShortOnes) {
  constexpr std::int64_t kSteps = 70'000;
  for (int opt_level = 0; opt_level <= kMaxOptLevel; ++opt_level) {
    const auto bytes_of = [&](std::int64_t steps) {
      std::int64_t bytes = 0;
      RunOptions options = OnDevice({.opt_level = opt_level}, kCuda);
      options.on_plan = [&](const StepPlan& plan) { bytes = plan.ArenaBytes(steps); };
      Workspace workspace;
      const NetDef def = LstmOf(steps, workspace);
      const auto net = Net::Create(def, workspace, options);
      for (int run = 0; run < 3; ++run) net->Run();
      net->Wait();
      EXPECT_EQ(net->Recordable().why_no_more, "") << steps;
      return bytes;
    };
    EXPECT_EQ(bytes_of(kManySteps), bytes_of(kSteps)) << "opt_level " << opt_level;
  }
}

TEST_F(LongRunsOnAGpu, ArePlayedWithTheBitsOfOneStepAfterTheOther) {
  for (const int opt_level : {1, kMaxOptLevel}) {
    Workspace played, launched;
    const NetDef def = LstmOf(kManySteps, played);
    LstmOf(kManySteps, launched);
    const auto fast = Net::Create(def, played, OnDevice({.opt_level = opt_level}, kCuda));
    RunOptions in_turn = OnDevice({.opt_level = opt_level}, kCuda);
    in_turn.executor = "serial";
    const auto slow = Net::Create(def, launched, in_turn);
    slow->Run();
    for (int run = 0; run < 2; ++run) fast->Run();
    fast->Wait();
    const RecordingTimes before = RecordingsSoFar();
    const std::int64_t free_before = FreeBytes();
    for (int run = 2; run < 4; ++run) fast->Run();
    ExpectSameValues(played, launched, StrCat("opt_level ", opt_level));
    const RecordingTimes after = RecordingsSoFar();
    const std::int64_t nodes = after.nodes - before.nodes, bytes = free_before - FreeBytes();
    EXPECT_EQ(after.recordings - before.recordings, 1) << fast->Recordable().why_no_more;
    EXPECT_GT(after.graphs - before.graphs, 3);
    EXPECT_GT(nodes, kManySteps);
    // What a node of a graph takes of the GPU, which Target::max_recorded_operators bounds.
    std::cout << nodes << " nodes in " << after.graphs - before.graphs << " graphs, recorded in "
              << after.seconds() - before.seconds() << " s, take " << bytes << " bytes\n";
    EXPECT_LT(bytes / nodes, 4096);
  }
}

// A limit of time that is over before the first graph is done ends the run there.
TEST_F(LongRunsOnAGpu, EndBetweenGraphs) {
  Workspace workspace, expected;
  const NetDef def = LstmOf(kManySteps, workspace);
  LstmOf(kManySteps, expected);
  RunNetOnce(def, expected, OnDevice({}, kCuda));
  const auto net = Net::Create(def, workspace, OnDevice({}, kCuda));
  for (int run = 0; run < 3; ++run) net->Run();
  net->Wait();
  const RecordingTimes before = RecordingsSoFar();
  for (int run = 0; run < 3; ++run) {
    const Cancellation soon(std::chrono::milliseconds(10));
    const std::string error = ErrorOf([&] { net->Run(&soon); });
    EXPECT_TRUE(error.starts_with("cancelled: the run took longer than its limit of 0.01 s")) << error;
    net->Run();
    ExpectSameValues(workspace, expected, StrCat("after a run that was cancelled, ", run));
  }
  // The first of these runs may be the one that records.
  EXPECT_LE(RecordingsSoFar().recordings, before.recordings + 1);
}

}  // namespace
}  // namespace stepnet

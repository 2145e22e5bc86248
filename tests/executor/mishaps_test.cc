// Operators that throw, wait or are cancelled, at every place of a net of two layers with its gradient, on the serial
// executor and on several threads.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <new>
#include <stdexcept>
#include <thread>

#include "layers.h"
#include "probe.h"
#include "recurrent_case.h"
#include "stepnet/compiler/step_plan.h"
#include "stepnet/core/strings.h"
#include "stepnet/tests/compiler/needs_usual_plans.h"

namespace stepnet {
namespace {

struct MishapCase {
  int threads = 1;
  int opt_level = 0;
  std::int64_t num_steps = 4;
};
// Steps have three rows each: a chunk of 16 and a rest.
constexpr std::int64_t kStepsOfTwoChunks = 24;

void PrintTo(const MishapCase& mishap, std::ostream* out) {
  *out << mishap.threads << " threads, level " << mishap.opt_level;
}

std::string NameOf(const testing::TestParamInfo<MishapCase>& info) {
  return StrCat(info.param.threads, "Level", info.param.opt_level);
}

// Two layers and their gradients, probed, with what they give when nothing happens.
class ParallelMishaps : public testing::TestWithParam<MishapCase> {
 protected:
  ParallelMishaps() {
    const NetDef def = Probed(Layers(2, /*training=*/true));
    const auto [threads, opt_level, num_steps] = GetParam();
    FeedLayers(2, num_steps, 1, expected_);
    RunNetOnce(def, expected_, {.executor = "serial", .opt_level = opt_level});
    FeedLayers(2, num_steps, 1, workspace_);
    RunOptions options{.executor = threads == 1 ? "serial" : "parallel", .threads = threads, .opt_level = opt_level};
    options.on_plan = [this](const StepPlan& plan) { chunk_steps_.insert(plan.chunk_steps); };
    net_ = Net::Create(def, workspace_, options);
    places_ = PlacesOf([this] { net_->Run(); });
  }

  static bool IsBackward(const ProbePlace& place) { return place.op.find("_grad") != std::string::npos; }
  void ExpectRightRun(const std::string& after) {
    for (const std::string& name : expected_.LocalBlobs()) {
      if (name.ends_with("_all") || name.ends_with("_grad")) workspace_.GetBlob(name).Reset();
    }
    net_->Run();
    ExpectSameBlobs(expected_, workspace_, after);
  }

  Workspace expected_, workspace_;
  std::unique_ptr<Net> net_;
  std::set<ProbePlace> places_;
  std::set<std::int64_t> chunk_steps_;
};
INSTANTIATE_TEST_SUITE_P(Threads, ParallelMishaps,
                         testing::Values(MishapCase{1}, MishapCase{2}, MishapCase{3}, MishapCase{4},
                                         MishapCase{1, kMaxOptLevel, kStepsOfTwoChunks},
                                         MishapCase{3, kMaxOptLevel, kStepsOfTwoChunks}),
                         NameOf);

std::string Text(const ProbePlace& place) { return StrCat("`", place.op, "` in step ", place.step); }

TEST_P(ParallelMishaps, AllOperatorsOfAllStepsCanBeProbed) {
  NEEDS_USUAL_PLANS();
  const auto backward = std::ranges::count_if(places_, IsBackward);
  const auto forward = static_cast<std::int64_t>(places_.size()) - backward;
  const std::int64_t num_steps = GetParam().num_steps;
  if (GetParam().opt_level == 0) {
    EXPECT_EQ(forward, num_steps * 8);
    EXPECT_EQ(backward, num_steps * 7);
    return;
  }
  EXPECT_EQ(chunk_steps_, std::set<std::int64_t>{16});
  EXPECT_LT(forward, num_steps * 8);
  EXPECT_LT(backward, num_steps * 7);
}

std::string WithoutOutputs(const std::string& op) { return op.substr(op.find(" = ")); }

struct Mishap {
  std::function<void()> happens;
  ErrorCode code;
  std::string message;
};

TEST_P(ParallelMishaps, F1F2F3F4WhateverIsThrownAnywhereReachesTheCallerAndTheNextRunIsRight) {
  const std::vector<Mishap> mishaps = {
      {[] { throw Error(ErrorCode::kInvalidArgument, "refused"); }, ErrorCode::kInvalidArgument, "refused"},
      {[] { throw std::runtime_error("broken"); }, ErrorCode::kFailed, "broken"},
      {[] { throw std::bad_alloc(); }, ErrorCode::kOutOfMemory, "the system has no more memory to give"},
      {[] { throw 42; }, ErrorCode::kFailed, "an exception that is no std::exception"},  // NOLINT: users throw anything
  };
  for (const ProbePlace& place : places_) {
    for (const Mishap& mishap : mishaps) {
      const Probe probe([&](const ProbePlace& now) {
        if (now == place) mishap.happens();
      });
      try {
        net_->Run();
        FAIL() << Text(place) << " threw, and the run did not";
      } catch (const Error& error) {
        EXPECT_EQ(error.code(), mishap.code) << error.what();
        EXPECT_EQ(error.message(), mishap.message) << error.what();
        const Place& innermost = error.places().at(0);
        EXPECT_EQ(innermost.net, IsBackward(place) ? "layers_backward" : "layers") << error.what();
        // An operator may be two instructions, each with some of the outputs.
        EXPECT_EQ(WithoutOutputs(innermost.op_text), WithoutOutputs(place.op)) << error.what();
        const bool is_chunk = GetParam().opt_level > 0 && innermost.step == -1;
        EXPECT_TRUE(innermost.step == place.step || is_chunk) << error.what();
      }
    }
    ExpectRightRun("after a failure of " + Text(place));
    if (HasFailure()) return;
  }
}

TEST_P(ParallelMishaps, F5NothingRunsAnyMoreWhenAFailedRunReturns) {
  for (const ProbePlace& place : places_) {
    std::atomic<bool> returned = false, late = false;
    const Probe probe([&](const ProbePlace& now) {
      if (returned) late = true;
      if (now == place) throw std::runtime_error("broken");
      std::this_thread::sleep_for(std::chrono::microseconds(20));  // so that some are under way when one fails
    });
    EXPECT_THROW(net_->Run(), Error);
    EXPECT_EQ(Probe::NumRunning(), 0) << "after a failure of " << Text(place);
    returned = true;
    std::this_thread::yield();
    EXPECT_FALSE(late) << "after a failure of " << Text(place);
    if (HasFailure()) return;
  }
  ExpectRightRun("after many failures");
}

TEST_P(ParallelMishaps, AnOperatorThatTakesItsTimeAnywhereChangesNoValue) {
  for (const ProbePlace& place : places_) {
    const Probe probe([&](const ProbePlace& now) {
      if (now == place) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    });
    ExpectRightRun(Text(place) + " waits");
    EXPECT_EQ(Probe::NumRunning(), 0);
    if (HasFailure()) return;
  }
}

TEST_P(ParallelMishaps, OperatorsThatTakeAnyTimeChangeNoValue) {
  std::atomic<unsigned> count = 0;
  const Probe probe([&](const ProbePlace&) {
    std::this_thread::sleep_for(std::chrono::microseconds(++count * 2654435761u >> 26));  // 0 to 63, in no order
  });
  for (int run = 0; run < 30; ++run) ExpectRightRun(StrCat("run ", run));
}

// Runs with `cancellation`, which has been asked to stop before the run is over.
void ExpectCancelled(Net& net, const Cancellation& cancellation) {
  try {
    net.Run(&cancellation);
    ADD_FAILURE() << "the run was not cancelled";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kCancelled) << error.what();
  }
  EXPECT_EQ(Probe::NumRunning(), 0);
}

TEST_P(ParallelMishaps, F8ARunIsCancelledWhileAnOperatorTakesItsTime) {
  for (const ProbePlace& place : places_) {
    if (IsBackward(place)) continue;  // nothing may be left to do
    Cancellation cancellation;
    std::atomic<bool> waits = false, cancelled = false;
    const Probe probe([&](const ProbePlace& now) {
      if (now != place) return;
      waits = true;
      waits.notify_one();
      cancelled.wait(false);
    });
    {
      const std::jthread canceller([&] {
        waits.wait(false);
        cancellation.Cancel();
        cancelled = true;
        cancelled.notify_one();
      });
      ExpectCancelled(*net_, cancellation);
    }
    ExpectRightRun("after cancelling in " + Text(place));
    if (HasFailure()) return;
  }
}

TEST_P(ParallelMishaps, F8ATimeLimitEndsWhileAnOperatorTakesItsTime) {
  for (const ProbePlace& place : places_) {
    if (IsBackward(place) || place.step != 1) continue;
    const Probe probe([&](const ProbePlace& now) {
      if (now == place) std::this_thread::sleep_for(std::chrono::milliseconds(3));
    });
    ExpectCancelled(*net_, Cancellation(std::chrono::milliseconds(2)));
    ExpectRightRun("after the limit in " + Text(place));
  }
}

// Two chains that do not need each other; the first operator that runs cancels, and takes its time.
TEST(ParallelCancellation, F8ACancelledRunStartsNothingMore) {
  RecurrentCase net;
  net.Sequence("x", "x_t").State("a", "a0", "a_prev", "a_next").State("b", "b0", "b_prev", "b_next");
  net.Step("a_next = Sum(x_t, a_prev)").Step("b_next = Mul(x_t, b_prev)").Output("a_all", "a", 1);
  AddInt(&net.forward(), "num_workspaces", 64);
  const NetDef def = Probed(net.Build());
  for (const int threads : {1, 2, 3}) {
    Workspace workspace;
    workspace.SetTensor("x", Random({100, 2, 3}, 1));
    for (const char* initial : {"a0", "b0"}) workspace.SetTensor(initial, Random({2, 3}, 2));
    const auto made =
        Net::Create(def, workspace, {.executor = threads == 1 ? "serial" : "parallel", .threads = threads});
    Cancellation cancellation;
    std::atomic<int> begun = 0, begun_before = 0;
    const Probe probe([&](const ProbePlace&) {
      if (++begun > 1) {
        std::this_thread::sleep_for(std::chrono::microseconds(100));
        return;
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(2));  // so that others come
      cancellation.Cancel();
      begun_before = begun.load();
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
    });
    ExpectCancelled(*made, cancellation);
    // A thread looks before each task, or before each step of its rows, as the serial executor does.
    EXPECT_LE(begun - begun_before, threads) << threads << " threads";
  }
}

}  // namespace
}  // namespace stepnet

// The parallel executor against the serial one, bit for bit, and what happens when something fails.
#include <gtest/gtest.h>

#include <atomic>
#include <cmath>
#include <functional>
#include <thread>

#include "failing_operator.h"
#include "layers.h"
#include "recurrent_case.h"
#include "stepnet/compiler/schedule.h"
#include "stepnet/core/operator.h"
#include "stepnet/core/thread_pool.h"
#include "stepnet/executor/executor.h"
#include "stepnet/tests/core/error_of.h"

namespace stepnet {
namespace {

class ParallelThreads : public testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(All, ParallelThreads, testing::Values(1, 2, 3, 4, 8, 16));

TEST_P(ParallelThreads, EqualsSerialInEveryBlobWhileTheNumberOfStepsChanges) {
  for (const bool training : {false, true}) {
    for (int layers = 1; layers <= 8; ++layers) {
      const NetDef def = Layers(layers, training);
      Workspace serial, parallel;
      FeedLayers(layers, 1, 0, serial);
      FeedLayers(layers, 1, 0, parallel);
      const auto expected = Net::Create(def, serial);
      const auto net = Net::Create(def, parallel, {.executor = "parallel", .threads = GetParam()});
      unsigned seed = 0;
      for (const std::int64_t steps : {5, 0, 50, 1, 2, 100, 3}) {
        FeedLayers(layers, steps, ++seed, serial);
        FeedLayers(layers, steps, seed, parallel);
        expected->Run();
        net->Run();
        ExpectSameBlobs(serial, parallel, StrCat(layers, " layers, ", steps, " steps", training ? ", training" : ""));
      }
    }
  }
}

TEST_P(ParallelThreads, S7ManyTinyRunsOneAfterTheOther) {
  Workspace workspace;
  FeedLayers(2, 3, 1, workspace);
  const auto net = Net::Create(Layers(2, false), workspace, {.executor = "parallel", .threads = GetParam()});
  net->Run();
  const Tensor expected = workspace.GetTensor("l1_all").Clone();
  for (int run = 0; run < 2000; ++run) net->Run();
  ExpectSame(workspace.GetTensor("l1_all"), expected, "l1_all");
}

TEST(Parallel, M3SeveralNetsInSeveralThreadsShareThePool) {
  Workspace reference;
  FeedLayers(3, 20, 1, reference);
  Net::Create(Layers(3, true), reference)->Run();
  std::vector<std::jthread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&reference] {
      Workspace workspace;
      FeedLayers(3, 20, 1, workspace);
      const auto net = Net::Create(Layers(3, true), workspace, {.executor = "parallel", .threads = 3});
      for (int run = 0; run < 30; ++run) net->Run();
      ExpectSameBlobs(reference, workspace, "concurrent");
    });
  }
}

TEST_P(ParallelThreads, LargeElementwiseOperatorsAreCutByRangesOfElements) {
  RecurrentCase net;
  net.Sequence("x", "x_t").State("h", "h0", "h_prev", "h_next");
  net.Step("a = Sum(x_t, h_prev)").Step("a = Tanh(a)").Step("h_next = Mul(a, x_t)").Output("h_all", "h", 1);
  const Shape row({3, 20'011});
  int max_parts = 0;
  const auto run = [&](RunOptions options) {
    options.on_plan = [&](const StepPlan& plan) {
      for (const Task& task : plan.schedules[0]->tasks) max_parts = std::max(max_parts, task.parts);
    };
    if (options.executor == "serial") options.on_plan = {};
    Workspace workspace;
    workspace.SetTensor("x", Random(row.Inserted(0, 5), 1));
    workspace.SetTensor("h0", Random(row, 2));
    Net::Create(net.Build(), workspace, options)->Run();
    return workspace.GetTensor("h_all").Clone();
  };
  const Tensor expected = run({.executor = "serial"});
  ExpectSame(run({.executor = "parallel", .threads = GetParam()}), expected, "h_all");
  EXPECT_LE(max_parts, GetParam());
  EXPECT_GT(max_parts, std::min(GetParam() - 1, 8)) << "of 480 KB a row";
}

// How many threads a plan that is made for the net uses.
int ThreadsOf(RecurrentCase& net, RunOptions options = {}) {
  int threads = 0;
  options.on_plan = [&](const StepPlan& plan) { threads = plan.IsScheduled() ? plan.schedules[0]->threads : 1; };
  Workspace workspace;
  workspace.SetTensor("x", Random({7, 4, 3}, 1));
  workspace.SetTensor("h0", Random({4, 3}, 2));
  Net::Create(net.Build(), workspace, options)->Run();
  return threads;
}

TEST(Parallel, UsesAsManyThreadsAsTheCostsOfTheTargetLetThem) {
  if (NumCores() < 2) GTEST_SKIP() << "one core";
  RecurrentCase net;
  net.Sequence("x", "x_t").State("h", "h0", "", "h_next").Step("a = Tanh(x_t)").Step("b = Sigmoid(x_t)");
  net.Step("h_next = Sum(a, b)").Output("h_all", "h", 1);
  constexpr Target kCheap = {.microseconds_of_call = 100, .assumed_scheduling = {}};
  constexpr Target kDear = {.microseconds_of_call = 100, .assumed_scheduling = {.inline_task = 0, .handed_task = 1e6}};
  EXPECT_GT(ThreadsOf(net, {.target = &kCheap, .opt_level = 0}), 1);
  EXPECT_EQ(ThreadsOf(net, {.target = &kDear, .opt_level = 0}), 1);
}

TEST(Parallel, AnInstructionThatWritesIntoWhatItReadsReadsACopyOfIt) {
  // `both` holds rows t and t + 1 of h, `next` rows t + 1 and t + 2: each step writes what the last one half wrote.
  RecurrentCase net;
  net.Sequence("x", "").State("h", "h0", "", "", 2).Link("both", "h", 0, 2).Link("next", "h", 1, 2);
  net.Step("next = Tanh(both)").Output("h_all", "h", 0);
  int max_parts = 0;
  const auto run = [&](RunOptions options) {
    options.on_plan = [&](const StepPlan& plan) {
      for (const Instruction& i : plan.instructions) max_parts = std::max(max_parts, i.max_parts);
    };
    Workspace workspace;
    workspace.SetTensor("x", Random({4, 3, 2}, 1));
    workspace.SetTensor("h0", Random({2, 3, 30'000}, 2));
    Net::Create(net.Build(), workspace, options)->Run();
    return workspace.GetTensor("h_all").Clone();
  };
  const Tensor result = run({.executor = "serial"});
  ExpectSame(run({.executor = "parallel", .threads = 4}), result, "h_all");
  EXPECT_GT(max_parts, 1) << "a copy can be read in parts";
  // Each step takes tanh of two rows at once: row 1 + t of tanh applied once to row t, and to the row that t left
  // there.
  const std::vector<double> h = Values(result), h0 = Values(Random({2, 3, 30'000}, 2));
  const size_t row = 3 * 30'000;
  for (size_t i = 0; i < row; i += 997) {
    double below = h0[i], above = h0[row + i];
    for (size_t t = 0; t < 4; ++t) {
      EXPECT_NEAR(h[t * row + i], below, 1e-12) << t;
      const double next = std::tanh(below);
      above = std::tanh(above);
      below = next;
    }
    EXPECT_NEAR(h[5 * row + i], above, 1e-12);
  }
}

// A run on several threads ends with a wait for those that help; a serial one never waits.
class Waits : public Observer {
 public:
  void Start(const RunEvent& event) override { count_ += event.kind == RunEventKind::kWait ? 1 : 0; }
  void Stop(const RunEvent&) override {}
  int count() const { return count_; }

 private:
  std::atomic<int> count_ = 0;
};

TEST(Parallel, RunsThatEndBeforeAThreadHasComeAreSerial) {
  if (NumCores() < 2) GTEST_SKIP() << "one core: every run is serial";
  RecurrentCase net;
  net.Sequence("x", "x_t").State("h", "h0", "h_prev", "h_next");
  net.Step("a = Tanh(x_t)").Step("b = Mul(a, x_t)").Step("h_next = Sum(b, h_prev)").Output("h_all", "h", 1);
  const Shape row({3, 4'000});
  Schedule schedule;
  RunOptions options;
  options.on_plan = [&](const StepPlan& plan) { schedule = *plan.schedules[0]; };
  Workspace workspace;
  workspace.SetTensor("x", Random(row.Inserted(0, 3), 1));
  workspace.SetTensor("h0", Random(row, 2));
  const auto made = Net::Create(net.Build(), workspace, options);
  Waits waits;
  made->AttachObserver(&waits);
  made->Run();
  ASSERT_GT(schedule.threads, 1);
  EXPECT_GT(schedule.min_steps, 3);
  EXPECT_EQ(waits.count(), 0);
  workspace.SetTensor("x", Random(row.Inserted(0, schedule.min_steps), 1));
  made->Run();
  EXPECT_GT(waits.count(), 0);
  made->DetachObserver(&waits);
}

TEST(Parallel, HonoursCaffe2sArguments) {
  const auto make = [] {
    RecurrentCase net;
    net.Sequence("x", "x_t").State("h", "h0", "h_prev", "h_next").Step("h_next = Sum(x_t, h_prev)");
    net.Output("h_all", "h", 1);
    return net;
  };
  RecurrentCase plain = make();
  EXPECT_EQ(ThreadsOf(plain), 1) << "tiny steps are not worth a thread";
  RecurrentCase three = make();
  AddInt(&three.forward(), "rnn_executor.num_threads", 3);
  EXPECT_EQ(ThreadsOf(three), 3);
  EXPECT_EQ(ThreadsOf(three, {.threads = 2}), 2) << "the run decides before the net";
  AddInt(&three.forward(), "enable_rnn_executor", 0);
  EXPECT_EQ(ThreadsOf(three), 1);
}

TEST_P(ParallelThreads, ARunThatIsCancelledStopsAndTheNextOneWorks) {
  Workspace workspace;
  FeedLayers(2, 50, 1, workspace);
  const auto net = Net::Create(Layers(2, true), workspace, {.executor = "parallel", .threads = GetParam()});
  net->Run();
  const Tensor expected = workspace.GetTensor("x_grad").Clone();
  Cancellation cancellation;
  cancellation.Cancel();
  EXPECT_THROW(net->Run(&cancellation), Error);
  const Cancellation over{std::chrono::duration<double>(0)};
  try {
    net->Run(&over);
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kCancelled);
  }
  const Cancellation later{std::chrono::duration<double>(1000)};
  net->Run(&later);
  ExpectSame(workspace.GetTensor("x_grad"), expected, "x_grad");
}

// The error of a run whose schedule `spoil` has changed.
std::string ErrorOfSpoiltRun(const std::function<void(Schedule*)>& spoil) {
  RecurrentCase net;
  net.Sequence("x", "x_t").State("h", "h0", "", "h_next").Step("a = Tanh(x_t)").Step("b = Sigmoid(x_t)");
  net.Step("h_next = Sum(a, b)").Output("h_all", "h", 1);
  StepPlan plan;
  RunOptions options{.executor = "parallel", .threads = 2};
  options.disabled_passes = {"fuse_regions"};
  options.on_plan = [&](const StepPlan& made) { plan = made; };
  Workspace workspace;
  workspace.SetTensor("x", Random({4, 2, 3}, 1));
  workspace.SetTensor("h0", Random({2, 3}, 2));
  Net::Create(net.Build(), workspace, options)->Run();
  Schedule spoilt = *plan.schedules[0]->For(4);
  spoil(&spoilt);
  plan.schedules[0] = std::make_shared<Schedule>(spoilt);
  plan.before.clear();
  RunState state(std::make_shared<StepPlan>(plan));
  for (int base = 0; base < plan.num_bases; ++base) state.SetBase(base, Tensor(DType::kDouble, {64, 2, 3}));
  state.Prepare(4, workspace);
  RunContext context;
  return ErrorOf([&] { MakeExecutor(options)->Run(state, context); });
}

// Such schedules cannot come from bytes.
TEST(Parallel, F8APlanThatCannotGoOnSaysWhatIsBlockedAndOnWhat) {
  const auto block = [](int task, Schedule* schedule) {
    ASSERT_EQ(schedule->tasks.size(), 3U);
    schedule->tasks[task].predecessor_deltas.push_back(0);
    schedule->tasks[task].starts_step = false;
  };
  const auto expect = [](const std::string& error, const std::string& text) {
    EXPECT_NE(error.find(text + "\n"), std::string::npos) << error;
  };
  expect(ErrorOfSpoiltRun([&](Schedule* schedule) {
           block(0, schedule);
           schedule->tasks[2].successors.push_back({.task = 0, .delta = 0});
         }),
         "the run cannot go on: of step 0 of 4, `a = Tanh(x_t)` waits for `h_next = Sum(a, b)`, `h_next = Sum(a, b)` "
         "waits for `a = Tanh(x_t)`");
  expect(ErrorOfSpoiltRun([&](Schedule* schedule) { block(1, schedule); }),
         "`b = Sigmoid(x_t)` waits for what does not exist, `h_next = Sum(a, b)` waits for `b = Sigmoid(x_t)`");
}

TEST_P(ParallelThreads, F1F2F3F4AFailureInAnyStepReachesTheCallerAndTheNextRunWorks) {
  RecurrentCase net;
  net.Sequence("x", "x_t").State("h", "h0", "h_prev", "h_next");
  net.Step("a = Sum(x_t, h_prev)").Step("b = test.FailsInStep(x_t)").Step("h_next = Sum(a, b)").Output("h_all", "h", 1);
  const NetDef def = net.Build();
  Workspace workspace;
  const Tensor x = Random({7, 2, 3}, 1);
  workspace.SetTensor("x", x);
  workspace.SetTensor("h0", Random({2, 3}, 2));
  const auto made = Net::Create(def, workspace, {.executor = "parallel", .threads = GetParam()});
  fails_at = -1;
  made->Run();
  const Tensor expected = workspace.GetTensor("h_all").Clone();
  for (std::int64_t step = 0; step < 7; ++step) {
    fails_at = step;
    try {
      made->Run();
      FAIL() << "step " << step;
    } catch (const Error& error) {
      EXPECT_NE(std::string(error.what()).find("as asked"), std::string::npos) << error.what();
      EXPECT_NE(std::string(error.what()).find(StrCat("step ", step)), std::string::npos) << error.what();
      EXPECT_NE(std::string(error.what()).find("FailsInStep"), std::string::npos) << error.what();
    }
    fails_at = -1;
    made->Run();
    ExpectSame(workspace.GetTensor("h_all"), expected, "h_all");
  }
}

}  // namespace
}  // namespace stepnet

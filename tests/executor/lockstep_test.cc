// How threads share a loop: by rows of the batch, or in lockstep, by parts of the units where a product and the region
// behind it allow it; with the bits of one thread.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <thread>
#include <utility>
#include <vector>

#include "failing_operator.h"
#include "recurrent_case.h"
#include "stepnet/compiler/schedule.h"
#include "stepnet/core/cancellation.h"
#include "stepnet/core/formulas/formula.h"
#include "stepnet/core/operator.h"
#include "stepnet/core/strings.h"
#include "stepnet/tests/compiler/needs_usual_plans.h"
#include "stepnet/tests/core/error_of.h"

namespace stepnet {
namespace {

constexpr std::int64_t kSteps = 60;  // so many that weights are packed

OperatorDef Product(const std::string& op) {
  OperatorDef product = ParseOp(op);
  AddInt(&product, "axis", 2);
  return product;
}

// Four gates of so many units, whose product is added to a sequence.
RecurrentCase Lstm(const std::vector<OperatorDef>& last = {ParseOp("h_next = Mul(so, tc)")}) {
  RecurrentCase net;
  net.Sequence("x", "x_t").State("h", "h0", "h_prev", "h_next").State("c", "c0", "c_prev", "c_next").Captured("u");
  OperatorDef split = ParseOp("i, f, o, g = Split(z)");
  AddInt(&split, "axis", 2);
  net.Step(Product("r = FC(h_prev, u)")).Step("z = Add(r, x_t)").Step(split);
  for (const char* op : {"si = Sigmoid(i)", "sf = Sigmoid(f)", "so = Sigmoid(o)", "tg = Tanh(g)", "a = Mul(sf, c_prev)",
                         "b = Mul(si, tg)", "c_next = Add(a, b)", "tc = Tanh(c_next)"}) {
    net.Step(op);
  }
  for (const OperatorDef& op : last) net.Step(op);
  net.Output("h_all", "h", 1);
  return net;
}

void Feed(std::int64_t batch, std::int64_t units, Workspace& workspace) {
  const DType dtype = DType::kFloat;
  workspace.SetTensor("x", Random({kSteps, batch, 4 * units}, 1, dtype));
  workspace.SetTensor("h0", Random({batch, units}, 2, dtype));
  workspace.SetTensor("c0", Random({batch, units}, 3, dtype));
  const Tensor u = Random({4 * units, units}, 4, dtype);
  for (std::int64_t i = 0; i < u.size(); ++i) u.data<float>()[i] /= static_cast<float>(units);
  workspace.SetTensor("u", u);
}

// On which cutting is worth it whatever it costs, so that small nets do.
constexpr Target kCheap = {.assumed_scheduling = {.inline_task = 0, .handed_task = 1e3, .round = 0},
                           .min_lockstep_microseconds = 1e-6};

struct Shared {
  Tensor h;
  Schedule schedule;  // of the loop
};

Shared RunOn(int threads, const NetDef& def, std::int64_t batch, std::int64_t units, const Target* target = &kCheap) {
  Shared shared;
  RunOptions options{
      .executor = threads == 0 ? "serial" : "parallel", .target = target, .threads = std::max(threads, 1)};
  options.on_plan = [&](const StepPlan& plan) {
    for (size_t s = 0; s < plan.schedules.size(); ++s) {
      if (plan.stages[s].steps_at_once == 1) shared.schedule = *plan.schedules[s];
    }
  };
  Workspace workspace;
  Feed(batch, units, workspace);
  Net::Create(def, workspace, options)->Run();
  shared.h = workspace.GetTensor("h_all").Clone();
  return shared;
}

TEST(Lockstep, AProductAndTheRegionBehindItGoThroughPartsOfTheUnits) {
  NEEDS_ALL_PASSES();
  const NetDef def = Lstm().Build();
  for (const std::int64_t units : {64, 80, 128}) {
    const Tensor expected = RunOn(0, def, 1, units).h;
    for (const int threads : {2, 3, 4}) {
      const Shared shared = RunOn(threads, def, 1, units);
      ExpectSame(shared.h, expected, StrCat(units, " units, ", threads, " threads"));
      ASSERT_EQ(shared.schedule.sharing, Sharing::kLockstep);
      ASSERT_EQ(shared.schedule.tasks.size(), 1U);
      const Task& task = shared.schedule.tasks[0];
      EXPECT_EQ(task.units, units);
      // The fewest parts of which none has more pieces of 16 units than with all threads.
      const std::int64_t pieces = units / 16, longest = (pieces + threads - 1) / threads;
      EXPECT_EQ(task.parts, (pieces + longest - 1) / longest);
      EXPECT_GT(task.instructions.size(), 1U);
    }
  }
}

TEST(Lockstep, PartsAreCutAgainWhereThatIsWorthIt) {
  NEEDS_USUAL_PLANS();
  const NetDef def = Lstm().Build();
  constexpr Target kCut = {.assumed_scheduling = kCheap.assumed_scheduling,
                           .min_lockstep_microseconds = kCheap.min_lockstep_microseconds,
                           .max_cuts_of_part = 3,
                           .min_cut_microseconds = 1e-6};
  for (const auto& [batch, units, cuts] : {std::tuple{1, 64, 2}, {1, 80, 2}, {1, 128, 3}}) {
    const Shared shared = RunOn(2, def, batch, units, &kCut);
    ASSERT_EQ(shared.schedule.sharing, Sharing::kLockstep);
    EXPECT_EQ(shared.schedule.tasks.at(0).parts, 2);
    EXPECT_EQ(shared.schedule.tasks.at(0).cuts, cuts) << units << " units";
    ExpectSame(shared.h, RunOn(0, def, batch, units).h, StrCat(units, " units"));
  }
  EXPECT_EQ(RunOn(2, def, 1, 128).schedule.tasks.at(0).cuts, 1) << "they would be too short";
}

// Units that are no whole pieces, or columns of which something is computed together, are no parts of their own.
TEST(Lockstep, OthersWaitForAllPartsOfTheProduct) {
  NEEDS_ALL_PASSES();
  const auto lstm_with_softmax = [] { return Lstm({ParseOp("m = Softmax(tc)"), ParseOp("h_next = Mul(so, m)")}); };
  for (const auto& [def, units] : {std::pair{Lstm().Build(), 72}, {lstm_with_softmax().Build(), 64}}) {
    const Tensor expected = RunOn(0, def, 1, units).h;
    for (const int threads : {2, 3}) {
      const Shared shared = RunOn(threads, def, 1, units);
      ExpectSame(shared.h, expected, StrCat(units, " units, ", threads, " threads"));
      for (const Task& task : shared.schedule.tasks) EXPECT_TRUE(task.units == 0 || task.instructions.size() == 1);
    }
  }
}

TEST(Lockstep, RowsOfTheBatchGoThroughAllStepsAlone) {
  NEEDS_USUAL_PLANS();
  const NetDef def = Lstm().Build();
  constexpr Target kRounds = {.assumed_scheduling = {.inline_task = 0, .handed_task = 1e3, .round = 1e3},
                              .min_lockstep_microseconds = 1e-6};
  for (const std::int64_t batch : {2, 5, 16}) {
    for (const std::int64_t units : {3, 64}) {
      const Tensor expected = RunOn(0, def, batch, units).h;
      for (const int threads : {2, 3, 8}) {
        const Shared shared = RunOn(threads, def, batch, units, &kRounds);
        const auto what = StrCat("batch ", batch, ", ", units, " units, ", threads, " threads");
        ExpectSame(shared.h, expected, what);
        ASSERT_EQ(shared.schedule.sharing, Sharing::kBatch) << what;
        EXPECT_EQ(shared.schedule.tasks[0].parts, std::min<std::int64_t>(threads, batch)) << what;
      }
    }
  }
}

// What mixes rows is shared in another way.
TEST(Lockstep, RowsThatStepsMixStayTogether) {
  OperatorDef mean = ParseOp("mean = ReduceMean(tc)");
  AddInts(&mean, "axes", {1});
  OperatorDef softmax = ParseOp("p = Softmax(tc)");
  AddInt(&softmax, "axis", 0);
  for (const std::vector<OperatorDef>& last :
       {std::vector{mean, ParseOp("q = Add(tc, mean)"), ParseOp("h_next = Mul(so, q)")},
        std::vector{softmax, ParseOp("h_next = Mul(so, p)")}}) {
    const NetDef def = Lstm(last).Build();
    const Shared shared = RunOn(2, def, 4, 16);
    EXPECT_NE(shared.schedule.sharing, Sharing::kBatch) << last[0].type();
    ExpectSame(shared.h, RunOn(0, def, 4, 16).h, last[0].type());
  }
}

const Registration takes_four_rows =
    Operator("test.TakesFourRows").Doc("y = x.").Input("x", "[1, 4, H]").Output("y", "as x").Formula([](Formula& f) {
      if (f.ShapeOf("x")[1] != 4) throw Error(ErrorCode::kShapeMismatch, "it takes four rows");
      f.Out({f.In("x")});
    });

TEST(Lockstep, OperatorsOfAFixedNumberOfRowsAreNotCut) {
  constexpr Target kRounds = {.assumed_scheduling = {.inline_task = 0, .handed_task = 1e3, .round = 1e3},
                              .min_lockstep_microseconds = 1e-6};
  const NetDef def = Lstm({ParseOp("same = test.TakesFourRows(tc)"), ParseOp("h_next = Mul(so, same)")}).Build();
  const Shared shared = RunOn(2, def, 4, 16, &kRounds);
  EXPECT_NE(shared.schedule.sharing, Sharing::kBatch);
  ExpectSame(shared.h, RunOn(0, def, 4, 16).h, "four rows");
}

TEST(Lockstep, AFailureOrACancellationEndsTheRunAndTheNextOneWorks) {
  const NetDef def = Lstm({ParseOp("copy = test.FailsInStep(tc)"), ParseOp("h_next = Mul(so, copy)")}).Build();
  const Tensor expected = RunOn(0, def, 4, 64).h;
  if (TestedOptLevel() == kMaxOptLevel) {
    EXPECT_EQ(RunOn(2, def, 4, 64).schedule.sharing, Sharing::kLockstep);
  }
  for (const int threads : {1, 2, 3, 8}) {
    Workspace workspace;
    Feed(4, 64, workspace);
    const auto made = Net::Create(def, workspace, {.target = &kCheap, .threads = threads});
    for (const std::int64_t step : {std::int64_t{0}, std::int64_t{30}, kSteps - 1}) {
      fails_at = step;
      const std::string error = ErrorOf([&] { made->Run(); });
      fails_at = -1;
      EXPECT_NE(error.find("as asked"), std::string::npos) << error;
      EXPECT_NE(error.find(StrCat("step ", step)), std::string::npos) << error;
      Cancellation cancellation;
      cancellation.Cancel();
      EXPECT_THROW(made->Run(&cancellation), Error);
      made->Run();
      ExpectSame(workspace.GetTensor("h_all"), expected, StrCat(threads, " threads"));
    }
  }
}

// y = x, the share of the run's part.
void CopyShare(const OpRun& run) {
  const auto [begin, end] = run.Share(run.In(0).size());
  std::copy(run.In(0).As<float>() + begin, run.In(0).As<float>() + end, run.Out(0).As<float>() + begin);
}

std::thread::id calling_thread;
std::atomic<int> parts_of_helpers = 0;

RunFn MakeSlowInHelpers(const OperatorCall&) {
  return [](const OpRun& run) {
    if (std::this_thread::get_id() != calling_thread) {
      ++parts_of_helpers;
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    CopyShare(run);
  };
}

const Registration slow_in_helpers =
    Operator("test.SlowInHelpers")
        .Doc("y = x, late where another thread than the caller's runs it.")
        .Input("x", "any")
        .Output("y", "as x")
        .Shapes(SameAsInput(0))
        .StopsGradient()
        .Cpu(
            {.make = MakeSlowInHelpers, .max_parts = [](const ShapeQuery&, std::span<const TensorInfo>) { return 2; }});

// As where another process has their core.
TEST(Lockstep, HelpersThatOthersWaitForAgainAndAgainLeave) {
  const NetDef def = Lstm({ParseOp("copy = test.SlowInHelpers(tc)"), ParseOp("h_next = Mul(so, copy)")}).Build();
  calling_thread = std::this_thread::get_id();
  const Tensor expected = RunOn(0, def, 4, 64).h;
  parts_of_helpers = 0;
  const Shared shared = RunOn(2, def, 4, 64);
  ASSERT_EQ(shared.schedule.sharing, Sharing::kLockstep);
  ExpectSame(shared.h, expected, "with a slow helper");
  EXPECT_LT(parts_of_helpers, kSteps / 2);
}

std::atomic<std::int64_t> parts_done = 0;
std::atomic<bool> has_given_up = false;

// Part 0 of each step ends when the others have, unless one has waited for seconds.
RunFn MakeLastInFirst(const OperatorCall&) {
  return [](const OpRun& run) {
    CopyShare(run);
    const std::int64_t others = (run.step() + 1) * (run.parts() - 1);
    if (run.part() > 0) ++parts_done;
    const auto latest = std::chrono::steady_clock::now() + std::chrono::seconds(5);
    while (run.part() == 0 && parts_done < others && !has_given_up) {
      std::this_thread::yield();
      if (std::chrono::steady_clock::now() > latest) has_given_up = true;
    }
  };
}

const Registration last_in_first =
    Operator("test.LastInFirst")
        .Doc("y = x, in parts of which the first ends last.")
        .Input("x", "any")
        .Output("y", "as x")
        .Shapes(SameAsInput(0))
        .StopsGradient()
        .Cpu({.make = MakeLastInFirst, .max_parts = [](const ShapeQuery&, std::span<const TensorInfo>) { return 6; }});

// As where one core is slower than the other.
TEST(Lockstep, AThreadThatIsAheadTakesWhatAnotherHasNotBegun) {
  constexpr Target kCut = {.microseconds_to_look_out = 60'000'000,
                           .assumed_scheduling = kCheap.assumed_scheduling,
                           .min_lockstep_microseconds = kCheap.min_lockstep_microseconds,
                           .min_cut_microseconds = 1e-9};
  const NetDef def = Lstm({ParseOp("copy = test.LastInFirst(tc)"), ParseOp("h_next = Mul(so, copy)")}).Build();
  parts_done = 0;
  const Tensor expected = RunOn(0, def, 4, 64).h;
  parts_done = 0;
  const Shared shared = RunOn(2, def, 4, 64, &kCut);
  ASSERT_EQ(shared.schedule.sharing, Sharing::kLockstep);
  ExpectSame(shared.h, expected, "with a slow first part");
  EXPECT_FALSE(has_given_up) << "the first part waited in vain";
}

std::vector<std::pair<std::int64_t, int>> parts_of_caller;  // step and part

RunFn MakeNotesParts(const OperatorCall&) {
  return [](const OpRun& run) {
    CopyShare(run);
    if (std::this_thread::get_id() == calling_thread) parts_of_caller.emplace_back(run.step(), run.part());
  };
}

const Registration notes_parts =
    Operator("test.NotesParts")
        .Doc("y = x, in parts that the calling thread notes.")
        .Input("x", "any")
        .Output("y", "as x")
        .Shapes(SameAsInput(0))
        .StopsGradient()
        .Cpu({.make = MakeNotesParts, .max_parts = [](const ShapeQuery&, std::span<const TensorInfo>) { return 6; }});

// So that a thread finds in its caches the weights that it read last.
TEST(Lockstep, EveryOtherStepBeginsWithTheLastPart) {
  constexpr Target kCut = {.assumed_scheduling = kCheap.assumed_scheduling,
                           .min_lockstep_microseconds = kCheap.min_lockstep_microseconds,
                           .min_cut_microseconds = 1e-9};
  const NetDef def = Lstm({ParseOp("copy = test.NotesParts(tc)"), ParseOp("h_next = Mul(so, copy)")}).Build();
  calling_thread = std::this_thread::get_id();
  int pairs = 0;
  for (int run = 0; run < 100 && pairs == 0; ++run) {  // on a busy machine the helper may do most parts of the caller
    parts_of_caller.clear();
    const Shared shared = RunOn(2, def, 4, 64, &kCut);
    ASSERT_EQ(shared.schedule.sharing, Sharing::kLockstep);
    for (size_t i = 1; i < parts_of_caller.size(); ++i) {
      const auto [step, part] = parts_of_caller[i];
      const auto [step_before, before] = parts_of_caller[i - 1];
      if (step != step_before || std::max(part, before) >= 3) continue;  // three of the parts are the helper's
      EXPECT_EQ(before < part, step % 2 == 0) << "parts " << before << " and " << part << " of step " << step;
      ++pairs;
    }
  }
  EXPECT_GT(pairs, 0);
}

TEST(Lockstep, ShortRunsAreSharedInAnotherWay) {
  const NetDef def = Lstm().Build();
  for (const std::int64_t steps : {1, 2, 7, 8, 9, 49, 3}) {
    Workspace serial, parallel;
    for (Workspace* workspace : {&serial, &parallel}) {
      Feed(4, 64, *workspace);
      workspace->SetTensor("x", Random({steps, 4, 256}, 7, DType::kFloat));
    }
    Net::Create(def, serial, {.executor = "serial"})->Run();
    Net::Create(def, parallel, {.target = &kCheap, .threads = 3})->Run();
    ExpectSame(parallel.GetTensor("h_all"), serial.GetTensor("h_all"), StrCat(steps, " steps"));
  }
}

}  // namespace
}  // namespace stepnet

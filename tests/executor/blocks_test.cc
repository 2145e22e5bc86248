// Stages that go through a block of steps at a time: the bits of one block, in memory that no length changes.
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "recurrent_case.h"
#include "stepnet/compiler/schedule.h"
#include "stepnet/core/operator.h"
#include "stepnet/core/strings.h"
#include "stepnet/executor/recurrent_record.h"
#include "stepnet/nets/backward.h"
#include "stepnet/nets/backward_step.h"
#include "stepnet/tests/compiler/needs_usual_plans.h"
#include "stepnet/tests/core/error_of.h"
#include "stepnet/tests/core/limited_memory.h"

namespace stepnet {
namespace {

constexpr std::int64_t kUnits = 128;
constexpr std::int64_t kSteps = 300;

// Layers that each have a projection over time and a loop.
NetDef Layers(int num_layers) {
  RecurrentCase net;
  net.Sequence("x", "y0");
  for (int k = 1; k <= num_layers; ++k) {
    const auto name = [&](const char* blob) { return StrCat(blob, k); };
    const auto step = [&](const std::string& text) {
      OperatorDef op = ParseOp(text);
      if (op.type() == "FC") AddInt(&op, "axis", 2);
      net.Step(op);
    };
    net.State(name("h"), name("init"), name("prev"), name("y")).Captured(name("w")).Captured(name("u"));
    step(StrCat("p", k, " = FC(y", k - 1, ", w", k, ")"));
    step(StrCat("r", k, " = FC(prev", k, ", u", k, ")"));
    step(StrCat("s", k, " = Add(p", k, ", r", k, ")"));
    step(StrCat("y", k, " = Tanh(s", k, ")"));
    net.Output(StrCat("all", k), name("h"), 1);
  }
  return net.Build();
}

void Feed(int num_layers, std::int64_t steps, std::int64_t batch, Workspace& workspace) {
  workspace.SetTensor("x", Random({steps, batch, kUnits}, 1, DType::kFloat));
  for (int k = 1; k <= num_layers; ++k) {
    const auto seed = static_cast<unsigned>(4 * k);
    workspace.SetTensor(StrCat("init", k), Random({batch, kUnits}, seed, DType::kFloat));
    for (const char* weight : {"w", "u"}) {
      const Tensor weights = Random({kUnits, kUnits}, seed + (weight[0] == 'w' ? 1 : 2), DType::kFloat);
      for (std::int64_t i = 0; i < weights.size(); ++i) weights.data<float>()[i] /= 16;
      workspace.SetTensor(StrCat(weight, k), weights);
    }
  }
}

struct LastRun {
  Tensor all;  // rows of the last layer
  StepPlan plan;
  std::set<Sharing> sharings;
};

LastRun RunOn(const Target& target, int threads, int num_layers, std::int64_t batch) {
  LastRun last;
  RunOptions options{
      .executor = threads == 0 ? "serial" : "parallel", .target = &target, .threads = std::max(threads, 1)};
  options.on_plan = [&](const StepPlan& plan) { last.plan = plan; };
  Workspace workspace;
  Feed(num_layers, kSteps, batch, workspace);
  Net::Create(Layers(num_layers), workspace, options)->Run();
  last.all = workspace.GetTensor(StrCat("all", num_layers)).Clone();
  for (size_t s = 0; s < last.plan.schedules.size(); ++s) {
    const Schedule* const chosen = last.plan.schedules[s]->For(kSteps);
    if (chosen != nullptr && last.plan.stages[s].steps_at_once == 1) last.sharings.insert(chosen->sharing);
  }
  return last;
}

TEST(Blocks, GiveTheBitsOfStagesThatGoThroughAllSteps) {
  NEEDS_ALL_PASSES();
  constexpr Target kWithout = {.block_bytes = 0};
  constexpr SchedulingCosts kTogether = {.inline_task = 0, .handed_task = 1e3, .round = 0};
  constexpr SchedulingCosts kFree = {.inline_task = 0, .handed_task = 0, .round = 1e3};
  constexpr Target kTargets[] = {
      {.assumed_scheduling = kTogether,
       .min_lockstep_microseconds = 1e-6,
       .block_bytes = 1,
       .min_chunks_of_block = 1,
       .min_chunks_of_thread = 0},
      {.assumed_scheduling = kFree, .block_bytes = 1, .min_chunks_of_block = 2, .min_chunks_of_thread = 0}};
  std::set<Sharing> sharings;
  int num_overlapping = 0;
  for (const int num_layers : {1, 2}) {
    for (const std::int64_t batch : {1, 4}) {
      const LastRun without = RunOn(kWithout, 0, num_layers, batch);
      ASSERT_EQ(without.plan.block_steps, 0);
      for (const Target& target : kTargets) {
        for (const int threads : {0, 1, 2, 3}) {
          const auto what = StrCat(num_layers, " layers, batch ", batch, ", ", threads, " threads");
          const LastRun in_blocks = RunOn(target, threads, num_layers, batch);
          ExpectSame(in_blocks.all, without.all, what);
          ASSERT_EQ(in_blocks.plan.block_steps, target.min_chunks_of_block * in_blocks.plan.chunk_steps) << what;
          ASSERT_LT(2 * in_blocks.plan.block_steps, kSteps) << what;
          ASSERT_NE(kSteps % in_blocks.plan.chunk_steps, 0) << what << ": no rest";
          sharings.insert(in_blocks.sharings.begin(), in_blocks.sharings.end());
          num_overlapping += PipelineFor(kSteps, in_blocks.plan) != nullptr ? 1 : 0;
        }
      }
    }
  }
  EXPECT_EQ(sharings, (std::set{Sharing::kTasks, Sharing::kLockstep, Sharing::kBatch}));
  EXPECT_GT(num_overlapping, 0);
}

TEST(Blocks, TakeTheSameMemoryForAnyNumberOfSteps) {
  NEEDS_USUAL_PLANS();
  constexpr std::int64_t kBytesOfStep = 2 * 4 * kUnits * 4;  // of the projections of two layers, a batch of 4
  const StepPlan plan = RunOn(kCpuTarget, 0, /*num_layers=*/2, /*batch=*/4).plan;
  const std::int64_t steps = plan.block_steps;
  ASSERT_EQ(steps, kCpuTarget.block_bytes / kBytesOfStep);
  EXPECT_EQ(plan.ArenaBytes(100 * steps), plan.ArenaBytes(steps));
  EXPECT_EQ(plan.ArenaBytes(steps) - plan.ArenaBytes(steps - 1), kBytesOfStep);
}

TEST(Blocks, HaveWorkForAllThreads) {
  NEEDS_ALL_PASSES();
  const auto chunks = [](int threads) {
    const StepPlan plan = RunOn(kCpuTarget, threads, /*num_layers=*/1, /*batch=*/4).plan;
    return plan.block_steps / plan.chunk_steps;
  };
  EXPECT_EQ(chunks(2), chunks(0));
  EXPECT_GE(chunks(40), kCpuTarget.min_chunks_of_thread * 40);
}

// The gradient reads what the first layer gives.
TEST(Blocks, HoldNothingThatIsReadAfterTheLoop) {
  NEEDS_ALL_PASSES();
  NetDef net = Layers(2);
  AddBackwardStepNets(&net);
  net = AddGradients(net, {"all2"}, {"w1", "u1", "w2", "u2"}).net;
  Workspace with_blocks, without;
  constexpr Target kShort = {.block_bytes = 1, .min_chunks_of_block = 1}, kWithout = {.block_bytes = 0};
  for (auto [target, workspace] : {std::pair{&kShort, &with_blocks}, {&kWithout, &without}}) {
    Feed(2, kSteps, 4, *workspace);
    workspace->SetTensor("all2_grad", Random({kSteps, 4, kUnits}, 99, DType::kFloat));
    RunOptions options{.executor = "serial", .target = target};
    options.on_plan = [&](const StepPlan& plan) {
      if (plan.backward) {
        EXPECT_EQ(plan.block_steps, 0);
      }
    };
    Net::Create(net, *workspace, options)->Run();
  }
  for (const char* weight : {"w1", "u1", "w2", "u2"}) {
    const std::string gradient = StrCat(weight, "_grad");
    ExpectSame(with_blocks.GetTensor(gradient), without.GetTensor(gradient), gradient);
  }
}

// What blocks pass on is where the run back has its temporaries.
TEST(Blocks, OfAnyLengthTakeNoMemoryInTraining) {
  NEEDS_ALL_PASSES();
  NetDef net = Layers(2);
  AddBackwardStepNets(&net);
  net = AddGradients(net, {"all2"}, {"w1", "u1", "w2", "u2"}).net;
  constexpr Target kShort = {.block_bytes = 1, .min_chunks_of_block = 1};
  const auto peak_of = [&](const Target& target, std::int64_t block_steps) {
    Workspace workspace;
    Feed(2, kSteps, 4, workspace);
    workspace.SetTensor("all2_grad", Random({kSteps, 4, kUnits}, 99, DType::kFloat));
    RunOptions options{.executor = "serial", .target = &target};
    options.on_plan = [&](const StepPlan& plan) {
      if (!plan.backward) {
        EXPECT_EQ(plan.block_steps, block_steps);
      }
    };
    ResetPeakTensorMemory();
    const std::int64_t before = TensorMemory().current;
    Net::Create(net, workspace, options)->Run();
    return TensorMemory().peak - before;
  };
  EXPECT_EQ(peak_of(kShort, 16), peak_of(kCpuTarget, 256));
}

// Otherwise each run forward would give back what the run back takes again.
TEST(Blocks, OfARunForwardLeaveTheMemoryThatTheRunBackHasMadeLarger) {
  NEEDS_USUAL_PLANS();
  NetDef net = Layers(2);
  AddBackwardStepNets(&net);
  net = AddGradients(net, {"all2"}, {"w1", "u1", "w2", "u2"}).net;
  NetDef forward = net, backward = net;
  forward.mutable_op()->DeleteSubrange(1, net.op_size() - 1);
  backward.mutable_op()->DeleteSubrange(0, 1);
  constexpr Target kShort = {.block_bytes = 1, .min_chunks_of_block = 1};
  const RunOptions options{.executor = "serial", .target = &kShort};
  Workspace workspace;
  Feed(2, kSteps, 4, workspace);
  workspace.SetTensor("all2_grad", Random({kSteps, 4, kUnits}, 99, DType::kFloat));
  const std::unique_ptr<Net> runs_forward = Net::Create(forward, workspace, options);
  const std::unique_ptr<Net> runs_back = Net::Create(backward, workspace, options);
  const auto bytes = [&] { return workspace.GetBlob("record").GetObject<RecurrentRecord>()->MemoryBytes(); };
  runs_forward->Run();
  const std::int64_t before = bytes();
  runs_back->Run();
  const std::int64_t after = bytes();
  EXPECT_GT(after, before);
  runs_forward->Run();
  EXPECT_EQ(bytes(), after);
}

// What became of a run for which so many bytes were there.
struct RunWithin {
  std::vector<std::int64_t> block_steps;  // of the plans that were made, in their order
  std::int64_t arena_bytes = 0;           // of the last one
  std::int64_t peak = 0;
  Tensor all;
  std::string error;

  RunWithin(const NetDef& net, const Target& target, std::int64_t room) {
    Workspace workspace;
    Feed(1, kSteps, 4, workspace);
    RunOptions options{.executor = "parallel", .target = &target, .threads = 2};
    options.on_plan = [&](const StepPlan& plan) {
      block_steps.push_back(plan.block_steps);
      arena_bytes = plan.ArenaBytes(kSteps);
    };
    const std::unique_ptr<Net> made = Net::Create(net, workspace, options);
    ResetPeakTensorMemory();
    const std::int64_t before = TensorMemory().current;
    {
      const LimitedMemory limited(before + room);
      error = ErrorOf([&] { made->Run(); });
      if (error == "no error") {
        const size_t num_plans = block_steps.size();
        made->Run();
        EXPECT_EQ(block_steps.size(), num_plans) << "what was short enough is known";
      }
    }
    peak = TensorMemory().peak - before;
    made->Run();
    all = workspace.GetTensor("all1").Clone();
  }
};

TEST(Blocks, AreShorterWhereMemoryIsShort) {
  NEEDS_ALL_PASSES();
  constexpr Target kShort = {.block_bytes = 1, .min_chunks_of_block = 1, .min_chunks_of_thread = 0};
  constexpr std::int64_t kMuch = std::int64_t{1} << 30;
  const NetDef net = Layers(1);
  const RunWithin whole(net, kCpuTarget, kMuch), least(net, kShort, kMuch);
  ASSERT_EQ(whole.block_steps, std::vector<std::int64_t>{512});
  ASSERT_EQ(least.block_steps, std::vector<std::int64_t>{16});
  const RunWithin shorter(net, kCpuTarget, whole.peak - 1), shortest(net, kCpuTarget, least.peak);
  EXPECT_EQ(shorter.block_steps, (std::vector<std::int64_t>{512, 64}));
  EXPECT_EQ(shortest.block_steps, (std::vector<std::int64_t>{512, 64, 16}));
  ExpectSame(shorter.all, whole.all, "blocks of 64 steps");
  ExpectSame(shortest.all, whole.all, "blocks of 16 steps");
  const RunWithin refused(net, kCpuTarget, least.peak - 1);
  EXPECT_NE(refused.error.find(StrCat(" and ", least.arena_bytes, " for what the steps compute: ")), std::string::npos)
      << refused.error;
  ExpectSame(refused.all, whole.all, "with enough memory again");
}

}  // namespace
}  // namespace stepnet

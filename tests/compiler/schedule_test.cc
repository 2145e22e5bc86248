// Schedules made by hand, whose longest chain and simulated times can be worked out.
#include "stepnet/compiler/schedule.h"

#include <gtest/gtest.h>

#include "stepnet/compiler/longest_chain.h"
#include "stepnet/compiler/simulation.h"
#include "stepnet/compiler/step_plan.h"
#include "stepnet/core/machine_limits.h"
#include "stepnet/core/op_run.h"

namespace stepnet {
namespace {

// Tasks of one instruction each.
Schedule Make(const std::vector<double>& microseconds, const std::vector<Dependency>& edges) {
  Schedule schedule;
  for (size_t i = 0; i < microseconds.size(); ++i) {
    schedule.tasks.push_back({.instructions = {static_cast<int>(i)}, .microseconds = microseconds[i]});
    schedule.step_microseconds += microseconds[i];
  }
  for (const Dependency& edge : edges) {
    schedule.tasks[edge.from].successors.push_back({.task = edge.to, .delta = edge.delta});
    schedule.tasks[edge.to].predecessor_deltas.push_back(edge.delta);
    schedule.dependencies.max_delta = std::max(schedule.dependencies.max_delta, edge.delta);
  }
  for (Task& task : schedule.tasks) task.starts_step = task.NumPredecessors(0) == 0;
  return schedule;
}

std::vector<std::pair<int, int>> Chain(const Schedule& schedule) {
  std::vector<std::pair<int, int>> chain;
  for (const ChainLink& link : LongestChain(schedule)) chain.emplace_back(link.instruction, link.delta);
  return chain;
}

using Links = std::vector<std::pair<int, int>>;

TEST(LongestChain, IsTheOneWithMostTimeForAStep) {
  const Dependency forth{.from = 0, .to = 1, .delta = 0}, itself{.from = 2, .to = 2, .delta = 1};
  EXPECT_EQ(Chain(Make({1, 2, 2.5}, {forth, {.from = 1, .to = 0, .delta = 1}, itself})), (Links{{0, 1}, {1, 0}}));
  EXPECT_EQ(Chain(Make({1, 2, 3.5}, {forth, {.from = 1, .to = 0, .delta = 1}, itself})), (Links{{2, 1}}));
  // 3 us, but only every second step waits for it.
  EXPECT_EQ(Chain(Make({1, 2, 2.5}, {forth, {.from = 1, .to = 0, .delta = 2}, itself})), (Links{{2, 1}}));
}

TEST(LongestChain, IsThatOfAStepWhereNoStepWaitsForAnother) {
  EXPECT_EQ(Chain(Make({1, 2, 2}, {{.from = 0, .to = 2, .delta = 0}})), (Links{{0, 0}, {2, 0}}));
  EXPECT_EQ(Chain(Make({1}, {})), (Links{{0, 0}}));
  EXPECT_EQ(Chain(Schedule{}), Links{});
}

TEST(LongestChain, SetsThePaceOfASimulationWithThreadsWithoutNumber) {
  const Schedule schedule = Make({1, 2, 2.5}, {{.from = 0, .to = 1, .delta = 0},
                                               {.from = 1, .to = 0, .delta = 1},
                                               {.from = 1, .to = 2, .delta = 0},
                                               {.from = 2, .to = 2, .delta = 1}});
  constexpr SchedulingCosts kFree{.inline_task = 0, .handed_task = 0};
  EXPECT_DOUBLE_EQ(Simulate(schedule, 16, 100, 100, kFree).microseconds, 100 * 3 + 2.5);
  EXPECT_DOUBLE_EQ(Simulate(schedule, 1, 100, 100, kFree).microseconds, 100 * 5.5);
  // The last task of a step runs beside the first ones of the next.
  EXPECT_DOUBLE_EQ(Simulate(schedule, 2, 100, 2, kFree).microseconds, 100 * 3 + 2.5);
  EXPECT_DOUBLE_EQ(Simulate(schedule, 2, 100, 1, kFree).microseconds, 100 * 5.5) << "one step at a time";
}

TEST(Simulation, TakesFirstWhatOthersWaitForLongest) {
  Schedule schedule = Make({2, 2, 1, 3}, {{.from = 2, .to = 3, .delta = 0}});
  constexpr SchedulingCosts kFree{.inline_task = 0, .handed_task = 0};
  EXPECT_DOUBLE_EQ(Simulate(schedule, 2, 1, 1, kFree).microseconds, 6) << "tasks in order: 2, then 1 and 3";
  for (Task& task : schedule.tasks) task.tail = task.microseconds;
  schedule.tasks[2].tail += 3;
  EXPECT_DOUBLE_EQ(Simulate(schedule, 2, 1, 1, kFree).microseconds, 4) << "1 and 3 beside 2 and 2";
}

TEST(Simulation, GivesThreadsTasksOneAfterTheOther) {
  Schedule schedule = Make({12}, {});
  schedule.tasks[0].parts = 4;
  constexpr SchedulingCosts kCosts{.inline_task = 0.5, .handed_task = 1};
  EXPECT_DOUBLE_EQ(Simulate(schedule, 2, 1, 1, kCosts).microseconds, 4.5 + 1 + 3)
      << "the other one was given a part at 4.5";
  // Others look at the list meanwhile.
  EXPECT_DOUBLE_EQ(Simulate(schedule, 4, 1, 1, kCosts).microseconds, 3 * (1 + 2 * 0.5) + 3);
}

TEST(Task, PartsOfUnitsAreOfWholePieces) {
  constexpr std::int64_t kUnits = 16 * OpRun::kUnitsOfPart;
  EXPECT_DOUBLE_EQ((Task{.microseconds = 16, .parts = 4, .units = kUnits}.PartMicroseconds()), 4);
  EXPECT_DOUBLE_EQ((Task{.microseconds = 16, .parts = 15, .units = kUnits}.PartMicroseconds()), 2)
      << "one has two pieces";
  EXPECT_DOUBLE_EQ((Task{.microseconds = 16, .parts = 15}.PartMicroseconds()), 16.0 / 15);
}

TEST(Schedule, ATaskIsDueBeforeThoseOfShorterTailsAndOfLaterSteps) {
  Schedule schedule = Make({2, 1}, {{.from = 0, .to = 0, .delta = 1}, {.from = 0, .to = 1, .delta = 0}});
  schedule.tasks[0].tail = 3;
  schedule.tasks[1].tail = 1;
  schedule.pace = 2;
  schedule.step_microseconds = 12;
  schedule.threads = 2;  // 4 us a step behind
  EXPECT_LT(schedule.Due(0, 5, -1), schedule.Due(1, 5, -1));
  EXPECT_EQ(schedule.Due(0, 6, -1), schedule.Due(1, 5, -1)) << "both begin 12 us after the run";
  EXPECT_LT(schedule.Due(0, 7, 0), schedule.Due(1, 6, 0)) << "a thread stays with its task";
  EXPECT_GT(schedule.Due(0, 10, 0), schedule.Due(1, 6, 0)) << "not for ever";
}

TEST(MakeSchedule, HasOneThreadForAPlanThatDoesNothing) { EXPECT_EQ(MakeSchedule(StepPlan{}, Stage{}, 0).threads, 1); }

TEST(MakeSchedule, LetsThreadsShareEachPieceOfARunOfFewPieces) {
  StepPlan plan;
  plan.instructions.resize(1);
  plan.instructions[0].cost.flops = 1e8;
  plan.instructions[0].max_parts = 64;
  plan.stages = {{.begin = 0, .end = 1, .steps_at_once = 8}};
  const Schedule schedule = MakeSchedule(plan, plan.stages[0], 4);
  const auto parts_in_runs_of = [&](std::int64_t steps) { return schedule.For(steps)->tasks.at(0).parts; };
  EXPECT_EQ(parts_in_runs_of(8), 4) << "three threads would have nothing to do";
  EXPECT_EQ(parts_in_runs_of(24), 4);
  EXPECT_EQ(parts_in_runs_of(25), 1) << "each thread has a piece";
  EXPECT_EQ(schedule.StepsOfLastPieces(32), 0) << "of four pieces each thread has one";
  EXPECT_EQ(schedule.StepsOfLastPieces(41), 9) << "two pieces are left, of 8 steps and of one";
  EXPECT_EQ(schedule.StepsOfLastPieces(24), 0);
  EXPECT_EQ(schedule.For(24)->StepsOfLastPieces(24), 0);
}

// How two threads share a loop of one instruction, 16 rows that all read `bytes`, which takes seconds.
Sharing SharingOfRows(std::int64_t bytes, const Target& target) {
  constexpr std::int64_t kRows = 16;
  const TensorInfo weights{.dtype = DType::kUInt8, .shape = Shape({bytes})};
  const TensorInfo rows{.dtype = DType::kUInt8, .shape = Shape({kRows})};
  StepPlan plan{.target = &target};
  plan.slots = {{.base = 0, .bytes = bytes}, {.base = 1, .row_bytes = kRows, .bytes = kRows}};
  plan.instructions = {{.inputs = {{.slot = 0, .info = weights}},
                        .outputs = {{.slot = 1, .info = rows, .has_batch = true}},
                        .cost = {.flops = 1e12, .bytes = static_cast<double>(bytes) + kRows},
                        .max_parts = 2,
                        .batch_rows = kRows}};
  plan.stages = {{.begin = 0, .end = 1}};
  return MakeSchedule(plan, plan.stages[0], 2).sharing;
}

TEST(MakeSchedule, ThreadsTakeRowsOfTheBatchWhereTheyReadWhatRowsShareInTime) {
  constexpr std::int64_t kSecond = 1 << 20;
  constexpr double kFast = 1e12, kSlow = 1;
  constexpr Target kOnlyNear = {
      .near_bytes_per_microsecond = kFast, .far_bytes_per_microsecond = kSlow, .second_cache_bytes = kSecond};
  constexpr Target kOnlyFar = {
      .near_bytes_per_microsecond = kSlow / 100, .far_bytes_per_microsecond = kFast, .second_cache_bytes = kSecond};
  EXPECT_EQ(SharingOfRows(kSecond, kOnlyNear), Sharing::kBatch);
  EXPECT_NE(SharingOfRows(kSecond, kOnlyFar), Sharing::kBatch);
  const std::int64_t of_third = ThirdCacheBytes() / 4, beyond = 1000 * ThirdCacheBytes();
  EXPECT_NE(SharingOfRows(beyond, kOnlyNear), Sharing::kBatch);
  EXPECT_EQ(SharingOfRows(beyond, kOnlyFar), Sharing::kBatch);
  EXPECT_EQ(SharingOfRows(of_third, kOnlyFar), Sharing::kBatch);
  EXPECT_EQ(SharingOfRows(of_third, kOnlyNear), Sharing::kBatch) << "what was measured is slower than a byte in 1 us";
}

}  // namespace
}  // namespace stepnet

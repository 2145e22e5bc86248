// Where the time of runs goes: what is counted, and what follows from it.
#include "stepnet/tools/rnn_runner/run_stats.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "stepnet/nets/rename.h"
#include "stepnet/tests/executor/recurrent_case.h"
#include "stepnet/tests/operators/op_test.h"
#include "stepnet/tests/poison_device/poison_device.h"
#include "stepnet/tools/rnn_runner/stats_text.h"
#include "training_case.h"

namespace stepnet::runner {
namespace {

constexpr std::int64_t kSteps = 6;

// Runs the net on so many threads, some times, operators one by one, and says what was seen.
std::vector<NetStats> StatsOf(RecurrentCase& net, RunOptions options, int runs = 1) {
  options.disabled_passes = {"fuse_regions"};
  const std::unique_ptr<Net> made = Net::Create(net.Build(), net.workspace(), options);
  RunStats stats;
  made->AttachObserver(&stats);
  for (int run = 0; run < runs; ++run) made->Run();
  made->DetachObserver(&stats);
  return stats.Nets();
}

std::vector<std::string> Texts(const NetStats& stats) {
  std::vector<std::string> texts;
  for (const InstructionStats& instruction : stats.instructions) texts.push_back(instruction.text);
  return texts;
}

// Threads that overlap are busy for longer than the clock says; no operator takes more than its run.
TEST(RunStats, SharesOutTheTimeOfThreadsThatOverlap) {
  NetStats stats{.seconds = 2};
  stats.instructions = {{.seconds = 3}, {.seconds = 1}};
  EXPECT_DOUBLE_EQ(stats.SecondsOf(stats.instructions[0]), 1.5);
  EXPECT_DOUBLE_EQ(stats.SecondsOf(stats.instructions[1]), 0.5);
  stats.seconds = 8;
  EXPECT_DOUBLE_EQ(stats.SecondsOf(stats.instructions[0]), 3);
  EXPECT_EQ(NetStats().SecondsOf({}), 0);
}

TEST(RunStats, CountsInstructionsOfNetsAndStepNetsMovesIncluded) {
  for (const char* executor : {"serial", "parallel"}) {
    RecurrentCase net = TrainingCase(kSteps);
    const std::vector<NetStats> nets = StatsOf(net, {.executor = executor, .threads = 2}, /*runs=*/3);
    ASSERT_EQ(nets.size(), 3U);
    EXPECT_EQ(nets[0].net, "case");
    EXPECT_EQ(nets[0].plan, nullptr);
    EXPECT_EQ(nets[0].runs, 3);
    EXPECT_EQ(nets[0].instructions.size(), 2U);
    EXPECT_EQ(nets[1].net, "step");
    EXPECT_EQ(nets[1].of, "op 0 of case");
    EXPECT_FALSE(nets[1].backward);
    EXPECT_EQ(Texts(nets[1]), (std::vector<std::string>{"s = Sum(x_t, h_prev)", "h_next = Mul(s, w)", "h[0:1] = h0"}));
    EXPECT_EQ(nets[2].net, "backward_step");
    EXPECT_EQ(nets[2].of, "op 1 of case");
    EXPECT_TRUE(nets[2].backward);
    const std::vector<std::string> backward = Texts(nets[2]);
    const auto move = std::ranges::find(backward, "w_grad += w_step");
    ASSERT_NE(move, backward.end());
    EXPECT_EQ(nets[2].instructions[static_cast<size_t>(move - backward.begin())].op_index, -1);
    for (const NetStats& stats : {nets[1], nets[2]}) {
      EXPECT_EQ(stats.runs, 3);
      EXPECT_EQ(stats.steps, 3 * kSteps);
      EXPECT_EQ(stats.max_steps, kSteps);
      for (size_t i = 0; i < stats.instructions.size(); ++i) {
        const bool is_in_loop = i < (*stats.plan).instructions.size();
        EXPECT_EQ(stats.instructions[i].calls, is_in_loop ? 3 * kSteps : 3)
            << executor << ": " << stats.instructions[i].text;
      }
    }
  }
}

TEST(RunStats, OfEachThreadTimesAddUpToTheLoops) {
  for (const int threads : {1, 2, 3}) {
    RecurrentCase net = TrainingCase(kSteps);
    for (const NetStats& stats : StatsOf(net, {.threads = threads}, /*runs=*/20)) {
      if (stats.plan == nullptr) continue;
      ASSERT_FALSE(stats.threads.empty());
      EXPECT_EQ(stats.threads.front().name, "caller");
      double busy = 0;
      std::int64_t starts = 0;
      for (const ThreadStats& thread : stats.threads) {
        EXPECT_NEAR(thread.busy + thread.idle + thread.overhead, stats.seconds, 1e-9);
        for (const double part : {thread.busy, thread.idle, thread.overhead}) EXPECT_GE(part, -1e-9) << thread.name;
        EXPECT_GT(thread.overhead, 0);
        busy += thread.busy;
        starts += thread.starts;
      }
      EXPECT_NEAR(busy, stats.busy(), 1e-9);
      EXPECT_EQ(starts, stats.starts());
      EXPECT_GT(stats.busy(), 0);
    }
  }
}

// It is all of the operator's time that is no loop, most of it in the first run, which makes the plan.
TEST(RunStats, TellsPreparationFromSteps) {
  RecurrentCase net = TrainingCase(kSteps);
  const std::vector<NetStats> nets = StatsOf(net, {.threads = 1}, /*runs=*/2);
  for (size_t k = 1; k < nets.size(); ++k) {
    const NetStats& stats = nets[k];
    EXPECT_GT(stats.preparation, stats.first_preparation);
    EXPECT_GT(stats.first_preparation, stats.preparation / 2);
    EXPECT_NEAR(stats.preparation + stats.seconds, nets[0].instructions[k - 1].seconds, 1e-9);
  }
  EXPECT_EQ(nets[0].preparation, 0);
}

TEST(StatsText, SaysWhatIsPreparation) {
  RecurrentCase net = TrainingCase(kSteps);
  std::vector<NetStats> nets = StatsOf(net, {.threads = 1}, /*runs=*/2);
  nets[1].preparation = 0.05;
  nets[1].first_preparation = 0.04;
  nets[1].seconds = 0.001;
  nets[2].preparation = 0.0001;
  nets[2].first_preparation = 0.00005;
  nets[2].seconds = 0.001;
  const std::string text = StatsText(nets);
  EXPECT_NE(text.find("\n  preparation: 50.000 ms beside the steps, 40.000 of them in the first run; a first run makes "
                      "the plan and takes memory\n"),
            std::string::npos)
      << text;
  EXPECT_NE(text.find("\n  preparation: 0.1000 ms beside the steps, 0.0500 of them in the first run\n"),
            std::string::npos)
      << text;
  EXPECT_EQ(StatsJson(nets)[1]["preparation_ms"], 50);
}

// Its work is done long after it was put in.
TEST(RunStats, OfADeviceTimesAreItsOwn) {
  RecurrentCase net = TrainingCase(kSteps);
  const std::vector<NetStats> nets = StatsOf(net, OnDevice({}, kPoisonDevice), /*runs=*/3);
  ASSERT_EQ(nets.size(), 3U);
  EXPECT_EQ(nets[0].device, "");
  for (const NetStats& stats : {nets[1], nets[2]}) {
    EXPECT_EQ(stats.device, "private:0");
    EXPECT_EQ(stats.steps, 3 * kSteps);
    EXPECT_TRUE(stats.threads.empty());
    EXPECT_GT(stats.busy(), 0);
    EXPECT_LE(stats.busy(), stats.seconds);
    EXPECT_LE(stats.seconds, nets[0].seconds);
    EXPECT_GT(stats.host_seconds, 0);
    EXPECT_EQ(stats.instructions[0].calls, 3 * kSteps);
  }
  const std::string text = StatsText(nets);
  EXPECT_NE(text.find("  on private:0: busy "), std::string::npos) << text;
  EXPECT_EQ(text.find("threads"), std::string::npos) << text;
  EXPECT_EQ(StatsJson(nets)[1].at("device"), "private:0");
  EXPECT_EQ(DeviceText({}), "");
  EXPECT_EQ(DeviceText(kPoisonDevice).substr(0, 21), "memory of private:0: ");
}

TEST(RunStats, InstructionsInPartsAreCalledOnceAStep) {
  RecurrentCase net;
  net.Sequence("x", "x_t").State("h", "h0", "h_prev", "h_next").Captured("w");
  OperatorDef product = ParseOp("s = FC(h_prev, w)");
  AddInt(&product, "axis", 2);
  net.Step(product).Step("h_next = Sum(x_t, s)").Output("h_all", "h", 1);
  net.Feed("x", Random({kSteps, 2, 1024}, 1, DType::kFloat)).Feed("h0", Random({2, 1024}, 2, DType::kFloat));
  net.Feed("w", Random({1024, 1024}, 3, DType::kFloat));
  for (const int cuts : {1, 2}) {
    const Target target = {.max_cuts_of_part = cuts, .min_cut_microseconds = 1e-3};
    const std::vector<NetStats> nets = StatsOf(net, {.target = &target, .threads = 2});
    ASSERT_EQ(nets.size(), 2U);
    const auto fc = std::ranges::find(nets[1].instructions, "s = FC(h_prev, w)", &InstructionStats::text);
    ASSERT_NE(fc, nets[1].instructions.end());
    EXPECT_EQ(fc->calls, kSteps);
    EXPECT_EQ(fc->starts, 2 * cuts * kSteps);
  }
}

// Two layers of a cell have step nets of one name.
TEST(RunStats, StepNetsOfTheSameNameAreApart) {
  RecurrentCase one = TrainingCase(kSteps);
  NetDef forward;
  forward.set_name("both");
  *forward.add_op() = one.Build().op(0);
  NetDef second = forward;
  RenameBlobs({{"h", "h_2"}, {"h_all", "h_all_2"}, {"record", "record_2"}}, &second);
  *forward.add_op() = second.op(0);
  const std::unique_ptr<Net> made = Net::Create(forward, one.workspace());
  RunStats stats;
  made->AttachObserver(&stats);
  made->Run();
  const std::vector<NetStats> nets = stats.Nets();
  ASSERT_EQ(nets.size(), 3U);
  EXPECT_EQ(nets[1].net, nets[2].net);
  EXPECT_EQ(nets[1].of, "op 0 of both");
  EXPECT_EQ(nets[2].of, "op 1 of both");
  EXPECT_EQ(nets[1].steps, kSteps);
}

// States that know nothing of each other, whose instructions are said to have taken a second each.
NetStats TwoChains(int threads) {
  RecurrentCase net;
  net.Sequence("x", "").State("h", "h0", "h_prev", "h_next").State("g", "g0", "g_prev", "g_next");
  net.Step("h_next = Tanh(h_prev)").Step("g_next = Tanh(g_prev)").Output("h_all", "h", 1).Output("g_all", "g", 1);
  net.Feed("x", Random({kSteps, 2, 3}, 1)).Feed("h0", Random({2, 3}, 2)).Feed("g0", Random({2, 3}, 3));
  NetStats stats = StatsOf(net, {.threads = threads}).at(1);
  for (size_t i = 0; i < stats.instructions.size(); ++i) stats.instructions[i].seconds = i < 2 ? kSteps : 0;
  stats.seconds = 8;
  return stats;
}

TEST(RunStats, ParallelismFollowsFromMeasuredTimes) {
  const Parallelism one = ParallelismOf(TwoChains(1));
  EXPECT_NEAR(one.achieved, 2.0 * kSteps / 8, 1e-9);
  EXPECT_NEAR(one.achievable, 1, 1e-3);
  EXPECT_NEAR(one.unlimited, 2, 1e-3);
  const Parallelism two = ParallelismOf(TwoChains(2));
  EXPECT_NEAR(two.unlimited, 2, 1e-3);
  EXPECT_NEAR(two.achieved, 2.0 * kSteps / 8, 1e-9);
  EXPECT_NEAR(two.achievable, 2, 1e-3);
  // One chain ten times as long as the other: little is to be had.
  NetStats uneven = TwoChains(2);
  uneven.instructions[0].seconds *= 10;
  EXPECT_NEAR(ParallelismOf(uneven).achievable, 1.1, 1e-3);
  EXPECT_NEAR(ParallelismOf(uneven).unlimited, 1.1, 1e-3);
}

TEST(RunStats, TextSaysHowThreadsAreUsed) {
  RecurrentCase net = TrainingCase(kSteps);
  const std::string serial = StatsText(StatsOf(net, {.executor = "serial"}));
  EXPECT_NE(serial.find("step net step, run by op 0 of case: 1 run, 6 steps, "), std::string::npos) << serial;
  EXPECT_NE(serial.find("backward step net backward_step, run by op 1 of case: 1 run, "), std::string::npos) << serial;
  EXPECT_NE(serial.find("schedule: one thread (executor serial); 1 thread took part\n"), std::string::npos) << serial;
  EXPECT_NE(StatsText(StatsOf(net, {.threads = 1})).find("schedule: one thread; 1 thread took part\n"),
            std::string::npos);
  EXPECT_NE(StatsText(StatsOf(net, {.threads = 2})).find("schedule: 2 threads"), std::string::npos);
  net.Feed("x", Random({1, 2, 3}, 1)).Feed("h_all_grad", Random({1, 2, 3}, 3));
  EXPECT_NE(StatsText(StatsOf(net, {.threads = 2})).find("schedule: one thread (a single step)"), std::string::npos);
  net.Feed("x", Random({0, 2, 3}, 1)).Feed("h_all_grad", Random({0, 2, 3}, 3));
  EXPECT_NE(StatsText(StatsOf(net, {.threads = 2})).find("step net step: 1 run, "), std::string::npos);
}

TEST(RunStats, JsonHoldsTheSame) {
  RecurrentCase net = TrainingCase(kSteps);
  const std::vector<NetStats> nets = StatsOf(net, {.threads = 2});
  const nlohmann::json json = nlohmann::json::parse(StatsJson(nets).dump());
  ASSERT_EQ(json.size(), nets.size());
  EXPECT_FALSE(json[0].at("in_step_net"));
  EXPECT_TRUE(json[2].at("backward"));
  EXPECT_EQ(json[2].at("steps"), kSteps);
  EXPECT_EQ(json[2].at("run_by"), "op 1 of case");
  EXPECT_EQ(json[2].at("arena_bytes"), nets[2].plan->ArenaBytes(kSteps));
  EXPECT_EQ(json[1].at("instructions")[0].at("text"), "s = Sum(x_t, h_prev)");
  EXPECT_EQ(json[1].at("instructions")[0].at("calls"), kSteps);
  EXPECT_EQ(json[1].at("threads")[0].at("name"), "caller");
  EXPECT_NEAR(json[1].at("threads")[0].at("busy_ms").get<double>(), 1e3 * nets[1].threads[0].busy, 1e-9);
  EXPECT_NEAR(json[1].at("parallelism").at("achieved").get<double>(), nets[1].busy() / nets[1].seconds, 1e-9);
}

}  // namespace
}  // namespace stepnet::runner

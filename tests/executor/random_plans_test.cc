// Plans of random step nets, forward and backward: the edges that are found for them against every pair of instructions
// that touch a byte in common, and against values: whatever order the edges allow gives those of program order.
#include <cstring>
#include <map>
#include <random>
#include <set>
#include <span>

#include "random_step.h"
#include "recurrent_case.h"
#include "stepnet/compiler/batch_rows.h"
#include "stepnet/compiler/plan_text.h"
#include "stepnet/compiler/schedule.h"
#include "stepnet/core/strings.h"
#include "stepnet/executor/executor.h"
#include "stepnet/tests/compiler/dependency_order.h"
#include "stepnet/tests/compiler/needs_usual_plans.h"
#include "stepnet/tests/core/sanitized.h"

namespace stepnet {
namespace {

// Bytes of a base that an operand touches in one step: as RunState addresses them.
struct Bytes {
  int base = 0;
  bool writes = false;
  std::int64_t begin = 0, end = 0;

  bool ConflictsWith(const Bytes& other) const {
    return base == other.base && (writes || other.writes) && begin < other.end && other.begin < end;
  }
};

std::vector<Bytes> BytesOf(const StepPlan& plan, int i, std::int64_t t) {
  std::vector<Bytes> touched;
  const auto add = [&](const InstructionOperand& operand, bool writes) {
    const Slot& slot = plan.slots[operand.slot];
    const std::int64_t row = slot.ring_rows > 0 ? (t + slot.offset) % slot.ring_rows : t + slot.offset;
    const std::int64_t bytes = operand.info.size_bytes();
    touched.push_back({slot.base, writes, row * slot.row_bytes, row * slot.row_bytes + bytes});
  };
  for (const InstructionOperand& input : plan.instructions[i].inputs) add(input, false);
  for (const InstructionOperand& output : plan.instructions[i].outputs) add(output, true);
  return touched;
}

using Edge = std::tuple<int, int, int>;  // from, to, delta

// All pairs of what is run in turn that conflict, the earlier one first: each of `touched` is one of `n` that a step,
// or a chunk, has.
std::set<Edge> ConflictsIn(const std::vector<std::vector<Bytes>>& touched, int n) {
  const auto count = static_cast<int>(touched.size());
  std::set<Edge> conflicts;
  for (int a = 0; a < count; ++a) {
    for (int b = a + 1; b < count; ++b) {
      const bool conflict = std::ranges::any_of(touched[a], [&](const Bytes& x) {
        return std::ranges::any_of(touched[b], [&](const Bytes& y) { return x.ConflictsWith(y); });
      });
      if (conflict) conflicts.emplace(a % n, b % n, b / n - a / n);
    }
  }
  return conflicts;
}

// The conflicts between the instructions of `steps` steps.
std::set<Edge> ConflictsOf(const StepPlan& plan, int steps) {
  const int n = static_cast<int>(plan.instructions.size());
  std::vector<std::vector<Bytes>> touched;  // in program order
  for (int k = 0; k < steps; ++k) {
    for (int i = 0; i < n; ++i) touched.push_back(BytesOf(plan, i, plan.backward ? steps - 1 - k : k));
  }
  return ConflictsIn(touched, n);
}

bool HasStatesInTurn(const StepPlan& plan) {
  return std::ranges::any_of(
      plan.slots, [](const Slot& slot) { return slot.storage_class == StorageClass::kLinked && slot.ring_rows > 0; });
}

// Calls `look` with the plans of random step nets: in one loop each at level 0, in stages at level 2, every second time
// with blocks of two chunks, and of every third one with states that steps use in turn.
void ForEachPlan(unsigned num_seeds, std::int64_t size, int opt_level,
                 const std::function<void(const StepPlan&, const std::string& what)>& look) {
  static constexpr Target kInShortBlocks = {.block_bytes = 1, .min_chunks_of_block = 2, .min_chunks_of_thread = 0};
  int num_plans = 0, num_backward = 0, num_with_blocks = 0, num_in_turn = 0;
  for (unsigned seed = 0; seed < num_seeds; ++seed) {
    const RandomStep step(seed, size);
    const NetDef net = step.Training();
    std::vector<StepPlan> plans;
    RunOptions options{.executor = "parallel",
                       .target = seed % 2 == 0 ? &kCpuTarget : &kInShortBlocks,
                       .threads = 2,
                       .opt_level = opt_level};
    options.on_plan = [&](const StepPlan& plan) { plans.push_back(plan); };
    Workspace workspace;
    for (const auto& [name, tensor] : step.Feeds(3)) workspace.SetTensor(name, tensor);
    Net::Create(net, workspace, options)->Run();
    if (seed % 3 == 0) Net::Create(WithLastRows(step.Recurrent()), workspace, options)->Run();
    for (const StepPlan& plan : plans) {
      ++num_plans;
      num_backward += plan.backward ? 1 : 0;
      num_in_turn += HasStatesInTurn(plan) ? 1 : 0;
      num_with_blocks += plan.block_steps == 2 * plan.chunk_steps && plan.chunk_steps > 0 ? 1 : 0;
      look(plan, StrCat("seed ", seed, ", ", PlanText(plan)));
      if (testing::Test::HasFailure()) return;
    }
  }
  EXPECT_GT(num_plans, static_cast<int>(num_seeds));
  EXPECT_GT(num_backward, static_cast<int>(num_seeds) / 3);
  if (num_seeds >= 80) {
    EXPECT_GT(num_in_turn, static_cast<int>(num_seeds) / 20);
  }
  if (std::min(opt_level, TestedOptLevel()) == kMaxOptLevel && num_seeds >= 80) {
    EXPECT_GT(num_with_blocks, static_cast<int>(num_seeds) / 20);
  }
}

TEST(RandomPlans, S1S3S4S5S9EdgesAreNeitherMissingNorSuperfluousNorImplied) {
  constexpr int kSteps = 12;
  ForEachPlan(FewerIfSanitized(120), 3, /*opt_level=*/0, [&](const StepPlan& plan, const std::string& what) {
    const std::set<Edge> conflicts = ConflictsOf(plan, kSteps);
    const Dependencies found = FindDependencies(AccessesOf(plan));
    EXPECT_LT(found.max_delta, kSteps);
    for (const auto& [from, to, delta] : conflicts) {
      ASSERT_TRUE(IsOrdered(found, from, to, delta))
          << "missing " << from << " -> " << to << " +" << delta << " of " << what;
    }
    for (const Dependency& edge : found.edges) {
      ASSERT_TRUE(conflicts.contains({edge.from, edge.to, edge.delta}))
          << "superfluous " << edge.from << " -> " << edge.to << " +" << edge.delta << " of " << what;
      Dependencies others = found;
      std::erase(others.edges, edge);
      ASSERT_FALSE(IsOrdered(others, edge.from, edge.to, edge.delta))
          << "implied " << edge.from << " -> " << edge.to << " +" << edge.delta << " of " << what;
    }
  });
}

// A plan with memory full of numbers, to be run in any way.
class PlanRun {
 public:
  PlanRun(const StepPlan& plan, std::int64_t steps) : state_(std::make_shared<StepPlan>(LoopOf(plan))) {
    const int num_outside = plan.num_bases - static_cast<int>(plan.arena.size());
    std::vector<std::int64_t> bytes(num_outside, 0);
    for (const Slot& slot : plan.slots) {
      if (slot.base < 0 || slot.base >= num_outside) continue;  // none: of values inside of regions
      const std::int64_t last = slot.ring_rows > 0 ? slot.ring_rows - 1 : slot.offset + steps - 1;
      bytes[slot.base] = std::max(bytes[slot.base], last * slot.row_bytes + slot.bytes);
    }
    for (int base = 0; base < num_outside; ++base) {
      memory_.push_back(Random({bytes[base] / 8}, static_cast<unsigned>(base)));
      state_.SetBase(base, memory_.back());
    }
    state_.Prepare(steps, workspace_);
    for (const ArenaPiece& piece : plan.arena) {
      const Tensor region = state_.ArenaTensor(piece.base);
      std::memset(region.raw(), 0, static_cast<size_t>(region.size_bytes()));
      memory_.push_back(region);
    }
  }

  // Without what is done around the loop: the memory has its numbers.
  static StepPlan LoopOf(StepPlan plan) {
    plan.before.clear();
    plan.after.clear();
    return plan;
  }

  // Instruction i of the step that is the k-th in the direction of the run.
  void RunInstruction(int i, std::int64_t k) { state_.RunInstruction(i, k, context_); }
  void RunOn(const RunOptions& options) { MakeExecutor(options)->Run(state_, context_); }
  // Runs the chunk-th `steps` steps of one stage.
  void RunChunk(const Stage& stage, std::int64_t chunk, std::int64_t steps) {
    RunSerially(state_, stage, chunk * steps, (chunk + 1) * steps, context_);
  }

  std::string Memory() const {
    std::string all;
    for (const Tensor& part : memory_)
      all.append(static_cast<const char*>(part.raw()), static_cast<size_t>(part.size_bytes()));
    return all;
  }

 private:
  RunState state_;
  Workspace workspace_;
  RunContext context_;
  std::vector<Tensor> memory_;
};

// Every instruction of every step in an order that the edges allow: of those that may come next always the one that
// `choose` takes. `run` is given instruction and step.
void RunInOrder(const Dependencies& dependencies, int steps,
                const std::function<size_t(const std::vector<int>&)>& choose,
                const std::function<void(int, int)>& run) {
  const int n = dependencies.num_instructions;
  std::vector<int> pending(n * steps, 0);
  for (const Dependency& edge : dependencies.edges) {
    for (int k = edge.delta; k < steps; ++k) ++pending[k * n + edge.to];
  }
  std::vector<int> ready;
  for (int at = 0; at < n * steps; ++at) {
    if (pending[at] == 0) ready.push_back(at);
  }
  while (!ready.empty()) {
    const size_t chosen = choose(ready);
    const int at = ready[chosen];
    ready.erase(ready.begin() + static_cast<std::ptrdiff_t>(chosen));
    run(at % n, at / n);
    for (const Dependency& edge : dependencies.edges) {
      if (edge.from != at % n || at / n + edge.delta >= steps) continue;
      const int next = (at / n + edge.delta) * n + edge.to;
      if (--pending[next] == 0) ready.push_back(next);
    }
  }
}

TEST(RandomPlans, AnyOrderThatTheEdgesAllowGivesTheValuesOfProgramOrder) {
  constexpr int kSteps = 9;
  std::mt19937 rng(1);
  int num_reordered = 0;
  ForEachPlan(FewerIfSanitized(150), 3, /*opt_level=*/0, [&](const StepPlan& plan, const std::string& what) {
    const Dependencies dependencies = FindDependencies(AccessesOf(plan));
    PlanRun serial(plan, kSteps);
    serial.RunOn({.executor = "serial"});
    const std::string expected = serial.Memory();
    const auto expect_same = [&](const std::string& order,
                                 const std::function<size_t(const std::vector<int>&)>& choose) {
      PlanRun run(plan, kSteps);
      std::vector<int> taken;
      RunInOrder(
          dependencies, kSteps,
          [&](const std::vector<int>& ready) {
            const size_t chosen = choose(ready);
            taken.push_back(ready[chosen]);
            return chosen;
          },
          [&](int i, int k) { run.RunInstruction(i, k); });
      EXPECT_EQ(taken.size(), plan.instructions.size() * kSteps) << what;
      num_reordered += std::ranges::is_sorted(taken) ? 0 : 1;
      ASSERT_EQ(run.Memory(), expected) << order << ", " << what;
    };
    expect_same("the latest first",
                [](const std::vector<int>& ready) { return std::ranges::max_element(ready) - ready.begin(); });
    for (int round = 0; round < 3; ++round) {
      expect_same(StrCat("random order ", round), [&](const std::vector<int>& ready) { return rng() % ready.size(); });
    }
  });
  EXPECT_GT(num_reordered, FewerIfSanitized(300));
}

// Whatever can be cut up is, also where it is not worth it.
TEST(ParallelRandomPlans, InstructionsInPartsGiveTheSameValues) {
  constexpr int kSteps = 4;
  int num_parts = 0;
  ForEachPlan(FewerIfSanitized(12), 1024, /*opt_level=*/0, [&](const StepPlan& plan, const std::string& what) {
    PlanRun serial(plan, kSteps);
    serial.RunOn({.executor = "serial"});
    for (const int threads : {2, 3, 5}) {
      Schedule schedule = MakeSchedule(plan, plan.stages[0], threads);
      for (Task& task : schedule.tasks) {
        if (task.instructions.size() > 1) continue;
        task.parts = std::min(plan.instructions[task.instructions[0]].max_parts, threads);
        num_parts += task.parts - 1;
      }
      StepPlan cut_up = plan;
      cut_up.schedules[0] = std::make_shared<Schedule>(schedule);
      PlanRun parallel(cut_up, kSteps);
      parallel.RunOn({.executor = "parallel"});
      ASSERT_EQ(parallel.Memory(), serial.Memory()) << threads << " threads, " << what;
    }
  });
  EXPECT_GT(num_parts, FewerIfSanitized(20));
}

// Two rows a step: chunks of 32 steps.
constexpr int kStepsOfSeveralChunks = 70;

// From stage to stage, in chunks: what the steps of two chunks touch in common.
std::set<Edge> ConflictsOfChunks(const StepPlan& plan, int chunks) {
  const auto steps = static_cast<int>(plan.chunk_steps);
  std::vector<std::vector<Bytes>> touched;  // by chunks, then stages
  for (int c = 0; c < chunks; ++c) {
    for (const Stage& stage : plan.stages) {
      touched.emplace_back();
      if (stage.steps_at_once == kAllSteps) continue;
      std::map<std::tuple<int, bool, std::int64_t>, std::int64_t> ends;  // by base, whether it is written, begin
      for (int k = c * steps; k < (c + 1) * steps; ++k) {
        for (int i = stage.begin; i < stage.end; ++i) {
          for (const Bytes& bytes : BytesOf(plan, i, plan.backward ? chunks * steps - 1 - k : k)) {
            std::int64_t& end = ends[{bytes.base, bytes.writes, bytes.begin}];
            end = std::max(end, bytes.end);
          }
        }
      }
      for (const auto& [key, end] : ends) {
        touched.back().push_back({std::get<0>(key), std::get<1>(key), std::get<2>(key), end});
      }
    }
  }
  return ConflictsIn(touched, static_cast<int>(plan.stages.size()));
}

TEST(ParallelRandomPlans, EdgesBetweenStagesAreNeitherMissingNorSuperfluous) {
  NEEDS_ALL_PASSES();
  constexpr int kChunks = 4;
  int num_free = 0;  // stages that may take a chunk beside another
  ForEachPlan(FewerIfSanitized(80), 8, kMaxOptLevel, [&](const StepPlan& plan, const std::string& what) {
    if (plan.chunk_steps == 0) return;
    const std::set<Edge> conflicts = ConflictsOfChunks(plan, kChunks);
    const Dependencies found = FindChunkDependencies(plan);
    for (const auto& [from, to, delta] : conflicts) {
      ASSERT_TRUE(IsOrdered(found, from, to, delta))
          << "missing " << from << " -> " << to << " +" << delta << " of " << what;
    }
    for (const Dependency& edge : found.edges) {
      ASSERT_TRUE(edge.delta >= kChunks || conflicts.contains({edge.from, edge.to, edge.delta}))
          << "superfluous " << edge.from << " -> " << edge.to << " +" << edge.delta << " of " << what;
    }
    for (int s = 0; s < found.num_instructions; ++s) {
      num_free += plan.stages[s].steps_at_once != kAllSteps && !IsOrdered(found, s, s, 1) ? 1 : 0;
    }
  });
  EXPECT_GT(num_free, FewerIfSanitized(20));
}

TEST(ParallelRandomPlans, AnyOrderOfChunksThatTheEdgesAllowGivesTheSameValues) {
  NEEDS_USUAL_PLANS();
  std::mt19937 rng(1);
  int num_reordered = 0;
  ForEachPlan(FewerIfSanitized(100), 8, kMaxOptLevel, [&](const StepPlan& plan, const std::string& what) {
    if (plan.chunk_steps == 0) return;
    PlanRun serial(plan, kStepsOfSeveralChunks);
    serial.RunOn({.executor = "serial"});
    const auto chunks = static_cast<int>((kStepsOfSeveralChunks + plan.chunk_steps - 1) / plan.chunk_steps);
    Dependencies dependencies = FindChunkDependencies(plan);
    const int n = dependencies.num_instructions;
    for (int round = 0; round < 4; ++round) {
      PlanRun run(plan, kStepsOfSeveralChunks);
      std::vector<int> taken;
      const auto run_all = [&](const Stage& stage) { run.RunChunk(stage, 0, kStepsOfSeveralChunks); };
      const bool packs = plan.stages.front().steps_at_once == kAllSteps;
      if (packs) run_all(plan.stages.front());
      RunInOrder(
          dependencies, chunks,
          [&](const std::vector<int>& ready) -> size_t {
            return round == 0 ? std::ranges::max_element(ready) - ready.begin() : rng() % ready.size();
          },
          [&](int stage, int chunk) {
            if (plan.stages[stage].steps_at_once == kAllSteps) return;
            taken.push_back(chunk * n + stage);
            run.RunChunk(plan.stages[stage], chunk, plan.chunk_steps);
          });
      for (const Stage& stage : std::span(plan.stages).subspan(packs ? 1 : 0)) {
        if (stage.steps_at_once == kAllSteps) run_all(stage);
      }
      num_reordered += std::ranges::is_sorted(taken) ? 0 : 1;
      ASSERT_EQ(run.Memory(), serial.Memory()) << "round " << round << ", " << what;
    }
  });
  EXPECT_GT(num_reordered, FewerIfSanitized(100));
}

TEST(ParallelRandomPlans, StagesThatOverlapGiveTheSameValues) {
  NEEDS_ALL_PASSES();
  int num_overlapping = 0, num_of_many = 0;
  ForEachPlan(FewerIfSanitized(150), 8, kMaxOptLevel, [&](const StepPlan& plan, const std::string& what) {
    if (plan.chunk_steps == 0) return;
    PlanRun serial(plan, kStepsOfSeveralChunks);
    serial.RunOn({.executor = "serial"});
    for (const int threads : {2, 3, 5}) {
      Schedule pipeline = MakePipeline(plan, threads);
      pipeline.threads = threads;  // also where not all have something to do
      pipeline.min_steps = 1;
      num_overlapping += pipeline.tasks.size() > 1 ? 1 : 0;
      num_of_many += pipeline.tasks.size() > 2 ? 1 : 0;
      StepPlan overlapping = plan;
      overlapping.pipeline = std::make_shared<Schedule>(pipeline);
      PlanRun parallel(overlapping, kStepsOfSeveralChunks);
      parallel.RunOn({.executor = "parallel"});
      ASSERT_EQ(parallel.Memory(), serial.Memory()) << threads << " threads, " << what;
    }
  });
  EXPECT_GT(num_overlapping, FewerIfSanitized(100));
  EXPECT_GT(num_of_many, FewerIfSanitized(50));
}

// Chunks and sums over all steps in as many parts as they may have, also where that is not worth it.
TEST(ParallelRandomPlans, StagesInPartsGiveTheSameValues) {
  NEEDS_USUAL_PLANS();
  std::map<std::int64_t, int> num_parts;  // by the steps that a stage takes at once
  ForEachPlan(FewerIfSanitized(40), 512, kMaxOptLevel, [&](const StepPlan& plan, const std::string& what) {
    if (plan.stages.size() == 1) return;
    PlanRun serial(plan, kStepsOfSeveralChunks);
    serial.RunOn({.executor = "serial"});
    for (const int threads : {2, 5}) {
      StepPlan cut_up = plan;
      cut_up.pipeline = nullptr;
      cut_up.schedules.clear();
      for (const Stage& stage : plan.stages) {
        Schedule schedule = MakeSchedule(plan, stage, threads);
        schedule.min_steps = 1;
        for (Task& task : schedule.tasks) {
          if (task.instructions.size() > 1 || schedule.sharing == Sharing::kBatch) continue;
          task.parts = std::min(plan.instructions[task.instructions[0]].max_parts, threads);
          num_parts[stage.steps_at_once] += task.parts - 1;
        }
        cut_up.schedules.push_back(std::make_shared<Schedule>(schedule));
      }
      PlanRun parallel(cut_up, kStepsOfSeveralChunks);
      parallel.RunOn({.executor = "parallel"});
      ASSERT_EQ(parallel.Memory(), serial.Memory()) << threads << " threads, " << what;
    }
  });
  EXPECT_GT(num_parts[1], FewerIfSanitized(10));
  EXPECT_GT(num_parts[32], FewerIfSanitized(10));
  EXPECT_GT(num_parts[kAllSteps], FewerIfSanitized(10));
}

// Loops that threads go through together, as many as there are, or by rows of the batch, where steps keep those apart.
TEST(ParallelRandomPlans, LoopsInStepGiveTheSameValues) {
  int num_parts = 0, num_of_batch = 0;
  ForEachPlan(FewerIfSanitized(120), 64, kMaxOptLevel, [&](const StepPlan& plan, const std::string& what) {
    PlanRun serial(plan, kStepsOfSeveralChunks);
    serial.RunOn({.executor = "serial"});
    for (const int threads : {2, 3, 5}) {
      for (const Sharing sharing : {Sharing::kLockstep, Sharing::kBatch}) {
        StepPlan shared = plan;
        shared.pipeline = nullptr;
        shared.schedules.clear();
        for (const Stage& stage : plan.stages) {
          Schedule schedule = MakeSchedule(plan, stage, 1);
          const auto rows = static_cast<int>(std::min<std::int64_t>(BatchRowsOf(plan, stage), threads));
          if (stage.steps_at_once == 1 && (sharing == Sharing::kLockstep || rows > 1)) {
            schedule = {.sharing = sharing, .threads = threads, .min_steps = 1};
            for (int i = stage.begin; i < stage.end; ++i) {
              if (sharing == Sharing::kLockstep || schedule.tasks.empty()) schedule.tasks.emplace_back();
              Task& task = schedule.tasks.back();
              task.instructions.push_back(i);
              task.parts = sharing == Sharing::kBatch ? rows : std::min(plan.instructions[i].max_parts, threads);
              (sharing == Sharing::kBatch ? num_of_batch : num_parts) += task.parts - 1;
            }
          }
          shared.schedules.push_back(std::make_shared<Schedule>(schedule));
        }
        PlanRun parallel(shared, kStepsOfSeveralChunks);
        parallel.RunOn({.executor = "parallel"});
        ASSERT_EQ(parallel.Memory(), serial.Memory()) << threads << " threads, " << what;
      }
    }
  });
  if (TestedOptLevel() == kMaxOptLevel) {
    EXPECT_GT(num_parts, FewerIfSanitized(30));
  }
  EXPECT_GT(num_of_batch, FewerIfSanitized(100));
}

}  // namespace
}  // namespace stepnet

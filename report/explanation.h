// What the compiler has made of a step net, for people.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "stepnet/core/machine_limits.h"
#include "stepnet/report/made_plans.h"

namespace stepnet {

// The least time that a core can take, of which it has measured what it can do.
struct ExplainedLimit {
  double microseconds = 0;    // of one step
  std::string what;           // "251 GFLOP/s", "230 GB/s from the second cache", "5.9 G/s of sigmoid, tanh"
  bool of_functions = false;  // the last one
};

struct ExplainedInstruction {
  enum class Kind {
    kProduct,   // products of matrices
    kFused,     // several operators as one
    kOperator,  // one operator
    kMove,
    kPack,  // weights in the layout that a product likes best
  };
  int number = 0;
  Kind kind = Kind::kOperator;
  std::string text;                   // "y = FC(x, w, b)"
  std::vector<std::string> formulas;  // what it computes, by names of blobs; empty where nothing says it
  double flops = 0;                   // of one step
  double bytes = 0;                   // that one step moves
  double functions = 0;               // how often it computes one of FunctionRate
  double estimate = 0;                // microseconds of one step on one core
  bool runs = true;                   // false: the run that is explained leaves it out
  std::optional<double> measured;     // the same of a run; nothing where it did not run
  std::optional<ExplainedLimit> limit;
  std::vector<std::string> notes;  // why it is as it is
};

// Instructions that run for as many steps at once.
struct ExplainedStage {
  std::string title;  // "for 32 steps at once"
  std::string why;
  int threads = 1;
  std::string shorter_runs;  // "runs of fewer than 16 steps: one thread"; empty where all runs are alike
  std::vector<ExplainedInstruction> instructions;
};

// Values that lie in one kind of memory.
struct ExplainedStorage {
  std::string kind;  // StorageClassName, or "shape"
  std::string meaning;
  std::vector<std::vector<std::string>> values;  // by place; several take turns in one
  std::int64_t bytes = 0;
  bool has_rows = false;  // `bytes` are those of a row; there are several
};

struct Explanation {
  std::string net;
  bool backward = false;
  std::optional<std::int64_t> num_steps;  // of the run that is explained; nothing: of runs of any number
  bool is_measured = false;
  int num_operators = 0;  // of the step net
  std::vector<ExplainedStage> stages;
  std::vector<ExplainedStorage> storage;
  bool stages_overlap = false;
  std::int64_t min_steps_to_overlap = 0;  // runs of fewer do not
  std::int64_t chunk_steps = 0;
  std::int64_t block_steps = 0;             // of StepPlan
  std::vector<RecomputedValue> recomputed;  // likewise
  // The step before and after the passes (GraphText), and its schedule (ScheduleText), for those who want it all.
  std::string imported_text, graph_text, schedule_text;
  std::string imported_drawing, graph_drawing;  // GraphDrawing
  std::vector<std::string> chain;  // the longest of instructions that wait for each other, from step to step
  bool chain_comes_back = false;   // its first one waits for what the last one gives
  std::string whole_loop;  // "each thread goes through all of the loop, 2 to 4"; empty where the chain alone counts
};

// What was measured: the microseconds a step of each instruction, nothing for those that did not run, in runs of so
// many steps; and what the machine can do.
struct Measured {
  std::vector<std::optional<double>> microseconds;
  std::int64_t num_steps = 0;
  MachineLimits limits;
};

// It is of a run of so many steps, or of all runs. `measured`: null where nothing was; otherwise what is explained is
// the run that was measured.
Explanation Explain(const MadePlan& made, std::optional<std::int64_t> num_steps, const Measured* measured);

const char* KindName(ExplainedInstruction::Kind kind);
int NumInstructions(const Explanation& explanation);  // that run
// What a step takes on one core, all instructions that run together, and the share of each kind; empty where none does.
std::string TotalText(const Explanation& explanation);
// "i.1 then i.3", for each place.
std::vector<std::string> PlacesOf(const ExplainedStorage& storage);
// The longest chain, and whether all of the loop counts.
std::string PaceText(const Explanation& explanation);
// For how many steps there is memory for what stages pass to each other; empty where they pass nothing.
std::string HowStagesPass(const Explanation& explanation);

// What the run forward does not keep, and the run back computes again, by why that is so.
std::vector<std::string> HowMemoryIsSaved(const Explanation& explanation);

// One a plan: as text, as a page that needs nothing else, and as a JSON array.
std::string ExplanationsText(const std::vector<Explanation>& explanations);
std::string ExplanationsHtml(const std::string& title, const std::vector<Explanation>& explanations);
std::string ExplanationsJson(const std::vector<Explanation>& explanations);

}  // namespace stepnet

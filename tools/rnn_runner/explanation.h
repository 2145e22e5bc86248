// What the compiler has made of a step net, for people.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "stepnet/compiler/step_graph.h"
#include "stepnet/compiler/step_plan.h"

namespace stepnet::runner {

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
  double estimate = 0;                // microseconds of one step on one core
  std::optional<double> measured;     // the same of a run
  std::vector<std::string> notes;     // why it is as it is
};

// Instructions that run for as many steps at once.
struct ExplainedStage {
  std::string title;  // "for 32 steps at once"
  std::string why;
  int threads = 1;
  std::vector<ExplainedInstruction> instructions;
};

// Values that lie in one kind of memory.
struct ExplainedStorage {
  std::string kind;  // StorageClassName
  std::string meaning;
  std::vector<std::string> values;
  std::int64_t bytes = 0;  // of one step
};

struct Explanation {
  std::string net;
  bool backward = false;
  int num_operators = 0;  // of the step net
  std::vector<ExplainedStage> stages;
  std::vector<ExplainedStorage> storage;
  bool stages_overlap = false;
  std::int64_t chunk_steps = 0;
  std::vector<std::string> chain;  // the longest of instructions that wait for each other, from step to step
};

// `imported` is the graph before all passes, `graph` the one behind them, of which `plan` was made. `measured`, if it
// is not empty, has the microseconds a step of each instruction.
Explanation Explain(const StepGraph& imported, const StepGraph& graph, const StepPlan& plan,
                    const std::vector<double>& measured);

std::string ExplanationText(const Explanation& explanation);
nlohmann::ordered_json ExplanationJson(const Explanation& explanation);

}  // namespace stepnet::runner

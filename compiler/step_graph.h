// StepGraph: what a step does, on its way from the step net to a plan.
//
// Every write makes a new value, so that no name changes its meaning. A value has a home, the piece of memory in which
// it lives: the step's own or outside. Every byte that goes from one home to another is a node or, around the loop, a
// RowMove. Passes (compiler/passes/passes.h) change graphs; graph_text.h prints and reads them.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <ranges>
#include <set>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "stepnet/compiler/row_move.h"
#include "stepnet/compiler/slot.h"
#include "stepnet/compiler/stage.h"
#include "stepnet/core/expansion.h"
#include "stepnet/core/operator.h"
#include "stepnet/core/target.h"

namespace stepnet {

inline constexpr int kNoValue = -1;

// A piece of memory. Its values take turns in it, in the order of the nodes that give them.
struct Home {
  enum class Kind {
    kTemporary,  // the step's own
    kOnce,       // the plan's own: filled before the first step, the same in all of them
    kSum,        // the plan's own: zeros by a RowMove, to which steps add, and what runs behind all of them reads it
    kOutside,    // of a tensor that the plan is given
    kDynamic,    // a blob, of what has no known shape
    kLocal,      // none: a value that a region computes and uses
  };
  Kind kind = Kind::kTemporary;
  // A kTemporary or kDynamic that is kept: each step has its own, and those of all steps are there after the loop.
  bool kept = false;
  // A kTemporary that one stage passes to another: each step of a block has its own (StepPlan::block_steps).
  bool passed = false;
  Slot slot = {};  // of kOutside
  // Memory outside that is cleared before the first step, and to which nodes do nothing but add.
  bool starts_at_zero = false;
  int list = -1;  // of kDynamic: which of the lists of blobs that the plan is given; -1: none of them
};

struct StepValue {
  std::string blob;      // of the step net or, when `outside`, the name that memory has there
  int version = -1;      // tells values of one name apart; 0 of a blob is what it holds before the step
  bool outside = false;  // of memory outside, and no blob of the step net
  TensorInfo info = {};  // meaningless when dynamic
  bool dynamic = false;  // its dtype and shape, or even that it is a tensor, is known only when it has been computed
  int home = -1;
  int producer = -1;   // the node that gives it; -1: it is there before the step
  bool added = false;  // by its producer to what its home holds, instead of written
};

// One of several operators of a region. Operands are numbers: of the inputs of the node, behind them of its outputs,
// and of its locals.
struct RegionCall {
  std::shared_ptr<const OperatorCall> call = {};
  std::shared_ptr<const OperatorDef> def = {};
  int op_index = -1;
  std::string net = {};  // as of StepNode
  std::vector<int> inputs = {};
  std::vector<int> outputs = {};
};

// What a region of several operators has beside inputs and outputs.
struct RegionBody {
  std::vector<RegionCall> calls = {};  // each before those that read what it gives
  std::vector<int> locals = {};        // values in no memory: what the region gives itself
  // Calls with which further regions begin: they run behind the one before, in the same kernel, and read what it gives
  // from memory (passes/join_regions.cc). In ascending order.
  std::vector<int> begins = {};
};

struct StepNode {
  enum class Kind {
    kCall,    // an operator of the step net
    kRegion,  // operators that have formulas (core/formulas/formula.h) or only copy (core/expansion.h), in their order,
              // as one; of several, some may sum within rows
    kProduct,  // an operator whose outputs are products of matrices
    kMove,     // copies its input to its output, or adds it there
    kPack,     // gives another form of inputs of `call` (PackedInputs)
  };
  Kind kind = Kind::kCall;
  std::shared_ptr<const OperatorCall> call = {};  // null for a region of several
  std::shared_ptr<const OperatorDef> def = {};    // that `call` was made from
  int op_index = -1;                              // in the NetDef; of a region: of its first operator
  std::string net = {};                           // the name of that NetDef; empty: the step net
  std::vector<int> inputs = {};                   // values
  std::vector<int> outputs = {};                  // values; kNoValue where the kernel shall give none (OpRun::Wants)
  int packed = kNoValue;                          // what a kPack has made of inputs
  bool by_blobs = false;  // has an input or output in a dynamic home, or a kernel that takes blobs
  std::shared_ptr<const RegionBody> body = {};  // of a region of several operators; else null
  // What each output of a kProduct holds; nothing for one that the operator leaves empty.
  std::vector<std::optional<Product>> products = {};

  bool RunsOperators() const { return kind != Kind::kMove && kind != Kind::kPack; }
  bool IsOneOperator() const { return RunsOperators() && call != nullptr; }
  std::span<const RegionCall> calls() const { return body ? body->calls : std::span<const RegionCall>(); }
  std::span<const int> locals() const { return body ? body->locals : std::span<const int>(); }
  auto given() const {  // the outputs that it gives
    return outputs | std::views::filter([](int value) { return value != kNoValue; });
  }
  // The value that an operand of calls() is.
  int ValueOf(int operand) const;
};

struct Recomputation;

struct StepGraph {
  std::string name;  // of the step net
  bool backward = false;
  const Target* target = &kCpuTarget;
  int num_bases = 0;        // of memory outside
  std::set<int> lent = {};  // bases that the caller owns: they hold what it gave, and a run changes only a copy
  // Bases of which nobody reads a row behind the steps that see it, but for the last one: steps may use a few rows in
  // turn (place.h).
  std::set<int> in_turns = {};
  int num_lists = 0;  // of blobs outside
  std::vector<Home> homes = {};
  std::vector<StepValue> values = {};
  std::vector<StepNode> nodes = {};      // in the order in which they run
  std::vector<Stage> stages = {};        // of all nodes, in their order; none: each step runs all nodes
  std::vector<RowMove> before = {};      // the first step, in this order
  std::vector<RowMove> after = {};       // the last step
  std::map<std::string, int> last = {};  // blob → the value that a step leaves in it
  // What memory is too short for, until the pass recompute has seen to it: blobs that a step forward does not keep, and
  // how a step back computes them again.
  std::set<std::string> not_kept = {};
  std::shared_ptr<const Recomputation> recomputation = {};

  const Home& HomeOf(int value) const { return homes[values[value].home]; }
  std::string NameOf(int value) const;  // "a.1", "^all" of memory outside; version 0 without number
  std::vector<TensorInfo> InfosOf(std::span<const int> of) const;
  // Whether the node gives nothing but what is the same in all steps (Home::Kind::kOnce), so that it runs once.
  bool GivesOnce(const StepNode& node) const;
  // So many nodes, the first ones, run once for all steps and give nothing else, in stages of their own.
  int NumOnceNodes() const;
  // Adds such nodes behind them; runs of fewer than min_steps leave these out. Returns where they begin.
  int AddOnce(std::vector<StepNode> added, std::int64_t min_steps = 0);
  // Takes all of them away and returns them.
  std::vector<StepNode> TakeOnce();
  // Adds nodes that run once, behind all others, in a stage of their own (Stage::is_behind), or takes them away.
  void AddBehind(std::vector<StepNode> added);
  std::vector<StepNode> TakeBehind();
  // Adds memory outside; returns its base.
  int AddBase(bool is_lent);
  // Adds a value, with the first version that its name has free where it has none yet.
  int AddValue(StepValue value);
  // Before a value is taken away: if it is what its blob ends as, the blob has no last value any more.
  void ForgetLast(int value);
  // After nodes were moved, added or taken away: producers are what nodes say.
  void FindProducers();
  // Takes away the nodes for which `gone` holds, then stages without nodes, and values and homes that nothing mentions
  // any more.
  void Erase(const std::vector<bool>& gone);

 private:
  void DropValues();
  void RenumberValues(const std::vector<int>& numbers);  // from the old numbers

  std::unordered_map<std::string, int> next_version_;          // by blob
  std::unordered_map<std::string, int> next_version_outside_;  // by the name that memory has there
};

// What a step back computes of the step forward again.
struct Recomputation {
  // Nodes of the step forward, as the passes before recompute have left them, over the memory outside of the step back.
  StepGraph part;
  // A base of the step back in place of which a value of `part` is read.
  std::map<int, int> given;
};

// The inputs of a node of one operator of which its kernel reads another form: one or, where the operator takes any
// number of them, all from there on.
std::span<const int> PackedInputs(const StepNode& node, const Packing& packing);

// Whether one step finds some bytes in both, of memory outside.
bool ShareBytes(const Home& a, const Home& b);

}  // namespace stepnet

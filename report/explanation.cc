#include "stepnet/report/explanation.h"

#include <algorithm>
#include <map>
#include <set>

#include "stepnet/compiler/emit.h"
#include "stepnet/compiler/find_stages.h"
#include "stepnet/compiler/graph_text.h"
#include "stepnet/compiler/longest_chain.h"
#include "stepnet/compiler/node_order.h"
#include "stepnet/compiler/passes/merge_products.h"
#include "stepnet/compiler/regions_apart.h"
#include "stepnet/compiler/schedule.h"
#include "stepnet/compiler/schedule_text.h"
#include "stepnet/core/cost.h"
#include "stepnet/core/strings.h"
#include "stepnet/report/explained_storage.h"
#include "stepnet/report/graph_drawing.h"
#include "stepnet/report/node_formulas.h"
#include "stepnet/report/node_functions.h"
#include "stepnet/report/text.h"

namespace stepnet {
namespace {

using Kind = ExplainedInstruction::Kind;

// A limit is measured, too: what takes less than it by no more than this does what the machine can.
constexpr double kMeasuredAlike = 1.1;

// Leaves out line breaks and what else could forge lines.
std::string OneLine(std::string text) {
  std::ranges::replace_if(
      text, [](unsigned char c) { return c < ' '; }, ' ');
  return text;
}

// How long each instruction takes; an estimate where it was not measured.
std::vector<double> MicrosecondsOf(const StepPlan& plan, const Measured& measured) {
  std::vector<double> microseconds;
  for (size_t i = 0; i < plan.instructions.size(); ++i) {
    const double estimate = EstimateMicroseconds(plan.instructions[i].cost, *plan.target);
    microseconds.push_back(measured.microseconds[i].value_or(estimate));
  }
  return microseconds;
}

// With the schedules of the run that is explained and, where instructions were measured, their times.
StepPlan PlanOfRun(const StepPlan& plan, std::optional<std::int64_t> num_steps, const Measured* measured) {
  StepPlan of_run = num_steps ? InRunsOf(*num_steps, plan) : plan;
  if (measured != nullptr) SetCosts(MicrosecondsOf(plan, *measured), &of_run);
  return of_run;
}

class Explainer {
 public:
  Explainer(const MadePlan& made, std::optional<std::int64_t> num_steps, const Measured* measured)
      : graph_(made.graph),
        plan_(PlanOfRun(made.plan, num_steps, measured)),
        num_steps_(num_steps),
        fuses_(made.passes.contains("fuse_regions")),
        forms_stages_(made.passes.contains("form_stages")),
        folded_(made.folded),
        measured_(measured),
        cycles_(CyclesOfStages(graph_, plan_)) {
    if (made.passes.contains("merge_products")) apart_ = FindProductsApart(made.unmerged);
  }

  void Run(Explanation* to) const {
    for (size_t s = 0; s < plan_.stages.size(); ++s) {
      const Stage& stage = plan_.stages[s];
      ExplainedStage& explained = to->stages.emplace_back();
      explained.title = TitleOf(stage);
      explained.why = WhyStage(stage);
      if (plan_.IsScheduled() && HasSteps(stage.min_steps)) {
        explained.threads = plan_.schedules[s]->threads;
        if (!num_steps_) explained.shorter_runs = ShorterRunsText(plan_, *plan_.schedules[s]);
      }
      for (int i = stage.begin; i < stage.end; ++i) explained.instructions.push_back(InstructionAt(i, stage));
    }
    to->storage = StorageOf(graph_, plan_, num_steps_);
    to->stages_overlap = plan_.pipeline != nullptr;
    if (plan_.pipeline != nullptr && !num_steps_) to->min_steps_to_overlap = plan_.pipeline->min_steps;
    to->chunk_steps = plan_.chunk_steps;
    to->block_steps = plan_.block_steps;
    to->recomputed = plan_.recomputed;
    AddPace(to);
  }

 private:
  // The equation of an instruction or, of several, what they give.
  std::string ShortText(int i) const {
    constexpr size_t kMaxNames = 3, kMaxBytes = 100;
    const StepNode& node = graph_.nodes[i];
    const std::vector<std::string> formulas = NodeFormulas(graph_, node);
    if (formulas.size() == 1 && formulas[0].size() <= kMaxBytes) return formulas[0];
    if (formulas.empty()) return Shortened(OneLine(plan_.instructions[i].text), kMaxBytes);
    std::vector<std::string> names;
    for (const int value : node.given()) names.push_back(NameOf(value));
    const size_t more = names.size() > kMaxNames ? names.size() - kMaxNames : 0;
    names.resize(names.size() - more);
    return StrCat(Join(names, ", "), more > 0 ? StrCat(" and ", more, " more") : "");
  }

  // Whether some instruction of the loop waits for itself, by others or not, of the step before.
  bool Waits(const Stage& stage) const {
    return std::ranges::any_of(CyclesIn(stage), [](int cycle) { return cycle != kNoCycle; });
  }

  // Gives each instruction of each stage the cycle that it is on, or kNoCycle.
  static std::vector<std::vector<int>> CyclesOfStages(const StepGraph& graph, const StepPlan& plan) {
    std::vector<std::vector<int>> cycles;
    for (const Stage& stage : plan.stages) {
      const std::vector<std::vector<int>> followers = FollowersByBytes(graph, stage.begin, stage.end);
      cycles.push_back(CyclesOf(graph, stage.begin, stage.end, followers));
    }
    return cycles;
  }
  const std::vector<int>& CyclesIn(const Stage& stage) const { return cycles_[&stage - plan_.stages.data()]; }

  // Whether the run that is explained has so many steps, or some run may.
  bool HasSteps(std::int64_t min_steps) const { return !num_steps_ || *num_steps_ >= min_steps; }

  std::string TitleOf(const Stage& stage) const {
    if (!num_steps_) return StageTitle(stage);
    if (!HasSteps(stage.min_steps)) return StrCat("left out, for runs of ", stage.min_steps, " steps or more");
    if (stage.steps_at_once > *num_steps_) return StrCat("for all ", Count(*num_steps_, "step"), " at once");
    return StageTitle({.steps_at_once = stage.steps_at_once, .is_behind = stage.is_behind});
  }

  std::string WhyStage(const Stage& stage) const {
    if (plan_.stages.size() == 1) return "";
    if (stage.steps_at_once == 1) return Waits(stage) ? "what waits for the step before, and what is near it" : "";
    const auto begin = graph_.nodes.begin() + stage.begin, end = graph_.nodes.begin() + stage.end;
    if (std::all_of(begin, end, [](const StepNode& node) { return node.kind == StepNode::Kind::kPack; })) {
      return "weights, laid out for the kernels of the loop";
    }
    if (stage.is_behind) {
      return "linear in sums over the steps, so once instead of in each step; adds up in another order than step by "
             "step, and rounds so";
    }
    const auto gives_once = [&](const StepNode& node) { return graph_.GivesOnce(node); };
    if (std::all_of(begin, end, gives_once)) return "what follows from what is the same in all steps";
    if (stage.steps_at_once == kAllSteps) {
      return "sums over the steps, which no step waits for; they add up in another order than step by step, and round "
             "so";
    }
    return "no step waits for another, and weights are read once for all of them";
  }

  static Kind KindOf(const StepNode& node) {
    switch (node.kind) {
      case StepNode::Kind::kProduct: return Kind::kProduct;
      case StepNode::Kind::kMove: return Kind::kMove;
      case StepNode::Kind::kPack: return Kind::kPack;
      default: return node.body != nullptr ? Kind::kFused : Kind::kOperator;
    }
  }

  std::string NameOf(int value) const { return ValueName(graph_, value); }

  ExplainedInstruction InstructionAt(int i, const Stage& stage) const {
    const Instruction& instruction = plan_.instructions[i];
    const StepNode& node = graph_.nodes[i];
    ExplainedInstruction explained{.number = i,
                                   .kind = IsOfParts(node, instruction) ? Kind::kProduct : KindOf(node),
                                   .text = OneLine(instruction.text),
                                   .formulas = NodeFormulas(graph_, node),
                                   .flops = instruction.cost.flops,
                                   .bytes = instruction.cost.bytes,
                                   .estimate = EstimateMicroseconds(instruction.cost, *plan_.target)};
    const double share = ShareOfStep(i);
    explained.estimate *= share;
    explained.flops *= share;
    explained.bytes *= share;
    const double times = RunsOnce(i) ? share / static_cast<double>(kTypicalSteps) : 1;
    for (const auto& [op, count] : NodeFunctions(graph_, node)) explained.functions += times * count;
    explained.runs = HasSteps(stage.min_steps);
    if (measured_ != nullptr && measured_->microseconds[i]) {
      explained.runs = true;
      explained.measured = measured_->microseconds[i];
      explained.limit = LimitOf(explained, node, stage);
    }
    AddWhatIsMerged(node, instruction, &explained.notes);
    AddWhatIsBelow(i, &explained.notes);
    if (instruction.packed) explained.notes.push_back(HowWeightsLie());
    if (const std::string rounds = HowItRounds(node, instruction, stage); !rounds.empty()) {
      explained.notes.push_back(rounds);
    }
    if (instruction.by_blobs) explained.notes.emplace_back("finds its shapes anew in each step");
    if (instruction.has_side_effects) explained.notes.emplace_back("does more than to compute, so it keeps its place");
    if (node.body && !node.body->begins.empty()) {
      explained.notes.push_back(StrCat("is ", node.body->begins.size() + 1, " regions in one kernel, one behind the ",
                                       "other, through which each row of the batch goes by itself"));
    }
    if (const std::string shared = HowShared(i, stage); !shared.empty()) explained.notes.push_back(shared);
    AddWhyInLoop(i, stage, &explained.notes);
    AddWhatIsNotFused(i, stage, &explained.notes);
    return explained;
  }

  // Whether the product is several ones of the cell, and why it is not one with others of its value.
  void AddWhatIsMerged(const StepNode& node, const Instruction& instruction, std::vector<std::string>* notes) const {
    if (IsOfParts(node, instruction)) {
      std::vector<std::string> weights;
      const Kernel& kernel = *node.call->schema().FindKernel(graph_.target->device);
      for (const int value : PackedInputs(node, *kernel.packing)) weights.push_back(NameOf(value));
      if (!weights.empty()) notes->push_back(StrCat("products with ", Join(weights, ", "), " as one"));
    }
    if (node.kind != StepNode::Kind::kProduct) return;
    for (const auto& product : node.products) {
      if (!product || !product->right) continue;
      std::vector<std::string> weights;
      for (const int value : SideBySide(node.inputs[product->right->input])) weights.push_back(NameOf(value));
      if (weights.empty()) continue;
      notes->push_back(StrCat("products of ", NameOf(node.inputs[product->left.input]), " with ", Join(weights, ", "),
                              " as one: these lie side by side"));
    }
    for (const ProductApart& apart : apart_) {
      if (apart.op_index != node.op_index) continue;
      notes->push_back(StrCat("not one with the other products of ", NameText(apart.value), ": ", apart.why));
    }
  }

  // Whether it is several products of the cell as one, whose weights stay where they are.
  static bool IsOfParts(const StepNode& node, const Instruction& instruction) {
    return node.kind == StepNode::Kind::kCall && instruction.can_pack && node.call->schema().inputs.back().variadic;
  }

  // What lay where an instruction adds, if it had another name.
  void AddWhatIsBelow(int i, std::vector<std::string>* notes) const {
    for (const int value : graph_.nodes[i].given()) {
      if (!graph_.values[value].added) continue;
      int below = kNoValue;
      for (int earlier = 0; earlier < i; ++earlier) {
        for (const int other : graph_.nodes[earlier].given()) {
          if (graph_.values[other].home == graph_.values[value].home) below = other;
        }
      }
      if (below == kNoValue || NameOf(below) == NameOf(value)) continue;
      notes->push_back(
          StrCat("adds to ", NameOf(below), " where that lies, which is ", NameOf(value), " from then on"));
    }
  }

  // What merge_products has laid side by side to be this value; nothing where it has not.
  std::vector<int> SideBySide(int value) const {
    const StepValue& v = graph_.values[value];
    if (!v.outside || v.producer < 0) return {};
    const StepNode& giver = graph_.nodes[v.producer];
    return giver.call != nullptr && giver.call->type() == "Concat" ? giver.inputs : std::vector<int>();
  }

  // Whether the pass fold_biases made it, or a part of it, the bias of a product.
  bool IsFolded(int bias) const {
    std::vector<int> values = SideBySide(bias);
    values.push_back(bias);
    return std::ranges::any_of(values, [&](int value) { return folded_.contains(graph_.values[value].blob); });
  }

  // Why results may differ in their last bits from those of opt_level=1; empty where they do not.
  std::string HowItRounds(const StepNode& node, const Instruction& instruction, const Stage& stage) const {
    std::vector<std::string> why;
    if (instruction.packed && HasSteps(plan_.target->min_steps_to_pack)) {
      why.emplace_back("its terms are added up in another order");
    }
    const bool is_of_parts = IsOfParts(node, instruction),
               multiplies = node.kind == StepNode::Kind::kProduct || is_of_parts;
    if (is_of_parts) why.emplace_back("it is several products");
    if (multiplies && stage.steps_at_once > 1) why.emplace_back("it has the rows of many steps");
    const auto adds = [&](int value) { return graph_.values[value].added; };
    if (multiplies && std::ranges::any_of(node.given(), adds)) why.emplace_back("its sum goes on from what is there");
    for (const int input : node.inputs) {
      if (is_of_parts && IsFolded(input))
        why.push_back(StrCat("it adds ", NameOf(input), ", which was added to a later sum"));
    }
    for (const auto& product : node.products) {
      if (product && product->bias >= 0 && IsFolded(node.inputs[product->bias])) {
        why.push_back(StrCat("it adds ", NameOf(node.inputs[product->bias]), ", which was added to a later sum"));
      }
    }
    return why.empty() ? "" : StrCat("may round otherwise than with opt_level=1: ", Join(why, ", "));
  }

  std::string HowWeightsLie() const {
    const std::int64_t min_steps = plan_.target->min_steps_to_pack;
    if (!HasSteps(min_steps)) {
      return StrCat("reads weights as they lie: runs of fewer than ", min_steps, " steps lay out none");
    }
    return StrCat("reads weights in a layout of their own", num_steps_ ? "" : InRunsFrom(min_steps));
  }
  static std::string InRunsFrom(std::int64_t min_steps) { return StrCat(", in runs of ", min_steps, " steps or more"); }

  // Whatever the number of steps is, for what is the same in all of them.
  bool RunsOnce(int i) const {
    const Stage& last = plan_.stages.back();
    return (last.is_behind && i >= last.begin) || graph_.GivesOnce(graph_.nodes[i]);
  }

  // What runs once takes as much however many steps there are: how much of it a step of the run has, where one of the
  // runs that plans are made for has 1.
  double ShareOfStep(int i) const {
    if (!num_steps_ || !RunsOnce(i)) return 1;
    return static_cast<double>(kTypicalSteps) / static_cast<double>(std::max<std::int64_t>(1, *num_steps_));
  }

  // Whichever takes longest: the arithmetic, the functions, or the bytes. These lie in the cache that holds all that
  // the stage touches at a time or, what is faster than that can be, nearer. Nothing where it is faster than all of
  // these let it be: then it has not done all the work, as behind the ends of sequences.
  std::optional<ExplainedLimit> LimitOf(const ExplainedInstruction& of, const StepNode& node,
                                        const Stage& stage) const {
    if (of.flops <= 0 && of.bytes <= 0) return {};
    const std::int64_t steps = std::max<std::int64_t>(1, measured_->num_steps);
    const std::int64_t at_once = stage.steps_at_once == kAllSteps ? steps : std::min(stage.steps_at_once, steps);
    double touched = 0;
    for (int i = stage.begin; i < stage.end; ++i) {
      touched += plan_.instructions[i].cost.bytes * ShareOfStep(i) * static_cast<double>(at_once);
    }
    const MachineLimits& limits = measured_->limits;
    const MachineLimits::Cache* cache = &limits.CacheOf(touched);
    while (cache != limits.caches.data() && of.bytes / cache->bytes_per_microsecond > *of.measured) --cache;
    const double arithmetic = of.flops / limits.flops_per_microsecond;
    const double reading = of.bytes / cache->bytes_per_microsecond;
    const ExplainedLimit functions = LimitOfFunctions(of, node);
    if (std::max({functions.microseconds, arithmetic, reading}) > kMeasuredAlike * *of.measured) return {};
    if (functions.microseconds > std::max(arithmetic, reading)) return functions;
    if (arithmetic >= reading) return {{arithmetic, StrCat(Figure(limits.flops_per_microsecond / 1e3), " GFLOP/s")}};
    return {{reading, StrCat(Figure(cache->bytes_per_microsecond / 1e3), " GB/s from the ", cache->name)}};
  }

  ExplainedLimit LimitOfFunctions(const ExplainedInstruction& of, const StepNode& node) const {
    ExplainedLimit limit{.of_functions = true};
    std::vector<std::string> names;
    const std::map<ExprOp, double> counts = NodeFunctions(graph_, node);
    double all = 0;
    for (const auto& [op, count] : counts) all += count;
    for (const MachineLimits::Function& function : measured_->limits.functions) {
      const auto found = counts.find(function.op);
      if (found == counts.end()) continue;
      names.emplace_back(function.name);
      limit.microseconds += of.functions * found->second / all / function.per_microsecond;
    }
    if (names.empty()) return {};
    limit.what = StrCat(Figure(of.functions / limit.microseconds / 1e3), " G/s of ", Join(names, ", "));
    return limit;
  }

  // Empty where one thread runs all of it.
  std::string HowShared(int i, const Stage& stage) const {
    if (!plan_.IsScheduled()) return "";
    const Schedule& schedule = ScheduleOf(stage);
    const auto task =
        std::ranges::find_if(schedule.tasks, [&](const Task& t) { return std::ranges::count(t.instructions, i) > 0; });
    if (task == schedule.tasks.end() || task->parts < 2) return "";
    std::string parts = StrCat(task->parts, " parts, one a thread");
    if (task->cuts > 1) parts += StrCat(", each cut in ", task->cuts, ", which others take when theirs are done");
    if (!num_steps_ && schedule.min_steps > Schedule().min_steps) parts += InRunsFrom(schedule.min_steps);
    if (schedule.sharing == Sharing::kBatch) return StrCat("cut by rows of the batch, apart in all steps: ", parts);
    if (task->units > 0 && task->instructions.size() > 1) {
      const int first = task->instructions.front(), last = task->instructions.back();
      return StrCat("cut by units, ", first, " to ", last, " together: ", parts);
    }
    return StrCat("cut in ", parts, schedule.sharing == Sharing::kLockstep ? ", in lockstep" : "");
  }

  // Why a product that waits for no other step, or sums over the steps that it gives, are in the loop all the same.
  void AddWhyInLoop(int i, const Stage& stage, std::vector<std::string>* notes) const {
    if (stage.steps_at_once != 1 || graph_.nodes[i].kind != StepNode::Kind::kProduct) return;
    if (CyclesIn(stage)[i - stage.begin] == kNoCycle) {
      notes->push_back(StrCat("waits for no other step, but ",
                              forms_stages_ ? WhyInLoop(DraftOf(i), plan_) : "the pass form_stages has not run"));
      return;
    }
    if (!forms_stages_) return;
    Instruction sums = DraftOf(i);
    const auto is_of_step = [&](const InstructionOperand& output) {
      const int value = graph_.nodes[i].outputs[output.position];
      return graph_.homes[graph_.values[value].home].kind == Home::Kind::kTemporary;
    };
    std::erase_if(sums.outputs, [&](const InstructionOperand& output) {
      return output.has_rows || !output.added || is_of_step(output);
    });
    if (sums.outputs.empty()) return;
    std::vector<std::string> names;
    for (const InstructionOperand& output : sums.outputs) names.push_back(NameText(draft_.slots[output.slot].blob));
    notes->push_back(
        StrCat("adds up ", Join(names, ", "), " step by step, not after the loop: ", WhyInLoop(sums, plan_)));
  }

  // The instruction as form_stages sees it, before what it gives has memory of a few steps.
  const Instruction& DraftOf(int i) const {
    if (draft_.instructions.empty()) {
      StepGraph graph = graph_;
      graph.TakeBehind();
      num_once_ = static_cast<int>(graph.TakeOnce().size());
      graph.stages.clear();
      draft_ = EmitPlan(graph, {.is_draft = true});
    }
    return draft_.instructions[i - num_once_];
  }

  const RegionsApart& ApartIn(const Stage& stage) const {
    auto found = regions_apart_.find(stage.begin);
    if (found == regions_apart_.end()) {
      found = regions_apart_.try_emplace(stage.begin, graph_, stage.begin, stage.end).first;
    }
    return found->second;
  }

  // Instructions of the loop that read what this one leaves in memory: why they are two. Products are so always.
  void AddWhatIsNotFused(int i, const Stage& stage, std::vector<std::string>* notes) const {
    const auto is_product = [&](int n) {
      const StepNode& node = graph_.nodes[n];
      return node.kind == StepNode::Kind::kProduct || IsOfParts(node, plan_.instructions[n]);
    };
    if (stage.steps_at_once != 1 || !graph_.nodes[i].RunsOperators() || is_product(i)) return;
    std::vector<std::pair<std::string, std::vector<int>>> readers;  // by why they are apart
    for (int reader = i + 1; reader < stage.end; ++reader) {
      const StepNode &giver = graph_.nodes[i], &other = graph_.nodes[reader];
      const bool reads =
          std::ranges::any_of(giver.given(), [&](int value) { return std::ranges::count(other.inputs, value) > 0; });
      if (!reads || !other.RunsOperators() || is_product(reader)) continue;
      const std::string why = OneLine(fuses_ ? ApartIn(stage).Why(i, reader) : "the pass fuse_regions has not run");
      const auto known = std::ranges::find(readers, why, &std::pair<std::string, std::vector<int>>::first);
      (known == readers.end() ? readers.emplace_back(why, std::vector<int>()) : *known).second.push_back(reader);
    }
    for (const auto& [why, numbers] : readers) {
      notes->push_back(StrCat("not one with ", Join(numbers, ", "),
                              numbers.size() > 1 ? ", which read it: " : ", which reads it: ", why));
    }
  }

  // The stage that goes through one step after the other and takes the longest; null: none, or nothing is scheduled.
  const Stage* LongestLoop() const {
    const Stage* longest = nullptr;
    for (const Stage& stage : plan_.stages) {
      if (!plan_.IsScheduled() || stage.steps_at_once != 1) continue;
      if (longest == nullptr || ScheduleOf(stage).step_microseconds > ScheduleOf(*longest).step_microseconds) {
        longest = &stage;
      }
    }
    return longest;
  }
  const Schedule& ScheduleOf(const Stage& stage) const { return *plan_.schedules[&stage - plan_.stages.data()]; }

  std::vector<ChainLink> LongestChainOf(const Stage& loop) const {
    if (ScheduleOf(loop).sharing == Sharing::kTasks) return LongestChain(ScheduleOf(loop));
    // Others have tasks of what runs one behind the other, whether it waits or not.
    StepPlan plan = plan_;
    std::shared_ptr<const Schedule>& schedule = plan.schedules[&loop - plan_.stages.data()];
    schedule = std::make_shared<Schedule>(MakeSchedule(plan_, loop, 1));
    if (measured_ != nullptr) SetCosts(MicrosecondsOf(plan, *measured_), &plan);
    return LongestChain(*schedule);
  }

  void AddPace(Explanation* to) const {
    const Stage* const loop = LongestLoop();
    if (loop == nullptr) return;
    const Schedule& schedule = ScheduleOf(*loop);
    const bool by_tasks = schedule.sharing == Sharing::kTasks;
    const std::vector<ChainLink> chain = LongestChainOf(*loop);
    for (const ChainLink& link : chain) {
      to->chain.push_back(StrCat(link.instruction, ": ", ShortText(link.instruction)));
    }
    // Not where it comes back because a later step takes the memory of what nothing reads any more.
    to->chain_comes_back = std::ranges::any_of(
        chain, [&](const ChainLink& link) { return CyclesIn(*loop)[link.instruction - loop->begin] != kNoCycle; });
    const bool is_whole = std::ssize(chain) == loop->end - loop->begin;
    if (is_whole || (by_tasks && schedule.threads > 1)) return;
    to->whole_loop = StrCat(schedule.threads > 1 ? "each thread" : "one thread", " goes through all of the loop, ",
                            loop->begin, " to ", loop->end - 1);
  }

  const StepGraph& graph_;
  const StepPlan plan_;  // with the schedules of the run that is explained
  const std::optional<std::int64_t> num_steps_;
  const bool fuses_, forms_stages_;
  const std::set<std::string>& folded_;  // MadePlan::folded
  const Measured* const measured_;
  const std::vector<std::vector<int>> cycles_;  // by stage
  std::vector<ProductApart> apart_;
  mutable std::map<int, RegionsApart> regions_apart_;  // by the begin of the stage
  mutable StepPlan draft_;                             // of DraftOf: of what does not run once, behind so many nodes
  mutable int num_once_ = 0;
};

}  // namespace

Explanation Explain(const MadePlan& made, std::optional<std::int64_t> num_steps, const Measured* measured) {
  if (measured != nullptr) num_steps = measured->num_steps;
  if (num_steps == 0) num_steps.reset();  // nothing runs
  Explanation explanation{.net = made.plan.name,
                          .backward = made.plan.backward,
                          .num_steps = num_steps,
                          .is_measured = measured != nullptr};
  explanation.num_operators = static_cast<int>(std::ranges::count_if(made.imported.nodes, &StepNode::RunsOperators));
  Explainer(made, num_steps, measured).Run(&explanation);
  explanation.imported_text = GraphText(made.imported);
  explanation.graph_text = GraphText(made.graph);
  explanation.imported_drawing = GraphDrawing(made.imported);
  explanation.graph_drawing = GraphDrawing(made.graph);
  if (made.plan.IsScheduled()) explanation.schedule_text = ScheduleText(made.plan);
  return explanation;
}

}  // namespace stepnet

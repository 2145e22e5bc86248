#include "stepnet/report/explanation.h"

#include <algorithm>
#include <map>
#include <set>

#include "stepnet/compiler/graph_text.h"
#include "stepnet/compiler/longest_chain.h"
#include "stepnet/compiler/node_order.h"
#include "stepnet/compiler/passes/fuse_regions.h"
#include "stepnet/compiler/passes/merge_products.h"
#include "stepnet/compiler/schedule.h"
#include "stepnet/compiler/schedule_text.h"
#include "stepnet/core/cost.h"
#include "stepnet/core/strings.h"
#include "stepnet/report/graph_drawing.h"
#include "stepnet/report/node_formulas.h"
#include "stepnet/report/text.h"

namespace stepnet {
namespace {

using Kind = ExplainedInstruction::Kind;

// Without line breaks and what else could forge lines.
std::string OneLine(std::string text) {
  std::ranges::replace_if(
      text, [](unsigned char c) { return c < ' '; }, ' ');
  return text;
}

class Explainer {
 public:
  Explainer(const MadePlan& made, const Measured* measured)
      : graph_(made.graph),
        plan_(made.plan),
        fuses_(made.passes.contains("fuse_regions")),
        folded_(made.folded),
        measured_(measured),
        cycles_(CyclesOfStages(graph_, plan_)) {
    if (made.passes.contains("merge_products")) apart_ = FindProductsApart(made.unmerged);
  }

  void Run(Explanation* to) const {
    for (size_t s = 0; s < plan_.stages.size(); ++s) {
      const Stage& stage = plan_.stages[s];
      ExplainedStage& explained = to->stages.emplace_back();
      explained.title = StageTitle(stage);
      explained.why = WhyStage(stage);
      if (plan_.IsScheduled()) explained.threads = plan_.schedules[s]->threads;
      for (int i = stage.begin; i < stage.end; ++i) explained.instructions.push_back(InstructionAt(i, stage));
    }
    AddStorage(to);
    to->stages_overlap = plan_.pipeline != nullptr;
    to->chunk_steps = plan_.chunk_steps;
    to->block_steps = plan_.block_steps;
    if (const Schedule* loop = LongestLoop(); loop != nullptr) {
      for (const ChainLink& link : LongestChain(*loop)) {
        to->chain.push_back(StrCat(link.instruction, ": ", ShortText(link.instruction)));
      }
    }
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

  std::string WhyStage(const Stage& stage) const {
    if (plan_.stages.size() == 1) return "";
    if (stage.steps_at_once == 1) return Waits(stage) ? "what waits for the step before, and what is near it" : "";
    const auto begin = graph_.nodes.begin() + stage.begin, end = graph_.nodes.begin() + stage.end;
    if (std::all_of(begin, end, [](const StepNode& node) { return node.kind == StepNode::Kind::kPack; })) {
      return "weights, laid out for the kernels of the loop";
    }
    const auto gives_once = [&](const StepNode& node) { return graph_.GivesOnce(node); };
    if (std::all_of(begin, end, gives_once)) return "what follows from what is the same in all steps";
    if (stage.steps_at_once == kAllSteps) {
      return "sums over the steps, which nothing waits for; they add up in another order than step by step, and round "
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
                                   .kind = KindOf(node),
                                   .text = OneLine(instruction.text),
                                   .formulas = NodeFormulas(graph_, node),
                                   .flops = instruction.cost.flops,
                                   .bytes = instruction.cost.bytes,
                                   .estimate = EstimateMicroseconds(instruction.cost, *plan_.target)};
    if (measured_ != nullptr && measured_->microseconds[i]) {
      explained.measured = measured_->microseconds[i];
      const double share = ShareOfStep(i);
      explained.estimate *= share;
      explained.flops *= share;
      explained.bytes *= share;
      explained.limit = LimitOf(explained, stage);
    }
    AddWhatIsMerged(node, &explained.notes);
    if (instruction.packed) explained.notes.emplace_back("reads weights in a layout of their own");
    if (const std::string rounds = HowItRounds(node, instruction, stage); !rounds.empty()) {
      explained.notes.push_back(rounds);
    }
    if (instruction.by_blobs) explained.notes.emplace_back("finds its shapes anew in each step");
    if (instruction.has_side_effects) explained.notes.emplace_back("does more than to compute, so it keeps its place");
    if (const std::string shared = HowShared(i, stage); !shared.empty()) explained.notes.push_back(shared);
    AddWhyInLoop(i, stage, &explained.notes);
    AddWhatIsNotFused(i, stage, &explained.notes);
    return explained;
  }

  // Whether the product is several ones of the cell, and why it is not one with others of its value.
  void AddWhatIsMerged(const StepNode& node, std::vector<std::string>* notes) const {
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
    if (instruction.packed) why.emplace_back("its terms are added up in another order");
    if (node.kind == StepNode::Kind::kProduct && stage.steps_at_once > 1)
      why.emplace_back("it has the rows of many steps");
    const auto adds = [&](int value) { return graph_.values[value].added; };
    if (node.kind == StepNode::Kind::kProduct && std::ranges::any_of(node.given(), adds)) {
      why.emplace_back("its sum goes on from what is there");
    }
    for (const auto& product : node.products) {
      if (product && product->bias >= 0 && IsFolded(node.inputs[product->bias])) {
        why.push_back(StrCat("it adds ", NameOf(node.inputs[product->bias]), ", which was added to a later sum"));
      }
    }
    return why.empty() ? "" : StrCat("may round otherwise than with opt_level=1: ", Join(why, ", "));
  }

  // What runs once takes as much however many steps there are: how much of it a step of the measured run has, where one
  // of the runs that plans are made for has 1.
  double ShareOfStep(int i) const {
    if (!graph_.GivesOnce(graph_.nodes[i])) return 1;
    return static_cast<double>(kTypicalSteps) / static_cast<double>(std::max<std::int64_t>(1, measured_->num_steps));
  }

  // Whichever takes longer: the arithmetic, or the bytes, which lie in the cache that holds all that the stage touches
  // at a time.
  std::optional<ExplainedLimit> LimitOf(const ExplainedInstruction& of, const Stage& stage) const {
    if (of.flops <= 0 && of.bytes <= 0) return {};
    const std::int64_t steps = std::max<std::int64_t>(1, measured_->num_steps);
    const std::int64_t at_once = stage.steps_at_once == kAllSteps ? steps : std::min(stage.steps_at_once, steps);
    double touched = 0;
    for (int i = stage.begin; i < stage.end; ++i) {
      touched += plan_.instructions[i].cost.bytes * ShareOfStep(i) * static_cast<double>(at_once);
    }
    const MachineLimits& limits = measured_->limits;
    const MachineLimits::Cache& cache = limits.CacheOf(touched);
    const double arithmetic = of.flops / limits.flops_per_microsecond;
    const double reading = of.bytes / cache.bytes_per_microsecond;
    if (arithmetic >= reading) return {{arithmetic, StrCat(Number(limits.flops_per_microsecond / 1e3, 3), " GFLOP/s")}};
    return {{reading, StrCat(Number(cache.bytes_per_microsecond / 1e3, 3), " GB/s from the ", cache.name)}};
  }

  // Empty where one thread runs all of it.
  std::string HowShared(int i, const Stage& stage) const {
    if (!plan_.IsScheduled()) return "";
    const Schedule& schedule = *plan_.schedules[&stage - plan_.stages.data()];
    const auto task =
        std::ranges::find_if(schedule.tasks, [&](const Task& t) { return std::ranges::count(t.instructions, i) > 0; });
    if (task == schedule.tasks.end() || task->parts < 2) return "";
    std::string parts = StrCat(task->parts, " parts, one a thread");
    if (task->cuts > 1) parts += StrCat(", each cut in ", task->cuts, ", which others take when theirs are done");
    if (schedule.sharing == Sharing::kBatch) return StrCat("cut by rows of the batch, apart in all steps: ", parts);
    if (task->units > 0 && task->instructions.size() > 1) {
      const int first = task->instructions.front(), last = task->instructions.back();
      return StrCat("cut by units, ", first, " to ", last, " together: ", parts);
    }
    return StrCat("cut in ", parts, schedule.sharing == Sharing::kLockstep ? ", in lockstep" : "");
  }

  void AddWhyInLoop(int i, const Stage& stage, std::vector<std::string>* notes) const {
    const bool may_leave = graph_.nodes[i].kind == StepNode::Kind::kProduct && plan_.instructions[i].can_take_steps;
    if (stage.steps_at_once != 1 || !may_leave || CyclesIn(stage)[i - stage.begin] != kNoCycle) return;
    if (plan_.instructions[i].packed && IsAsFastInLoop(i)) {
      notes->emplace_back(
          "waits for no other step, but reads its weights as fast in each, and what it gives stays in the caches");
      return;
    }
    notes->emplace_back(
        "waits for no other step, but what a step has of its own is large beside its weights, and would "
        "leave the caches");
  }

  // By its rows and the bytes of its weights, as compiler/find_stages.cc asks before these are packed.
  bool IsAsFastInLoop(int i) const {
    const StepNode& node = graph_.nodes[i];
    const Shape& shape = plan_.instructions[i].outputs.front().info.shape;
    const auto& product = node.products.front();
    if (shape.size() == 0 || !product || !product->right) return false;
    return plan_.target->IsAsFastInLoop(shape.size() / shape[-1],
                                        graph_.values[node.inputs[product->right->input]].info.size_bytes());
  }

  const RegionsApart& ApartIn(const Stage& stage) const {
    auto found = regions_apart_.find(stage.begin);
    if (found == regions_apart_.end()) {
      found = regions_apart_.try_emplace(stage.begin, graph_, stage.begin, stage.end).first;
    }
    return found->second;
  }

  // Instructions of the loop that read what this one leaves in memory: why they are two.
  void AddWhatIsNotFused(int i, const Stage& stage, std::vector<std::string>* notes) const {
    if (stage.steps_at_once != 1 || !graph_.nodes[i].RunsOperators()) return;
    for (int reader = i + 1; reader < stage.end; ++reader) {
      const StepNode &giver = graph_.nodes[i], &other = graph_.nodes[reader];
      const bool reads =
          std::ranges::any_of(giver.given(), [&](int value) { return std::ranges::count(other.inputs, value) > 0; });
      if (!reads || !other.RunsOperators()) continue;
      const bool might_be_one = giver.kind != StepNode::Kind::kProduct && other.kind != StepNode::Kind::kProduct;
      const std::string why =
          might_be_one && !fuses_ ? "the pass fuse_regions has not run" : ApartIn(stage).Why(i, reader);
      notes->push_back(StrCat("not one with ", reader, ", which reads it: ", OneLine(why)));
    }
  }

  // Slots that instructions read the shape of, and no element.
  std::vector<bool> ShapesAlone() const {
    std::vector<bool> is_named(plan_.slots.size(), false), is_used = is_named;
    for (const Instruction& instruction : plan_.instructions) {
      for (const Operand& input : instruction.inputs) (input.shape_alone ? is_named : is_used)[input.slot] = true;
      for (const Operand& output : instruction.outputs) is_used[output.slot] = true;
    }
    for (size_t s = 0; s < is_named.size(); ++s) is_named[s] = is_named[s] && !is_used[s];
    return is_named;
  }

  void AddStorage(Explanation* to) const {
    const std::map<StorageClass, const char*> meanings = {
        {StorageClass::kLocal, "in registers and the first cache alone"},
        {StorageClass::kRing, "a few rows that steps use in turn"},
        {StorageClass::kBlock, "a row for each step of a block, for another stage"},
        {StorageClass::kStacked, "a row for each step, for another stage or the gradient"},
        {StorageClass::kLinked, plan_.backward
                                    ? "rows of sequences, states, outputs and their gradients, and of what the "
                                      "forward steps kept, where they are"
                                    : "rows of sequences, states and outputs, at no cost"},
        {StorageClass::kShared, "the same in all steps"},
        {StorageClass::kDynamic, "blobs, of shapes that only a run tells"}};
    const std::vector<bool> shapes_alone = ShapesAlone();
    for (const auto& [storage_class, meaning] : meanings) {
      ExplainedStorage storage{.kind = StorageClassName(storage_class), .meaning = meaning};
      storage.has_rows = storage_class != StorageClass::kShared;
      std::set<std::pair<int, std::int64_t>> rows;  // that are counted
      for (size_t s = 0; s < plan_.slots.size(); ++s) {
        const Slot& slot = plan_.slots[s];
        if (slot.storage_class != storage_class || shapes_alone[s]) continue;
        if (std::ranges::count(storage.values, slot.blob) == 0) storage.values.push_back(slot.blob);
        if (rows.emplace(slot.base, slot.offset).second) storage.bytes += slot.bytes;
      }
      if (!storage.values.empty()) to->storage.push_back(std::move(storage));
    }
    ExplainedStorage shapes{.kind = "shape", .meaning = "nothing else of them is read"};
    for (size_t s = 0; s < plan_.slots.size(); ++s) {
      if (shapes_alone[s]) shapes.values.push_back(plan_.slots[s].blob);
    }
    if (!shapes.values.empty()) to->storage.push_back(std::move(shapes));
  }

  const Schedule* LongestLoop() const {
    const Schedule* longest = nullptr;
    for (size_t s = 0; s < plan_.stages.size() && plan_.IsScheduled(); ++s) {
      const Schedule* const schedule = plan_.schedules[s].get();
      if (plan_.stages[s].steps_at_once != 1) continue;
      if (longest == nullptr || schedule->step_microseconds > longest->step_microseconds) longest = schedule;
    }
    return longest;
  }

  const StepGraph& graph_;
  const StepPlan& plan_;
  const bool fuses_;
  const std::set<std::string>& folded_;  // MadePlan::folded
  const Measured* const measured_;
  const std::vector<std::vector<int>> cycles_;  // by stage
  std::vector<ProductApart> apart_;
  mutable std::map<int, RegionsApart> regions_apart_;  // by the begin of the stage
};

}  // namespace

Explanation Explain(const MadePlan& made, const Measured* measured) {
  Explanation explanation{.net = made.plan.name, .backward = made.plan.backward, .is_measured = measured != nullptr};
  explanation.num_operators = static_cast<int>(std::ranges::count_if(made.imported.nodes, &StepNode::RunsOperators));
  Explainer(made, measured).Run(&explanation);
  explanation.imported_text = GraphText(made.imported);
  explanation.graph_text = GraphText(made.graph);
  explanation.imported_drawing = GraphDrawing(made.imported);
  explanation.graph_drawing = GraphDrawing(made.graph);
  if (made.plan.IsScheduled()) explanation.schedule_text = ScheduleText(made.plan);
  return explanation;
}

}  // namespace stepnet

#include "stepnet/report/explanation.h"

#include <algorithm>
#include <map>
#include <set>

#include "stepnet/compiler/graph_text.h"
#include "stepnet/compiler/longest_chain.h"
#include "stepnet/compiler/node_order.h"
#include "stepnet/compiler/passes/merge_products.h"
#include "stepnet/compiler/schedule.h"
#include "stepnet/compiler/schedule_text.h"
#include "stepnet/core/cost.h"
#include "stepnet/core/strings.h"
#include "stepnet/report/call_formula.h"
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
    if (const Schedule* loop = LongestLoop(); loop != nullptr) {
      for (const ChainLink& link : LongestChain(*loop))
        to->chain.push_back(StrCat(link.instruction, ": ", OneLine(plan_.instructions[link.instruction].text)));
    }
  }

 private:
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

  // Names come from files, and may hold anything.
  std::string NameOf(int value) const { return value == kNoValue ? "_" : NameText(graph_.values[value].blob); }

  // What the operator computes, by the names that its operands have.
  std::vector<std::string> FormulasOf(const OperatorCall& call, std::vector<int> inputs,
                                      std::vector<int> outputs) const {
    std::vector<std::string> in, out;
    for (const int value : inputs) in.push_back(NameOf(value));
    for (const int value : outputs) out.push_back(NameOf(value));
    std::vector<std::string> formulas = CallFormula(call, in, out);
    for (const int value : outputs) {
      if (value == kNoValue || !graph_.values[value].added) continue;
      const std::string gives = NameOf(value) + " = ";
      for (std::string& formula : formulas) {
        if (formula.starts_with(gives)) formula.insert(gives.size() - 2, "+");
      }
    }
    return formulas;
  }

  std::vector<std::string> FormulasOf(const StepNode& node) const {
    std::vector<std::string> formulas;
    if (node.kind == StepNode::Kind::kProduct) return ProductsOf(node);
    if (node.IsOneOperator()) return FormulasOf(*node.call, node.inputs, node.outputs);
    for (const RegionCall& call : node.calls()) {
      std::vector<int> inputs, outputs;
      for (const int operand : call.inputs) inputs.push_back(node.ValueOf(operand));
      for (const int operand : call.outputs) outputs.push_back(operand == kNoValue ? kNoValue : node.ValueOf(operand));
      const std::vector<std::string> more = FormulasOf(*call.call, inputs, outputs);
      formulas.insert(formulas.end(), more.begin(), more.end());
    }
    return formulas;
  }

  std::vector<std::string> ProductsOf(const StepNode& node) const {
    std::vector<std::string> formulas;
    const auto factor = [&](const ProductFactor& of) {
      return StrCat(NameOf(node.inputs[of.input]), of.transposed ? "^T" : "");
    };
    for (size_t o = 0; o < node.products.size(); ++o) {
      if (!node.products[o] || node.outputs[o] == kNoValue) continue;
      const Product& product = *node.products[o];
      std::string text = product.right ? StrCat(factor(product.left), " * ", factor(*product.right))
                                       : StrCat("sum over the rows of ", factor(product.left));
      if (product.bias >= 0) text += StrCat(" + ", NameOf(node.inputs[product.bias]));
      const bool adds = graph_.values[node.outputs[o]].added;
      formulas.push_back(StrCat(NameOf(node.outputs[o]), adds ? " += " : " = ", text));
    }
    return formulas;
  }

  ExplainedInstruction InstructionAt(int i, const Stage& stage) const {
    const Instruction& instruction = plan_.instructions[i];
    const StepNode& node = graph_.nodes[i];
    ExplainedInstruction explained{.number = i,
                                   .kind = KindOf(node),
                                   .text = OneLine(instruction.text),
                                   .formulas = FormulasOf(node),
                                   .flops = instruction.cost.flops,
                                   .bytes = instruction.cost.bytes,
                                   .estimate = EstimateMicroseconds(instruction.cost, *plan_.target)};
    if (measured_ != nullptr) {
      explained.measured = measured_->microseconds[i];
      explained.limit = LimitOf(instruction.cost, stage);
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
      const std::vector<std::string> weights = WeightsSideBySide(node.inputs[product->right->input]);
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
  std::vector<std::string> WeightsSideBySide(int value) const {
    const StepValue& v = graph_.values[value];
    std::vector<std::string> names;
    if (!v.outside || v.producer < 0) return names;
    const StepNode& giver = graph_.nodes[v.producer];
    if (giver.call == nullptr || giver.call->type() != "Concat") return names;
    for (const int input : giver.inputs) names.push_back(NameOf(input));
    return names;
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
    return why.empty() ? "" : StrCat("may round otherwise than with opt_level=1: ", Join(why, ", "));
  }

  // Whichever takes longer: the arithmetic, or the bytes, which lie in the cache that holds all that the stage touches.
  std::optional<ExplainedLimit> LimitOf(const Cost& cost, const Stage& stage) const {
    if (cost.flops <= 0 && cost.bytes <= 0) return {};
    double touched = 0;
    for (int i = stage.begin; i < stage.end; ++i) touched += plan_.instructions[i].cost.bytes;
    const MachineLimits& limits = measured_->limits;
    const MachineLimits::Cache& cache =
        limits.CacheOf(touched * static_cast<double>(std::max<std::int64_t>(1, stage.steps_at_once)));
    const double arithmetic = cost.flops / limits.flops_per_microsecond;
    const double reading = cost.bytes / cache.bytes_per_microsecond;
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
    const std::string parts = StrCat(task->parts, " parts, one a thread");
    if (schedule.sharing == Sharing::kBatch) return StrCat("cut by rows of the batch, apart in all steps: ", parts);
    if (task->units > 0 && task->instructions.size() > 1) {
      const int first = task->instructions.front(), last = task->instructions.back();
      return StrCat("cut by units, ", first, " to ", last, " together: ", parts);
    }
    return StrCat("cut in ", parts, schedule.sharing == Sharing::kLockstep ? ", in lockstep" : "");
  }

  void AddWhyInLoop(int i, const Stage& stage, std::vector<std::string>* notes) const {
    const bool may_leave = graph_.nodes[i].kind == StepNode::Kind::kProduct && plan_.instructions[i].can_batch_steps;
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

  // By its rows and the bytes of its weights (compiler/find_stages.cc).
  bool IsAsFastInLoop(int i) const {
    const StepNode& node = graph_.nodes[i];
    const Target& target = *plan_.target;
    const Shape& shape = plan_.instructions[i].outputs.front().info.shape;
    const auto& product = node.products.front();
    if (shape.size() == 0 || !product || !product->right) return false;
    if (shape.size() / shape[-1] < target.min_rows_of_step) return false;
    const std::int64_t bytes = graph_.values[node.inputs[product->right->input]].info.size_bytes();
    return bytes >= target.min_bytes_in_loop && bytes <= target.max_bytes_in_loop;
  }

  // The next instruction of the loop reads what this one leaves in memory: why they are two.
  void AddWhatIsNotFused(int i, const Stage& stage, std::vector<std::string>* notes) const {
    if (stage.steps_at_once != 1 || !graph_.nodes[i].RunsOperators()) return;
    for (int reader = i + 1; reader < stage.end; ++reader) {
      const StepNode &giver = graph_.nodes[i], &other = graph_.nodes[reader];
      const bool reads =
          std::ranges::any_of(giver.given(), [&](int value) { return std::ranges::count(other.inputs, value) > 0; });
      if (!reads || !other.RunsOperators()) continue;
      const std::string why = WhyApart(giver, other);
      if (!why.empty()) notes->push_back(StrCat("not one with ", reader, ", which reads it: ", why));
    }
  }

  std::string WhyApart(const StepNode& giver, const StepNode& reader) const {
    for (const StepNode* node : {&giver, &reader}) {
      if (node->kind == StepNode::Kind::kProduct) return "products are not fused with other operators";
      if (node->by_blobs) return StrCat(node->call->type(), " finds its shapes anew in each step");
      if (node->kind == StepNode::Kind::kCall) return StrCat(node->call->type(), " has no formula");
    }
    return fuses_ ? "no single pass over elements gives both" : "the pass fuse_regions has not run";
  }

  void AddStorage(Explanation* to) const {
    static const std::map<StorageClass, const char*> kMeanings = {
        {StorageClass::kLocal, "in registers and the first cache alone"},
        {StorageClass::kRing, "a few rows that steps use in turn"},
        {StorageClass::kStacked, "a row for each step, for another stage or the gradient"},
        {StorageClass::kLinked, "rows of sequences, states and outputs, at no cost"},
        {StorageClass::kShared, "the same in all steps"},
        {StorageClass::kDynamic, "blobs, of shapes that only a run tells"}};
    for (const auto& [storage_class, meaning] : kMeanings) {
      ExplainedStorage storage{.kind = StorageClassName(storage_class), .meaning = meaning};
      storage.has_rows = storage_class != StorageClass::kShared;
      std::set<std::pair<int, std::int64_t>> rows;  // that are counted
      for (const Slot& slot : plan_.slots) {
        if (slot.storage_class != storage_class) continue;
        if (std::ranges::count(storage.values, slot.blob) == 0) storage.values.push_back(slot.blob);
        if (rows.emplace(slot.base, slot.offset).second) storage.bytes += slot.bytes;
      }
      if (!storage.values.empty()) to->storage.push_back(std::move(storage));
    }
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
  const Measured* const measured_;
  const std::vector<std::vector<int>> cycles_;  // by stage
  std::vector<ProductApart> apart_;
};

}  // namespace

Explanation Explain(const MadePlan& made, const Measured* measured) {
  Explanation explanation{.net = made.plan.name, .backward = made.plan.backward};
  explanation.num_operators = static_cast<int>(std::ranges::count_if(made.imported.nodes, &StepNode::RunsOperators));
  Explainer(made, measured).Run(&explanation);
  explanation.imported_text = GraphText(made.imported);
  explanation.graph_text = GraphText(made.graph);
  if (made.plan.IsScheduled()) explanation.schedule_text = ScheduleText(made.plan);
  return explanation;
}

}  // namespace stepnet

#include <algorithm>
#include <optional>
#include <set>
#include <vector>

#include "stepnet/compiler/linearity.h"
#include "stepnet/compiler/passes/passes.h"
#include "stepnet/compiler/uses.h"
#include "stepnet/core/floating.h"
#include "stepnet/core/formulas/formula_cache.h"
#include "stepnet/core/index_of.h"

namespace stepnet {
namespace {

// Finds the nodes that can run behind all steps, and moves them there.
class LinearNodes {
 public:
  explicit LinearNodes(StepGraph* graph)
      : graph_(*graph),
        written_(WrittenBases(*graph)),
        of_(graph->values.size(), Linearity::kOther),
        values_(graph->homes.size()),
        readers_(graph->values.size()),
        leaves_(graph->nodes.size(), false) {
    if (graph_.recomputation == nullptr) return;
    for (const auto& [base, value] : graph_.recomputation->given) again_.insert(base);
  }

  bool Run() {
    FindUses();
    FindLinearNodes();
    while (DropNodes()) continue;
    if (!AreOperatorsLinear()) return false;
    MoveBehind();
    return true;
  }

 private:
  void FindUses() {
    for (size_t v = 0; v < graph_.values.size(); ++v) values_[graph_.values[v].home].push_back(static_cast<int>(v));
    for (size_t n = 0; n < graph_.nodes.size(); ++n) {
      for (const int input : graph_.nodes[n].inputs) {
        readers_[input].push_back(static_cast<int>(n));
        if (graph_.HomeOf(input).kind == Home::Kind::kOutside) read_.insert(graph_.HomeOf(input).slot.base);
      }
      for (const int output : graph_.nodes[n].given()) {
        const bool writes = graph_.HomeOf(output).kind == Home::Kind::kOutside && !graph_.values[output].added;
        if (writes) overwritten_.insert(graph_.HomeOf(output).slot.base);
      }
    }
  }

  // What is computed again in the steps is not there behind them.
  bool IsTheSame(int value) const {
    return graph_.HomeOf(value).kind == Home::Kind::kOnce ||
           (IsGivenWhole(graph_, written_, value) && !again_.contains(graph_.HomeOf(value).slot.base));
  }

  // Whether an operator gives the value as a sum over the rows of the step, or knows of no rows, and can add it to what
  // is there. Rows themselves are not added up: that takes more memory than their sum, and no less time.
  bool IsSummable(int value) const {
    const int producer = graph_.values[value].producer;
    if (producer < 0 || !IsFloatOrDouble(graph_.values[value].info.dtype)) return false;
    const StepNode& node = graph_.nodes[producer];
    if (!node.IsOneOperator() || node.by_blobs || !CanAdd(graph_, value)) return false;
    const RowsRule& rule = node.call->schema().rows;
    const std::vector<TensorInfo> inputs = graph_.InfosOf(node.inputs);
    const std::optional<RowOperands> rows = rule ? rule(ShapeQuery(*node.call, inputs)) : std::nullopt;
    return !rows || std::ranges::count(rows->outputs, IndexOf(node.outputs, value)) == 0;
  }

  void FindLinearNodes() {
    for (size_t v = 0; v < graph_.values.size(); ++v) {
      if (graph_.values[v].producer < 0 && IsTheSame(static_cast<int>(v))) of_[v] = Linearity::kSame;
    }
    const int num_once = graph_.NumOnceNodes();
    for (int n = 0; n < static_cast<int>(graph_.nodes.size()); ++n) {
      const StepNode& node = graph_.nodes[n];
      if (n < num_once) {
        for (const int value : node.given()) of_[value] = Linearity::kSame;
      } else if (AreKnown(node.inputs)) {
        std::vector<Linearity> inputs;
        for (const int input : node.inputs) inputs.push_back(of_[input]);
        const std::vector<Linearity> outputs = LinearityOf(graph_, node, inputs);
        for (size_t o = 0; o < outputs.size(); ++o) {
          if (node.outputs[o] != kNoValue) of_[node.outputs[o]] = outputs[o];
        }
        const auto is_known = [&](int value) { return of_[value] != Linearity::kOther; };
        leaves_[n] = std::ranges::all_of(node.given(), is_known) && !MayFail(node);
      }
    }
  }

  // What may be added up is looked for here, where somebody reads it.
  bool AreKnown(const std::vector<int>& values) {
    return std::ranges::all_of(values, [&](int value) {
      if (of_[value] == Linearity::kOther && IsSummable(value)) of_[value] = Linearity::kLinear;
      return of_[value] != Linearity::kOther;
    });
  }

  // Faults are of a step.
  bool MayFail(const StepNode& node) const {
    if (!node.IsOneOperator()) return false;
    const Kernel* kernel = node.call->schema().FindKernel(graph_.target->device);
    const std::vector<TensorInfo> inputs = graph_.InfosOf(node.inputs);
    return kernel == nullptr || MayFindBadValues(ShapeQuery(*node.call, inputs), *kernel);
  }

  // Returns whether there was a node that cannot leave the loop.
  bool DropNodes() {
    bool has_dropped = false;
    for (size_t n = graph_.nodes.size(); n-- > 0;) {
      if (!leaves_[n] || MayLeave(graph_.nodes[n])) continue;
      leaves_[n] = false;
      has_dropped = true;
    }
    return has_dropped;
  }

  bool MayLeave(const StepNode& node) const {
    return std::ranges::all_of(node.given(), [&](int value) { return MayBeGivenBehind(value); }) &&
           std::ranges::all_of(node.inputs, [&](int value) { return MayBeReadBehind(value); });
  }

  bool Leaves(int node) const { return node >= 0 && leaves_[node]; }
  bool IsOfStep(int value) const {
    return graph_.HomeOf(value).kind == Home::Kind::kTemporary && !graph_.HomeOf(value).kept;
  }

  // What nobody reads before all steps are done may be added to memory outside then, or is read behind the steps alone.
  bool MayBeGivenBehind(int value) const {
    const StepValue& given = graph_.values[value];
    const Home& home = graph_.homes[given.home];
    if (home.kind == Home::Kind::kOutside) {
      return !overwritten_.contains(home.slot.base) && of_[value] == Linearity::kLinear &&
             IsFloatOrDouble(given.info.dtype) && home.slot.row_bytes == 0 && !read_.contains(home.slot.base);
    }
    const std::vector<int>& others = values_[given.home];
    const bool is_total = std::ranges::any_of(others, [&](int other) { return graph_.values[other].added; });
    return IsOfStep(value) && std::ranges::all_of(others, [&](int other) {
             return Leaves(graph_.values[other].producer) && AreReadBehind(other) &&
                    (!is_total || of_[other] == Linearity::kLinear);
           });
  }

  bool AreReadBehind(int value) const {
    return std::ranges::all_of(readers_[value], [&](int reader) { return Leaves(reader); });
  }

  bool MayBeReadBehind(int value) const {
    if (Leaves(graph_.values[value].producer)) return true;
    return of_[value] == Linearity::kSame ? IsTheSame(value) : MayBeAddedUp(value);
  }

  // Whether the values of the home are terms of one sum, added one after the other, which is read behind the steps
  // alone.
  bool MayBeAddedUp(int sum) const {
    if (!IsOfStep(sum) || !AreReadBehind(sum)) return false;
    const StepValue& last = graph_.values[sum];
    return std::ranges::all_of(values_[last.home], [&](int term) {
      const StepValue& of = graph_.values[term];
      const bool is_first = of.producer == FirstProducer(last.home);
      return IsSummable(term) && of.added != is_first && of.producer <= last.producer && of.info == last.info &&
             (term == sum || readers_[term].empty());
    });
  }

  int FirstProducer(int home) const {
    const auto producer = [&](int value) { return graph_.values[value].producer; };
    return producer(std::ranges::min(values_[home], {}, producer));
  }

  // Whether an operator of what leaves the loop follows from a sum: moves alone gain nothing.
  bool AreOperatorsLinear() const {
    for (size_t n = 0; n < leaves_.size(); ++n) {
      const auto is_linear = [&](int value) { return of_[value] == Linearity::kLinear; };
      const StepNode& node = graph_.nodes[n];
      if (leaves_[n] && node.RunsOperators() && std::ranges::any_of(node.given(), is_linear)) return true;
    }
    return false;
  }

  void MoveBehind() {
    std::vector<StepNode> behind, others;
    std::vector<int> num_others = {0};  // before a node
    for (size_t n = 0; n < leaves_.size(); ++n) {
      num_others.push_back(num_others.back() + (leaves_[n] ? 0 : 1));
      if (!leaves_[n]) continue;
      for (const int value : graph_.nodes[n].given()) graph_.ForgetLast(value);
      for (const int value : graph_.nodes[n].inputs) {
        if (!Leaves(graph_.values[value].producer)) AddUp(value);
      }
    }
    for (size_t n = 0; n < leaves_.size(); ++n) (leaves_[n] ? behind : others).push_back(std::move(graph_.nodes[n]));
    for (Stage& stage : graph_.stages) {
      stage.begin = num_others[stage.begin];
      stage.end = num_others[stage.end];
    }
    std::erase_if(graph_.stages, [](const Stage& stage) { return stage.begin == stage.end; });
    graph_.nodes = std::move(others);
    graph_.AddBehind(std::move(behind));
  }

  // Steps add what they gave to one sum.
  void AddUp(int value) {
    const int home = graph_.values[value].home;
    if (graph_.homes[home].kind != Home::Kind::kTemporary) return;
    graph_.homes[home].kind = Home::Kind::kSum;
    const std::string& name = graph_.values[values_[home].front()].blob;
    graph_.before.push_back({.kind = RowMove::Kind::kZero, .to = {.name = name, .sum = home}});
    for (const int term : values_[home]) {
      graph_.values[term].added = true;
      graph_.ForgetLast(term);
    }
  }

  StepGraph& graph_;
  const std::set<int> written_;            // bases
  std::set<int> read_;                     // bases
  std::set<int> overwritten_;              // bases
  std::set<int> again_;                    // bases in place of which steps read what they compute again
  std::vector<Linearity> of_;              // values
  std::vector<std::vector<int>> values_;   // by home
  std::vector<std::vector<int>> readers_;  // by value: nodes
  std::vector<bool> leaves_;               // nodes
};

// Where a weight is derived from parameters, as Tanh(w), w * mask or g * v / Norm(v), each step gives the gradient of
// the weight, computes with it those of the parameters, and adds these up. What it computes is linear in the weight's
// gradient where all else is the same in all steps, as formulas and expansions say (compiler/linearity.h), so the sum
// may come first: steps add up the gradient of the weight, which form_stages can make one product of the rows of all
// steps, and the gradients of the parameters follow from the sum, once, behind all steps. So it is with what steps read
// of a capture, as the transpose of what an attention is over. Rounds otherwise: terms are added before and not after
// they are multiplied.
bool SumBeforeLinear(StepGraph* graph) { return graph->backward && LinearNodes(graph).Run(); }

const PassRegistration registration(
    {.name = "sum_before_linear", .place = 175, .opt_level = 2, .run = SumBeforeLinear});

}  // namespace
}  // namespace stepnet

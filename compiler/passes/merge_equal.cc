#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "stepnet/compiler/passes/passes.h"
#include "stepnet/compiler/uses.h"

namespace stepnet {
namespace {

class EqualNodes {
 public:
  explicit EqualNodes(StepGraph* graph) : graph_(*graph), uses_(*graph), stands_for_(graph->values.size()) {
    for (size_t v = 0; v < stands_for_.size(); ++v) stands_for_[v] = static_cast<int>(v);
  }

  bool Run() {
    std::vector<bool> gone(graph_.nodes.size(), false);
    for (size_t n = 0; n < graph_.nodes.size(); ++n) {
      StepNode& node = graph_.nodes[n];
      for (int& input : node.inputs) input = stands_for_[input];
      if (!node.IsOneOperator()) continue;
      std::vector<size_t>& alike = by_inputs_[{node.call->type(), node.inputs}];
      const auto first = std::ranges::find_if(alike, [&](size_t other) { return IsEqual(graph_.nodes[other], node); });
      if (first == alike.end()) {
        alike.push_back(n);
        continue;
      }
      // Formulas are asked where there are equal nodes alone: making one costs more than the rest of this pass.
      if (!MayBeOneOfSeveral(node)) continue;
      if (!MayBeOneOfSeveral(graph_.nodes[*first]) || IsWrittenBetween(node, *first, n)) {
        *first = n;
        continue;
      }
      if (GivesTerm(node) || GivesTerm(graph_.nodes[*first])) continue;
      for (size_t o = 0; o < node.outputs.size(); ++o) {
        if (node.outputs[o] == kNoValue) continue;
        stands_for_[node.outputs[o]] = graph_.nodes[*first].outputs[o];
        graph_.ForgetLast(node.outputs[o]);
      }
      gone[n] = true;
    }
    if (!std::ranges::count(gone, true)) return false;
    graph_.Erase(gone);
    return true;
  }

 private:
  // An operator that gives the same for the same inputs, in memory where nothing else is, and does nothing beside.
  bool MayBeOneOfSeveral(const StepNode& node) const {
    if (!DependsOnInputsAlone(graph_, node)) return false;
    const auto is_apart = [&](int value) { return uses_.IsApart(value); };
    const auto is_sum = [&](int value) { return graph_.homes[graph_.values[value].home].starts_at_zero; };
    return std::ranges::all_of(node.given(), is_apart) && std::ranges::none_of(node.inputs, is_sum);
  }

  // Whether nodes between two write, by another name, memory outside that the node reads.
  bool IsWrittenBetween(const StepNode& node, size_t first, size_t last) {
    if (!written_outside_) {
      written_outside_.emplace();
      for (size_t n = 0; n < graph_.nodes.size(); ++n) {
        for (const int output : graph_.nodes[n].given()) {
          const int home = graph_.values[output].home;
          if (graph_.homes[home].kind == Home::Kind::kOutside) written_outside_->emplace_back(n, home);
        }
      }
    }
    return std::ranges::any_of(*written_outside_, [&](const auto& written) {
      const Home& home = graph_.homes[written.second];
      return first < written.first && written.first < last && std::ranges::any_of(node.inputs, [&](int input) {
               return ShareBytes(graph_.homes[graph_.values[input].home], home);
             });
    });
  }

  // Whether the operator can add what it gives to a sum outside, where the move that adds it goes (fold_sums): row by
  // row, in another order than a sum over the rows that is added afterwards.
  bool GivesTerm(const StepNode& node) {
    if (!terms_) {
      terms_.emplace();
      for (const StepNode& move : graph_.nodes) {
        if (AddsTermOutside(graph_, move)) terms_->insert(move.inputs[0]);
      }
    }
    const auto is_term = [&](int value) { return terms_->contains(value) && CanAdd(graph_, value); };
    return std::ranges::any_of(node.given(), is_term);
  }

  // REQUIRES: the nodes are of one type and read the same inputs.
  bool IsEqual(const StepNode& first, const StepNode& second) const {
    if (first.outputs.size() != second.outputs.size()) return false;
    for (size_t o = 0; o < first.outputs.size(); ++o) {
      if (first.outputs[o] == kNoValue && second.outputs[o] != kNoValue) return false;
    }
    return HaveSameArguments(first, second);
  }

  StepGraph& graph_;
  const Uses uses_;
  std::optional<std::set<int>> terms_;  // what moves add outside, once somebody has asked
  std::optional<std::vector<std::pair<size_t, int>>> written_outside_;  // the same of nodes and homes that they write
  std::vector<int> stands_for_;  // by value: itself, or the equal one that is there before it
  std::map<std::pair<std::string, std::vector<int>>, std::vector<size_t>> by_inputs_;  // of equal ones, one that stays
};

// Where operators do the same with the same values, the first one computes what all give: products that a cell writes
// twice, as the h @ u of Tanh(h @ u) and Sigmoid(h @ u). Random numbers stay those of each operator; bits stay the
// same.
bool MergeEqual(StepGraph* graph) { return EqualNodes(graph).Run(); }

const PassRegistration registration({.name = "merge_equal", .place = 50, .opt_level = 1, .run = MergeEqual});

}  // namespace
}  // namespace stepnet

#include "stepnet/compiler/uses.h"

#include <algorithm>
#include <limits>
#include <memory>
#include <utility>

#include "stepnet/compiler/node_order.h"
#include "stepnet/core/expansion.h"
#include "stepnet/core/formulas/formula_cache.h"
#include "stepnet/proto/net.pb.h"

namespace stepnet {
namespace {

// Whether the operator says that the output is a product or a sum.
bool IsExpanded(const StepGraph& graph, const StepNode& node, size_t output) {
  if (node.kind == StepNode::Kind::kProduct) return node.products[output].has_value();
  if (!node.call->schema().expansion) return false;
  const std::vector<TensorInfo> inputs = graph.InfosOf(node.inputs);
  const ShapeQuery query(*node.call, inputs);
  const std::vector<std::optional<DimSum>> sums = Expansion(query).sums();
  return output < sums.size() && sums[output];
}

}  // namespace

Uses::Uses(const StepGraph& graph)
    : graph_(graph),
      num_readers_(graph.values.size()),
      num_values_(graph.homes.size()),
      is_added_to_(graph.homes.size()) {
  for (const StepValue& value : graph.values) {
    ++num_values_[value.home];
    if (value.added) is_added_to_[value.home] = true;
  }
  size_t num_operands = 0;
  for (const StepNode& node : graph.nodes) num_operands += node.inputs.size() + node.outputs.size();
  outside_.reserve(num_operands);
  for (size_t n = 0; n < graph.nodes.size(); ++n) {
    const StepNode& node = graph.nodes[n];
    const auto note = [&](int value, bool is_moved) {
      const Home& home = graph.homes[graph.values[value].home];
      if (home.kind != Home::Kind::kOutside) return;
      outside_.push_back({.base = home.slot.base, .node = static_cast<int>(n), .value = value, .is_moved = is_moved});
    };
    const bool is_move = node.kind == StepNode::Kind::kMove;
    for (const int input : node.inputs) {
      ++num_readers_[input];
      note(input, is_move);
    }
    for (const int output : node.given()) {
      if (!is_move || !graph.values[output].added) note(output, /*is_moved=*/false);
    }
  }
  std::ranges::sort(outside_, {}, [](const Use& use) { return std::pair(use.base, use.node); });
}

bool Uses::HasOneReader(int value) const {
  return IsTemporary(value) && NumReaders(value) == 1 && NumValues(graph_.values[value].home) == 1;
}

bool Uses::IsTermAlone(int term, int sum) const {
  const StepValue &value = graph_.values[term], &of_sum = graph_.values[sum];
  return value.producer >= 0 && graph_.nodes[value.producer].RunsOperators() && !value.added &&
         value.info == of_sum.info && NumReaders(term) == 1 && (value.home == of_sum.home || IsApart(term));
}

bool Uses::IsTemporary(int value) const {
  const Home& home = graph_.homes[graph_.values[value].home];
  return home.kind == Home::Kind::kTemporary && !home.kept;
}

std::span<const Uses::Use> Uses::UsesOf(int base, int begin, int end) const {
  const auto place = [](const Use& use) { return std::pair(use.base, use.node); };
  const auto first = std::ranges::lower_bound(outside_, std::pair(base, begin), {}, place);
  const auto last = std::ranges::lower_bound(outside_, std::pair(base, end), {}, place);
  return {first, last};
}

bool Uses::ShareBytesWith(const Home& memory, const Use& use) const {
  return ShareBytes(graph_.homes[graph_.values[use.value].home], memory);
}

bool Uses::IsTouched(const Home& memory, int begin, int end) const {
  return std::ranges::any_of(UsesOf(memory.slot.base, begin, end),
                             [&](const Use& use) { return ShareBytesWith(memory, use); });
}

bool Uses::IsMovedIn(const Home& memory) const {
  return std::ranges::any_of(UsesOf(memory.slot.base, 0, std::numeric_limits<int>::max()),
                             [&](const Use& use) { return use.is_moved && ShareBytesWith(memory, use); });
}

bool NodesInLoop::Contains(int node) {
  if (cycles_.empty()) {
    const auto end = static_cast<int>(graph_.nodes.size());
    cycles_ = CyclesOf(graph_, 0, end, FollowersByBytes(graph_, 0, end));
  }
  return cycles_[node] != kNoCycle;
}

std::set<int> WrittenBases(const StepGraph& graph) {
  std::set<int> bases;
  for (const StepNode& node : graph.nodes) {
    for (const int output : node.given()) {
      const Home& home = graph.homes[graph.values[output].home];
      if (home.kind == Home::Kind::kOutside) bases.insert(home.slot.base);
    }
  }
  return bases;
}

bool IsGivenWhole(const StepGraph& graph, const std::set<int>& written_bases, int value) {
  const Home& home = graph.homes[graph.values[value].home];
  return graph.values[value].producer < 0 && home.kind == Home::Kind::kOutside && !home.starts_at_zero &&
         home.slot.row_bytes == 0 && !written_bases.contains(home.slot.base);
}

bool AddsTermOutside(const StepGraph& graph, const StepNode& node) {
  if (node.kind != StepNode::Kind::kMove) return false;
  const StepValue &from = graph.values[node.inputs[0]], &to = graph.values[node.outputs[0]];
  return to.outside && to.added && from.producer >= 0 && !from.dynamic && graph.nodes[from.producer].IsOneOperator();
}

std::shared_ptr<const FormulaProgram> FormulaOf(const StepGraph& graph, const StepNode& node) {
  if (node.by_blobs || !node.call->schema().formula) return nullptr;
  const std::vector<TensorInfo> infos = graph.InfosOf(node.inputs);
  const ShapeQuery query(*node.call, infos);
  return FormulaApplies(query, {}) ? FindFormula(query) : nullptr;
}

bool AddsItsInputs(const StepGraph& graph, const StepNode& node) {
  const std::shared_ptr<const FormulaProgram> made = FormulaOf(graph, node);
  if (made == nullptr) return false;
  const FormulaRegion& formula = made->formula();
  const auto is_input = [&](const ExprNode* expr, int input) {
    return expr->op == ExprOp::kInput && formula.inputs[expr->number] == input;
  };
  if (!formula.is_elementwise || formula.outputs.size() != 1 || !formula.region.requirements.empty()) return false;
  const ExprNode* sum = formula.region.outputs[0].value.node();
  for (int last = static_cast<int>(node.inputs.size()) - 1; last > 0; --last) {
    if (sum->op != ExprOp::kAdd || !is_input(sum->operands[1], last)) return false;
    sum = sum->operands[0];
  }
  return is_input(sum, 0);
}

bool DependsOnInputsAlone(const StepGraph& graph, const StepNode& node) {
  const bool is_known = node.kind == StepNode::Kind::kProduct || node.kind == StepNode::Kind::kRegion;
  if (!is_known || !node.IsOneOperator() || node.by_blobs || node.call->schema().has_side_effects) return false;
  const std::shared_ptr<const FormulaProgram> made = FormulaOf(graph, node);
  return made == nullptr ||
         (!made->formula().asks_for_operator && std::ranges::none_of(made->formula().inputs, IsRunValue));
}

bool HaveSameArguments(const StepNode& a, const StepNode& b) {
  return std::equal(
      a.def->arg().begin(), a.def->arg().end(), b.def->arg().begin(), b.def->arg().end(),
      [](const Argument& x, const Argument& y) { return x.SerializeAsString() == y.SerializeAsString(); });
}

bool CanLeaveOut(const StepGraph& graph, const StepNode& node) {
  const Kernel* const kernel = node.call->schema().FindKernel(graph.target->device);
  return !node.by_blobs && kernel != nullptr && kernel->can_leave_out;
}

bool CanAdd(const StepGraph& graph, int value) {
  const StepNode& node = graph.nodes[graph.values[value].producer];
  if (!node.IsOneOperator() || node.by_blobs) return false;
  const Kernel* kernel = node.call->schema().FindKernel(graph.target->device);
  if (kernel == nullptr) return false;
  const auto output = static_cast<size_t>(std::ranges::find(node.outputs, value) - node.outputs.begin());
  return kernel->CanAdd(static_cast<int>(output), kernel->can_add_expanded && IsExpanded(graph, node, output));
}

}  // namespace stepnet

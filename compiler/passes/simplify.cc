#include <algorithm>

#include "stepnet/compiler/passes/passes.h"
#include "stepnet/compiler/uses.h"
#include "stepnet/core/formulas/formula_cache.h"

namespace stepnet {
namespace {

// Whether nothing but its outputs shows that the node ran: it is a move, or a formula or an expansion says all that it
// does, and it finds no bad values.
bool ShowsOnlyInOutputs(const StepGraph& graph, const StepNode& node) {
  if (node.kind == StepNode::Kind::kMove) return true;
  const bool is_known = node.kind == StepNode::Kind::kRegion || node.kind == StepNode::Kind::kProduct;
  if (!is_known || !node.IsOneOperator()) return false;
  const OperatorSchema& schema = node.call->schema();
  const Kernel* kernel = schema.FindKernel(graph.target->device);
  if (schema.has_side_effects || kernel == nullptr) return false;
  const std::vector<TensorInfo> inputs = graph.InfosOf(node.inputs);
  return !MayFindBadValues(ShapeQuery(*node.call, inputs), *kernel);
}

// Takes away what nobody reads, in the step or outside, and what was made for that alone: moves, and operators of which
// a formula or an expansion says all that they do. Others may throw or have an effect, and stay. Runs behind what adds
// terms, which counts readers: results keep their bits.
bool Simplify(StepGraph* graph) {
  const Uses uses(*graph);
  std::vector<int> num_readers;
  for (size_t v = 0; v < graph->values.size(); ++v) num_readers.push_back(uses.NumReaders(static_cast<int>(v)));
  std::vector<bool> gone(graph->nodes.size(), false);
  for (size_t n = graph->nodes.size(); n-- > 0;) {  // what reads a value comes behind what gives it
    const StepNode& node = graph->nodes[n];
    auto given = node.given();
    // Where values share a home, a later one may be added to what this one leaves there.
    const auto is_unread = [&](int value) { return num_readers[value] == 0 && uses.IsApart(value); };
    if (!ShowsOnlyInOutputs(*graph, node) || !std::ranges::all_of(given, is_unread)) continue;
    gone[n] = true;
    for (const int input : node.inputs) --num_readers[input];
    for (const int value : given) graph->ForgetLast(value);
  }
  if (!std::ranges::count(gone, true)) return false;
  graph->Erase(gone);
  return true;
}

const PassRegistration registration({.name = "simplify", .place = 100, .opt_level = 1, .run = Simplify});

}  // namespace
}  // namespace stepnet

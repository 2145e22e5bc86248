#include "stepnet/executor/direct_sums.h"

#include <algorithm>
#include <set>

namespace stepnet {
namespace {

// Whether the operator runs with blobs: itself, or because another value of a blob that it uses has no known shape.
bool RunsWithBlobs(const StepPlanRequest& request, const StepGraph& graph, const StepNode& node) {
  const auto is_dynamic = [&](int value) {
    const std::string& blob = graph.values[value].blob;
    return request.bound_dynamic.contains(blob) || std::ranges::any_of(graph.values, [&](const StepValue& other) {
             return other.blob == blob && other.dynamic;
           });
  };
  return node.dynamic || std::ranges::any_of(node.inputs, is_dynamic) || std::ranges::any_of(node.outputs, is_dynamic);
}

// Whether the operator has an input or output that is linked to some of these bytes.
bool IsTouchedBy(const StepPlanRequest& request, const StepGraph& graph, const StepNode& node, const Slot& memory) {
  const auto is_touched = [&](int value) {
    return std::ranges::any_of(request.bound, [&](const BoundBlob& bound) {
      return bound.slot.blob == graph.values[value].blob && ShareBytes(bound.slot, memory);
    });
  };
  return std::ranges::any_of(node.inputs, is_touched) || std::ranges::any_of(node.outputs, is_touched);
}

bool IsReadBy(const StepNode& node, int value) { return std::ranges::count(node.inputs, value) > 0; }

// Whether the blob is the step's own: nothing outside reads or writes it but this transfer.
bool IsOwn(const StepPlanRequest& request, const std::string& blob, const Transfer& transfer) {
  const bool is_bound = std::ranges::any_of(request.bound, [&](const BoundBlob& b) { return b.slot.blob == blob; });
  const bool is_moved = std::ranges::any_of(
      request.transfers, [&](const Transfer& other) { return other.blob == blob && &other != &transfer; });
  return !is_bound && !is_moved && !request.bound_dynamic.contains(blob) && !(request.keep && request.keep(blob));
}

// Whether the value is of the sum's dtype and size, made in the step.
bool FitsSum(const StepValue& value, const Transfer& transfer) {
  return value.producer >= 0 && !value.dynamic && value.info.dtype == transfer.info.dtype &&
         value.info.shape.size() == transfer.info.shape.size();
}

std::ptrdiff_t NumReaders(const StepGraph& graph, int value) {
  return std::ranges::count_if(graph.nodes, [&](const StepNode& node) { return IsReadBy(node, value); });
}

// The node Sum whose output this transfer adds, where nothing else reads that or its inputs, or could tell when they
// are added; -1: there is none.
int FindSumOfTerms(const StepPlanRequest& request, const StepGraph& graph, const Transfer& transfer) {
  const auto last = graph.last.find(transfer.blob);
  if (transfer.kind != Transfer::Kind::kAddOut || last == graph.last.end()) return -1;
  const StepValue& total = graph.values[last->second];
  if (!FitsSum(total, transfer) || NumReaders(graph, last->second) > 0) return -1;
  const StepNode& node = graph.nodes[total.producer];
  if (node.init.type() != "Sum" || node.dynamic) return -1;
  std::set<std::string> blobs = {transfer.blob};
  int first = total.producer;
  for (const int term : node.inputs) {
    const StepValue& value = graph.values[term];
    if (!FitsSum(value, transfer) || NumReaders(graph, term) > 1) return -1;
    blobs.insert(value.blob);
    first = std::min(first, value.producer);
  }
  const auto num_values =
      std::ranges::count_if(graph.values, [&](const StepValue& value) { return blobs.contains(value.blob); });
  if (num_values != static_cast<std::ptrdiff_t>(node.inputs.size()) + 1) return -1;  // also where a term comes twice
  if (!std::ranges::all_of(blobs, [&](const std::string& blob) { return IsOwn(request, blob, transfer); })) return -1;
  const auto comes_in = [&](const Transfer& other) {
    const bool in = other.kind == Transfer::Kind::kCopyIn || other.kind == Transfer::Kind::kAddIn;
    return in && ShareBytes(other.outside, transfer.outside);
  };
  if (std::ranges::any_of(request.transfers, comes_in)) return -1;
  for (int between = first + 1; between < total.producer; ++between) {
    if (IsTouchedBy(request, graph, graph.nodes[between], transfer.outside)) return -1;
  }
  return total.producer;
}

// Without the node and its one output, the last value of its blob.
void Remove(int node, StepGraph* graph) {
  const int value = graph->nodes[node].outputs.front();
  const std::string blob = graph->values[value].blob;
  graph->nodes.erase(graph->nodes.begin() + node);
  graph->values.erase(graph->values.begin() + value);
  graph->first.erase(blob);
  graph->last.erase(blob);
  const auto renumber = [&](int* index) { *index -= *index > value ? 1 : 0; };
  for (StepNode& other : graph->nodes) {
    std::ranges::for_each(other.inputs, [&](int& input) { renumber(&input); });
    std::ranges::for_each(other.outputs, [&](int& output) { renumber(&output); });
  }
  for (auto* ends : {&graph->first, &graph->last}) {
    for (auto& [name, index] : *ends) renumber(&index);
  }
  for (size_t v = 0; v < graph->values.size(); ++v) {
    StepValue& left = graph->values[v];
    left.producer -= left.producer > node ? 1 : 0;
    if (left.blob == blob) graph->first[blob] = graph->last[blob] = static_cast<int>(v);
  }
}

// Whether the blob of a sum has one value in a step, of the sum's dtype and size, from an operator that can add.
bool OnlyOperatorAdds(const StepPlanRequest& request, const StepGraph& graph, const Transfer& transfer) {
  const std::string& blob = transfer.blob;
  if (!IsOwn(request, blob, transfer) || std::ranges::count(graph.values, blob, &StepValue::blob) != 1) return false;
  const int index = graph.last.at(blob);
  const StepValue& value = graph.values[index];
  if (!FitsSum(value, transfer)) return false;
  const bool is_read = std::ranges::any_of(graph.nodes, [&](const StepNode& node) { return IsReadBy(node, index); });
  const StepNode& node = graph.nodes[value.producer];
  const auto output = static_cast<int>(std::ranges::find(node.outputs, index) - node.outputs.begin());
  return !is_read && !RunsWithBlobs(request, graph, node) &&
         std::ranges::count(node.init.schema().can_add, output) > 0 &&
         !IsTouchedBy(request, graph, node, transfer.outside);
}

}  // namespace

void AddTermsOneByOne(StepPlanRequest* request, StepGraph* graph) {
  for (size_t t = 0; t < request->transfers.size();) {
    const Transfer transfer = request->transfers[t];
    const int sum = FindSumOfTerms(*request, *graph, request->transfers[t]);
    if (sum < 0) {
      ++t;
      continue;
    }
    std::vector<Transfer> of_terms;  // terms may be such sums themselves
    for (const int term : graph->nodes[sum].inputs) {
      of_terms.push_back(transfer);
      of_terms.back().blob = graph->values[term].blob;
    }
    Remove(sum, graph);
    request->transfers.erase(request->transfers.begin() + static_cast<std::ptrdiff_t>(t));
    request->transfers.insert(request->transfers.begin() + static_cast<std::ptrdiff_t>(t), of_terms.begin(),
                              of_terms.end());
  }
}

std::map<std::string, const Transfer*> FindDirectSums(const StepPlanRequest& request, const StepGraph& graph) {
  std::map<std::string, const Transfer*> sums;
  for (const Transfer& transfer : request.transfers) {
    if (transfer.kind != Transfer::Kind::kAddOut) continue;
    if (OnlyOperatorAdds(request, graph, transfer)) sums[transfer.blob] = &transfer;
  }
  return sums;
}

void WriteFirstTerms(const StepPlanRequest& request, StepPlan* plan) {
  for (const Transfer& transfer : request.transfers) {
    const int base = transfer.outside.base;
    if (!transfer.from_zero || plan->written_first.contains(base)) continue;
    const auto is_term = [&](const Operand& output) { return plan->slots[output.slot].base == base; };
    const auto first = std::ranges::find_if(plan->instructions, [&](const Instruction& instruction) {
      return std::ranges::any_of(instruction.outputs, is_term);
    });
    if (first == plan->instructions.end() || first->steps_at_once != kAllSteps) continue;
    const auto term = std::ranges::find_if(first->outputs, is_term);
    if (!term->adds || std::ranges::count_if(first->outputs, is_term) > 1) continue;
    term->adds = false;
    plan->written_first.insert(base);
  }
}

}  // namespace stepnet

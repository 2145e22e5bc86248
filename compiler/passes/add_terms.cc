#include <algorithm>
#include <set>

#include "stepnet/compiler/passes/passes.h"
#include "stepnet/compiler/passes/uses.h"

namespace stepnet {
namespace {

// The node Sum whose output this transfer adds, where nothing else reads that or its inputs, or could tell when they
// are added; -1: there is none.
int FindSumOfTerms(const Uses& uses, const StepGraph& graph, const Transfer& transfer) {
  const auto last = graph.last.find(transfer.blob);
  if (transfer.kind != Transfer::Kind::kAddOut || last == graph.last.end()) return -1;
  const StepValue& total = graph.values[last->second];
  if (!FitsSum(total, transfer) || uses.NumReaders(last->second) > 0) return -1;
  const StepNode& node = graph.nodes[total.producer];
  if (node.init.type() != "Sum" || node.dynamic) return -1;
  std::set<std::string> blobs = {transfer.blob};
  int first = total.producer;
  for (const int term : node.inputs) {
    const StepValue& value = graph.values[term];
    if (!FitsSum(value, transfer) || uses.NumReaders(term) > 1) return -1;
    blobs.insert(value.blob);
    first = std::min(first, value.producer);
  }
  size_t num_values = 0;
  for (const std::string& blob : blobs) num_values += uses.NumValues(blob);
  if (num_values != node.inputs.size() + 1) return -1;  // also where a term comes twice
  if (!std::ranges::all_of(blobs, [&](const std::string& blob) { return uses.IsOwn(blob, transfer); })) return -1;
  if (uses.ComesIn(transfer.outside) || uses.IsTouched(transfer.outside, first + 1, total.producer)) return -1;
  return total.producer;
}

// The numbers that what is left has when those with these numbers are gone; meaningless for these.
std::vector<int> Renumbered(size_t count, const std::set<int>& gone) {
  std::vector<int> numbers(count);
  int next = 0;
  for (size_t i = 0; i < count; ++i) numbers[i] = gone.contains(static_cast<int>(i)) ? next : next++;
  return numbers;
}

template <typename T>
void Erase(const std::set<int>& gone, std::vector<T>* from) {
  std::vector<T> left;
  for (size_t i = 0; i < from->size(); ++i) {
    if (!gone.contains(static_cast<int>(i))) left.push_back(std::move((*from)[i]));
  }
  *from = std::move(left);
}

// Without these nodes and their outputs, one each.
void Remove(const std::set<int>& nodes, StepGraph* graph) {
  std::set<int> values;
  for (const int node : nodes) values.insert(graph->nodes[node].outputs.front());
  const std::vector<int> new_node = Renumbered(graph->nodes.size(), nodes);
  const std::vector<int> new_value = Renumbered(graph->values.size(), values);
  Erase(nodes, &graph->nodes);
  Erase(values, &graph->values);
  for (StepNode& node : graph->nodes) {
    for (int& input : node.inputs) input = new_value[input];
    for (int& output : node.outputs) output = new_value[output];
  }
  for (StepValue& value : graph->values) {
    if (value.producer >= 0) value.producer = new_node[value.producer];
  }
  for (auto* ends : {&graph->first, &graph->last}) {
    for (auto& [blob, value] : *ends) value = new_value[value];
  }
}

}  // namespace

void AddTerms(StepDraft* draft) {
  Uses uses(*draft);
  StepPlanRequest* const request = &draft->request;
  StepGraph* const graph = &draft->graph;
  std::set<int> sums;
  std::vector<Transfer> transfers;
  std::vector<Transfer> to_do(request->transfers.rbegin(), request->transfers.rend());  // the next one last
  while (!to_do.empty()) {
    const Transfer transfer = std::move(to_do.back());
    to_do.pop_back();
    const int sum = FindSumOfTerms(uses, *graph, transfer);
    if (sum < 0) {
      transfers.push_back(transfer);
      continue;
    }
    const std::vector<int>& terms = graph->nodes[sum].inputs;
    graph->first.erase(transfer.blob);
    graph->last.erase(transfer.blob);
    for (size_t i = terms.size(); i-- > 0;) {  // they may be such sums themselves
      to_do.push_back(transfer);
      to_do.back().blob = graph->values[terms[i]].blob;
      if (to_do.back().blob == transfer.blob) graph->first[transfer.blob] = graph->last[transfer.blob] = terms[i];
    }
    uses.Replace(transfer.blob, graph->nodes[sum]);
    sums.insert(sum);
  }
  request->transfers = std::move(transfers);
  Remove(sums, graph);
}

}  // namespace stepnet

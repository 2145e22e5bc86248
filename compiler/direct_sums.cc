#include "stepnet/compiler/direct_sums.h"

#include <algorithm>
#include <set>

namespace stepnet {
namespace {

bool GoesIn(const Transfer& transfer) {
  return transfer.kind == Transfer::Kind::kCopyIn || transfer.kind == Transfer::Kind::kAddIn;
}

// Who uses what, in the step and outside, looked up once.
class Uses {
 public:
  Uses(const StepPlanRequest& request, const StepGraph& graph) : request_(request), num_readers_(graph.values.size()) {
    for (const BoundBlob& bound : request.bound) {
      bound_.insert(bound.slot.blob);
      bound_at_.emplace(bound.slot.base, &bound.slot);
    }
    for (const Transfer& transfer : request.transfers) {
      ++num_transfers_[transfer.blob];
      if (GoesIn(transfer)) comes_in_.emplace(transfer.outside.base, transfer.outside);
    }
    for (const StepValue& value : graph.values) ++num_values_[value.blob];
    for (size_t n = 0; n < graph.nodes.size(); ++n) {
      for (const int input : graph.nodes[n].inputs) {
        ++num_readers_[input];
        users_[graph.values[input].blob].insert(static_cast<int>(n));
      }
      for (const int output : graph.nodes[n].outputs) users_[graph.values[output].blob].insert(static_cast<int>(n));
    }
  }

  int NumReaders(int value) const { return num_readers_[value]; }
  int NumValues(const std::string& blob) const { return CountOf(num_values_, blob); }

  // Whether the blob is the step's own: nothing outside reads or writes it but this transfer.
  bool IsOwn(const std::string& blob, const Transfer& transfer) const {
    const int num_others = CountOf(num_transfers_, blob) - (transfer.blob == blob ? 1 : 0);
    return !bound_.contains(blob) && num_others == 0 && !request_.bound_dynamic.contains(blob) &&
           !(request_.keep && request_.keep(blob));
  }

  // Whether one of nodes [begin, end) has an input or output that is linked to some of these bytes.
  bool IsTouched(const Slot& memory, int begin, int end) const {
    const auto [first, last] = bound_at_.equal_range(memory.base);
    return std::any_of(first, last, [&](const auto& bound) {
      const auto users = users_.find(bound.second->blob);
      if (users == users_.end() || !ShareBytes(*bound.second, memory)) return false;
      const auto user = users->second.lower_bound(begin);
      return user != users->second.end() && *user < end;
    });
  }

  // Whether something comes from these bytes into the step.
  bool ComesIn(const Slot& memory) const {
    const auto [first, last] = comes_in_.equal_range(memory.base);
    return std::any_of(first, last, [&](const auto& from) { return ShareBytes(from.second, memory); });
  }

  // That the terms are added by transfers of their own, and not by a node whose output `total` was.
  void Replace(const std::string& total, const StepNode& sum, const StepGraph& graph) {
    --num_values_[total];
    --num_transfers_[total];
    for (const int term : sum.inputs) {
      --num_readers_[term];
      ++num_transfers_[graph.values[term].blob];
    }
  }

 private:
  static int CountOf(const std::map<std::string, int>& counts, const std::string& blob) {
    const auto found = counts.find(blob);
    return found == counts.end() ? 0 : found->second;
  }

  const StepPlanRequest& request_;
  std::vector<int> num_readers_;  // by value
  std::map<std::string, int> num_values_;
  std::map<std::string, int> num_transfers_;
  std::map<std::string, std::set<int>> users_;  // nodes, by blob
  std::set<std::string> bound_;
  std::multimap<int, const Slot*> bound_at_;  // by base
  std::multimap<int, Slot> comes_in_;
};

// Whether the value is of the sum's dtype and size, made in the step.
bool FitsSum(const StepValue& value, const Transfer& transfer) {
  return value.producer >= 0 && !value.dynamic && value.info.dtype == transfer.info.dtype &&
         value.info.shape.size() == transfer.info.shape.size();
}

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

// Whether the blob of a sum has one value in a step, of the sum's dtype and size, from an operator that can add.
bool OnlyOperatorAdds(const Uses& uses, const StepPlanRequest& request, const StepGraph& graph,
                      const Transfer& transfer) {
  const std::string& blob = transfer.blob;
  if (!uses.IsOwn(blob, transfer) || uses.NumValues(blob) != 1) return false;
  const int index = graph.last.at(blob);
  const StepValue& value = graph.values[index];
  if (!FitsSum(value, transfer)) return false;
  const StepNode& node = graph.nodes[value.producer];
  const auto output = static_cast<int>(std::ranges::find(node.outputs, index) - node.outputs.begin());
  const Kernel* kernel = node.init.schema().FindKernel(request.target->device);
  return uses.NumReaders(index) == 0 && !RunsWithBlobs(request, graph, node) && kernel != nullptr &&
         std::ranges::count(kernel->can_add, output) > 0 &&
         !uses.IsTouched(transfer.outside, value.producer, value.producer + 1);
}

}  // namespace

bool RunsWithBlobs(const StepPlanRequest& request, const StepGraph& graph, const StepNode& node) {
  const auto is_dynamic = [&](int value) {
    const std::string& blob = graph.values[value].blob;
    return request.bound_dynamic.contains(blob) || graph.dynamic_blobs.contains(blob);
  };
  return node.dynamic || std::ranges::any_of(node.inputs, is_dynamic) || std::ranges::any_of(node.outputs, is_dynamic);
}

void AddTermsOneByOne(StepPlanRequest* request, StepGraph* graph) {
  Uses uses(*request, *graph);
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
    uses.Replace(transfer.blob, graph->nodes[sum], *graph);
    sums.insert(sum);
  }
  request->transfers = std::move(transfers);
  Remove(sums, graph);
}

std::map<std::string, const Transfer*> FindDirectSums(const StepPlanRequest& request, const StepGraph& graph) {
  const Uses uses(request, graph);
  std::map<std::string, const Transfer*> sums;
  for (const Transfer& transfer : request.transfers) {
    if (transfer.kind != Transfer::Kind::kAddOut) continue;
    if (OnlyOperatorAdds(uses, request, graph, transfer)) sums[transfer.blob] = &transfer;
  }
  return sums;
}

void WriteFirstTerms(const StepPlanRequest& request, StepPlan* plan) {
  std::map<int, Instruction*> first_writers;  // by base
  for (Instruction& instruction : plan->instructions) {
    for (const Operand& output : instruction.outputs) {
      first_writers.emplace(plan->slots[output.slot].base, &instruction);
    }
  }
  for (const Transfer& transfer : request.transfers) {
    const int base = transfer.outside.base;
    if (!transfer.starts_at_zero || plan->unzeroed_bases.contains(base)) continue;
    const auto found = first_writers.find(base);
    if (found == first_writers.end() || found->second->steps_at_once != kAllSteps) continue;
    std::vector<Operand>& outputs = found->second->outputs;
    const auto is_term = [&](const Operand& output) { return plan->slots[output.slot].base == base; };
    const auto term = std::ranges::find_if(outputs, is_term);
    if (!term->adds || std::ranges::count_if(outputs, is_term) > 1) continue;
    term->adds = false;
    plan->unzeroed_bases.insert(base);
  }
}

}  // namespace stepnet

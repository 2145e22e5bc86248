#include "stepnet/compiler/transfer_order.h"

#include <set>
#include <string>

namespace stepnet {
namespace {

// The operator that last writes the blob.
int LastWriter(const StepGraph& graph, const std::string& blob) {
  const auto found = graph.last.find(blob);
  if (found == graph.last.end()) return kNoOperator;
  const int producer = graph.values[found->second].producer;
  return producer < 0 ? kNoOperator : graph.nodes[producer].op_index;
}

}  // namespace

TransferOrder OrderTransfers(const StepDraft& draft) {
  const StepGraph& graph = draft.graph;
  std::map<std::string, int> first_user;
  for (const StepNode& node : graph.nodes) {
    for (const std::vector<int>* values : {&node.inputs, &node.outputs}) {
      for (const int value : *values) first_user.emplace(graph.values[value].blob, node.op_index);
    }
  }
  const int last_operator = graph.nodes.empty() ? kNoOperator : graph.nodes.back().op_index;
  std::set<std::string> linked;
  for (const BoundBlob& bound : draft.request.bound) linked.insert(bound.slot.blob);
  TransferOrder order;
  for (const Transfer& transfer : draft.request.transfers) {
    const bool is_step_output = transfer.kind == Transfer::Kind::kCopyOut && transfer.required;
    const int last_writer = LastWriter(graph, transfer.blob);
    const bool may_change = last_writer == kNoOperator || linked.contains(transfer.blob);
    const int after = is_step_output && may_change ? last_operator : last_writer;
    if (!GoesIn(transfer) && after != kNoOperator) {
      order.after[after].push_back(&transfer);
      continue;
    }
    const auto user = first_user.find(transfer.blob);
    order.before[user == first_user.end() ? kNoOperator : user->second].push_back(&transfer);
  }
  return order;
}

}  // namespace stepnet

#include <algorithm>

#include "stepnet/compiler/passes/passes.h"
#include "stepnet/compiler/passes/uses.h"

namespace stepnet {
namespace {

// Whether the blob of a sum has one value in a step, of the sum's dtype and size, from an operator that can add.
bool OnlyOperatorAdds(const Uses& uses, const StepDraft& draft, const Transfer& transfer) {
  const StepGraph& graph = draft.graph;
  const std::string& blob = transfer.blob;
  if (!uses.IsOwn(blob, transfer) || uses.NumValues(blob) != 1) return false;
  const int index = graph.last.at(blob);
  const StepValue& value = graph.values[index];
  if (!FitsSum(value, transfer)) return false;
  const StepNode& node = graph.nodes[value.producer];
  const auto output = static_cast<int>(std::ranges::find(node.outputs, index) - node.outputs.begin());
  const Kernel* kernel = node.init.schema().FindKernel(draft.request.target->device);
  return uses.NumReaders(index) == 0 && !draft.RunsWithBlobs(node) && kernel != nullptr &&
         std::ranges::count(kernel->can_add, output) > 0 &&
         !uses.IsTouched(transfer.outside, value.producer, value.producer + 1);
}

}  // namespace

void FoldSums(StepDraft* draft) {
  const Uses uses(*draft);
  const std::vector<Transfer>& transfers = draft->request.transfers;
  for (size_t k = 0; k < transfers.size(); ++k) {
    if (transfers[k].kind != Transfer::Kind::kAddOut) continue;
    if (OnlyOperatorAdds(uses, *draft, transfers[k])) draft->direct_sums[transfers[k].blob] = static_cast<int>(k);
  }
}

}  // namespace stepnet

#include "stepnet/nets/needed_operators.h"

#include <algorithm>
#include <vector>

#include "stepnet/core/operator.h"
#include "stepnet/nets/op_arguments.h"
#include "stepnet/proto/net.pb.h"

namespace stepnet {
namespace {

// Tells an operator that can do without some of its outputs, by the argument "without", which those are.
void LeaveOutOutputs(const std::set<std::string>& blobs, OperatorDef* op) {
  if (FindArgument(*op, "without") != nullptr || GetOperator(op->type()).FindArgument("without") == nullptr) return;
  Argument without;
  without.set_name("without");
  for (int o = 0; o < op->output_size(); ++o) {
    if (!blobs.contains(op->output(o))) without.add_ints(o);
  }
  const bool needs_some = without.ints_size() < op->output_size();  // otherwise it has side effects
  if (needs_some && without.ints_size() > 0) *op->add_arg() = std::move(without);
}

}  // namespace

NetDef WithNeededOperators(NetDef net, std::set<std::string> blobs, int num_kept) {
  auto& ops = *net.mutable_op();
  int first = ops.size();  // of those that are needed, which gather at the end
  for (int k = ops.size() - 1; k >= num_kept; --k) {
    OperatorDef* const op = ops.Mutable(k);
    const auto is_needed = [&](const std::string& blob) { return blobs.contains(blob); };
    if (std::ranges::none_of(op->output(), is_needed) && !GetOperator(op->type()).has_side_effects) continue;
    LeaveOutOutputs(blobs, op);
    for (const std::string& output : op->output()) blobs.erase(output);
    blobs.insert(op->input().begin(), op->input().end());
    ops.SwapElements(k, --first);
  }
  ops.DeleteSubrange(num_kept, first - num_kept);
  return net;
}

}  // namespace stepnet

#include "stepnet/nets/needed_operators.h"

#include <algorithm>
#include <vector>

#include "stepnet/core/operator.h"
#include "stepnet/nets/op_arguments.h"
#include "stepnet/proto/net.pb.h"

namespace stepnet {
namespace {

// Tells operators that can do without some of their outputs, by the argument "without", which those are.
OperatorDef WithNeededOutputs(const OperatorDef& op, const std::set<std::string>& blobs) {
  OperatorDef result = op;
  if (FindArgument(op, "without") != nullptr || GetOperator(op.type()).FindArgument("without") == nullptr)
    return result;
  Argument without;
  without.set_name("without");
  for (int o = 0; o < op.output_size(); ++o) {
    if (!blobs.contains(op.output(o))) without.add_ints(o);
  }
  const bool needs_some = without.ints_size() < op.output_size();  // otherwise it has side effects
  if (needs_some && without.ints_size() > 0) *result.add_arg() = std::move(without);
  return result;
}

}  // namespace

NetDef WithNeededOperators(const NetDef& net, std::set<std::string> blobs, int num_kept) {
  std::vector<OperatorDef> needed;
  for (int k = net.op_size() - 1; k >= num_kept; --k) {
    const OperatorDef& op = net.op(k);
    const auto is_needed = [&](const std::string& blob) { return blobs.contains(blob); };
    if (std::ranges::none_of(op.output(), is_needed) && !GetOperator(op.type()).has_side_effects) continue;
    needed.push_back(WithNeededOutputs(op, blobs));
    for (const std::string& output : op.output()) blobs.erase(output);
    blobs.insert(op.input().begin(), op.input().end());
  }
  NetDef result = net;
  result.mutable_op()->DeleteSubrange(num_kept, net.op_size() - num_kept);
  for (auto op = needed.rbegin(); op != needed.rend(); ++op) *result.add_op() = std::move(*op);
  return result;
}

}  // namespace stepnet

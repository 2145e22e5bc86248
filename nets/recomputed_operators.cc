#include "stepnet/nets/recomputed_operators.h"

#include <algorithm>
#include <ranges>
#include <vector>

#include "stepnet/nets/net_blobs.h"

namespace stepnet {

NetDef WithRecomputed(const RecurrentSpec& spec, const std::set<std::string>& named, const NetDef& backward) {
  const auto& operators = spec.step_net->op();
  std::multiset<std::string> given;
  for (const OperatorDef& op : operators) given.insert(op.output().begin(), op.output().end());
  const auto is_there = [&](const std::string& blob) {
    return given.count(blob) == 1 && std::ranges::any_of(spec.links, [&](const Link& link) {
             return link.internal == blob && spec.IsState(link.external);
           });
  };
  const std::vector<std::string> read = BlobsReadFirst(backward);
  std::set<std::string> needed(read.begin(), read.end());
  for (const std::string& blob : BlobsReadForShape(backward)) needed.erase(blob);
  const auto is_missing = [&](const std::string& blob) {
    return named.contains(blob) && needed.contains(blob) && !is_there(blob);
  };
  std::vector<const OperatorDef*> computed;
  for (const OperatorDef& op : operators | std::views::reverse) {
    if (std::ranges::none_of(op.output(), is_missing)) continue;
    computed.push_back(&op);
    needed.insert(op.input().begin(), op.input().end());
  }
  NetDef net = backward;
  net.clear_op();
  for (const OperatorDef* op : computed | std::views::reverse) *net.add_op() = *op;
  for (const OperatorDef& op : backward.op()) *net.add_op() = op;
  return net;
}

}  // namespace stepnet

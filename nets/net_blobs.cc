#include "stepnet/nets/net_blobs.h"

#include <algorithm>
#include <set>

#include "stepnet/core/broadcast_rule.h"
#include "stepnet/proto/net.pb.h"

namespace stepnet {

std::vector<std::string> BlobsReadFirst(const NetDef& net) {
  std::set<std::string> written;
  std::set<std::string> read_first;
  for (const OperatorDef& op : net.op()) {
    for (const std::string& input : op.input()) {
      if (!written.contains(input)) read_first.insert(input);
    }
    written.insert(op.output().begin(), op.output().end());
  }
  return {read_first.begin(), read_first.end()};
}

std::vector<std::string> BlobsReadForShape(const NetDef& net) {
  std::set<std::string> read;
  for (const OperatorDef& op : net.op()) {
    const auto is_leave = [](const Argument& argument) { return argument.name() == kMayShare && argument.i() == 1; };
    const bool may_share = op.type() == "SumReduceLike" && std::ranges::any_of(op.arg(), is_leave);
    for (int i = 0; i < op.input_size(); ++i) {
      if (i != 1 || !may_share) read.insert(op.input(i));
    }
  }
  std::vector<std::string> blobs = BlobsReadFirst(net);
  std::erase_if(blobs, [&](const std::string& blob) { return read.contains(blob); });
  return blobs;
}

}  // namespace stepnet

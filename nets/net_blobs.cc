#include "stepnet/nets/net_blobs.h"

#include <algorithm>
#include <set>

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
    for (int i = 0; i < op.input_size(); ++i) {
      if (i != 1 || op.type() != "SumReduceLike") read.insert(op.input(i));
    }
  }
  std::vector<std::string> blobs = BlobsReadFirst(net);
  std::erase_if(blobs, [&](const std::string& blob) { return read.contains(blob); });
  return blobs;
}

}  // namespace stepnet

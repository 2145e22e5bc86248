#include "stepnet/nets/net_blobs.h"

#include <algorithm>
#include <string_view>
#include <unordered_set>

#include "stepnet/proto/net.pb.h"

namespace stepnet {

std::vector<std::string> BlobsReadFirst(const NetDef& net) {
  std::unordered_set<std::string_view> known;  // read or written so far
  std::vector<std::string> read_first;
  for (const OperatorDef& op : net.op()) {
    for (const std::string& input : op.input()) {
      if (known.insert(input).second) read_first.push_back(input);
    }
    known.insert(op.output().begin(), op.output().end());
  }
  std::ranges::sort(read_first);
  return read_first;
}

std::vector<std::string> BlobsReadForShape(const NetDef& net) {
  std::unordered_set<std::string_view> read;
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

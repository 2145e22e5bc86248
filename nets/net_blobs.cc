#include "stepnet/nets/net_blobs.h"

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

}  // namespace stepnet

#include "stepnet/nets/net_blobs.h"

#include <algorithm>
#include <string_view>
#include <unordered_set>

#include "stepnet/core/operator.h"
#include "stepnet/proto/net.pb.h"

namespace stepnet {

std::map<std::string, BlobUse> UsesOf(const NetDef& net) {
  std::map<std::string, BlobUse> uses;
  for (int k = 0; k < net.op_size(); ++k) {
    for (const std::string& input : net.op(k).input()) {
      BlobUse& use = uses[input];
      use.first_read = std::min(use.first_read, k);
      use.last_read = k;
    }
    for (const std::string& output : net.op(k).output()) {
      BlobUse& use = uses[output];
      use.first_write = std::min(use.first_write, k);
      use.last_write = k;
    }
  }
  return uses;
}

std::vector<std::string> BlobsReadFirst(const NetDef& net) {
  std::unordered_set<std::string_view> known;  // read or written so far
  known.reserve(2 * static_cast<size_t>(net.op_size()));
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
  std::unordered_set<std::string_view> found;
  std::vector<const OperatorSchema*> schemas;
  const auto reads_shape = [&](int op, int input) {
    return schemas[op] != nullptr && std::ranges::count(schemas[op]->shape_inputs, input) > 0;
  };
  for (int k = 0; k < net.op_size(); ++k) {
    schemas.push_back(FindOperator(net.op(k).type()));
    for (int i = 0; i < net.op(k).input_size(); ++i) {
      if (reads_shape(k, i)) found.insert(net.op(k).input(i));
    }
  }
  // But not what is read otherwise.
  for (int k = 0; k < net.op_size() && !found.empty(); ++k) {
    for (int i = 0; i < net.op(k).input_size(); ++i) {
      if (!reads_shape(k, i)) found.erase(net.op(k).input(i));
    }
  }
  if (found.empty()) return {};
  std::vector<std::string> blobs = BlobsReadFirst(net);
  std::erase_if(blobs, [&](const std::string& blob) { return !found.contains(blob); });
  return blobs;
}

}  // namespace stepnet

#include "stepnet/nets/net_blobs.h"

#include <algorithm>
#include <set>
#include <string_view>
#include <unordered_map>
#include <unordered_set>

#include "stepnet/core/net_problem.h"
#include "stepnet/core/operator.h"
#include "stepnet/core/strings.h"
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

std::vector<std::string> ReadFirst(const NetDef& net) {
  std::vector<std::string> first;
  std::set<std::string> known;
  const auto read = [&](const std::string& blob) {
    if (known.insert(blob).second) first.push_back(blob);
  };
  for (const OperatorDef& op : net.op()) {
    for (const std::string& input : op.input()) read(input);
    known.insert(op.output().begin(), op.output().end());
  }
  for (const std::string& output : net.external_output()) read(output);
  return first;
}

std::vector<std::string> UnreadBlobs(const NetDef& net) {
  std::set<std::string> known;  // read, or listed already
  for (const OperatorDef& op : net.op()) known.insert(op.input().begin(), op.input().end());
  std::vector<std::string> outputs;
  for (const OperatorDef& op : net.op()) {
    for (const std::string& output : op.output()) {
      if (known.insert(output).second) outputs.push_back(output);
    }
  }
  return outputs;
}

std::unordered_map<std::string_view, bool> ReadFirstForShape(const NetDef& net) {
  std::unordered_map<std::string_view, bool> read_first;
  std::unordered_set<std::string_view> written;
  read_first.reserve(2 * static_cast<size_t>(net.op_size()));
  written.reserve(2 * static_cast<size_t>(net.op_size()));
  for (const OperatorDef& op : net.op()) {
    const OperatorSchema* schema = FindOperator(op.type());
    for (int i = 0; i < op.input_size(); ++i) {
      const bool wants_shape = schema != nullptr && schema->ReadsShapeAlone(i);
      const auto known = read_first.find(op.input(i));
      if (known != read_first.end()) {
        known->second = known->second && wants_shape;
      } else if (!written.contains(op.input(i))) {
        read_first.emplace(op.input(i), wants_shape);
      }
    }
    written.insert(op.output().begin(), op.output().end());
  }
  return read_first;
}

std::vector<std::string> BlobsReadForShape(const NetDef& net) {
  std::vector<std::string> blobs;
  for (const auto& [blob, wants_shape] : ReadFirstForShape(net)) {
    if (wants_shape) blobs.emplace_back(blob);
  }
  std::ranges::sort(blobs);
  return blobs;
}

std::set<std::string> BlobsOfNobody(const NetDef& net, std::span<const NetProblem> problems,
                                    const std::set<std::string>& given) {
  std::set<std::string> missing;
  for (const std::string& blob : BlobsReadFirst(net)) missing.insert(blob);
  for (const std::string& blob : net.external_input()) missing.erase(blob);
  for (const OperatorDef& op : net.op()) {
    for (const std::string& blob : op.output()) missing.erase(blob);
  }
  const auto is_told = [&](const std::string& blob) {
    const std::string begin = StrCat("\"", blob, "\" is read before");
    return std::ranges::any_of(problems, [&](const NetProblem& each) { return each.message.starts_with(begin); });
  };
  std::erase_if(missing, [&](const std::string& blob) { return given.contains(blob) || !is_told(blob); });
  return missing;
}

std::string AdviceOnParameters(size_t num_missing, std::string_view giver) {
  constexpr size_t kMany = 3;
  if (num_missing < kMany) return "";
  return StrCat(num_missing, " blobs are read, and nothing gives them: where they are parameters, ", giver);
}

}  // namespace stepnet

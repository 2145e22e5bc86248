#include "stepnet/nets/net_values.h"

#include <algorithm>
#include <utility>

#include "stepnet/core/operator.h"
#include "stepnet/core/strings.h"
#include "stepnet/nets/net_blobs.h"
#include "stepnet/nets/rename.h"

namespace stepnet {
namespace {

int Found(const std::map<std::string, int>& values, const std::string& blob) {
  const auto found = values.find(blob);
  return found == values.end() ? NetValues::kNone : found->second;
}

}  // namespace

NetValues::NetValues(const NetDef& net, const std::set<std::string>& changing, std::set<std::string> used)
    : net_(net), used_(std::move(used)) {
  for (int k = 0; k < net_.op_size(); ++k) {
    std::vector<int>& reads = reads_.emplace_back();
    for (const std::string& input : net_.op(k).input()) {
      if (!last_.contains(input)) first_[input] = Add(input, -1);
      reads.push_back(last_[input]);
    }
    std::vector<int>& writes = writes_.emplace_back();
    for (const std::string& output : net_.op(k).output()) {
      const int old = LastOf(output);
      if (old != kNone && values_[old].producer == k) {  // listed before, and the same value
        writes.push_back(old);
        continue;
      }
      if (old != kNone) values_[old].overwritten_by = k;
      writes.push_back(Add(output, k));
    }
  }
  for (const auto& [blob, value] : last_) used_.insert(blob);
  for (NetValue& value : values_) {
    const bool stays = value.overwritten_by < 0 && !changing.contains(value.blob);
    value.name = stays ? value.blob : Unused(value.blob + "_before");
  }
}

int NetValues::Add(const std::string& blob, int producer) {
  values_.push_back({.blob = blob, .name = {}, .producer = producer});
  return last_[blob] = size() - 1;
}

int NetValues::FirstOf(const std::string& blob) const { return Found(first_, blob); }
int NetValues::LastOf(const std::string& blob) const { return Found(last_, blob); }

std::vector<std::string> NetValues::Blobs() const {
  std::vector<std::string> blobs;
  for (const auto& [blob, value] : last_) blobs.push_back(blob);
  return blobs;
}

std::string NetValues::Unused(const std::string& name) {
  std::string unused = name;
  int& next = next_ending_[name];  // those before are used
  while (!Take(unused)) unused = StrCat(name, "_", next++);
  return unused;
}

OperatorDef NetValues::Renamed(int k, const std::function<bool(int)>& is_renamed) const {
  OperatorDef op = net_.op(k);
  std::map<std::string, std::string> names;  // of an operator that holds nets: its arguments name blobs, too
  const bool has_nets = HoldsNets(op);
  const auto rename = [&](int v, std::string* name) {
    const NetValue& value = values_[v];
    if (!is_renamed(v) || value.name == value.blob) return;
    if (has_nets) {
      names[value.blob] = value.name;
      names[value.blob + "_grad"] = value.name + "_grad";  // in links
    } else {
      *name = value.name;
    }
  };
  for (int i = 0; i < op.input_size(); ++i) rename(reads_[k][i], op.mutable_input(i));
  for (int o = 0; o < op.output_size(); ++o) rename(writes_[k][o], op.mutable_output(o));
  if (names.empty()) return op;
  NetDef net;
  *net.add_op() = std::move(op);
  RenameBlobs(names, &net);
  return net.op(0);
}

bool NetValues::MustOverwrite(int k, int value) const {
  const OperatorDef& op = net_.op(k);
  return std::ranges::any_of(GetOperator(op.type()).enforced_in_place, [&](const std::pair<int, int>& pair) {
    return pair.first < op.input_size() && reads_[k][pair.first] == value;
  });
}

}  // namespace stepnet

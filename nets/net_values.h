// NetValues: a net in single assignment. Every write of a blob makes a value, with a name of its own where the blob
// does not keep it.
#pragma once

#include <functional>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "stepnet/proto/net.pb.h"

namespace stepnet {

// What a blob holds between two writes.
struct NetValue {
  std::string blob;
  std::string name;         // the blob's own for the value that it holds at the end, otherwise a name of its own
  int producer = -1;        // index of the operator that writes it; -1: it is there before the net runs
  int overwritten_by = -1;  // index of the operator after which it is gone; -1: it stays
};

class NetValues {
 public:
  static constexpr int kNone = -1;

  // Blobs of `changing` hold something else when the net has run. Names of `used` are taken. The net must outlive this.
  NetValues(const NetDef& net, const std::set<std::string>& changing, std::set<std::string> used);

  int size() const { return static_cast<int>(values_.size()); }
  const NetValue& operator[](int value) const { return values_[value]; }
  // The values of the inputs and outputs of operator k, in their order.
  const std::vector<int>& ReadsOf(int k) const { return reads_[k]; }
  const std::vector<int>& WritesOf(int k) const { return writes_[k]; }
  // The value that a blob has before the net runs, and when it has run; kNone: there is none.
  int FirstOf(const std::string& blob) const;
  int LastOf(const std::string& blob) const;
  std::vector<std::string> Blobs() const;

  // Takes a name that nothing has yet, which begins like this.
  std::string Unused(const std::string& name);
  // Takes the name; false where something has it.
  bool Take(const std::string& name) { return used_.insert(name).second; }

  // Operator k with their own names for the values of which `is_renamed` says so.
  OperatorDef Renamed(int k, const std::function<bool(int)>& is_renamed) const;
  // Whether operator k works on the value in place and cannot do otherwise.
  bool MustOverwrite(int k, int value) const;

 private:
  int Add(const std::string& blob, int producer);

  const NetDef& net_;
  std::vector<NetValue> values_;
  std::vector<std::vector<int>> reads_, writes_;  // by operator
  std::map<std::string, int> first_, last_;       // by blob
  std::set<std::string> used_;                    // names
  std::map<std::string, int> next_ending_;        // the number that the next name with this beginning gets
};

}  // namespace stepnet

// Who uses what, in a step and outside, looked up once.
#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include "stepnet/compiler/step_draft.h"

namespace stepnet {

class Uses {
 public:
  explicit Uses(const StepDraft& draft);

  int NumReaders(int value) const { return num_readers_[value]; }
  int NumValues(const std::string& blob) const { return CountOf(num_values_, blob); }

  // Whether the blob is the step's own: nothing outside reads or writes it but this transfer.
  bool IsOwn(const std::string& blob, const Transfer& transfer) const;
  // Whether one of nodes [begin, end) has an input or output that is linked to some of these bytes.
  bool IsTouched(const Slot& memory, int begin, int end) const;
  // Whether something comes from these bytes into the step.
  bool ComesIn(const Slot& memory) const;

  // That the terms are added by transfers of their own, and not by a node whose output `total` was.
  void Replace(const std::string& total, const StepNode& sum);

 private:
  static int CountOf(const std::map<std::string, int>& counts, const std::string& blob);

  const StepDraft& draft_;
  std::vector<int> num_readers_;  // by value
  std::map<std::string, int> num_values_;
  std::map<std::string, int> num_transfers_;
  std::map<std::string, std::set<int>> users_;  // nodes, by blob
  std::set<std::string> bound_;
  std::multimap<int, const Slot*> bound_at_;  // by base
  std::multimap<int, Slot> comes_in_;
};

// Whether the value is of the sum's dtype and size, made in the step.
bool FitsSum(const StepValue& value, const Transfer& transfer);

}  // namespace stepnet

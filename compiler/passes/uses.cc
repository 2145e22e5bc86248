#include "stepnet/compiler/passes/uses.h"

#include <algorithm>

namespace stepnet {

Uses::Uses(const StepDraft& draft) : draft_(draft), num_readers_(draft.graph.values.size()) {
  const StepPlanRequest& request = draft.request;
  const StepGraph& graph = draft.graph;
  for (const BoundBlob& bound : request.bound) {
    bound_.insert(bound.slot.blob);
    bound_at_.emplace(bound.slot.base, &bound.slot);
  }
  for (const Transfer& transfer : request.transfers) {
    ++num_transfers_[transfer.blob];
    if (GoesIn(transfer)) comes_in_.emplace(transfer.outside.base, transfer.outside);
  }
  for (const StepValue& value : graph.values) ++num_values_[value.blob];
  for (size_t n = 0; n < graph.nodes.size(); ++n) {
    for (const int input : graph.nodes[n].inputs) {
      ++num_readers_[input];
      users_[graph.values[input].blob].insert(static_cast<int>(n));
    }
    for (const int output : graph.nodes[n].outputs) users_[graph.values[output].blob].insert(static_cast<int>(n));
  }
}

bool Uses::IsOwn(const std::string& blob, const Transfer& transfer) const {
  const int num_others = CountOf(num_transfers_, blob) - (transfer.blob == blob ? 1 : 0);
  return !bound_.contains(blob) && num_others == 0 && !draft_.request.bound_dynamic.contains(blob) &&
         !(draft_.request.keep && draft_.request.keep(blob));
}

bool Uses::IsTouched(const Slot& memory, int begin, int end) const {
  const auto [first, last] = bound_at_.equal_range(memory.base);
  return std::any_of(first, last, [&](const auto& bound) {
    const auto users = users_.find(bound.second->blob);
    if (users == users_.end() || !ShareBytes(*bound.second, memory)) return false;
    const auto user = users->second.lower_bound(begin);
    return user != users->second.end() && *user < end;
  });
}

bool Uses::ComesIn(const Slot& memory) const {
  const auto [first, last] = comes_in_.equal_range(memory.base);
  return std::any_of(first, last, [&](const auto& from) { return ShareBytes(from.second, memory); });
}

void Uses::Replace(const std::string& total, const StepNode& sum) {
  --num_values_[total];
  --num_transfers_[total];
  for (const int term : sum.inputs) {
    --num_readers_[term];
    ++num_transfers_[draft_.graph.values[term].blob];
  }
}

int Uses::CountOf(const std::map<std::string, int>& counts, const std::string& blob) {
  const auto found = counts.find(blob);
  return found == counts.end() ? 0 : found->second;
}

bool FitsSum(const StepValue& value, const Transfer& transfer) {
  return value.producer >= 0 && !value.dynamic && value.info.dtype == transfer.info.dtype &&
         value.info.shape.size() == transfer.info.shape.size();
}

}  // namespace stepnet

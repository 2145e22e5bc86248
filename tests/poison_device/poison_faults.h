// What kernels of the poison device find wrong, kept until somebody has waited for its queue.
#pragma once

#include <memory>
#include <optional>
#include <utility>

#include "stepnet/core/device.h"
#include "stepnet/core/fault_record.h"
#include "stepnet/core/operator.h"

namespace stepnet {

// The first fault. Kernels hold it: a net may be gone before its work is done.
class NotedFault {
 public:
  bool any() const { return first_.has_value(); }
  void Note(const FaultSite& site, Fault fault) {
    fault.place.step += site.first_step;
    fault.place.op = site.op;
    if (first_ && std::pair(first_->net_op, first_->fault.place) <= std::pair(site.net_op, fault.place)) return;
    first_ = {.net_op = site.net_op, .fault = std::move(fault)};
  }
  std::optional<LateFaults::Found> Take() { return std::exchange(first_, std::nullopt); }

 private:
  std::optional<LateFaults::Found> first_;
};

// Filled when the work is done.
class PoisonFaults : public LateFaults {
 public:
  explicit PoisonFaults(Queue& queue) : queue_(queue) {}
  // Those of the run; null where nobody looks for any.
  static std::shared_ptr<NotedFault> Of(const RunContext& context) {
    const auto* const faults = static_cast<const PoisonFaults*>(context.late_faults);
    return faults == nullptr ? nullptr : faults->noted_;
  }

 protected:
  std::optional<Found> TakeNoted() override {
    queue_.Wait();
    return noted_->Take();
  }

 private:
  Queue& queue_;
  const std::shared_ptr<NotedFault> noted_ = std::make_shared<NotedFault>();
};

}  // namespace stepnet

// KernelFault: the values that a run of a kernel of a GPU found and that are not allowed, as an error of the run.
#pragma once

#include <cstdint>
#include <memory>
#include <string_view>
#include <unordered_set>
#include <vector>

#include "stepnet/core/expressions/expr.h"
#include "stepnet/core/operator.h"
#include "stepnet/gpu/device_fault.h"

namespace stepnet {

// The faults of a run of a net on a GPU: one DeviceFault in its memory.
class DeviceLateFaults : public LateFaults {
 public:
  explicit DeviceLateFaults(DeviceRuntime& runtime);
  DeviceLateFaults(const DeviceLateFaults&) = delete;
  DeviceLateFaults& operator=(const DeviceLateFaults&) = delete;
  ~DeviceLateFaults() override;

  DeviceFault* record() const { return record_; }  // on the device
  // A kernel that may note faults with these messages has been put in.
  void SetPending(std::shared_ptr<const FaultMessages> messages);

 protected:
  std::optional<Found> TakeNoted() override;

 private:
  DeviceRuntime& runtime_;
  DeviceFault* const record_;
  std::unordered_set<std::shared_ptr<const FaultMessages>> pending_;  // of kernels since somebody looked
};

class KernelFault {
 public:
  // `requirements`: what the kernel's numbers stand for, as Require gives them; `num_elements`: how many it computes.
  KernelFault(const OpRun& run, const std::vector<Expr>& requirements, std::int64_t num_elements);
  // The same with messages that somebody holds already.
  KernelFault(const OpRun& run, std::shared_ptr<const FaultMessages> messages, std::int64_t num_elements);

  // What the kernel is told: a record that is empty, or holds faults of kernels before, and where this run is.
  DeviceFault* record() const { return record_; }
  const DeviceFaultSite& site() const { return site_; }
  // What a graph that the kernel is part of needs.
  const std::shared_ptr<const FaultMessages>& messages() const { return messages_; }
  // To be called when the kernels have been put into the queue. Where the run has no late faults, waits, and notes the
  // fault with the run, if there is one.
  void Report() const;

 private:
  const OpRun& run_;
  const std::shared_ptr<const FaultMessages> messages_;
  const std::int64_t num_elements_;
  DeviceLateFaults* const late_faults_;  // null: the record is of this run alone
  DeviceFault* const record_;
  DeviceFaultSite site_;
};

// The faults that a kernel of the run is to look for before it does anything, where what it writes outlives the run; or
// null.
const DeviceFault* FaultThatStops(const OpRun& run);

// What a kernel that is no expression requires, by the message, in which each "{}" is a value of these dtypes.
Expr RequirementOf(std::string_view message, const std::vector<DType>& values);

}  // namespace stepnet

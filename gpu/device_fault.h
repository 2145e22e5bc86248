// DeviceFault: the first bad value that kernels of a device found, as they leave it in device memory. Code of devices
// has the same struct (device_code.cuh); this one knows no CUDA.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "stepnet/core/expr.h"
#include "stepnet/core/fault_record.h"

namespace stepnet {

// Memory of zeros is a record without fault. Faults are ordered as FaultPlace says, whoever finds them first.
struct DeviceFault {
  static constexpr int kInstructionBits = 24;

  std::uint64_t lock = 0;     // 1 while a thread writes
  std::uint64_t place = 0;    // ~(step << kInstructionBits | instruction); 0: there is no fault
  std::uint64_t element = 0;  // ~element
  std::uint64_t requirement = 0;
  std::uint64_t values[kMaxExprOperands - 1] = {};  // what the message shows, as ExprScalar has it

  bool any() const { return place != 0; }
};
static_assert(sizeof(DeviceFault) == 64);

// Where it was found. REQUIRES: any().
FaultPlace PlaceOf(const DeviceFault& fault);
// With the message of the requirement, one of those that the source of the kernel has (RegionSource::requirements).
Fault FaultOf(const DeviceFault& fault, std::span<const Expr> requirements);

}  // namespace stepnet

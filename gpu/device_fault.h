// DeviceFault: the first bad value that kernels of a device found, as they leave it in device memory. Code of devices
// has the same structs (device_code.cuh); these know no CUDA.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>

#include "stepnet/core/expressions/expr.h"
#include "stepnet/core/operator.h"

namespace stepnet {

// Memory of zeros is a record without fault. The first by place, then by element is kept, whoever finds it first.
struct DeviceFault {
  std::uint64_t lock = 0;                           // 1 while a thread writes
  std::uint64_t place = 0;                          // ~DeviceFaultSite::place; 0: there is no fault
  std::uint64_t element = 0;                        // ~element
  std::uint64_t requirement = 0;                    // number of its message
  std::uint64_t values[kMaxExprOperands - 1] = {};  // what the message shows, as ExprScalar has it

  bool any() const { return place != 0; }
};
static_assert(sizeof(DeviceFault) == 64);

// What a run of a kernel is told, to say where its elements are. A place is, from the highest bits: the operator of the
// net, the step in the order of the run, the operator of the step net.
struct DeviceFaultSite {
  static constexpr int kStepBits = 31;
  static constexpr int kOpBits = 20;
  static constexpr int kNetOpBits = 64 - kStepBits - kOpBits;

  std::uint64_t place = 0;            // of the first element
  std::int64_t next_place = 0;        // what is added for each step behind
  std::int64_t elements_of_step = 0;  // 0: all are of one step
  std::uint64_t messages = 0;         // number of the message of the kernel's first requirement

  // The site of `num_elements` elements, those of all steps of the range. REQUIRES: HasRoomFor(site).
  static DeviceFaultSite Of(const FaultSite& site, const RunRange* range, std::int64_t num_elements);
  static bool HasRoomFor(const FaultSite& site);
};
static_assert(sizeof(DeviceFaultSite) == 32);

// Where it was found. REQUIRES: any().
int NetOpOf(const DeviceFault& fault);
FaultPlace PlaceOf(const DeviceFault& fault);
// Gives the fault with its message, in which "{element}" stays. REQUIRES: any(), its kernel was told numbers of
// NumberOfMessages.
Fault FaultOf(const DeviceFault& fault);

// What a kernel says of the values that it has noted.
using FaultMessageRule = std::function<std::string(std::span<const std::uint64_t> values)>;
// The number of the first of so many messages, the same for the same key until the process ends; the others follow it.
std::uint64_t NumberOfMessages(const std::string& key, std::vector<FaultMessageRule> rules);
// The number of the first of the messages of requirements, in their order.
std::uint64_t NumberOfMessages(std::span<const Expr> requirements);

}  // namespace stepnet

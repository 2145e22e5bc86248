// DeviceFault: the first bad value that kernels of a device found, as they leave it in device memory. Code of devices
// has the same structs (device_code.cuh); these know no CUDA.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

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
// Gives the fault with its message, in which "{element}" stays, or that the message is gone, where nobody holds it.
// REQUIRES: any().
Fault FaultOf(const DeviceFault& fault);

// What a kernel says of values that are not allowed: a message for each of its requirements. Whoever may still report a
// fault of the kernel holds them: whoever runs it, until the fault has been looked at, and graphs that it is part of.
class FaultMessages {
 public:
  explicit FaultMessages(std::span<const Expr> requirements);
  ~FaultMessages();
  FaultMessages(const FaultMessages&) = delete;
  FaultMessages& operator=(const FaultMessages&) = delete;

  // The number of the first message; the others follow it. No two messages of a process ever have one number.
  std::uint64_t first() const { return first_; }
  // The message that the fault has the number of, with the fault's values; nothing where it is gone.
  static std::optional<std::string> Find(const DeviceFault& fault);

 private:
  const std::vector<Expr> requirements_;
  std::uint64_t first_ = 0;
};
// The messages of requirements, in their order: the same for all who hold them.
std::shared_ptr<const FaultMessages> FaultMessagesOf(std::span<const Expr> requirements);

}  // namespace stepnet

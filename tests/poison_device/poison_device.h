// PoisonDevice: a device without hardware, whose kernels are those of the CPU, to prove that the program treats a
// device as one.
//
// At the addresses of its memory there is nothing: whoever but its own work reads or writes there ends the program with
// a fault. Its queue does nothing until somebody waits, so that what is read without waiting is not there yet. Memory
// holds NaN where nobody has written, also when it is given out again.
#pragma once

#include "stepnet/core/device.h"

namespace stepnet {

inline constexpr Device kPoisonDevice = {.kind = DeviceKind::kPrivate};

// What has happened since the process began.
struct PoisonCounts {
  std::int64_t kernels = 0;
  std::int64_t copies = 0;  // within the device
  std::int64_t copies_from_host = 0;
  std::int64_t host_waits = 0;
  std::int64_t bytes = 0;  // that are allocated now
};
PoisonCounts CountsOfPoisonDevice();

}  // namespace stepnet

// PoisonDevice: a device without hardware, whose kernels are those of the CPU, to prove that the program treats a
// device as one. There are several of them, private:0 and on, each with memory and a queue of its own.
//
// At the addresses of its memory there is nothing: whoever but its own work reads or writes there ends the program with
// a fault, another poison device included. Its queue does nothing until somebody waits, so that what is read without
// waiting is not there yet; or, if a test says so, it goes on now and then, by chance. Memory holds NaN where nobody
// has written, also when it is given out again. What is put in can be recorded, and played, the works of several lanes
// in an order by chance. Tests can make it fail.
#pragma once

#include <vector>

#include "stepnet/core/device.h"

namespace stepnet {

inline constexpr Device kPoisonDevice = {.kind = DeviceKind::kPrivate};
inline constexpr int kNumPoisonDevices = 4;
inline constexpr StreamId kFirstPoisonStream = 1000;  // of private:0, the stream of private:1 is the next one

// What has happened since the process began.
struct PoisonCounts {
  std::int64_t kernels = 0;  // those that are put in alone
  std::int64_t played = 0;   // pieces of recordings
  std::int64_t copies = 0;   // within the device
  std::int64_t copies_from_host = 0;
  std::int64_t host_waits = 0;
  std::int64_t allocations = 0;
  std::int64_t bytes = 0;  // that are allocated now
};
PoisonCounts CountsOfPoisonDevice(int index = 0);

// The streams for which the queue was made to wait, negative, and those that were made to wait for it, in that order.
// There are no such streams: nothing else is done with the device.
std::vector<std::int64_t> OrdersOfPoisonDevice(int index = 0);

// While it lives, every queue goes on by a random number of works whenever work is put into one of them, or
// somebody waits for one: in one of the orders that devices may take that know nothing of each other. Not several.
class PoisonOrder {
 public:
  explicit PoisonOrder(unsigned seed);
  ~PoisonOrder();
  PoisonOrder(const PoisonOrder&) = delete;
  PoisonOrder& operator=(const PoisonOrder&) = delete;
};

enum class PoisonFault {
  kAllocation,  // there is no memory
  kLaunch,      // a kernel, copy, fill or sum is refused when it is put into the queue
  kWork,        // it fails when it is done; what is behind it in the queue is not done
};

// While it lives, the k-th (from 0) allocation, or work, on private:0 fails. Not several.
class PoisonFailure {
 public:
  PoisonFailure(PoisonFault fault, std::int64_t k);
  ~PoisonFailure();
  PoisonFailure(const PoisonFailure&) = delete;
  PoisonFailure& operator=(const PoisonFailure&) = delete;
  bool has_happened() const;
};

}  // namespace stepnet

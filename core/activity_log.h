// ActivityLog: what a device has done and when, by its own account, also where recordings are played
// (core/device_report.h).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "stepnet/core/device.h"

namespace stepnet {

// A kernel, a copy or a fill.
struct DeviceActivity {
  static constexpr std::int64_t kNoTag = -1;

  std::string name;           // of a kernel its own; else "copy" or "fill"
  std::int64_t bytes = 0;     // of copies and fills
  std::int64_t tag = kNoTag;  // of the thread when it put this in, or when this was recorded
  bool is_played = false;     // as part of a recording
  Device device;
  std::uint32_t stream = 0;  // of the device: what has the same number was done in one order
  double begin = 0;          // seconds of std::chrono::steady_clock
  double end = 0;
};

// Logs from when it is made until it ends. Safe to use from any thread.
class ActivityLog {
 public:
  virtual ~ActivityLog() = default;
  // What the calling thread puts in from now on has this tag. Before the first call it has kNoTag.
  virtual void SetTag(std::int64_t tag) = 0;
  // What has been done, once, in the order in which it began: the first kMaxActivities. To be called when the device
  // has done all (Queue::Wait).
  virtual std::vector<DeviceActivity> Take() = 0;
  // Beyond those.
  virtual std::int64_t left_out() const = 0;

  static constexpr std::int64_t kMaxActivities = 1'000'000;
};

}  // namespace stepnet

// DeviceReport: what a device tells of itself to whoever looks at runs. The DeviceRuntime (core/device.h) of a device
// that has something to tell is a DeviceReport, too.
#pragma once

#include <cstdint>
#include <memory>

namespace stepnet {

class ActivityLog;

// Kernels that were compiled while the process ran, in modules: those of one region or operator are one.
struct CodeUse {
  std::int64_t in_use = 0;  // by plans, operators and what is recorded
  std::int64_t unused = 0;  // that stay loaded for who asks next
  std::int64_t loaded = 0;  // so far
};

// Safe to use from any thread.
class DeviceReport {
 public:
  virtual ~DeviceReport() = default;
  virtual CodeUse code() const = 0;
  // A log (core/activity_log.h) of what the device does from now on; one at a time. Throws kFailed, with the reason,
  // where there can be none.
  virtual std::unique_ptr<ActivityLog> LogActivities() = 0;
};

}  // namespace stepnet

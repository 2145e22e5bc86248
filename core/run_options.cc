#include "stepnet/core/run_options.h"

#include <utility>

namespace stepnet {

RunOptions OnDevice(const RunOptions& given, Device device) {
  RunOptions options = given;
  if (device == options.device()) return options;
  const RunOptions defaults;
  options.target = device.IsHost() ? defaults.target : GetDeviceSpec(device.kind).target;
  options.executor = device.IsHost() ? defaults.executor : GetDeviceSpec(device.kind).executor;
  options.device_index = device.index;
  return options;
}

}  // namespace stepnet

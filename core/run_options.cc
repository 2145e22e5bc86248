#include "stepnet/core/run_options.h"

#include <utility>

namespace stepnet {

const char* MathName(Math math) {
  switch (math) {
    case Math::kFloat32: return "float32";
    case Math::kTf32: return "tf32";
  }
  return "unknown";
}

RunOptions OnDevice(const RunOptions& given, Device device) {
  RunOptions options = given;
  if (device == options.device()) return options;
  const RunOptions defaults;
  options.target = device.IsHost() ? defaults.target : GetDeviceSpec(device.kind).target;
  options.executor = device.IsHost() ? defaults.executor : GetDeviceSpec(device.kind).executor;
  options.device_index = device.index;
  if (device.IsHost()) options.math = defaults.math;
  return options;
}

}  // namespace stepnet

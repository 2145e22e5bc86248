#include "stepnet/core/run_options.h"

#include <algorithm>
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

SharedOptions::SharedOptions(const RunOptions& options) : by_device_{std::make_shared<const RunOptions>(options)} {}

const std::shared_ptr<const RunOptions>& SharedOptions::On(Device device) {
  const auto known = std::ranges::find(by_device_, device, [](const auto& options) { return options->device(); });
  if (known != by_device_.end()) return *known;
  return by_device_.emplace_back(std::make_shared<const RunOptions>(OnDevice(*by_device_.front(), device)));
}

}  // namespace stepnet

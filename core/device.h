// Where tensors lie and kernels run.
#pragma once

namespace stepnet {

enum class Device { kCpu, kCuda };
inline constexpr Device kDevices[] = {Device::kCpu, Device::kCuda};
inline const char* DeviceName(Device device) { return device == Device::kCpu ? "cpu" : "cuda"; }

}  // namespace stepnet

// What messages say of limits of memory.
#pragma once

namespace stepnet {

// How users of each front end raise a limit, the host's and a GPU's.
inline constexpr const char* kRaiseMemoryLimit =
    "(raise the limit with --max_memory of rnn_runner, stepnet.set_max_memory of Python or SetTensorMemoryLimit)";
inline constexpr const char* kRaiseDeviceMemoryLimit =
    "(raise the limit with --max_device_memory of rnn_runner, stepnet.set_max_memory of Python or "
    "DeviceRuntime::SetMemoryLimit)";

}  // namespace stepnet

// Calls of the CUDA runtime, whose failures are Errors.
#pragma once

#include <cuda_runtime_api.h>

namespace stepnet {

// Throws kOutOfMemory or kFailed, naming the call and what CUDA says of it. An error that ends the context of the
// thread's device is remembered, and told with the reruns that find what it came from.
void CheckCuda(cudaError_t result, const char* call);
#define STEPNET_CUDA_CALL(call) ::stepnet::CheckCuda((call), #call)

// Makes the device that a call works on the current one of the thread. Throws kFailed where an earlier error has ended
// the device's context, with that cause, and in a process that was forked after LoseDevicesInForkedProcesses.
void UseCudaDevice(int index);

// Processes that are forked from now on can use no device.
void LoseDevicesInForkedProcesses();

// Stands where other libraries, which have CUDA runtimes of their own, use the same thread: the next UseCudaDevice
// makes its device the current one of the thread, whatever they have chosen; in the end the one that they have chosen
// is again, in the driver.
class DeviceOfThread {
 public:
  DeviceOfThread();
  // Calls UseCudaDevice.
  explicit DeviceOfThread(int index);
  ~DeviceOfThread();
  DeviceOfThread(const DeviceOfThread&) = delete;
  DeviceOfThread& operator=(const DeviceOfThread&) = delete;

 private:
  void* context_ = nullptr;  // null: none was chosen
};

}  // namespace stepnet

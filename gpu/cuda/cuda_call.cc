#include "stepnet/gpu/cuda/cuda_call.h"

#include <cuda.h>
#include <pthread.h>

#include <algorithm>
#include <atomic>
#include <map>
#include <mutex>
#include <string>

#include "stepnet/core/error.h"
#include "stepnet/core/strings.h"

namespace stepnet {
namespace {

// What ended the contexts of devices.
class LostContexts {
 public:
  // Ends those of all devices, in a process that was forked: CUDA goes on in none.
  void LoseAll() {
    are_all_lost_ = true;
    any_ = true;
  }
  // Keeps the first cause.
  void Add(int device, const std::string& cause) {
    const std::lock_guard lock(mutex_);
    causes_.emplace(device, cause);
    any_ = true;
  }
  // "" while there is a context.
  std::string CauseOf(int device) const {
    if (!any_) return "";
    if (are_all_lost_) {
      return "it was forked from one that had used a GPU, and CUDA goes on in no such process (in Python, "
             "multiprocessing starts others with the method \"spawn\")";
    }
    const std::lock_guard lock(mutex_);
    const auto found = causes_.find(device);
    return found == causes_.end() ? "" : found->second;
  }

 private:
  std::atomic<bool> any_ = false;  // every call asks
  std::atomic<bool> are_all_lost_ = false;
  mutable std::mutex mutex_;
  std::map<int, std::string> causes_;
};

LostContexts& Lost() {
  static LostContexts& lost = *new LostContexts;
  return lost;
}

// The device that calls of the thread work on; CUDA begins with the first. -1: others may have chosen another one.
thread_local int device_of_thread = -1;

// Errors after which CUDA answers every call with the same one.
bool EndsContext(cudaError_t result) {
  switch (result) {
    case cudaErrorIllegalAddress:
    case cudaErrorLaunchTimeout:
    case cudaErrorMisalignedAddress:
    case cudaErrorInvalidAddressSpace:
    case cudaErrorInvalidPc:
    case cudaErrorLaunchFailure:
    case cudaErrorIllegalInstruction:
    case cudaErrorAssert:
    case cudaErrorContained:
    case cudaErrorExternalDevice:
    case cudaErrorMpsClientTerminated:
    case cudaErrorNvlinkUncorrectable:
    case cudaErrorTensorMemoryLeak:
    case cudaErrorHardwareStackError:
    case cudaErrorECCUncorrectable: return true;
    default: return false;
  }
}

void ExpectContext(int device) {
  const std::string cause = Lost().CauseOf(device);
  if (cause.empty()) return;
  throw Error(ErrorCode::kFailed, StrCat("cuda:", device, " cannot be used any more by this process: ", cause));
}

// Kernels run behind the host's back: the call that fails is not the one that is to blame.
constexpr const char* kHowToLocate =
    "; it comes of a kernel that was started before: the same run with CUDA_LAUNCH_BLOCKING=1 in the environment and "
    "rnn_runner's --executor=serial names the operator, one under compute-sanitizer the address";

// Throws what a call gave that works on the device.
void Check(int device, cudaError_t result, const char* call) {
  if (result == cudaSuccess) return;
  static_cast<void>(cudaGetLastError());  // the next call is not blamed for this one
  ExpectContext(device);
  std::string text = StrCat(cudaGetErrorString(result), " (", cudaGetErrorName(result), ") in ", call);
  if (EndsContext(result)) {
    text += kHowToLocate;
    Lost().Add(device, StrCat("an earlier error ended its context: ", text));
  }
  throw Error(result == cudaErrorMemoryAllocation ? ErrorCode::kOutOfMemory : ErrorCode::kFailed, text);
}

}  // namespace

void UseCudaDevice(int index) {
  ExpectContext(index);
  if (device_of_thread == index) return;
  Check(index, cudaSetDevice(index), "cudaSetDevice");
  device_of_thread = index;
}

namespace {

// A function of the driver, which is opened where there is one; null where there is none.
template <typename Function>
Function DriverFunction(const char* name) {
  constexpr unsigned kVersion = 12000;
  void* function = nullptr;
  cudaDriverEntryPointQueryResult found = cudaDriverEntryPointSymbolNotFound;
  const cudaError_t result = cudaGetDriverEntryPointByVersion(name, &function, kVersion, cudaEnableDefault, &found);
  if (result == cudaSuccess && found == cudaDriverEntryPointSuccess) return reinterpret_cast<Function>(function);
  static_cast<void>(cudaGetLastError());
  return nullptr;
}

void* ContextOfThread() {
  static const auto get = DriverFunction<CUresult (*)(CUcontext*)>("cuCtxGetCurrent");
  CUcontext context = nullptr;
  return get != nullptr && get(&context) == CUDA_SUCCESS ? context : nullptr;
}

}  // namespace

DeviceOfThread::DeviceOfThread() : context_(ContextOfThread()) { device_of_thread = -1; }

DeviceOfThread::DeviceOfThread(int index) : DeviceOfThread() { UseCudaDevice(index); }

DeviceOfThread::~DeviceOfThread() {
  device_of_thread = -1;
  static const auto set = DriverFunction<CUresult (*)(CUcontext)>("cuCtxSetCurrent");
  if (set != nullptr && ContextOfThread() != context_) static_cast<void>(set(static_cast<CUcontext>(context_)));
}

void LoseDevicesInForkedProcesses() {
  static const int registered = pthread_atfork(nullptr, nullptr, [] { Lost().LoseAll(); });
  static_cast<void>(registered);  // without memory for it CUDA's own errors are told
}

void CheckCuda(cudaError_t result, const char* call) { Check(std::max(device_of_thread, 0), result, call); }

}  // namespace stepnet

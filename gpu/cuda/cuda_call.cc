#include "stepnet/gpu/cuda/cuda_call.h"

#include <mutex>
#include <string>

#include "stepnet/core/error.h"
#include "stepnet/core/strings.h"

namespace stepnet {
namespace {

// What ended the context, empty while there is one.
class LostContext {
 public:
  void Set(const std::string& cause) {
    const std::lock_guard lock(mutex_);
    if (cause_.empty()) cause_ = cause;
  }
  std::string Get() const {
    const std::lock_guard lock(mutex_);
    return cause_;
  }

 private:
  mutable std::mutex mutex_;
  std::string cause_;
};

LostContext& Lost() {
  static LostContext& lost = *new LostContext;
  return lost;
}

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
    case cudaErrorHardwareStackError:
    case cudaErrorECCUncorrectable: return true;
    default: return false;
  }
}

std::string TextOf(cudaError_t result, const char* call) {
  return StrCat(cudaGetErrorString(result), " (", cudaGetErrorName(result), ") in ", call);
}

}  // namespace

void ExpectCudaContext() {
  const std::string cause = Lost().Get();
  if (cause.empty()) return;
  throw Error(ErrorCode::kFailed,
              StrCat("the GPU cannot be used any more in this process, since an earlier run ended its context: ", cause,
                     "; the same run with --device=cpu tells which operator it is"));
}

void CheckCuda(cudaError_t result, const char* call) {
  if (result == cudaSuccess) return;
  static_cast<void>(cudaGetLastError());  // the next call is not blamed for this one
  ExpectCudaContext();
  const std::string text = TextOf(result, call);
  if (EndsContext(result)) Lost().Set(text);
  throw Error(result == cudaErrorMemoryAllocation ? ErrorCode::kOutOfMemory : ErrorCode::kFailed, text);
}

}  // namespace stepnet

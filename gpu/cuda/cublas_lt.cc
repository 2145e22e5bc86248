#include "stepnet/gpu/cuda/cublas_lt.h"

#include <dlfcn.h>
#include <unistd.h>

#include <map>
#include <memory>
#include <mutex>
#include <system_error>
#include <thread>

#include "stepnet/core/error.h"
#include "stepnet/core/signal_block.h"
#include "stepnet/core/strings.h"
#include "stepnet/gpu/cuda/cuda_call.h"
#include "stepnet/gpu/cuda_library.h"

namespace stepnet {
namespace {

CublasLt Open() {
  const CudaLibrary library = OpenCudaLibrary({"libcublasLt.so.13", "libcublasLt.so.12", "libcublasLt.so"},
                                              "products on GPUs are computed by cuBLASLt",
                                              "NVIDIA's package libcublas-13-0, or nvidia-cublas from PyPI");
  if (library.handle == nullptr) throw Error(ErrorCode::kFailed, library.fault);
  CublasLt lt = {};
  library.Find("cublasLtCreate", &lt.create);
  library.Find("cublasLtMatmul", &lt.matmul);
  library.Find("cublasLtMatmulDescCreate", &lt.desc_create);
  library.Find("cublasLtMatmulDescDestroy", &lt.desc_destroy);
  library.Find("cublasLtMatmulDescSetAttribute", &lt.desc_set);
  library.Find("cublasLtMatrixLayoutCreate", &lt.layout_create);
  library.Find("cublasLtMatrixLayoutDestroy", &lt.layout_destroy);
  library.Find("cublasLtMatrixLayoutSetAttribute", &lt.layout_set);
  library.Find("cublasLtMatmulPreferenceCreate", &lt.preference_create);
  library.Find("cublasLtMatmulPreferenceDestroy", &lt.preference_destroy);
  library.Find("cublasLtMatmulPreferenceSetAttribute", &lt.preference_set);
  library.Find("cublasLtMatmulAlgoGetHeuristic", &lt.heuristic);
  library.Find("cublasLtGetStatusString", &lt.status_string);
  library.Find("cublasLtGetVersion", &lt.version);
  library.Find("cublasLtMatmulAlgoConfigGetAttribute", &lt.algorithm_get);
  return lt;
}

}  // namespace

const CublasLt& TheCublasLt() {
  static const CublasLt& lt = *new CublasLt(Open());
  return lt;
}

namespace {

// Begins when it is made. The program does not end before it has, but for a process that was forked: it has no such
// thread.
class Opener {
 public:
  Opener() {
    const SignalBlock none;
    try {
      thread_ = std::make_unique<std::jthread>([] {
        try {
          TheCublasLt();
        } catch (const Error&) {  // the next one to ask looks for it again
        }
      });
    } catch (const std::system_error&) {  // no thread to be had
    }
  }
  ~Opener() {
    if (getpid() != process_) static_cast<void>(thread_.release());  // the C library has taken its stack back
  }
  Opener(const Opener&) = delete;
  Opener& operator=(const Opener&) = delete;

 private:
  const pid_t process_ = getpid();
  std::unique_ptr<std::jthread> thread_;
};

}  // namespace

void OpenCublasLtAhead() { static const Opener opener; }

void CheckCublas(cublasStatus_t status, const char* call) {
  if (status == CUBLAS_STATUS_SUCCESS) return;
  CheckCuda(cudaGetLastError(), call);  // what the library stumbled over, if CUDA knows it
  throw Error(ErrorCode::kFailed, StrCat(call, ": ", TheCublasLt().status_string(status)));
}

cublasLtHandle_t CublasLtHandle(int index) {
  static std::mutex mutex;
  static std::map<int, cublasLtHandle_t>& handles = *new std::map<int, cublasLtHandle_t>;
  const std::lock_guard lock(mutex);
  const auto [found, is_new] = handles.try_emplace(index, nullptr);
  if (found->second == nullptr) {
    UseCudaDevice(index);
    CheckCublas(TheCublasLt().create(&found->second), "cublasLtCreate");
  }
  return found->second;
}

}  // namespace stepnet

#include "stepnet/gpu/cuda/cublas_lt.h"

#include <dlfcn.h>

#include <map>
#include <mutex>

#include "stepnet/core/error.h"
#include "stepnet/core/strings.h"
#include "stepnet/gpu/cuda/cuda_runtime.h"

namespace stepnet {
namespace {

template <typename Function>
void Find(void* library, const char* name, Function* function) {
  *function = reinterpret_cast<Function>(dlsym(library, name));
  if (*function == nullptr) throw Error(ErrorCode::kFailed, StrCat("libcublasLt has no function ", name));
}

CublasLt Open() {
  void* library = nullptr;
  for (const char* name : {"libcublasLt.so.13", "libcublasLt.so.12", "libcublasLt.so"}) {
    if (library == nullptr) library = dlopen(name, RTLD_NOW | RTLD_LOCAL);
  }
  if (library == nullptr) {
    throw Error(ErrorCode::kFailed,
                "products on the GPU need libcublasLt.so, which the loader does not find; it comes with CUDA, or with "
                "the package nvidia-cublas of PyPI (then its folder goes into LD_LIBRARY_PATH)");
  }
  CublasLt lt = {};
  Find(library, "cublasLtCreate", &lt.create);
  Find(library, "cublasLtMatmul", &lt.matmul);
  Find(library, "cublasLtMatmulDescCreate", &lt.desc_create);
  Find(library, "cublasLtMatmulDescDestroy", &lt.desc_destroy);
  Find(library, "cublasLtMatmulDescSetAttribute", &lt.desc_set);
  Find(library, "cublasLtMatrixLayoutCreate", &lt.layout_create);
  Find(library, "cublasLtMatrixLayoutDestroy", &lt.layout_destroy);
  Find(library, "cublasLtMatrixLayoutSetAttribute", &lt.layout_set);
  Find(library, "cublasLtMatmulPreferenceCreate", &lt.preference_create);
  Find(library, "cublasLtMatmulPreferenceDestroy", &lt.preference_destroy);
  Find(library, "cublasLtMatmulPreferenceSetAttribute", &lt.preference_set);
  Find(library, "cublasLtMatmulAlgoGetHeuristic", &lt.heuristic);
  Find(library, "cublasLtGetStatusString", &lt.status_string);
  return lt;
}

}  // namespace

const CublasLt& TheCublasLt() {
  static const CublasLt& lt = *new CublasLt(Open());
  return lt;
}

void CheckCublas(cublasStatus_t status, const char* call) {
  if (status == CUBLAS_STATUS_SUCCESS) return;
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

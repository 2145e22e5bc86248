// cuBLASLt, opened while the program runs: it starts, and is built, where the library is not.
#pragma once

#include <cublasLt.h>

namespace stepnet {

// The functions that products call, as the library declares them.
struct CublasLt {
  decltype(&cublasLtCreate) create;
  decltype(&cublasLtMatmul) matmul;
  decltype(&cublasLtMatmulDescCreate) desc_create;
  decltype(&cublasLtMatmulDescDestroy) desc_destroy;
  decltype(&cublasLtMatmulDescSetAttribute) desc_set;
  decltype(&cublasLtMatrixLayoutCreate) layout_create;
  decltype(&cublasLtMatrixLayoutDestroy) layout_destroy;
  decltype(&cublasLtMatrixLayoutSetAttribute) layout_set;
  decltype(&cublasLtMatmulPreferenceCreate) preference_create;
  decltype(&cublasLtMatmulPreferenceDestroy) preference_destroy;
  decltype(&cublasLtMatmulPreferenceSetAttribute) preference_set;
  decltype(&cublasLtMatmulAlgoGetHeuristic) heuristic;
  decltype(&cublasLtGetStatusString) status_string;
  decltype(&cublasLtGetVersion) version;
  decltype(&cublasLtMatmulAlgoConfigGetAttribute) algorithm_get;
};

// Throws kFailed where there is no such library, naming what to install.
const CublasLt& TheCublasLt();
// Opens it on a thread of its own, for whoever asks next: it is hundreds of megabytes, and takes as long as to begin
// with a GPU. Where there is none, who asks is told.
void OpenCublasLtAhead();
// A handle for the device `index`, the same each time.
cublasLtHandle_t CublasLtHandle(int index);
// Throws kFailed with the call and what the library says of it.
void CheckCublas(cublasStatus_t status, const char* call);

}  // namespace stepnet

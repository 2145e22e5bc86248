// cuBLASLt, opened when the first product is made: the program starts, and is built, where it is not.
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
// A handle for the device `index`, the same each time.
cublasLtHandle_t CublasLtHandle(int index);
// Throws kFailed with the call and what the library says of it.
void CheckCublas(cublasStatus_t status, const char* call);

}  // namespace stepnet

// Calls of the CUDA runtime, whose failures are Errors.
#pragma once

#include <cuda_runtime_api.h>

namespace stepnet {

// Throws kOutOfMemory or kFailed, naming the call and what CUDA says of it. An error that ends the context of the
// device is remembered: every later call throws again, with that cause.
void CheckCuda(cudaError_t result, const char* call);
#define STEPNET_CUDA_CALL(call) ::stepnet::CheckCuda((call), #call)

// Throws where an earlier error has ended the context.
void ExpectCudaContext();

}  // namespace stepnet

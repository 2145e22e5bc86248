// Where tests cannot compile kernels.
#pragma once

#include <string>

#include "stepnet/gpu/nvrtc.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define STEPNET_IS_SANITIZED 1
#elif defined(__has_feature)
#define STEPNET_IS_SANITIZED (__has_feature(address_sanitizer) || __has_feature(thread_sanitizer))
#else
#define STEPNET_IS_SANITIZED 0
#endif

namespace stepnet {

// "" or why kernels are not compiled, or run, in this build.
inline std::string WhyNoTestsOfKernels() {
  return STEPNET_IS_SANITIZED ? "sanitizers follow neither fibers nor the memory of compilers" : "";
}
inline std::string WhyNoDeviceCompilerHere() {
  const std::string why = WhyNoTestsOfKernels();
  return why.empty() ? WhyNoDeviceCompiler() : why;
}

}  // namespace stepnet

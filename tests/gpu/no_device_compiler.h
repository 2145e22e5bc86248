// Where tests cannot compile kernels.
#pragma once

#include <string>

#include "stepnet/gpu/nvrtc.h"
#include "stepnet/tests/core/sanitized.h"

namespace stepnet {

// "" or why kernels are not compiled, or run, in this build.
inline std::string WhyNoTestsOfKernels() {
  return kIsSanitized ? "sanitizers follow neither fibers nor the memory of compilers" : "";
}
inline std::string WhyNoDeviceCompilerHere() {
  const std::string why = WhyNoTestsOfKernels();
  return why.empty() ? WhyNoDeviceCompiler() : why;
}

}  // namespace stepnet

// The kernels of gpu/cuda/kernels on a GPU, against those of the CPU.
#include <gtest/gtest.h>

#include <cstring>

#include "kernel_cases.h"

namespace stepnet {
namespace {

constexpr Device kCuda = {.kind = DeviceKind::kCuda};

TEST(HandWrittenKernelsOnGpu, GiveWhatTheCpuGives) {
  try {
    RuntimeOf(kCuda);
  } catch (const Error& error) {
    GTEST_SKIP() << error.message();
  }
  for (const KernelCase& test : KernelCases()) {
    SCOPED_TRACE(test.name);
    ExpectResultOfCpu(test, RunKernel(test, DeviceKind::kCuda, kCuda));
    const KernelResult again = RunKernel(test, DeviceKind::kCuda, kCuda),
                       once = RunKernel(test, DeviceKind::kCuda, kCuda);
    for (size_t o = 0; o < once.outputs.size(); ++o) {
      if (!once.fault.empty()) continue;
      EXPECT_EQ(
          std::memcmp(again.outputs[o].raw(), once.outputs[o].raw(), static_cast<size_t>(once.outputs[o].size_bytes())),
          0);
    }
  }
}

}  // namespace
}  // namespace stepnet

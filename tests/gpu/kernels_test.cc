// The kernels of gpu/cuda/kernels, compiled for the CPU (kernels_on_host.h), against those of the CPU.
#include <gtest/gtest.h>

#include <set>

#include "kernel_cases.h"
#include "stepnet/nets/decomposition.h"

namespace stepnet {
namespace {

TEST(HandWrittenKernels, GiveOnTheHostWhatTheCpuGives) {
  for (const KernelCase& test : KernelCases()) {
    SCOPED_TRACE(test.name);
    ExpectResultOfCpu(test, RunKernel(test, kHandWrittenOnHost, {}));
  }
}

TEST(HandWrittenKernels, AllHaveCases) {
  std::set<std::string> with_cases, with_kernels;
  for (const KernelCase& test : KernelCases()) with_cases.insert(test.def.type());
  for (const std::string& type : OperatorTypes()) {
    if (RegistrationProblems().contains(type)) continue;
    if (GetOperator(type).kernels.contains(kHandWrittenOnHost)) with_kernels.insert(type);
  }
  EXPECT_EQ(with_cases, with_kernels);
}

// What runs on the CPU alone, and why. All else runs on a GPU.
TEST(HandWrittenKernels, FewOperatorsRunOnTheCpuAlone) {
  if (FindDeviceSpec(DeviceKind::kCuda) == nullptr) GTEST_SKIP() << "built without CUDA";
  const std::set<std::string> known = {
      "DBExists",               // opens a file
      "FCGradientOfParts",      // the pass that makes it, merge_gradients, does so for the CPU alone
      "FCOfParts",              // so does merge_products
      "FCOfPartsWithBias",      // likewise
      "GivenTensorStringFill",  // strings are the host's
      "Load",                   // opens a file
      "Print",                  // writes what people read
      "Save",                   // opens a file
  };
  std::set<std::string> found;
  const std::map<std::string, std::string> problems = RegistrationProblems();
  for (const std::string& type : OperatorTypes()) {
    if (problems.contains(type) || type.starts_with("test.")) continue;
    if (HasDecomposition(type)) continue;  // runs as its parts
    if (GetOperator(type).FindKernel(DeviceKind::kCuda) == nullptr) found.insert(type);
  }
  EXPECT_EQ(found, known);
}

}  // namespace
}  // namespace stepnet

// Runs of operators whose kernels for a GPU are written by hand (gpu/cuda/kernels), each compared with the CPU's: on
// the CPU, where they are compiled as C++, and on a GPU.
#pragma once

#include <string>
#include <vector>

#include "stepnet/core/operator.h"
#include "stepnet/proto/net.pb.h"

namespace stepnet {

// What the kernels are registered for on the CPU (kernels_on_host.h).
inline constexpr auto kHandWrittenOnHost = static_cast<DeviceKind>(200);

struct KernelCase {
  std::string name;
  OperatorDef def;
  std::vector<Tensor> inputs;
  double tolerance = 0;  // of the largest element; 0: the same bits
  bool adds = false;     // to what output 0 holds
};
std::vector<KernelCase> KernelCases();

struct KernelResult {
  std::vector<Tensor> outputs;  // on the host
  std::string fault;            // empty: none
};
// Runs the kernel for such devices, on tensors that lie on `device`.
KernelResult RunKernel(const KernelCase& test, DeviceKind kind, Device device);
// Compares with what the kernel of the CPU gives. `result` is what another one gave.
void ExpectResultOfCpu(const KernelCase& test, const KernelResult& result);

}  // namespace stepnet

// Iterations of training and learning rates on a GPU.
#include <limits>

#include "stepnet/gpu/cuda/kernels/elements.cuh"
#include "stepnet/operators/learning_rate.h"

namespace stepnet {
namespace {

enum Requirement { kNotNegative, kCanCount };

std::vector<Expr> Requirements(const std::string& name) {
  return {RequirementOf(StrCat("the iteration number ", name, " is {}, below 0"), {DType::kInt64}),
          RequirementOf(StrCat("the iteration number ", name, " is {}, and Iter cannot count on"), {DType::kInt64})};
}

struct Count {
  const std::int64_t* from;
  std::int64_t* to;
  std::int64_t last;
  device::FaultSlot fault;

  __device__ void operator()(std::int64_t) const {
    const std::int64_t n = *from;
    if (n >= 0 && n < last) {
      *to = n + 1;
      return;
    }
    device::NoteFault(fault, 0, n < 0 ? kNotNegative : kCanCount, device::Bits(static_cast<long long>(n)));
  }
};

RunFn MakeIter(const OperatorCall& op) {
  return [name = op.inputs()[0]](const OpRun& run) {
    const KernelFault fault(run, Requirements(name), 1);
    ForEach(run, 1,
            Count{run.In(0).As<std::int64_t>(), run.Out(0).As<std::int64_t>(), std::numeric_limits<std::int64_t>::max(),
                  SlotOf(fault)});
    fault.Report();
  };
}

template <typename T>
struct WriteRate {
  LearningRatePolicy policy;
  const std::int64_t* iteration;
  T* rate;
  device::FaultSlot fault;

  __device__ void operator()(std::int64_t) const {
    const std::int64_t n = *iteration;
    if (n < 0) device::NoteFault(fault, 0, kNotNegative, device::Bits(static_cast<long long>(n)));
    *rate = static_cast<T>(policy.RateAt(n < 0 ? 0 : static_cast<double>(n)));
  }
};

RunFn MakeLearningRate(const OperatorCall& op) {
  return [policy = LearningRatePolicy(op), name = op.inputs()[0]](const OpRun& run) {
    const KernelFault fault(run, Requirements(name), 1);
    ForFloats(run.Out(0).dtype, [&](auto zero) {
      using T = decltype(zero);
      ForEach(run, 1, WriteRate<T>{policy, run.In(0).As<std::int64_t>(), run.Out(0).As<T>(), SlotOf(fault)});
    });
    fault.Report();
  };
}

const GpuKernel iter("Iter", {.make = MakeIter, .checks_values = true, .stops_after_faults = true});
const GpuKernel learning_rate("LearningRate", {.make = MakeLearningRate, .checks_values = true});

}  // namespace
}  // namespace stepnet

// Random fills on a GPU: the words of the CPU, and so the same uniform numbers bit for bit.
#include <cmath>
#include <numbers>

#include "stepnet/gpu/cuda/kernels/elements.cuh"

namespace stepnet {
namespace {

// What a RandomStream is made of.
struct Words {
  Words(const OperatorCall& op, const OpRun& run)
      : seed(op.seed()),
        id(op.random_id()),
        run_number(static_cast<const std::uint64_t*>(run.context().RunNumberOnDevice())),
        step(static_cast<std::uint64_t>(run.step())) {}
  __device__ unsigned operator[](std::int64_t i) const {
    return device::RandomWord(seed, id, *run_number, step, static_cast<unsigned long long>(i));
  }
  std::uint64_t seed, id;
  const std::uint64_t* run_number;  // on the device: what was recorded draws new numbers when it is played
  std::uint64_t step;
};

__device__ inline double UnitInterval(unsigned word) { return word * 0x1p-32; }  // [0, 1)

template <typename T>
struct UniformElement {
  Words words;
  double low, high;
  T* y;

  __device__ void operator()(std::int64_t i) const {
    y[i] = static_cast<T>(low + (high - low) * UnitInterval(words[i]));
  }
};

// Two words make two numbers: operators/random_fill.cc.
template <typename T>
struct NormalElement {
  Words words;
  double mean, deviation;
  T* y;

  __device__ void operator()(std::int64_t i) const {
    const std::int64_t pair = i - i % 2;
    const double radius = device::Sqrt(-2 * device::Log((words[pair] + 1.0) * 0x1p-32));  // of (0, 1]: no log(0)
    const double angle = 2 * std::numbers::pi * UnitInterval(words[pair + 1]);
    y[i] = static_cast<T>(mean + deviation * radius * (i % 2 == 0 ? device::Cos(angle) : device::Sin(angle)));
  }
};

struct UniformInt {
  Words words;
  std::int64_t low;
  std::uint64_t count;
  int* y;

  __device__ void operator()(std::int64_t i) const {
    y[i] = static_cast<int>(low + static_cast<std::int64_t>(words[i] * count >> 32));
  }
};

void FillUniform(const OperatorCall& op, const OpRun& run, double low, double high) {
  ForFloats(run.Out(0).dtype, [&](auto zero) {
    using T = decltype(zero);
    ForEach(run, run.Out(0).size(), UniformElement<T>{Words(op, run), low, high, run.Out(0).As<T>()});
  });
}
void FillNormal(const OperatorCall& op, const OpRun& run, double mean, double deviation) {
  ForFloats(run.Out(0).dtype, [&](auto zero) {
    using T = decltype(zero);
    ForEach(run, run.Out(0).size(), NormalElement<T>{Words(op, run), mean, deviation, run.Out(0).As<T>()});
  });
}

// Size of y in units of one of its dimensions.
double SizeWithout(const TensorView& y, int dim) {
  return static_cast<double>(y.size()) / static_cast<double>(y.dim(dim));
}

RunFn MakeXavier(const OperatorCall& op) {
  return [op](const OpRun& run) {
    if (run.Out(0).size() == 0) return;
    const double scale = std::sqrt(3 / SizeWithout(run.Out(0), 0));
    FillUniform(op, run, -scale, scale);
  };
}
RunFn MakeMsra(const OperatorCall& op) {
  return [op](const OpRun& run) {
    if (run.Out(0).size() > 0) FillNormal(op, run, 0, std::sqrt(2 / SizeWithout(run.Out(0), 1)));
  };
}
RunFn MakeGaussian(const OperatorCall& op) {
  return [op](const OpRun& run) { FillNormal(op, run, op.Float("mean"), op.Float("std")); };
}

// What arguments say that do not fit each other is said by the kernel of the CPU.
void CheckArguments(const OperatorCall& op) { op.schema().FindKernel(DeviceKind::kCpu)->make(op); }

RunFn MakeUniform(const OperatorCall& op) {
  CheckArguments(op);
  return [op](const OpRun& run) { FillUniform(op, run, op.Float("min"), op.Float("max")); };
}
RunFn MakeUniformInt(const OperatorCall& op) {
  CheckArguments(op);
  return [op](const OpRun& run) {
    const std::int64_t low = op.Int("min");
    const auto count = static_cast<std::uint64_t>(op.Int("max") - low + 1);
    ForEach(run, run.Out(0).size(), UniformInt{Words(op, run), low, count, run.Out(0).As<std::int32_t>()});
  };
}

const GpuKernel xavier("XavierFill", {.make = MakeXavier});
const GpuKernel msra("MSRAFill", {.make = MakeMsra});
const GpuKernel gaussian("GaussianFill", {.make = MakeGaussian});
const GpuKernel uniform("UniformFill", {.make = MakeUniform});
const GpuKernel uniform_int("UniformIntFill", {.make = MakeUniformInt});

}  // namespace
}  // namespace stepnet

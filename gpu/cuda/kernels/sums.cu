// Sums on a GPU that are more than sums over dimensions: of squares.
#include "stepnet/gpu/cuda/kernels/elements.cuh"

namespace stepnet {
namespace {

template <typename T>
struct Square {
  const T* x;
  __device__ double operator()(std::int64_t, std::int64_t i) const { return static_cast<double>(x[i]) * x[i]; }
};
template <typename T>
struct WriteScaled {
  const double* sum;
  double factor;
  T* y;
  __device__ void operator()(std::int64_t) const { *y = static_cast<T>(*sum * factor); }
};

RunFn MakeSumOfSquares(const OperatorCall& op) {
  return [average = op.Bool("average")](const OpRun& run) {
    ForFloats(run.Out(0).dtype, [&](auto zero) {
      using T = decltype(zero);
      const std::int64_t n = run.In(0).size();
      const double* sum = SumsOf(run, 1, n, Square<T>{run.In(0).As<T>()});
      ForEach(run, 1, WriteScaled<T>{sum, average && n > 0 ? 1 / static_cast<double>(n) : 1, run.Out(0).As<T>()});
    });
  };
}

// ---- ClipByGlobalNorm

struct AddTo {
  const double* from;
  double* to;
  __device__ void operator()(std::int64_t) const { *to += *from; }
};
template <typename T>
struct WriteNorm {
  const double* squares;
  T* norm;
  __device__ void operator()(std::int64_t) const { *norm = static_cast<T>(device::Sqrt(*squares)); }
};
template <typename T>
struct Clip {
  const double* squares;
  double max_norm;
  const T* gradient;
  T* y;

  __device__ void operator()(std::int64_t i) const {
    const double norm = device::Sqrt(*squares);
    const bool is_finite = norm - norm == 0;
    const T scale = static_cast<T>(device::Min(1.0, max_norm / (norm + 1e-6)));
    y[i] = is_finite ? scale * gradient[i] : T{0};
  }
};

RunFn MakeClip(const OperatorCall& op) {
  return [max_norm = op.Number("max_norm")](const OpRun& run) {
    ForFloats(run.Out(0).dtype, [&](auto zero) {
      using T = decltype(zero);
      auto* squares = run.ScratchOf<double>(1);
      FillBytes(run, squares, 0, sizeof(double));
      for (int i = 0; i < run.num_inputs(); ++i) {
        ForEach(run, 1, AddTo{SumsOf(run, 1, run.In(i).size(), Square<T>{run.In(i).As<T>()}), squares});
      }
      for (int i = 0; i < run.num_inputs(); ++i) {
        ForEach(run, run.Out(i).size(), Clip<T>{squares, max_norm, run.In(i).As<T>(), run.Out(i).As<T>()});
      }
      ForEach(run, 1, WriteNorm<T>{squares, run.Out(run.num_outputs() - 1).As<T>()});
    });
  };
}

const GpuKernel squares("SumSqrElements", {.make = MakeSumOfSquares});
const GpuKernel clip("ClipByGlobalNorm", {.make = MakeClip});

}  // namespace
}  // namespace stepnet

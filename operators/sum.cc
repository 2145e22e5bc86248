// Sum: y = x0 + x1 + …
#include <algorithm>
#include <type_traits>

#include "stepnet/core/cancellation.h"
#include "stepnet/operators/broadcast.h"
#include "stepnet/operators/input_checks.h"

namespace stepnet {
namespace {

// Inputs are added in order, block by block, so that partial sums stay in the first-level cache.
constexpr std::int64_t kBlock = 2048;

void AddArrays(const float* a, const float* b, float* out, std::int64_t n) {
  BroadcastArithmetic(Arithmetic::kAdd, a, b, out, {.run = n});
}
void AddArrays(const double* a, const double* b, double* out, std::int64_t n) {
  BroadcastArithmetic(Arithmetic::kAdd, a, b, out, {.run = n});
}
// Integers wrap around.
template <typename T>
void AddArrays(const T* a, const T* b, T* out, std::int64_t n) {
  using Unsigned = std::make_unsigned_t<T>;
  CountWork(n);
  for (std::int64_t i = 0; i < n; ++i) {
    out[i] = static_cast<T>(static_cast<Unsigned>(a[i]) + static_cast<Unsigned>(b[i]));
  }
}

template <typename T>
void SumBlocks(const OpRun& run) {
  const std::int64_t n = run.Out(0).size();
  const int last = run.num_inputs() - 1;
  // In place, an input that comes again later must not find partial sums: `Sum(x, y, x) -> x`.
  bool is_read_later = false;
  for (int i = 2; i <= last; ++i) is_read_later = is_read_later || run.In(i).data == run.Out(0).data;
  T* buffer = is_read_later ? run.ScratchOf<T>(std::min(kBlock, n)) : nullptr;
  for (std::int64_t begin = 0; begin < n; begin += kBlock) {
    const std::int64_t size = std::min(kBlock, n - begin);
    T* out = run.Out(0).As<T>() + begin;
    const T* sum = run.In(0).As<T>() + begin;
    for (int i = 1; i <= last; ++i) {
      T* partial = is_read_later && i < last ? buffer : out;
      AddArrays(sum, run.In(i).As<T>() + begin, partial, size);
      sum = partial;
    }
  }
}

void SumKernel(const OpRun& run) {
  if (run.num_inputs() == 1) {
    if (run.Out(0).data != run.In(0).data) CopyElements(run.In(0), run.Out(0));
    return;
  }
  switch (run.Out(0).dtype) {
    case DType::kFloat: return SumBlocks<float>(run);
    case DType::kDouble: return SumBlocks<double>(run);
    case DType::kInt32: return SumBlocks<std::int32_t>(run);
    default: return SumBlocks<std::int64_t>(run);
  }
}

const Registration sum = Operator("Sum")
                             .Doc("y = x0 + x1 + …, element by element.")
                             .Inputs("x", "one or more of one shape and type: float, double, int32 or int64")
                             .Output("y", "the shape of the inputs")
                             .Shapes([](const ShapeQuery& query) {
                               ExpectType(query, 0, {DType::kFloat, DType::kDouble, DType::kInt32, DType::kInt64});
                               for (int i = 1; i < query.num_inputs(); ++i) ExpectAlike(query, 0, i);
                               return std::vector<TensorInfo>{{.dtype = query.In(0).dtype, .shape = query.In(0).shape}};
                             })
                             .InPlace({{0, 0}})
                             .Elementwise()
                             .Gradient([](GradientBuilder& g) {
                               for (int i = 0; i < g.op().num_inputs(); ++i) g.SetDense(i, g.GO(0));
                             })
                             .Cpu([](const OperatorCall&) -> RunFn { return SumKernel; });

}  // namespace
}  // namespace stepnet

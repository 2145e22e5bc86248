// Both shapes are collapsed to at most three dimensions, so that every case is a loop over contiguous elements:
// rows that meet the whole of b (after = 1), or stretches that meet one element of b (after > 1).
#include "stepnet/operators/broadcast.h"

#include <algorithm>
#include <optional>
#include <type_traits>
#include <utility>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "stepnet/operators/broadcast.cc"
#include <hwy/foreach_target.h>  // IWYU pragma: keep
#include <hwy/highway.h>

#include "stepnet/core/cancellation.h"
#include "stepnet/core/partial_vectors-inl.h"
#include "stepnet/operators/input_checks.h"

HWY_BEFORE_NAMESPACE();
namespace stepnet {
namespace HWY_NAMESPACE {

// Adds the sums over each column of [rows, n].
template <typename T>
HWY_INLINE void AddColumns(const T* a, std::int64_t rows, std::int64_t n, T* out) {
  const hn::ScalableTag<T> d;
  // Four rows at a time: a quarter of the loads and stores of `out`.
  std::int64_t i = 0;
  for (; i + 4 <= rows; i += 4, a += 4 * n) {
    ForEachVector(d, n, [&](auto access, std::int64_t j) HWY_ATTR {
      const auto rows01 = hn::Add(access.Load(d, a + j), access.Load(d, a + n + j));
      const auto rows23 = hn::Add(access.Load(d, a + 2 * n + j), access.Load(d, a + 3 * n + j));
      access.Store(d, hn::Add(access.Load(d, out + j), hn::Add(rows01, rows23)), out + j);
    });
  }
  for (; i < rows; ++i, a += n) {
    ForEachVector(d, n, [&](auto access, std::int64_t j) HWY_ATTR {
      access.Store(d, hn::Add(access.Load(d, out + j), access.Load(d, a + j)), out + j);
    });
  }
}

void AddColumnsFloat(const float* a, std::int64_t rows, std::int64_t n, float* out) { AddColumns(a, rows, n, out); }
void AddColumnsDouble(const double* a, std::int64_t rows, std::int64_t n, double* out) { AddColumns(a, rows, n, out); }

}  // namespace HWY_NAMESPACE
}  // namespace stepnet
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace stepnet {

HWY_EXPORT(AddColumnsFloat);
HWY_EXPORT(AddColumnsDouble);

namespace {

template <typename T>
void SumOfLoops(const T* a, T* out, const BroadcastLoops& loops) {
  if (loops.before == 1 && loops.after == 1) {
    if (out != a) std::copy_n(a, loops.run, out);
    return;
  }
  if (loops.before == 1 && !loops.empty()) return SumRows(a, out, loops.run, loops.after);
  std::fill_n(out, loops.run, T{0});
  if (loops.empty()) return;
  if (loops.after == 1) {
    if constexpr (std::is_same_v<T, float>) {
      return HWY_DYNAMIC_DISPATCH(AddColumnsFloat)(a, loops.before, loops.run, out);
    } else {
      return HWY_DYNAMIC_DISPATCH(AddColumnsDouble)(a, loops.before, loops.run, out);
    }
  }
  for (std::int64_t i = 0; i < loops.before; ++i) {
    for (std::int64_t j = 0; j < loops.run; ++j, a += loops.after) {
      T sum;
      SumRows(a, &sum, 1, loops.after);
      out[j] += sum;
    }
  }
}

}  // namespace

void BroadcastSum(const float* a, float* out, const BroadcastLoops& loops) { SumOfLoops(a, out, loops); }
void BroadcastSum(const double* a, double* out, const BroadcastLoops& loops) { SumOfLoops(a, out, loops); }

BroadcastLoops FindBroadcastLoops(const BroadcastRule& rule, const Shape& a, const Shape& b) {
  if (b.size() == 1) return {.after = a.size()};
  const int axis = rule.axis == -1 ? a.rank() - b.rank() : rule.axis;
  const auto [begin, end] = CountingDims(b);
  BroadcastLoops loops{.before = a.SizeTo(axis + begin), .after = a.SizeFrom(axis + end)};
  for (int i = begin; i < end; ++i) loops.run *= b[i];
  return loops;
}

namespace {

bool RepeatsAsCaffe2(const OperatorCall& op) {
  return op.schema().FindArgument("broadcast") != nullptr && op.Bool("broadcast");
}

}  // namespace

bool MayBeRepeated(const GradientBuilder& g, int i) {
  const OperatorCall& op = g.op();
  if (RepeatsAsCaffe2(op)) return i > 0;
  return std::ranges::any_of(op.inputs(), [&](const std::string& input) { return input != op.inputs()[0]; });
}

void ReduceGradient(GradientBuilder& g, int i, const std::string& of) {
  if (!MayBeRepeated(g, i)) return;
  const bool as_caffe2 = RepeatsAsCaffe2(g.op());
  g.Add({.type = "SumReduceLike", .inputs = {of, g.I(i)}, .outputs = {g.GI(i)}, .copies_arguments = as_caffe2});
}

void PassGradient(GradientBuilder& g, int i) {
  if (!MayBeRepeated(g, i)) return g.SetDense(i, g.GO(0));
  ReduceGradient(g, i, g.GO(0));
}

ShapeRule BroadcastShapes(std::vector<DType> dtypes, std::optional<DType> output) {
  return [dtypes = std::move(dtypes), output](const ShapeQuery& query) {
    ExpectType(query, 0, dtypes);
    ExpectSameType(query, 0, 1);
    return std::vector<TensorInfo>{
        {.dtype = output.value_or(query.In(0).dtype), .shape = BroadcastShape(query, ReadBroadcastRule(query.op()))}};
  };
}

}  // namespace stepnet
#endif  // HWY_ONCE

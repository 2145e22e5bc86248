// Both shapes are collapsed to at most three dimensions, so that every case is a loop over contiguous elements:
// rows that meet the whole of b (after = 1), or stretches that meet one element of b (after > 1).
#include "stepnet/operators/broadcast.h"

#include <algorithm>
#include <optional>
#include <utility>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "stepnet/operators/broadcast.cc"
#include <hwy/foreach_target.h>  // IWYU pragma: keep
#include <hwy/highway.h>

#include "stepnet/operators/input_checks.h"
#include "stepnet/operators/vector_loops-inl.h"

HWY_BEFORE_NAMESPACE();
namespace stepnet {
namespace HWY_NAMESPACE {

template <typename T>
HWY_INLINE T SumOf(const T* a, std::int64_t n) {
  return SumVectors<T>(n, [&](auto d, std::int64_t k) HWY_ATTR { return hn::LoadU(d, a + k); });
}

template <typename T>
HWY_INLINE void SumOfLoops(const T* a, T* out, const BroadcastLoops& loops) {
  if (loops.before == 1 && loops.after == 1) {
    if (out != a) std::copy_n(a, loops.run, out);
    return;
  }
  std::fill_n(out, loops.run, T{0});
  if (loops.empty()) return;
  if (loops.after > 1) {
    for (std::int64_t i = 0; i < loops.before; ++i) {
      for (std::int64_t j = 0; j < loops.run; ++j, a += loops.after) out[j] += SumOf(a, loops.after);
    }
    return;
  }
  // Four rows at a time: a quarter of the loads and stores of `out`.
  std::int64_t i = 0;
  for (; i + 4 <= loops.before; i += 4, a += 4 * loops.run) {
    ForVectors<T>(loops.run, [&](auto d, std::int64_t j) HWY_ATTR {
      const auto rows01 = hn::Add(hn::LoadU(d, a + j), hn::LoadU(d, a + loops.run + j));
      const auto rows23 = hn::Add(hn::LoadU(d, a + 2 * loops.run + j), hn::LoadU(d, a + 3 * loops.run + j));
      hn::StoreU(hn::Add(hn::LoadU(d, out + j), hn::Add(rows01, rows23)), d, out + j);
    });
  }
  for (; i < loops.before; ++i, a += loops.run) {
    ForVectors<T>(loops.run, [&](auto d, std::int64_t j) HWY_ATTR {
      hn::StoreU(hn::Add(hn::LoadU(d, out + j), hn::LoadU(d, a + j)), d, out + j);
    });
  }
}

void SumFloat(const float* a, float* out, const BroadcastLoops& loops) { SumOfLoops(a, out, loops); }
void SumDouble(const double* a, double* out, const BroadcastLoops& loops) { SumOfLoops(a, out, loops); }

}  // namespace HWY_NAMESPACE
}  // namespace stepnet
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace stepnet {

HWY_EXPORT(SumFloat);
HWY_EXPORT(SumDouble);

void BroadcastSum(const float* a, float* out, const BroadcastLoops& loops) {
  HWY_DYNAMIC_DISPATCH(SumFloat)(a, out, loops);
}
void BroadcastSum(const double* a, double* out, const BroadcastLoops& loops) {
  HWY_DYNAMIC_DISPATCH(SumDouble)(a, out, loops);
}

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

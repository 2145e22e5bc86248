// The formulas are in vector_math-inl.h.
#include "stepnet/core/vector_math.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "stepnet/core/vector_math.cc"
#include <hwy/foreach_target.h>  // IWYU pragma: keep
#include <hwy/highway.h>

#include "stepnet/core/partial_vectors-inl.h"
#include "stepnet/core/vector_math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace stepnet {
namespace HWY_NAMESPACE {

template <class Fn, typename T>
void MapVectors(const T* in, T* out, std::int64_t n) {
  const hn::ScalableTag<T> d;
  const Fn fn;
  ForEachVector(d, n,
                [=](auto access, std::int64_t i) HWY_ATTR { access.Store(d, fn(d, access.Load(d, in + i)), out + i); });
}

void ExpFloat(const float* in, float* out, std::int64_t n) { MapVectors<ExpFn>(in, out, n); }
void ExpDouble(const double* in, double* out, std::int64_t n) { MapVectors<ExpFn>(in, out, n); }
void LogFloat(const float* in, float* out, std::int64_t n) { MapVectors<LogFn>(in, out, n); }
void LogDouble(const double* in, double* out, std::int64_t n) { MapVectors<LogFn>(in, out, n); }
void TanhFloat(const float* in, float* out, std::int64_t n) { MapVectors<TanhFn>(in, out, n); }
void TanhDouble(const double* in, double* out, std::int64_t n) { MapVectors<TanhFn>(in, out, n); }
void SigmoidFloat(const float* in, float* out, std::int64_t n) { MapVectors<SigmoidFn>(in, out, n); }
void SigmoidDouble(const double* in, double* out, std::int64_t n) { MapVectors<SigmoidFn>(in, out, n); }
void ErfcFloat(const float* in, float* out, std::int64_t n) { MapVectors<ErfcFn>(in, out, n); }
void ErfcDouble(const double* in, double* out, std::int64_t n) { MapVectors<ErfcFn>(in, out, n); }

void SinFloat(const float* in, float* out, std::int64_t n) { MapVectors<SinFn>(in, out, n); }
void CosFloat(const float* in, float* out, std::int64_t n) { MapVectors<CosFn>(in, out, n); }

}  // namespace HWY_NAMESPACE
}  // namespace stepnet
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace stepnet {

HWY_EXPORT(ExpFloat);
HWY_EXPORT(ExpDouble);
HWY_EXPORT(LogFloat);
HWY_EXPORT(LogDouble);
HWY_EXPORT(TanhFloat);
HWY_EXPORT(TanhDouble);
HWY_EXPORT(SigmoidFloat);
HWY_EXPORT(SigmoidDouble);
HWY_EXPORT(ErfcFloat);
HWY_EXPORT(ErfcDouble);
HWY_EXPORT(SinFloat);
HWY_EXPORT(CosFloat);

void VectorExp(const float* in, float* out, std::int64_t n) { HWY_DYNAMIC_DISPATCH(ExpFloat)(in, out, n); }
void VectorExp(const double* in, double* out, std::int64_t n) { HWY_DYNAMIC_DISPATCH(ExpDouble)(in, out, n); }
void VectorLog(const float* in, float* out, std::int64_t n) { HWY_DYNAMIC_DISPATCH(LogFloat)(in, out, n); }
void VectorLog(const double* in, double* out, std::int64_t n) { HWY_DYNAMIC_DISPATCH(LogDouble)(in, out, n); }
void VectorTanh(const float* in, float* out, std::int64_t n) { HWY_DYNAMIC_DISPATCH(TanhFloat)(in, out, n); }
void VectorTanh(const double* in, double* out, std::int64_t n) { HWY_DYNAMIC_DISPATCH(TanhDouble)(in, out, n); }
void VectorSigmoid(const float* in, float* out, std::int64_t n) { HWY_DYNAMIC_DISPATCH(SigmoidFloat)(in, out, n); }
void VectorSigmoid(const double* in, double* out, std::int64_t n) { HWY_DYNAMIC_DISPATCH(SigmoidDouble)(in, out, n); }
void VectorErfc(const float* in, float* out, std::int64_t n) { HWY_DYNAMIC_DISPATCH(ErfcFloat)(in, out, n); }
void VectorErfc(const double* in, double* out, std::int64_t n) { HWY_DYNAMIC_DISPATCH(ErfcDouble)(in, out, n); }
void VectorSin(const float* in, float* out, std::int64_t n) { HWY_DYNAMIC_DISPATCH(SinFloat)(in, out, n); }
void VectorSin(const double* in, double* out, std::int64_t n) {
  for (std::int64_t i = 0; i < n; ++i) out[i] = std::sin(in[i]);
}
void VectorCos(const float* in, float* out, std::int64_t n) { HWY_DYNAMIC_DISPATCH(CosFloat)(in, out, n); }
void VectorCos(const double* in, double* out, std::int64_t n) {
  for (std::int64_t i = 0; i < n; ++i) out[i] = std::cos(in[i]);
}

}  // namespace stepnet
#endif  // HWY_ONCE

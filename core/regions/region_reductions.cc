// Reductions of rows. Floating-point ones are in vectors, with the same partial results whatever their width.
#include "stepnet/core/regions/region_kernels.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "stepnet/core/regions/region_reductions.cc"
#include <hwy/cache_control.h>
#include <hwy/foreach_target.h>  // IWYU pragma: keep
#include <hwy/highway.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <type_traits>

#include "stepnet/core/arithmetic_vectors-inl.h"
#include "stepnet/core/expressions/expr_scalar.h"
#include "stepnet/core/regions/row_partials-inl.h"

HWY_BEFORE_NAMESPACE();
namespace stepnet {
namespace HWY_NAMESPACE {

template <class Fn, typename T>
void ReduceVectors(void* partial, const void* a, std::int64_t n) {
  using P = Partials<Fn, T>;
  const typename P::D d;
  T* sums = static_cast<T*>(partial);
  P partials(T{0});
  for (int k = 0; k < P::kVectors; ++k) partials.vectors[k] = hn::LoadU(d, sums + k * P::kLanes);
  partials.Add(static_cast<const T*>(a), n);
  for (int k = 0; k < P::kVectors; ++k) hn::StoreU(partials.vectors[k], d, sums + k * P::kLanes);
}

template <class Fn, typename T>
void ReduceRowsVectors(void* out, const void* a, const void* /*b*/, const RepeatedOperands& kinds, std::int64_t rows,
                       std::int64_t n) {
  constexpr T kFirst = std::is_same_v<Fn, AddVectors> ? T{0} : -std::numeric_limits<T>::infinity();
  const typename Partials<Fn, T>::D d;
  const T* x = static_cast<const T*>(a);
  const std::int64_t stride = kinds.RowStrideOf(0, n);
  ReduceRowsOf<Fn>(static_cast<T*>(out), kFirst, rows, n, [&](auto access, std::int64_t row, std::int64_t j) HWY_ATTR {
    return access.Load(d, x + row * stride + j);
  });
}

struct GreaterOrSecondVectors {
  template <class D, class V>
  HWY_INLINE V operator()(D, V a, V b) const {
    return GreaterOrSecond(a, b);
  }
};

// For long rows. A partial result forgets its NaN at the next number: those of the row are kept apart, so that no
// vector waits for the test of the one before.
template <typename T>
void MaxRowsVectors(void* out, const void* a, const void* b, const RepeatedOperands& kinds, std::int64_t rows,
                    std::int64_t n) {
  if (n < 8 * kRowPartials) return ReduceRowsVectors<MaxVectors, T>(out, a, b, kinds, rows, n);
  using P = Partials<GreaterOrSecondVectors, T>;
  const typename P::D d;
  const T* x = static_cast<const T*>(a);
  const std::int64_t stride = kinds.RowStrideOf(0, n);
  for (std::int64_t row = 0; row < rows; ++row, x += stride) {
    P largest(-std::numeric_limits<T>::infinity());
    P nans(T{0});
    largest.AddAll(n, [&](auto access, std::int64_t j, int k) HWY_ATTR {
      const auto value = access.Load(d, x + j);
      nans.vectors[k] = hn::IfThenElse(hn::Eq(value, value), nans.vectors[k], value);
      return value;
    });
    HWY_UNROLL(16)
    for (int k = 0; k < P::kVectors; ++k) {
      const auto nan = nans.vectors[k];
      largest.vectors[k] = hn::IfThenElse(hn::Eq(nan, nan), largest.vectors[k], nan);
    }
    static_cast<T*>(out)[row] = largest.template Finish<MaxVectors>(n);
  }
}

enum class Term : std::uint8_t { kElement, kProduct, kSquare, kWideSquare };

// Sums as Sum of terms of From, which are rounded before they become Sum; those of kWideSquare are squares of Sum.
// `kAsksForNext`: the first cache is asked for the rows behind these, which the next call is about.
template <Term kTerm, typename From, typename Sum, bool kAsksForNext = false>
void SumRows(void* out, const void* a, const void* b, const RepeatedOperands& kinds, std::int64_t rows,
             std::int64_t n) {
  if constexpr (kTerm == Term::kSquare && !kAsksForNext) {  // which are of rows that were read before
    if (kinds.is_far) return SumRows<kTerm, From, Sum, true>(out, a, b, kinds, rows, n);
  }
  using P = Partials<AddVectors, Sum>;
  const typename P::D d;
  const hn::Rebind<From, typename P::D> from;
  const From *x = static_cast<const From*>(a), *y = static_cast<const From*>(b);
  const std::int64_t x_stride = kinds.RowStrideOf(0, n), y_stride = kinds.RowStrideOf(1, n);
  ReduceRowsOf<AddVectors>(static_cast<Sum*>(out), Sum{0}, rows, n,
                           [&](auto access, std::int64_t row, std::int64_t j) HWY_ATTR {
                             if constexpr (kAsksForNext) hwy::Prefetch(x + (row + rows) * x_stride + j);
                             auto value = access.Load(from, x + row * x_stride + j);
                             if constexpr (kTerm == Term::kProduct)
                               value = hn::Mul(value, access.Load(from, y + row * y_stride + j));
                             if constexpr (kTerm == Term::kSquare) {
                               value = hn::Sub(value, hn::Set(from, y[row]));
                               value = hn::Mul(value, value);
                             }
                             if constexpr (kTerm == Term::kWideSquare && std::is_same_v<From, Sum>) {
                               return hn::Mul(value, value);
                             } else if constexpr (kTerm == Term::kWideSquare) {
                               const auto wide = hn::PromoteTo(d, value);
                               return hn::Mul(wide, wide);
                             } else if constexpr (std::is_same_v<From, Sum>) {
                               return value;
                             } else {
                               return hn::PromoteTo(d, value);
                             }
                           });
}

template <typename T>
void SumsOfRows(void* sum, void* sum_of_products, const void* a, const void* b, const RepeatedOperands& kinds,
                std::int64_t rows, std::int64_t n) {
  if (n <= kRowPartials) {  // which the first cache holds
    ReduceRowsVectors<AddVectors, T>(sum, a, nullptr, kinds, rows, n);
    return SumRows<Term::kProduct, T, T>(sum_of_products, a, b, kinds, rows, n);
  }
  using P = Partials<AddVectors, T>;
  const typename P::D d;
  const std::int64_t x_stride = kinds.RowStrideOf(0, n), y_stride = kinds.RowStrideOf(1, n);
  for (std::int64_t row = 0; row < rows; ++row) {
    const T* x = static_cast<const T*>(a) + row * x_stride;
    const T* y = static_cast<const T*>(b) + row * y_stride;
    P elements(0), products(0);
    elements.AddAllWith(&products, n, [&](auto access, std::int64_t j, auto* value, auto* product) HWY_ATTR {
      *value = access.Load(d, x + j);
      *product = hn::Mul(*value, access.Load(d, y + j));
    });
    static_cast<T*>(sum)[row] = elements.Finish(n);
    static_cast<T*>(sum_of_products)[row] = products.Finish(n);
  }
}

RowSumsKernel SumsKernelForTarget(DType dtype) {
  return dtype == DType::kFloat ? SumsOfRows<float> : SumsOfRows<double>;
}

template <Term kTerm>
RowsKernel SumOf(DType dtype, DType sum) {
  if (dtype == DType::kDouble) return SumRows<kTerm, double, double>;
  return sum == DType::kFloat ? SumRows<kTerm, float, float> : SumRows<kTerm, float, double>;
}

RowsKernel SumInDoubleKernelForTarget() { return SumRows<Term::kElement, float, double>; }
RowsKernel SumOfProductsKernelForTarget(DType dtype, DType sum) { return SumOf<Term::kProduct>(dtype, sum); }
RowsKernel SumOfWideSquaresKernelForTarget(DType dtype) { return SumOf<Term::kWideSquare>(dtype, DType::kDouble); }
RowsKernel SumOfSquaresKernelForTarget(DType dtype, DType sum) { return SumOf<Term::kSquare>(dtype, sum); }

// As many columns at once as keep the machine busy, each of which waits for the row before.
template <int kVectors, typename T, class Access>
HWY_INLINE void AddColumns(Access access, const T* from, T* sums, std::int64_t rows, std::int64_t n) {
  const hn::ScalableTag<T> d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  hn::Vec<decltype(d)> vectors[kVectors];
  HWY_UNROLL(8)
  for (int k = 0; k < kVectors; ++k) vectors[k] = access.Load(d, sums + k * lanes);
  for (std::int64_t row = 0; row < rows; ++row, from += n) {
    HWY_UNROLL(8)
    for (int k = 0; k < kVectors; ++k) vectors[k] = hn::Add(vectors[k], access.Load(d, from + k * lanes));
  }
  HWY_UNROLL(8)
  for (int k = 0; k < kVectors; ++k) access.Store(d, vectors[k], sums + k * lanes);
}

template <typename T>
void AddRowsOf(const void* from, void* sums, std::int64_t rows, std::int64_t n) {
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(hn::ScalableTag<T>()));
  const T* x = static_cast<const T*>(from);
  T* y = static_cast<T*>(sums);
  std::int64_t i = 0;
  for (; i + 4 * lanes <= n; i += 4 * lanes) AddColumns<4>(WholeVectors(), x + i, y + i, rows, n);
  for (; i + lanes <= n; i += lanes) AddColumns<1>(WholeVectors(), x + i, y + i, rows, n);
  if (i < n) AddColumns<1>(PartOfVector{n - i}, x + i, y + i, rows, n);
}

void AddRowsForTarget(const void* from, void* sums, DType dtype, std::int64_t rows, std::int64_t n) {
  if (dtype == DType::kFloat) return AddRowsOf<float>(from, sums, rows, n);
  AddRowsOf<double>(from, sums, rows, n);
}

template <auto kFn, typename T>
void ReduceNumbers(void* partial, const void* a, std::int64_t n) {
  const T* x = static_cast<const T*>(a);
  T* sums = static_cast<T*>(partial);
  for (std::int64_t i = 0; i < n; ++i) sums[i % kRowPartials] = kFn(sums[i % kRowPartials], x[i]);
}

// Integers are the same in any order.
template <auto kFn, typename T>
void ReduceRowsNumbers(void* out, const void* a, const void* /*b*/, const RepeatedOperands& kinds, std::int64_t rows,
                       std::int64_t n) {
  const T* x = static_cast<const T*>(a);
  for (std::int64_t row = 0; row < rows; ++row, x += kinds.RowStrideOf(0, n)) {
    T result = kFn == scalar::Add<T> ? T{0} : std::numeric_limits<T>::lowest();
    for (std::int64_t i = 0; i < n; ++i) result = kFn(result, x[i]);
    static_cast<T*>(out)[row] = result;
  }
}

RowsKernel RowsKernelForTarget(ExprOp op, DType dtype) {
  const bool is_sum = op == ExprOp::kRowSum;
  switch (dtype) {
    case DType::kFloat: return is_sum ? ReduceRowsVectors<AddVectors, float> : MaxRowsVectors<float>;
    case DType::kDouble: return is_sum ? ReduceRowsVectors<AddVectors, double> : MaxRowsVectors<double>;
    case DType::kInt32:
      return is_sum ? ReduceRowsNumbers<scalar::Add<std::int32_t>, std::int32_t>
                    : ReduceRowsNumbers<scalar::Max<std::int32_t>, std::int32_t>;
    default:
      return is_sum ? ReduceRowsNumbers<scalar::Add<std::int64_t>, std::int64_t>
                    : ReduceRowsNumbers<scalar::Max<std::int64_t>, std::int64_t>;
  }
}

RowKernel RowKernelForTarget(ExprOp op, DType dtype) {
  const bool is_sum = op == ExprOp::kRowSum;
  switch (dtype) {
    case DType::kFloat: return is_sum ? ReduceVectors<AddVectors, float> : ReduceVectors<MaxVectors, float>;
    case DType::kDouble: return is_sum ? ReduceVectors<AddVectors, double> : ReduceVectors<MaxVectors, double>;
    case DType::kInt32:
      return is_sum ? ReduceNumbers<scalar::Add<std::int32_t>, std::int32_t>
                    : ReduceNumbers<scalar::Max<std::int32_t>, std::int32_t>;
    default:
      return is_sum ? ReduceNumbers<scalar::Add<std::int64_t>, std::int64_t>
                    : ReduceNumbers<scalar::Max<std::int64_t>, std::int64_t>;
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace stepnet
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace stepnet {

HWY_EXPORT(RowKernelForTarget);
HWY_EXPORT(RowsKernelForTarget);
HWY_EXPORT(SumInDoubleKernelForTarget);
HWY_EXPORT(SumOfProductsKernelForTarget);
HWY_EXPORT(SumOfSquaresKernelForTarget);
HWY_EXPORT(SumOfWideSquaresKernelForTarget);
HWY_EXPORT(SumsKernelForTarget);
HWY_EXPORT(AddRowsForTarget);

RowsKernel RowsKernelOf(ExprOp op, DType dtype) { return HWY_DYNAMIC_DISPATCH(RowsKernelForTarget)(op, dtype); }
RowsKernel SumInDoubleKernel() { return HWY_DYNAMIC_DISPATCH(SumInDoubleKernelForTarget)(); }
RowsKernel SumOfProductsKernelOf(DType dtype, DType sum) {
  return HWY_DYNAMIC_DISPATCH(SumOfProductsKernelForTarget)(dtype, sum);
}
RowsKernel SumOfSquaresKernelOf(DType dtype, DType sum) {
  return HWY_DYNAMIC_DISPATCH(SumOfSquaresKernelForTarget)(dtype, sum);
}
RowsKernel SumOfWideSquaresKernelOf(DType dtype) {
  return HWY_DYNAMIC_DISPATCH(SumOfWideSquaresKernelForTarget)(dtype);
}
RowSumsKernel SumsKernelOf(DType dtype) { return HWY_DYNAMIC_DISPATCH(SumsKernelForTarget)(dtype); }
RowKernel RowKernelOf(ExprOp op, DType dtype) { return HWY_DYNAMIC_DISPATCH(RowKernelForTarget)(op, dtype); }

void AddRows(const void* from, void* sums, DType dtype, std::int64_t rows, std::int64_t n) {
  HWY_DYNAMIC_DISPATCH(AddRowsForTarget)(from, sums, dtype, rows, n);
}

void StartRow(ExprOp op, DType dtype, void* partial) {
  ForExprType(dtype, [&](auto zero) {
    using T = decltype(zero);
    using Limits = std::numeric_limits<T>;
    const T lowest = Limits::has_infinity ? static_cast<T>(-Limits::infinity()) : Limits::lowest();
    std::fill_n(static_cast<T*>(partial), kRowPartials, op == ExprOp::kRowSum ? T{0} : lowest);
  });
}

void FinishRow(ExprOp op, DType dtype, const void* partial, void* out) {
  ForExprType(dtype, [&](auto zero) {
    using T = decltype(zero);
    if constexpr (!std::is_same_v<T, bool>) {
      T sums[kRowPartials];
      std::memcpy(sums, partial, sizeof(sums));
      for (int width = kRowPartials / 2; width > 0; width /= 2) {
        for (int i = 0; i < width; ++i) {
          sums[i] =
              op == ExprOp::kRowSum ? scalar::Add(sums[i], sums[i + width]) : scalar::Max(sums[i], sums[i + width]);
        }
      }
      std::memcpy(out, sums, sizeof(T));
    }
  });
}

}  // namespace stepnet
#endif  // HWY_ONCE

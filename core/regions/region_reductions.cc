// Reductions of rows. Floating-point ones are in vectors, with the same partial results whatever their width.
#include "stepnet/core/regions/region_kernels.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "stepnet/core/regions/region_reductions.cc"
#include <hwy/foreach_target.h>  // IWYU pragma: keep
#include <hwy/highway.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <type_traits>

#include "stepnet/core/arithmetic_vectors-inl.h"
#include "stepnet/core/expressions/expr_scalar.h"
#include "stepnet/core/partial_vectors-inl.h"

HWY_BEFORE_NAMESPACE();
namespace stepnet {
namespace HWY_NAMESPACE {

// The partial results of a reduction, in vectors.
template <class Fn, typename T>
struct Partials {
  using D = hn::CappedTag<T, kRowPartials>;
  static constexpr auto kLanes = static_cast<std::int64_t>(hn::MaxLanes(D()));
  static constexpr int kVectors = kRowPartials / static_cast<int>(kLanes);
  hn::Vec<D> vectors[kVectors];

  HWY_INLINE explicit Partials(T first) {
    const D d;
    HWY_UNROLL(16)
    for (int k = 0; k < kVectors; ++k) vectors[k] = hn::Set(d, first);
  }

  // Adds at(access, j, k), the elements [j, j + lanes) of n as a vector, to vectors[k].
  template <class At>
  HWY_INLINE void AddAll(std::int64_t n, const At& at) {
    std::int64_t i = 0;
    for (; i + kRowPartials <= n; i += kRowPartials) AddWhole(i, at);
    AddRest(i, n, at);
  }
  // The same of two rows in turns: no addition waits for the one before.
  template <class At>
  static HWY_INLINE void AddBoth(Partials& first, Partials& second, std::int64_t n, const At& at_first,
                                 const At& at_second) {
    std::int64_t i = 0;
    for (; i + kRowPartials <= n; i += kRowPartials) {
      first.AddWhole(i, at_first);
      second.AddWhole(i, at_second);
    }
    first.AddRest(i, n, at_first);
    second.AddRest(i, n, at_second);
  }

  // The elements [i, i + kRowPartials), and those from i on that are fewer.
  template <class At>
  HWY_INLINE void AddWhole(std::int64_t i, const At& at) {
    const D d;
    const Fn fn;
    HWY_UNROLL(16)
    for (int k = 0; k < kVectors; ++k) vectors[k] = fn(d, vectors[k], at(WholeVectors(), i + k * kLanes, k));
  }
  template <class At>
  HWY_INLINE void AddRest(std::int64_t i, std::int64_t n, const At& at) {
    if (i == n) return;
    const D d;
    const Fn fn;
    HWY_UNROLL(16)
    for (int k = 0; k < kVectors; ++k) {
      const std::int64_t count = std::clamp<std::int64_t>(n - i - k * kLanes, 0, kLanes);
      if (count == 0) break;
      const auto mask = hn::FirstN(d, static_cast<size_t>(count));
      vectors[k] = hn::IfThenElse(mask, fn(d, vectors[k], at(PartOfVector{count}, i + k * kLanes, k)), vectors[k]);
    }
  }

  HWY_INLINE void Add(const T* x, std::int64_t n) {
    AddAll(n, [x](auto access, std::int64_t j, int /*k*/) HWY_ATTR { return access.Load(D(), x + j); });
  }

  // Half as many each time, of a row of n elements: those behind them are what each began with, which changes nothing.
  template <class Last = Fn>
  HWY_INLINE T Finish(std::int64_t n) {
    const D d;
    const Last fn;
    HWY_UNROLL(8)
    for (int width = kVectors / 2; width > 0; width /= 2) {
      if (n <= width * kLanes) continue;
      HWY_UNROLL(16)
      for (int k = 0; k < width; ++k) vectors[k] = fn(d, vectors[k], vectors[k + width]);
    }
    return FinishLanes<Last>(d, vectors[0]);
  }

 private:
  template <class Last, class Lanes>
  static HWY_INLINE T FinishLanes([[maybe_unused]] Lanes d, hn::Vec<Lanes> lanes) {
    [[maybe_unused]] const Last fn;
#if HWY_TARGET != HWY_SCALAR  // which has no halves
    if constexpr (hn::MaxLanes(d) * sizeof(T) > 16) {
      const hn::Half<Lanes> half;
      return FinishLanes<Last>(half, fn(half, hn::LowerHalf(half, lanes), hn::UpperHalf(half, lanes)));
    }
#endif
#if HWY_TARGET == HWY_SCALAR
    return hn::GetLane(lanes);
#else
    if constexpr (sizeof(T) == 4) {
      lanes = fn(d, lanes, hn::Shuffle1032(lanes));
      lanes = fn(d, lanes, hn::Shuffle2301(lanes));
    } else {
      lanes = fn(d, lanes, hn::Shuffle01(lanes));
    }
    return hn::GetLane(lanes);
#endif
  }
};

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

enum class Term : std::uint8_t { kElement, kProduct, kSquare };

// What is reduced of a row: terms of From, which are rounded before they become Result.
template <Term kTerm, typename From, typename Result>
class TermsOfRow {
 public:
  HWY_INLINE TermsOfRow(const void* a, const void* b, std::int64_t row, std::int64_t n)
      : x_(static_cast<const From*>(a) + row * n),
        y_(static_cast<const From*>(b) + (kTerm == Term::kProduct ? row * n : 0)),
        center_(hn::Set(D(), kTerm == Term::kSquare ? y_[row] : From{0})) {}

  template <class Access>
  HWY_INLINE auto operator()(Access access, std::int64_t j, int /*k*/) const {
    const D d;
    auto value = access.Load(d, x_ + j);
    if constexpr (kTerm == Term::kProduct) value = hn::Mul(value, access.Load(d, y_ + j));
    if constexpr (kTerm == Term::kSquare) {
      value = hn::Sub(value, center_);
      value = hn::Mul(value, value);
    }
    if constexpr (std::is_same_v<From, Result>) {
      return value;
    } else {
      return hn::PromoteTo(hn::CappedTag<Result, kRowPartials>(), value);
    }
  }

 private:
  using D = hn::Rebind<From, hn::CappedTag<Result, kRowPartials>>;
  const From* x_;
  const From* y_;
  hn::Vec<D> center_;
};

template <class Fn, Term kTerm, typename From, typename Result>
void ReduceRows(void* out, const void* a, const void* b, std::int64_t rows, std::int64_t n) {
  constexpr Result kFirst = std::is_same_v<Fn, AddVectors> ? Result{0} : -std::numeric_limits<Result>::infinity();
  using Terms = TermsOfRow<kTerm, From, Result>;
  using P = Partials<Fn, Result>;
  Result* const to = static_cast<Result*>(out);
  std::int64_t row = 0;
  for (; row + 2 <= rows; row += 2) {
    P first(kFirst), second(kFirst);
    P::AddBoth(first, second, n, Terms(a, b, row, n), Terms(a, b, row + 1, n));
    to[row] = first.Finish(n);
    to[row + 1] = second.Finish(n);
  }
  if (row == rows) return;
  P last(kFirst);
  last.AddAll(n, Terms(a, b, row, n));
  to[row] = last.Finish(n);
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
void MaxRowsVectors(void* out, const void* a, const void* b, std::int64_t rows, std::int64_t n) {
  if (n < 8 * kRowPartials) return ReduceRows<MaxVectors, Term::kElement, T, T>(out, a, b, rows, n);
  using P = Partials<GreaterOrSecondVectors, T>;
  const typename P::D d;
  const T* x = static_cast<const T*>(a);
  for (std::int64_t row = 0; row < rows; ++row, x += n) {
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

template <Term kTerm, typename From, typename Sum>
constexpr RowsKernel SumRows = ReduceRows<AddVectors, kTerm, From, Sum>;
template <typename T>
constexpr RowsKernel SumElements = SumRows<Term::kElement, T, T>;

template <Term kTerm>
RowsKernel SumOf(DType dtype, DType sum) {
  if (dtype == DType::kDouble) return SumRows<kTerm, double, double>;
  return sum == DType::kFloat ? SumRows<kTerm, float, float> : SumRows<kTerm, float, double>;
}

RowsKernel SumInDoubleKernelForTarget() { return SumRows<Term::kElement, float, double>; }
RowsKernel SumOfProductsKernelForTarget(DType dtype, DType sum) { return SumOf<Term::kProduct>(dtype, sum); }
RowsKernel SumOfSquaresKernelForTarget(DType dtype, DType sum) { return SumOf<Term::kSquare>(dtype, sum); }

template <auto kFn, typename T>
void ReduceNumbers(void* partial, const void* a, std::int64_t n) {
  const T* x = static_cast<const T*>(a);
  T* sums = static_cast<T*>(partial);
  for (std::int64_t i = 0; i < n; ++i) sums[i % kRowPartials] = kFn(sums[i % kRowPartials], x[i]);
}

// Integers are the same in any order.
template <auto kFn, typename T>
void ReduceRowsNumbers(void* out, const void* a, const void* /*b*/, std::int64_t rows, std::int64_t n) {
  const T* x = static_cast<const T*>(a);
  for (std::int64_t row = 0; row < rows; ++row, x += n) {
    T result = kFn == scalar::Add<T> ? T{0} : std::numeric_limits<T>::lowest();
    for (std::int64_t i = 0; i < n; ++i) result = kFn(result, x[i]);
    static_cast<T*>(out)[row] = result;
  }
}

RowsKernel RowsKernelForTarget(ExprOp op, DType dtype) {
  const bool is_sum = op == ExprOp::kRowSum;
  switch (dtype) {
    case DType::kFloat: return is_sum ? SumElements<float> : MaxRowsVectors<float>;
    case DType::kDouble: return is_sum ? SumElements<double> : MaxRowsVectors<double>;
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

RowsKernel RowsKernelOf(ExprOp op, DType dtype) { return HWY_DYNAMIC_DISPATCH(RowsKernelForTarget)(op, dtype); }
RowsKernel SumInDoubleKernel() { return HWY_DYNAMIC_DISPATCH(SumInDoubleKernelForTarget)(); }
RowsKernel SumOfProductsKernelOf(DType dtype, DType sum) {
  return HWY_DYNAMIC_DISPATCH(SumOfProductsKernelForTarget)(dtype, sum);
}
RowsKernel SumOfSquaresKernelOf(DType dtype, DType sum) {
  return HWY_DYNAMIC_DISPATCH(SumOfSquaresKernelForTarget)(dtype, sum);
}
RowKernel RowKernelOf(ExprOp op, DType dtype) { return HWY_DYNAMIC_DISPATCH(RowKernelForTarget)(op, dtype); }

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

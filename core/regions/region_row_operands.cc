// Kernels of elements some of whose operands are one value a row.
#include "stepnet/core/regions/region_kernels.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "stepnet/core/regions/region_row_operands.cc"
#include <hwy/foreach_target.h>  // IWYU pragma: keep
#include <hwy/highway.h>

#include <type_traits>

#include "stepnet/core/arithmetic_vectors-inl.h"
#include "stepnet/core/regions/region_vectors-inl.h"
#include "stepnet/core/vector_math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace stepnet {
namespace HWY_NAMESPACE {

// The operands of one row. A value of the row is a vector of equal elements, which is read again for each vector.
template <typename T, int kOperands>
class RowOperands {
 public:
  RowOperands(const void* const* arrays, unsigned of_rows) : of_rows_(of_rows) {
    for (int k = 0; k < kOperands; ++k) arrays_[k] = static_cast<const T*>(arrays[k]);
  }

  HWY_INLINE void GoTo(std::int64_t row, std::int64_t n) {
    const hn::ScalableTag<T> d;
    for (int k = 0; k < kOperands; ++k) {
      if ((of_rows_ >> k & 1) == 0) {
        from_[k] = arrays_[k] + row * n;
        mask_[k] = -1;
        continue;
      }
      hn::Store(hn::Set(d, arrays_[k][row]), d, equal_[k]);
      from_[k] = equal_[k];
      mask_[k] = 0;
    }
  }

  template <class Access>
  HWY_INLINE auto Load(Access access, int k, std::int64_t i) const {
    const hn::ScalableTag<T> d;
    return access.Load(d, from_[k] + (i & mask_[k]));
  }

 private:
  const unsigned of_rows_;
  const T* arrays_[kOperands];
  const T* from_[kOperands];
  std::int64_t mask_[kOperands];
  HWY_ALIGN T equal_[kOperands][hn::MaxLanes(hn::ScalableTag<T>())];
};

// An operand of which is known whether it is of rows.
template <typename T>
struct ValueOfRow {
  hn::Vec<hn::ScalableTag<T>> value;
  HWY_INLINE ValueOfRow(const void* array, std::int64_t row, std::int64_t /*n*/)
      : value(hn::Set(hn::ScalableTag<T>(), static_cast<const T*>(array)[row])) {}
  template <class Access>
  HWY_INLINE auto Load(Access, std::int64_t /*i*/) const {
    return value;
  }
};
template <typename T>
struct ElementsOfRow {
  const T* from;
  HWY_INLINE ElementsOfRow(const void* array, std::int64_t row, std::int64_t n)
      : from(static_cast<const T*>(array) + row * n) {}
  template <class Access>
  HWY_INLINE auto Load(Access access, std::int64_t i) const {
    return access.Load(hn::ScalableTag<T>(), from + i);
  }
};

// The usual kinds of operands: kOfRows is what is dynamic elsewhere. The first has elements.
template <class Fn, typename T, int kOperands, unsigned kOfRows>
HWY_INLINE void OfThese(void* out, const void* const* arrays, std::int64_t rows, std::int64_t n) {
  using B = std::conditional_t<(kOfRows & 2) != 0, ValueOfRow<T>, ElementsOfRow<T>>;
  using C = std::conditional_t<(kOfRows & 4) != 0, ValueOfRow<T>, ElementsOfRow<T>>;
  const hn::ScalableTag<T> d;
  const Fn fn;
  T* to = static_cast<T*>(out);
  for (std::int64_t row = 0; row < rows; ++row, to += n) {
    const ElementsOfRow<T> a(arrays[0], row, n);
    const B b(arrays[1], row, n);
    const C c(arrays[kOperands == 3 ? 2 : 0], row, n);
    ForVectors<T, Fn::kIsShort>(
        n, [&](auto access, std::int64_t i) HWY_ATTR __attribute__((always_inline)) {
          if constexpr (kOperands == 2) {
            access.Store(d, fn(d, a.Load(access, i), b.Load(access, i)), to + i);
          } else {
            access.Store(d, fn(d, a.Load(access, i), b.Load(access, i), c.Load(access, i)), to + i);
          }
        });
  }
}

template <class Fn, typename T, int kOperands>
void OfRows(void* out, const void* const* arrays, unsigned of_rows, std::int64_t rows, std::int64_t n) {
  if (of_rows == 2) return OfThese<Fn, T, kOperands, 2>(out, arrays, rows, n);
  if (kOperands == 3 && of_rows == 6) return OfThese<Fn, T, kOperands, 6>(out, arrays, rows, n);
  const hn::ScalableTag<T> d;
  const Fn fn;
  T* to = static_cast<T*>(out);
  RowOperands<T, kOperands> operands(arrays, of_rows);
  for (std::int64_t row = 0; row < rows; ++row, to += n) {
    operands.GoTo(row, n);
    ForVectors<T, Fn::kIsShort>(
        n, [&](auto access, std::int64_t i) HWY_ATTR __attribute__((always_inline)) {
          const auto a = operands.Load(access, 0, i);
          const auto b = operands.Load(access, 1, i);
          if constexpr (kOperands == 2) {
            access.Store(d, fn(d, a, b), to + i);
          } else {
            access.Store(d, fn(d, a, b, operands.Load(access, 2, i)), to + i);
          }
        });
  }
}

// after(f(before(a, b)), c).
template <ChainStep kBefore, class F, ChainStep kAfter>
struct ChainOfRows {
  static constexpr bool kIsShort = std::is_same_v<F, NoFn>;
  template <class D, class V>
  HWY_INLINE V operator()(D d, V a, V b) const {
    return F()(d, StepOf<kBefore>(a, b));
  }
  template <class D, class V>
  HWY_INLINE V operator()(D d, V a, V b, V c) const {
    return StepOf<kAfter>(F()(d, StepOf<kBefore>(a, b)), c);
  }
};
struct MulAddOfRows {
  static constexpr bool kIsShort = true;
  template <class D, class V>
  HWY_INLINE V operator()(D, V a, V b, V c) const {
    return hn::MulAdd(a, b, c);
  }
};

template <typename T, ChainStep kBefore>
RowOperandKernel ShortChain(ChainStep after) {
  switch (after) {
    case ChainStep::kNone: return OfRows<ChainOfRows<kBefore, NoFn, ChainStep::kNone>, T, 2>;
    case ChainStep::kAdd: return OfRows<ChainOfRows<kBefore, NoFn, ChainStep::kAdd>, T, 3>;
    case ChainStep::kSubtract: return OfRows<ChainOfRows<kBefore, NoFn, ChainStep::kSubtract>, T, 3>;
    case ChainStep::kSubtractFrom: return OfRows<ChainOfRows<kBefore, NoFn, ChainStep::kSubtractFrom>, T, 3>;
    case ChainStep::kMultiply: return OfRows<ChainOfRows<kBefore, NoFn, ChainStep::kMultiply>, T, 3>;
    default: return nullptr;
  }
}

template <typename T>
RowOperandKernel ChainKernel(const RegionChain& chain) {
  if (chain.last != ChainStep::kNone) return nullptr;
  if (chain.f == ExprOp::kExp && chain.before == ChainStep::kSubtract && chain.after == ChainStep::kNone) {
    return OfRows<ChainOfRows<ChainStep::kSubtract, ExpFn, ChainStep::kNone>, T, 2>;
  }
  if (chain.f != ExprOp::kConstant) return nullptr;
  switch (chain.before) {
    case ChainStep::kAdd: return ShortChain<T, ChainStep::kAdd>(chain.after);
    case ChainStep::kSubtract: return ShortChain<T, ChainStep::kSubtract>(chain.after);
    case ChainStep::kMultiply: return ShortChain<T, ChainStep::kMultiply>(chain.after);
    case ChainStep::kDivide:
      return chain.after == ChainStep::kNone ? OfRows<ChainOfRows<ChainStep::kDivide, NoFn, ChainStep::kNone>, T, 2>
                                             : nullptr;
    default: return nullptr;
  }
}

RowOperandKernel RowOperandChainForTarget(const RegionChain& chain, DType dtype) {
  return dtype == DType::kFloat ? ChainKernel<float>(chain) : ChainKernel<double>(chain);
}

RowOperandKernel RowOperandMulAddForTarget([[maybe_unused]] DType dtype) {
#if HWY_NATIVE_FMA
  return dtype == DType::kFloat ? OfRows<MulAddOfRows, float, 3> : OfRows<MulAddOfRows, double, 3>;
#else  // hn::MulAdd would round twice
  return nullptr;
#endif
}

}  // namespace HWY_NAMESPACE
}  // namespace stepnet
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace stepnet {

HWY_EXPORT(RowOperandChainForTarget);
HWY_EXPORT(RowOperandMulAddForTarget);

RowOperandKernel RowOperandChainOf(const RegionChain& chain, DType dtype) {
  return HWY_DYNAMIC_DISPATCH(RowOperandChainForTarget)(chain, dtype);
}
RowOperandKernel RowOperandMulAddOf(DType dtype) { return HWY_DYNAMIC_DISPATCH(RowOperandMulAddForTarget)(dtype); }

}  // namespace stepnet
#endif  // HWY_ONCE

// Kernels of elements some of whose operands are one value a row.
#include "stepnet/core/region_kernels.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "stepnet/core/region_row_operands.cc"
#include <hwy/foreach_target.h>  // IWYU pragma: keep
#include <hwy/highway.h>

#include "stepnet/core/arithmetic_vectors-inl.h"
#include "stepnet/core/region_vectors-inl.h"
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

template <class Fn, typename T, int kOperands>
void OfRows(void* out, const void* const* arrays, unsigned of_rows, std::int64_t rows, std::int64_t n) {
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

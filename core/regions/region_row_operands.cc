// Kernels of elements some of whose operands are one value a row, or one row for all.
#include "stepnet/core/regions/region_kernels.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "stepnet/core/regions/region_row_operands.cc"
#include <hwy/foreach_target.h>  // IWYU pragma: keep
#include <hwy/highway.h>

#include <tuple>
#include <type_traits>
#include <utility>

#include "stepnet/core/arithmetic_vectors-inl.h"
#include "stepnet/core/regions/region_vectors-inl.h"
#include "stepnet/core/vector_math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace stepnet {
namespace HWY_NAMESPACE {

// AsksAhead for all rows; also where no row of the result is in the first cache, however few there are.
template <typename T>
HWY_INLINE bool RowsAskAhead(int num_operands, const RepeatedOperands& kinds, std::int64_t rows, std::int64_t n) {
  if (kinds.is_far) return gains_by_asking;
  std::int64_t arrays = rows;  // of n elements
  for (int k = 0; k < num_operands; ++k) {
    if ((kinds.of_rows >> k & 1) == 0) arrays += (kinds.of_columns >> k & 1) != 0 ? 1 : rows;
  }
  return AsksAhead<T>(arrays * n);
}

// The operands of one row. A value of the row is a vector of equal elements, which is read again for each vector.
template <typename T, int kOperands>
class OperandsOfRow {
 public:
  OperandsOfRow(const void* const* arrays, const RepeatedOperands& kinds, std::int64_t n) : of_rows_(kinds.of_rows) {
    for (int k = 0; k < kOperands; ++k) {
      arrays_[k] = static_cast<const T*>(arrays[k]);
      strides_[k] = kinds.RowStrideOf(k, n);
    }
  }

  HWY_INLINE void GoTo(std::int64_t row) {
    const hn::ScalableTag<T> d;
    for (int k = 0; k < kOperands; ++k) {
      if ((of_rows_ >> k & 1) == 0) {
        from_[k] = arrays_[k] + row * strides_[k];
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
  std::int64_t strides_[kOperands];
  const T* from_[kOperands];
  std::int64_t mask_[kOperands];
  HWY_ALIGN T equal_[kOperands][hn::MaxLanes(hn::ScalableTag<T>())];
};

// An operand of which is known whether it is of rows. Each remembers where it is: what kernels store might be `arrays`,
// for all that compilers know, so that those would be read again for each row.
template <typename T>
struct ValueOfRow {
  const T* next;
  hn::Vec<hn::ScalableTag<T>> value;
  HWY_INLINE ValueOfRow(const void* array, std::int64_t /*stride*/)
      : next(static_cast<const T*>(array)), value(hn::Zero(hn::ScalableTag<T>())) {}
  HWY_INLINE void BeginRow() { value = hn::Set(hn::ScalableTag<T>(), *next++); }
  template <class Access>
  HWY_INLINE auto Load(Access, std::int64_t /*i*/) const {
    return value;
  }
};
template <typename T>
struct ElementsOfRow {
  const T* next;
  const std::int64_t stride;
  const T* from = nullptr;
  HWY_INLINE ElementsOfRow(const void* array, std::int64_t row_stride)
      : next(static_cast<const T*>(array)), stride(row_stride) {}
  HWY_INLINE void BeginRow() {
    from = next;
    next += stride;
  }
  template <class Access>
  HWY_INLINE auto Load(Access access, std::int64_t i) const {
    return access.Load(hn::ScalableTag<T>(), from + i);
  }
};

// The usual kinds of operands: kOfRows is what is dynamic elsewhere.
template <class Fn, typename T, unsigned kOfRows, size_t... kOperand>
HWY_INLINE void OfThese(void* out, const void* const* arrays, const RepeatedOperands& kinds, std::int64_t rows,
                        std::int64_t n, std::index_sequence<kOperand...>) {
  const hn::ScalableTag<T> d;
  const bool asks_ahead = RowsAskAhead<T>(sizeof...(kOperand), kinds, rows, n);
  T* to = static_cast<T*>(out);
  std::tuple<std::conditional_t<(kOfRows >> kOperand & 1) != 0, ValueOfRow<T>, ElementsOfRow<T>>...> operands(
      {arrays[kOperand], kinds.RowStrideOf(kOperand, n)}...);
  const auto compute = [&](auto access, std::int64_t i) HWY_ATTR __attribute__((always_inline)) {
    access.Store(d, Fn()(d, std::get<kOperand>(operands).Load(access, i)...), to + i);
  };
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  if (n % lanes == 0 && n < 4 * lanes && n > 0) {  // with as little as can be between two rows
    for (std::int64_t row = 0; row < rows; ++row, to += n) {
      (std::get<kOperand>(operands).BeginRow(), ...);
      std::int64_t i = 0;
      do {
        compute(WholeVectors(), i);
      } while ((i += lanes) < n);
    }
    return;
  }
  for (std::int64_t row = 0; row < rows; ++row, to += n) {
    (std::get<kOperand>(operands).BeginRow(), ...);
    ForVectors<T, Fn::kIsShort>(n, asks_ahead, compute);
  }
}

template <class Fn, typename T, size_t... kOperand>
HWY_INLINE void OfAny(void* out, const void* const* arrays, const RepeatedOperands& kinds, std::int64_t rows,
                      std::int64_t n, std::index_sequence<kOperand...>) {
  const hn::ScalableTag<T> d;
  T* to = static_cast<T*>(out);
  OperandsOfRow<T, sizeof...(kOperand)> operands(arrays, kinds, n);
  const bool asks_ahead = RowsAskAhead<T>(sizeof...(kOperand), kinds, rows, n);
  for (std::int64_t row = 0; row < rows; ++row, to += n) {
    operands.GoTo(row);
    ForVectors<T, Fn::kIsShort>(
        n, asks_ahead, [&](auto access, std::int64_t i) HWY_ATTR __attribute__((always_inline)) {
          access.Store(d, Fn()(d, operands.Load(access, kOperand, i)...), to + i);
        });
  }
}

// kUsual: kinds of operands, by those of rows, that have a loop of their own.
template <class Fn, typename T, int kOperands, unsigned... kUsual>
void OfRows(void* out, const void* const* arrays, const RepeatedOperands& kinds, std::int64_t rows, std::int64_t n) {
  using Operands = std::make_index_sequence<kOperands>;
  const bool is_usual =
      ((kinds.of_rows == kUsual && (OfThese<Fn, T, kUsual>(out, arrays, kinds, rows, n, Operands()), true)) || ...);
  if (!is_usual) OfAny<Fn, T>(out, arrays, kinds, rows, n, Operands());
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
  HWY_INLINE V operator()(D d, V a, V b, V c) const {
    return MulAddOf(d, a, b, c);
  }
};
// MulAdd(exp(a), c, e); b is a.
struct ExpMulAddOfRows {
  static constexpr bool kIsShort = false;
  template <class D, class V>
  HWY_INLINE V operator()(D d, V a, V /*b*/, V c, V e) const {
    return MulAddOf(d, ExpFn()(d, a), c, e);
  }
};
struct ScaledRestOfRows {
  static constexpr bool kIsShort = true;
  template <class D, class V>
  HWY_INLINE V operator()(D d, V a, V b, V c, V mean, V scale) const {
    return hn::Mul(MulAddOf(d, a, b, hn::Sub(c, mean)), scale);
  }
};

template <class Fn, typename T>
constexpr RowOperandKernel OfTwo = OfRows<Fn, T, 2, 0, 2>;
template <class Fn, typename T>
constexpr RowOperandKernel OfThree = OfRows<Fn, T, 3, 0, 2, 6>;

template <typename T, ChainStep kBefore>
RowOperandKernel ShortChain(ChainStep after) {
  switch (after) {
    case ChainStep::kNone: return OfTwo<ChainOfRows<kBefore, NoFn, ChainStep::kNone>, T>;
    case ChainStep::kAdd: return OfThree<ChainOfRows<kBefore, NoFn, ChainStep::kAdd>, T>;
    case ChainStep::kSubtract: return OfThree<ChainOfRows<kBefore, NoFn, ChainStep::kSubtract>, T>;
    case ChainStep::kSubtractFrom: return OfThree<ChainOfRows<kBefore, NoFn, ChainStep::kSubtractFrom>, T>;
    case ChainStep::kMultiply: return OfThree<ChainOfRows<kBefore, NoFn, ChainStep::kMultiply>, T>;
    default: return nullptr;
  }
}

template <typename T>
RowOperandKernel ChainOfExp(const RegionChain& chain) {
  if (chain.before == ChainStep::kSubtract && chain.after == ChainStep::kNone) {
    return OfTwo<ChainOfRows<ChainStep::kSubtract, ExpFn, ChainStep::kNone>, T>;
  }
  const bool is_mul_add = chain.before == ChainStep::kNone && chain.after == ChainStep::kMulAdd;
  return is_mul_add ? &OfRows<ExpMulAddOfRows, T, 4, 4> : nullptr;
}

template <typename T>
RowOperandKernel ChainKernel(const RegionChain& chain) {
  if (chain.last != ChainStep::kNone) return nullptr;
  if (chain.f == ExprOp::kExp) return ChainOfExp<T>(chain);
  if (chain.f != ExprOp::kConstant) return nullptr;
  switch (chain.before) {
    case ChainStep::kAdd: return ShortChain<T, ChainStep::kAdd>(chain.after);
    case ChainStep::kSubtract: return ShortChain<T, ChainStep::kSubtract>(chain.after);
    case ChainStep::kMultiply: return ShortChain<T, ChainStep::kMultiply>(chain.after);
    case ChainStep::kDivide:
      return chain.after == ChainStep::kNone ? OfTwo<ChainOfRows<ChainStep::kDivide, NoFn, ChainStep::kNone>, T>
                                             : nullptr;
    default: return nullptr;
  }
}

RowOperandKernel RowOperandChainForTarget(const RegionChain& chain, DType dtype) {
  return dtype == DType::kFloat ? ChainKernel<float>(chain) : ChainKernel<double>(chain);
}

RowOperandKernel RowOperandMulAddForTarget(DType dtype) {
  return dtype == DType::kFloat ? OfThree<MulAddOfRows, float> : OfThree<MulAddOfRows, double>;
}

RowOperandKernel ScaledRestForTarget(DType dtype) {
  constexpr unsigned kAllButElements = 0b11010;
  return dtype == DType::kFloat ? &OfRows<ScaledRestOfRows, float, 5, kAllButElements>
                                : &OfRows<ScaledRestOfRows, double, 5, kAllButElements>;
}

}  // namespace HWY_NAMESPACE
}  // namespace stepnet
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace stepnet {

HWY_EXPORT(RowOperandChainForTarget);
HWY_EXPORT(RowOperandMulAddForTarget);
HWY_EXPORT(ScaledRestForTarget);

RowOperandKernel RowOperandChainOf(const RegionChain& chain, DType dtype) {
  return HWY_DYNAMIC_DISPATCH(RowOperandChainForTarget)(chain, dtype);
}
RowOperandKernel RowOperandMulAddOf(DType dtype) { return HWY_DYNAMIC_DISPATCH(RowOperandMulAddForTarget)(dtype); }
RowOperandKernel ScaledRestKernelOf(DType dtype) { return HWY_DYNAMIC_DISPATCH(ScaledRestForTarget)(dtype); }

}  // namespace stepnet
#endif  // HWY_ONCE

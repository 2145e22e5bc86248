// Kernels of several primitives, on the widest vectors that the machine has.
#include "stepnet/core/regions/region_kernels.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "stepnet/core/regions/region_chains.cc"
#include <hwy/foreach_target.h>  // IWYU pragma: keep
#include <hwy/highway.h>

#include <type_traits>

#include "stepnet/core/arithmetic_vectors-inl.h"
#include "stepnet/core/expressions/expr_scalar.h"
#include "stepnet/core/regions/region_vectors-inl.h"
#include "stepnet/core/vector_math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace stepnet {
namespace HWY_NAMESPACE {

template <class F>
constexpr bool kIsShort = std::is_same_v<F, NoFn>;

template <ChainStep kBefore, class F, ChainStep kAfter, ChainStep kLast, typename T>
void Chain(void* out, const void* a, const void* b, const void* c, const void* last, std::int64_t n) {
  const hn::ScalableTag<T> d;
  const T* x = static_cast<const T*>(a);
  const T* y = static_cast<const T*>(b);
  const T* z = static_cast<const T*>(c);
  const T* u = static_cast<const T*>(last);
  T* to = static_cast<T*>(out);
  const F f;
  constexpr int kArrays = 2 + (kBefore != ChainStep::kNone) + (kAfter != ChainStep::kNone) +
                          (kLast != ChainStep::kNone || kAfter == ChainStep::kMulAdd);
  ForVectors<T, kIsShort<F>>(
      n, AsksAhead<T>(kArrays * n), [&](auto access, std::int64_t i) HWY_ATTR __attribute__((always_inline)) {
        auto value = access.Load(d, x + i);
        if constexpr (kBefore != ChainStep::kNone) value = StepOf<kBefore>(value, access.Load(d, y + i));
        value = f(d, value);
        if constexpr (kAfter == ChainStep::kMulAdd) {
          value = MulAddOf(d, value, access.Load(d, z + i), access.Load(d, u + i));
        } else if constexpr (kAfter != ChainStep::kNone) {
          value = StepOf<kAfter>(value, access.Load(d, z + i));
        }
        if constexpr (kLast != ChainStep::kNone) value = StepOf<kLast>(value, access.Load(d, u + i));
        access.Store(d, value, to + i);
      });
}

template <ChainStep kBefore, ChainStep kAfter, typename T>
RegionKernel ChainOfLast(ChainStep last) {
  switch (last) {
    case ChainStep::kNone: return Chain<kBefore, NoFn, kAfter, ChainStep::kNone, T>;
    case ChainStep::kAdd: return Chain<kBefore, NoFn, kAfter, ChainStep::kAdd, T>;
    case ChainStep::kSubtract: return Chain<kBefore, NoFn, kAfter, ChainStep::kSubtract, T>;
    case ChainStep::kSubtractFrom: return Chain<kBefore, NoFn, kAfter, ChainStep::kSubtractFrom, T>;
    case ChainStep::kMultiply: return Chain<kBefore, NoFn, kAfter, ChainStep::kMultiply, T>;
    default: return nullptr;
  }
}

template <ChainStep kBefore, typename T>
RegionKernel ChainOfSteps(const RegionChain& chain) {
  switch (chain.after) {
    case ChainStep::kAdd: return ChainOfLast<kBefore, ChainStep::kAdd, T>(chain.last);
    case ChainStep::kSubtract: return ChainOfLast<kBefore, ChainStep::kSubtract, T>(chain.last);
    case ChainStep::kSubtractFrom: return ChainOfLast<kBefore, ChainStep::kSubtractFrom, T>(chain.last);
    case ChainStep::kMultiply: return ChainOfLast<kBefore, ChainStep::kMultiply, T>(chain.last);
    case ChainStep::kDivide: return ChainOfLast<kBefore, ChainStep::kDivide, T>(chain.last);
    default: return nullptr;
  }
}

template <ChainStep kBefore, class F, typename T>
RegionKernel ChainToFunction(ChainStep after) {
  constexpr ChainStep kNone = ChainStep::kNone;
  if (after == ChainStep::kMultiply) return Chain<kBefore, F, ChainStep::kMultiply, kNone, T>;
  if constexpr (kBefore == kNone && std::is_same_v<F, ExpFn>) {  // gates gain nothing
    if (after == ChainStep::kMulAdd) return Chain<kNone, F, ChainStep::kMulAdd, kNone, T>;
  }
  if (after == kNone && kBefore != kNone) return Chain<kBefore, F, kNone, kNone, T>;
  return nullptr;
}

template <class F, typename T>
RegionKernel ChainOfFunction(const RegionChain& chain) {
  if (chain.last != ChainStep::kNone) return nullptr;
  switch (chain.before) {
    case ChainStep::kNone: return ChainToFunction<ChainStep::kNone, F, T>(chain.after);
    case ChainStep::kAdd: return ChainToFunction<ChainStep::kAdd, F, T>(chain.after);
    case ChainStep::kSubtract: return ChainToFunction<ChainStep::kSubtract, F, T>(chain.after);
    default: return nullptr;
  }
}

// f(a) + c, as divisors have it.
template <class F, typename T>
RegionKernel ChainOfDivisor(const RegionChain& chain) {
  constexpr ChainStep kNone = ChainStep::kNone;
  const bool is_known = chain.before == kNone && chain.after == ChainStep::kAdd && chain.last == kNone;
  return is_known ? &Chain<kNone, F, ChainStep::kAdd, kNone, T> : nullptr;
}

template <typename T>
RegionKernel ChainOf(const RegionChain& chain) {
  switch (chain.f) {
    case ExprOp::kExp: return ChainOfFunction<ExpFn, T>(chain);
    case ExprOp::kTanh: return ChainOfFunction<TanhFn, T>(chain);
    case ExprOp::kSigmoid: return ChainOfFunction<SigmoidFn, T>(chain);
    case ExprOp::kSqrt: return ChainOfDivisor<SqrtVectors, T>(chain);
    case ExprOp::kAbs: return ChainOfDivisor<AbsVectors, T>(chain);
    case ExprOp::kConstant: break;
    default: return nullptr;
  }
  switch (chain.before) {
    case ChainStep::kAdd: return ChainOfSteps<ChainStep::kAdd, T>(chain);
    case ChainStep::kSubtract: return ChainOfSteps<ChainStep::kSubtract, T>(chain);
    case ChainStep::kMultiply: return ChainOfSteps<ChainStep::kMultiply, T>(chain);
    default: return nullptr;
  }
}

RegionKernel ChainKernelForTarget(const RegionChain& chain, DType dtype) {
  if (dtype == DType::kFloat) return ChainOf<float>(chain);
  if (dtype == DType::kDouble) return ChainOf<double>(chain);
  return nullptr;
}

template <ChainStep kLeft, ChainStep kOp, ChainStep kRight, typename T>
void Pair(void* out, const void* a, const void* b, const void* c, const void* last, std::int64_t n) {
  const hn::ScalableTag<T> d;
  const T* x = static_cast<const T*>(a);
  const T* y = static_cast<const T*>(b);
  const T* z = static_cast<const T*>(c);
  const T* u = static_cast<const T*>(last);
  T* to = static_cast<T*>(out);
  ForVectors<T, true>(
      n, AsksAhead<T>(5 * n), [&](auto access, std::int64_t i) HWY_ATTR __attribute__((always_inline)) {
        const auto left = StepOf<kLeft>(access.Load(d, x + i), access.Load(d, y + i));
        const auto right = StepOf<kRight>(access.Load(d, z + i), access.Load(d, u + i));
        access.Store(d, StepOf<kOp>(left, right), to + i);
      });
}

// Calls choose(step) with a step that pairs consist of, as a type.
template <class Choose>
RegionKernel ForPairStep(ChainStep step, const Choose& choose) {
  switch (step) {
    case ChainStep::kAdd: return choose(std::integral_constant<ChainStep, ChainStep::kAdd>());
    case ChainStep::kSubtract: return choose(std::integral_constant<ChainStep, ChainStep::kSubtract>());
    case ChainStep::kMultiply: return choose(std::integral_constant<ChainStep, ChainStep::kMultiply>());
    default: return nullptr;
  }
}

template <typename T>
RegionKernel PairOf(const RegionPair& pair) {
  return ForPairStep(pair.left, [&](auto left) {
    return ForPairStep(pair.op, [&](auto op) {
      return ForPairStep(pair.right, [&](auto right) -> RegionKernel {
        return Pair<decltype(left)::value, decltype(op)::value, decltype(right)::value, T>;
      });
    });
  });
}

RegionKernel PairKernelForTarget(const RegionPair& pair, DType dtype) {
  if (dtype == DType::kFloat) return PairOf<float>(pair);
  if (dtype == DType::kDouble) return PairOf<double>(pair);
  return nullptr;
}

template <typename T>
void NegMulAdd(void* out, const void* a, const void* b, const void* c, const void* /*last*/, std::int64_t n) {
  const hn::ScalableTag<T> d;
  const T* x = static_cast<const T*>(a);
  const T* y = static_cast<const T*>(b);
  const T* z = static_cast<const T*>(c);
  T* to = static_cast<T*>(out);
  ForVectors<T, true>(
      n, AsksAhead<T>(4 * n), [&](auto access, std::int64_t i) HWY_ATTR __attribute__((always_inline)) {
        access.Store(d, NegMulAddOf(d, access.Load(d, x + i), access.Load(d, y + i), access.Load(d, z + i)), to + i);
      });
}

RegionKernel NegMulAddKernelForTarget(DType dtype) {
  return dtype == DType::kFloat ? NegMulAdd<float> : NegMulAdd<double>;
}

template <ExprOp kOp, class V>
HWY_INLINE auto Compare(V a, V b) {
  if constexpr (kOp == ExprOp::kEqual) return hn::Eq(a, b);
  if constexpr (kOp == ExprOp::kNotEqual) return hn::Not(hn::Eq(a, b));  // Ne is false of NaN on some targets
  if constexpr (kOp == ExprOp::kLess) return hn::Lt(a, b);
  if constexpr (kOp == ExprOp::kLessEqual) {
    using T = hn::TFromV<V>;
    if constexpr (hwy::IsFloat<T>()) return hn::Le(a, b);
    if constexpr (!hwy::IsFloat<T>()) return hn::Not(hn::Lt(b, a));  // vectors of integers have no other comparison
  }
}

template <ExprOp kOp, typename T>
void Select(void* out, const void* a, const void* b, const void* c, const void* last, std::int64_t n) {
  const hn::ScalableTag<T> d;
  const T* x = static_cast<const T*>(a);
  const T* y = static_cast<const T*>(b);
  const T* then = static_cast<const T*>(c);
  const T* otherwise = static_cast<const T*>(last);
  T* to = static_cast<T*>(out);
  ForVectors<T, true>(
      n, AsksAhead<T>(5 * n), [&](auto access, std::int64_t i) HWY_ATTR __attribute__((always_inline)) {
        const auto condition = Compare<kOp>(access.Load(d, x + i), access.Load(d, y + i));
        access.Store(d, hn::IfThenElse(condition, access.Load(d, then + i), access.Load(d, otherwise + i)), to + i);
      });
}

template <typename T>
RegionKernel SelectOf(ExprOp comparison) {
  switch (comparison) {
    case ExprOp::kEqual: return Select<ExprOp::kEqual, T>;
    case ExprOp::kNotEqual: return Select<ExprOp::kNotEqual, T>;
    case ExprOp::kLess: return Select<ExprOp::kLess, T>;
    default: return Select<ExprOp::kLessEqual, T>;
  }
}

RegionKernel SelectKernelForTarget(ExprOp comparison, DType dtype) {
  switch (dtype) {
    case DType::kFloat: return SelectOf<float>(comparison);
    case DType::kDouble: return SelectOf<double>(comparison);
    case DType::kInt32: return SelectOf<std::int32_t>(comparison);
    default: return SelectOf<std::int64_t>(comparison);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace stepnet
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace stepnet {

HWY_EXPORT(ChainKernelForTarget);
HWY_EXPORT(PairKernelForTarget);
HWY_EXPORT(NegMulAddKernelForTarget);
HWY_EXPORT(SelectKernelForTarget);

RegionKernel ChainKernelOf(const RegionChain& chain, DType dtype) {
  return HWY_DYNAMIC_DISPATCH(ChainKernelForTarget)(chain, dtype);
}
RegionKernel PairKernelOf(const RegionPair& pair, DType dtype) {
  return HWY_DYNAMIC_DISPATCH(PairKernelForTarget)(pair, dtype);
}
RegionKernel NegMulAddKernelOf(DType dtype) { return HWY_DYNAMIC_DISPATCH(NegMulAddKernelForTarget)(dtype); }
RegionKernel SelectKernelOf(ExprOp comparison, DType dtype) {
  return HWY_DYNAMIC_DISPATCH(SelectKernelForTarget)(comparison, dtype);
}

}  // namespace stepnet
#endif  // HWY_ONCE

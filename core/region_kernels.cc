// Floating-point arithmetic is written with Highway and compiled once a target; integers, bools and what has no vectors
// of its own are plain loops over the scalar definitions, which compilers turn into vectors of the same target.
#include "stepnet/core/region_kernels.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "stepnet/core/region_kernels.cc"
#include <hwy/foreach_target.h>  // IWYU pragma: keep
#include <hwy/highway.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>

#include "stepnet/core/any_order.h"
#include "stepnet/core/expr_scalar.h"
#include "stepnet/core/partial_vectors-inl.h"
#include "stepnet/core/random.h"
#include "stepnet/core/vector_math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace stepnet {
namespace HWY_NAMESPACE {

struct AddVectors {
  template <class D, class V>
  HWY_INLINE V operator()(D, V a, V b) const {
    return hn::Add(a, b);
  }
};
struct SubtractVectors {
  template <class D, class V>
  HWY_INLINE V operator()(D, V a, V b) const {
    return hn::Sub(a, b);
  }
};
struct MultiplyVectors {
  template <class D, class V>
  HWY_INLINE V operator()(D, V a, V b) const {
    return hn::Mul(a, b);
  }
};
struct DivideVectors {
  template <class D, class V>
  HWY_INLINE V operator()(D, V a, V b) const {
    return hn::Div(a, b);
  }
};
// Comparisons with NaN are false: a NaN in a is kept by the first choice, one in b by the second.
struct MinVectors {
  template <class D, class V>
  HWY_INLINE V operator()(D, V a, V b) const {
    return hn::IfThenElse(hn::Eq(a, a), hn::IfThenElse(hn::Lt(a, b), a, b), a);
  }
};
struct MaxVectors {
  template <class D, class V>
  HWY_INLINE V operator()(D, V a, V b) const {
    return hn::IfThenElse(hn::Eq(a, a), hn::IfThenElse(hn::Gt(a, b), a, b), a);
  }
};
struct MulAddVectors {
  template <class D, class V>
  HWY_INLINE V operator()(D, V a, V b, V c) const {
    return hn::MulAdd(a, b, c);
  }
};
struct NegateVectors {
  template <class D, class V>
  HWY_INLINE V operator()(D, V a) const {
    return hn::Neg(a);
  }
};
struct AbsVectors {
  template <class D, class V>
  HWY_INLINE V operator()(D, V a) const {
    return hn::Abs(a);
  }
};
struct SqrtVectors {
  template <class D, class V>
  HWY_INLINE V operator()(D, V a) const {
    return hn::Sqrt(a);
  }
};

// Kernels of vectors, whose last part goes through the same instructions.
template <class Fn, typename T, int kOperands>
void Vectors(void* out, const void* a, const void* b, const void* c, std::int64_t n) {
  const hn::ScalableTag<T> d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  const T* x = static_cast<const T*>(a);
  const T* y = static_cast<const T*>(b);
  const T* z = static_cast<const T*>(c);
  T* to = static_cast<T*>(out);
  const Fn fn;
  const auto at = [&](auto access, std::int64_t i) HWY_ATTR {
    if constexpr (kOperands == 1) {
      access.Store(d, fn(d, access.Load(d, x + i)), to + i);
    } else if constexpr (kOperands == 2) {
      access.Store(d, fn(d, access.Load(d, x + i), access.Load(d, y + i)), to + i);
    } else {
      access.Store(d, fn(d, access.Load(d, x + i), access.Load(d, y + i), access.Load(d, z + i)), to + i);
    }
  };
  std::int64_t i = 0;
  for (; i + lanes <= n; i += lanes) at(WholeVectors(), i);
  if (i < n) at(PartOfVector{n - i}, i);
}

// Kernels of a function of single numbers.
template <auto kFn, typename T, typename Out, int kOperands>
void Numbers(void* out, const void* a, const void* b, const void* c, std::int64_t n) {
  const T* x = static_cast<const T*>(a);
  const T* y = static_cast<const T*>(b);
  const T* z = static_cast<const T*>(c);
  Out* to = static_cast<Out*>(out);
  STEPNET_ANY_ORDER
  for (std::int64_t i = 0; i < n; ++i) {
    if constexpr (kOperands == 1) {
      to[i] = kFn(x[i]);
    } else if constexpr (kOperands == 2) {
      to[i] = kFn(x[i], y[i]);
    } else {
      to[i] = kFn(x[i], y[i], z[i]);
    }
  }
}

template <typename T>
void Choose(void* out, const void* a, const void* b, const void* c, std::int64_t n) {
  const bool* condition = static_cast<const bool*>(a);
  const T* then = static_cast<const T*>(b);
  const T* otherwise = static_cast<const T*>(c);
  T* to = static_cast<T*>(out);
  STEPNET_ANY_ORDER
  for (std::int64_t i = 0; i < n; ++i) to[i] = condition[i] ? then[i] : otherwise[i];
}

template <typename T>
RegionKernel IntegerKernel(ExprOp op) {
  switch (op) {
    case ExprOp::kAdd: return Numbers<scalar::Add<T>, T, T, 2>;
    case ExprOp::kSubtract: return Numbers<scalar::Subtract<T>, T, T, 2>;
    case ExprOp::kMultiply: return Numbers<scalar::Multiply<T>, T, T, 2>;
    case ExprOp::kDivide: return Numbers<scalar::Divide<T>, T, T, 2>;
    case ExprOp::kMin: return Numbers<scalar::Min<T>, T, T, 2>;
    case ExprOp::kMax: return Numbers<scalar::Max<T>, T, T, 2>;
    case ExprOp::kMulAdd: return Numbers<scalar::MulAdd<T>, T, T, 3>;
    case ExprOp::kNegate: return Numbers<scalar::Negate<T>, T, T, 1>;
    default: return Numbers<scalar::Abs<T>, T, T, 1>;
  }
}

template <typename T>
RegionKernel FloatKernel(ExprOp op) {
  switch (op) {
    case ExprOp::kAdd: return Vectors<AddVectors, T, 2>;
    case ExprOp::kSubtract: return Vectors<SubtractVectors, T, 2>;
    case ExprOp::kMultiply: return Vectors<MultiplyVectors, T, 2>;
    case ExprOp::kDivide: return Vectors<DivideVectors, T, 2>;
    case ExprOp::kMin: return Vectors<MinVectors, T, 2>;
    case ExprOp::kMax: return Vectors<MaxVectors, T, 2>;
    case ExprOp::kPow: return Numbers<scalar::Pow<T>, T, T, 2>;
#if HWY_NATIVE_FMA
    case ExprOp::kMulAdd: return Vectors<MulAddVectors, T, 3>;
#else  // hn::MulAdd would round twice
    case ExprOp::kMulAdd: return Numbers<scalar::MulAdd<T>, T, T, 3>;
#endif
    case ExprOp::kNegate: return Vectors<NegateVectors, T, 1>;
    case ExprOp::kAbs: return Vectors<AbsVectors, T, 1>;
    case ExprOp::kSqrt: return Vectors<SqrtVectors, T, 1>;
    case ExprOp::kExp: return Vectors<ExpFn, T, 1>;
    case ExprOp::kExpm1: return Numbers<scalar::Expm1<T>, T, T, 1>;
    case ExprOp::kLog: return Vectors<LogFn, T, 1>;
    case ExprOp::kLog1p: return Numbers<scalar::Log1p<T>, T, T, 1>;
    case ExprOp::kTanh: return Vectors<TanhFn, T, 1>;
    case ExprOp::kSigmoid: return Vectors<SigmoidFn, T, 1>;
    case ExprOp::kErf: return Numbers<scalar::Erf<T>, T, T, 1>;
    case ExprOp::kSin: return Numbers<scalar::Sin<T>, T, T, 1>;
    case ExprOp::kCos: return Numbers<scalar::Cos<T>, T, T, 1>;
    case ExprOp::kFloor: return Numbers<scalar::Floor<T>, T, T, 1>;
    case ExprOp::kCeil: return Numbers<scalar::Ceil<T>, T, T, 1>;
    default: return Numbers<scalar::Round<T>, T, T, 1>;
  }
}

template <typename T>
RegionKernel NumberKernel(ExprOp op) {
  if (op == ExprOp::kMod) return Numbers<scalar::Mod<T>, T, T, 2>;
  if (op == ExprOp::kSign) return Numbers<scalar::Sign<T>, T, T, 1>;
  if constexpr (scalar::kIsFloat<T>) {
    return FloatKernel<T>(op);
  } else {
    return IntegerKernel<T>(op);
  }
}

template <typename From>
RegionKernel CastKernelFrom(DType to) {
  return ForExprType(to, [](auto zero) -> RegionKernel {
    using To = decltype(zero);
    return Numbers<scalar::Cast<To, From>, From, To, 1>;
  });
}

// Ops whose operands may have any dtype, bool too; null for others.
template <typename T>
RegionKernel AnyKernel(ExprOp op, DType result) {
  switch (op) {
    case ExprOp::kEqual: return Numbers<scalar::Equal<T>, T, bool, 2>;
    case ExprOp::kNotEqual: return Numbers<scalar::NotEqual<T>, T, bool, 2>;
    case ExprOp::kLess: return Numbers<scalar::Less<T>, T, bool, 2>;
    case ExprOp::kLessEqual: return Numbers<scalar::LessEqual<T>, T, bool, 2>;
    case ExprOp::kWhere: return Choose<T>;
    case ExprOp::kCast: return CastKernelFrom<T>(result);
    default: return nullptr;
  }
}

RegionKernel KernelForTarget(ExprOp op, DType operand, DType result) {
  return ForExprType(operand, [&](auto zero) -> RegionKernel {
    using T = decltype(zero);
    if (const RegionKernel any = AnyKernel<T>(op, result)) return any;
    if constexpr (std::is_same_v<T, bool>) {
      switch (op) {
        case ExprOp::kAnd: return Numbers<scalar::And, bool, bool, 2>;
        case ExprOp::kOr: return Numbers<scalar::Or, bool, bool, 2>;
        default: return Numbers<scalar::Not, bool, bool, 1>;
      }
    } else {
      return NumberKernel<T>(op);
    }
  });
}

struct NoFn {
  template <class D, class V>
  HWY_INLINE V operator()(D, V a) const {
    return a;
  }
};

template <ChainStep kStep, class V>
HWY_INLINE V StepOf(V a, V b) {
  if constexpr (kStep == ChainStep::kAdd) return hn::Add(a, b);
  if constexpr (kStep == ChainStep::kSubtract) return hn::Sub(a, b);
  if constexpr (kStep == ChainStep::kSubtractFrom) return hn::Sub(b, a);
  if constexpr (kStep == ChainStep::kMultiply) return hn::Mul(a, b);
  return a;
}

template <ChainStep kBefore, class F, ChainStep kAfter, typename T>
void Chain(void* out, const void* a, const void* b, const void* c, std::int64_t n) {
  const hn::ScalableTag<T> d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  const T* x = static_cast<const T*>(a);
  const T* y = static_cast<const T*>(b);
  const T* z = static_cast<const T*>(c);
  T* to = static_cast<T*>(out);
  const F f;
  const auto at = [&](auto access, std::int64_t i) HWY_ATTR {
    auto value = access.Load(d, x + i);
    if constexpr (kBefore != ChainStep::kNone) value = StepOf<kBefore>(value, access.Load(d, y + i));
    value = f(d, value);
    if constexpr (kAfter != ChainStep::kNone) value = StepOf<kAfter>(value, access.Load(d, z + i));
    access.Store(d, value, to + i);
  };
  std::int64_t i = 0;
  for (; i + lanes <= n; i += lanes) at(WholeVectors(), i);
  if (i < n) at(PartOfVector{n - i}, i);
}

template <ChainStep kBefore, typename T>
RegionKernel ChainOfSteps(ChainStep after) {
  switch (after) {
    case ChainStep::kAdd: return Chain<kBefore, NoFn, ChainStep::kAdd, T>;
    case ChainStep::kSubtract: return Chain<kBefore, NoFn, ChainStep::kSubtract, T>;
    case ChainStep::kSubtractFrom: return Chain<kBefore, NoFn, ChainStep::kSubtractFrom, T>;
    case ChainStep::kMultiply: return Chain<kBefore, NoFn, ChainStep::kMultiply, T>;
    case ChainStep::kNone: return nullptr;
  }
  return nullptr;
}

template <ChainStep kBefore, class F, typename T>
RegionKernel ChainToFunction(ChainStep after) {
  if (after == ChainStep::kMultiply) return Chain<kBefore, F, ChainStep::kMultiply, T>;
  if (after == ChainStep::kNone && kBefore != ChainStep::kNone) return Chain<kBefore, F, ChainStep::kNone, T>;
  return nullptr;
}

template <class F, typename T>
RegionKernel ChainOfFunction(ChainStep before, ChainStep after) {
  switch (before) {
    case ChainStep::kNone: return ChainToFunction<ChainStep::kNone, F, T>(after);
    case ChainStep::kAdd: return ChainToFunction<ChainStep::kAdd, F, T>(after);
    case ChainStep::kSubtract: return ChainToFunction<ChainStep::kSubtract, F, T>(after);
    default: return nullptr;
  }
}

template <typename T>
RegionKernel ChainOf(const RegionChain& chain) {
  if (chain.f == ExprOp::kExp) return ChainOfFunction<ExpFn, T>(chain.before, chain.after);
  if (chain.f == ExprOp::kTanh) return ChainOfFunction<TanhFn, T>(chain.before, chain.after);
  if (chain.f == ExprOp::kSigmoid) return ChainOfFunction<SigmoidFn, T>(chain.before, chain.after);
  if (chain.f != ExprOp::kConstant) return nullptr;
  switch (chain.before) {
    case ChainStep::kAdd: return ChainOfSteps<ChainStep::kAdd, T>(chain.after);
    case ChainStep::kSubtract: return ChainOfSteps<ChainStep::kSubtract, T>(chain.after);
    case ChainStep::kMultiply: return ChainOfSteps<ChainStep::kMultiply, T>(chain.after);
    default: return nullptr;
  }
}

RegionKernel ChainKernelForTarget(const RegionChain& chain, DType dtype) {
  if (dtype == DType::kFloat) return ChainOf<float>(chain);
  if (dtype == DType::kDouble) return ChainOf<double>(chain);
  return nullptr;
}

template <class Fn, typename T>
void ReduceVectors(void* partial, const void* a, std::int64_t n) {
  const hn::CappedTag<T, kRowPartials> d;
  constexpr auto kLanes = static_cast<std::int64_t>(hn::MaxLanes(d));
  constexpr int kVectors = kRowPartials / static_cast<int>(kLanes);
  const T* x = static_cast<const T*>(a);
  T* sums = static_cast<T*>(partial);
  const Fn fn;
  hn::Vec<decltype(d)> vectors[kVectors];
  for (int k = 0; k < kVectors; ++k) vectors[k] = hn::LoadU(d, sums + k * kLanes);
  std::int64_t i = 0;
  for (; i + kRowPartials <= n; i += kRowPartials) {
    for (int k = 0; k < kVectors; ++k) vectors[k] = fn(d, vectors[k], hn::LoadU(d, x + i + k * kLanes));
  }
  for (int k = 0; k < kVectors; ++k) hn::StoreU(vectors[k], d, sums + k * kLanes);
  const hn::CappedTag<T, 1> one;
  for (int k = 0; i < n; ++i, ++k) {
    hn::StoreU(fn(one, hn::LoadU(one, sums + k), hn::LoadU(one, x + i)), one, sums + k);
  }
}

template <auto kFn, typename T>
void ReduceNumbers(void* partial, const void* a, std::int64_t n) {
  const T* x = static_cast<const T*>(a);
  T* sums = static_cast<T*>(partial);
  for (std::int64_t i = 0; i < n; ++i) sums[i % kRowPartials] = kFn(sums[i % kRowPartials], x[i]);
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

HWY_EXPORT(KernelForTarget);
HWY_EXPORT(RowKernelForTarget);
HWY_EXPORT(ChainKernelForTarget);

RegionKernel KernelOf(ExprOp op, DType operand, DType result) {
  return HWY_DYNAMIC_DISPATCH(KernelForTarget)(op, operand, result);
}
RegionKernel ChainKernelOf(const RegionChain& chain, DType dtype) {
  return HWY_DYNAMIC_DISPATCH(ChainKernelForTarget)(chain, dtype);
}
RowKernel RowKernelOf(ExprOp op, DType dtype) { return HWY_DYNAMIC_DISPATCH(RowKernelForTarget)(op, dtype); }

void DrawUniform(const std::int64_t* const (&operands)[kMaxExprOperands], DType dtype, void* out, std::int64_t n) {
  std::int64_t key[4] = {};
  RandomStream stream(0, 0, 0, 0);
  std::uint64_t block = 0;
  std::array<std::uint32_t, 4> words = {};
  for (std::int64_t i = 0; i < n; ++i) {
    bool is_new = i == 0;
    for (int k = 0; k < 4; ++k) {
      is_new |= key[k] != operands[k][i];
      key[k] = operands[k][i];
    }
    if (is_new) {
      stream = RandomStream(static_cast<std::uint64_t>(key[0]), static_cast<std::uint64_t>(key[1]),
                            static_cast<std::uint64_t>(key[2]), key[3]);
    }
    const auto element = static_cast<std::uint64_t>(operands[4][i]);
    if (is_new || block != element / 4) words = stream.Block(block = element / 4);
    const std::uint32_t word = words[element % 4];
    if (dtype == DType::kFloat) {
      static_cast<float*>(out)[i] = static_cast<float>(word >> 8) * 0x1p-24f;
    } else {
      static_cast<double*>(out)[i] = static_cast<double>(word) * 0x1p-32;
    }
  }
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

namespace {

// Calls fn with an unsigned integer of so many bytes.
template <typename Fn>
void ForBytes(std::int64_t bytes, const Fn& fn) {
  if (bytes == 1) return fn(std::uint8_t{});
  if (bytes == 4) return fn(std::uint32_t{});
  fn(std::uint64_t{});
}

}  // namespace

void Splat(void* array, std::int64_t bytes, std::int64_t n) {
  ForBytes(bytes, [&](auto zero) {
    using T = decltype(zero);
    std::fill_n(static_cast<T*>(array), n, *static_cast<T*>(array));
  });
}

void CopyStrided(const void* from, std::int64_t from_stride, void* to, std::int64_t to_stride, std::int64_t bytes,
                 std::int64_t n) {
  if (from_stride == 1 && to_stride == 1) {
    std::memmove(to, from, static_cast<size_t>(n * bytes));
    return;
  }
  ForBytes(bytes, [&](auto zero) {
    using T = decltype(zero);
    const T* x = static_cast<const T*>(from);
    T* y = static_cast<T*>(to);
    for (std::int64_t i = 0; i < n; ++i) y[i * to_stride] = x[i * from_stride];
  });
}

void AddStrided(const void* from, void* to, std::int64_t stride, DType dtype, std::int64_t n) {
  if (stride == 1 || n == 1) return KernelOf(ExprOp::kAdd, dtype, dtype)(to, to, from, nullptr, n);
  ForExprType(dtype, [&](auto zero) {
    using T = decltype(zero);
    if constexpr (!std::is_same_v<T, bool>) {
      T* sums = static_cast<T*>(to);
      for (std::int64_t i = 0; i < n; ++i)
        sums[i * stride] = scalar::Add(sums[i * stride], static_cast<const T*>(from)[i]);
    }
  });
}

std::int64_t FirstFalse(const bool* holds, std::int64_t n) {
  const void* found = n == 0 ? nullptr : std::memchr(holds, 0, static_cast<size_t>(n));
  return found == nullptr ? n : static_cast<const bool*>(found) - holds;
}

}  // namespace stepnet
#endif  // HWY_ONCE

// Floating-point arithmetic is written with Highway and compiled once a target; integers, bools and what has no vectors
// of its own are plain loops over the scalar definitions, which compilers turn into vectors of the same target.
#include "stepnet/core/regions/region_kernels.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "stepnet/core/regions/region_kernels.cc"
#include <hwy/foreach_target.h>  // IWYU pragma: keep
#include <hwy/highway.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>

#include "stepnet/core/any_order.h"
#include "stepnet/core/arithmetic_vectors-inl.h"
#include "stepnet/core/expressions/expr_functions.h"
#include "stepnet/core/expressions/expr_scalar.h"
#include "stepnet/core/half_vectors-inl.h"
#include "stepnet/core/random_words.h"
#include "stepnet/core/regions/region_vectors-inl.h"
#include "stepnet/core/stored_float.h"
#include "stepnet/core/target.h"
#include "stepnet/core/vector_math-inl.h"

#if defined(__x86_64__) || defined(__i386__)
#include <cpuid.h>
#endif

HWY_BEFORE_NAMESPACE();
namespace stepnet {
namespace HWY_NAMESPACE {

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

template <class Fn>
constexpr bool kIsShort = !std::is_same_v<Fn, ExpFn> && !std::is_same_v<Fn, LogFn> && !std::is_same_v<Fn, TanhFn> &&
                          !std::is_same_v<Fn, SigmoidFn> && !std::is_same_v<Fn, ErfcFn> && !std::is_same_v<Fn, SinFn> &&
                          !std::is_same_v<Fn, CosFn>;

// Kernels of vectors, whose last part goes through the same instructions.
template <class Fn, typename T, int kOperands>
void Vectors(void* out, const void* a, const void* b, const void* c, const void* /*last*/, std::int64_t n) {
  const hn::ScalableTag<T> d;
  const T* x = static_cast<const T*>(a);
  const T* y = static_cast<const T*>(b);
  const T* z = static_cast<const T*>(c);
  T* to = static_cast<T*>(out);
  const Fn fn;
  const std::int64_t arrays = kOperands + (kOperands > 1 && a == b ? 0 : 1);  // one that is read twice is one
  ForVectors<T, kIsShort<Fn>>(n, AsksAhead<T>(arrays * n), [&](auto access, std::int64_t i) HWY_ATTR {
    if constexpr (kOperands == 1) {
      access.Store(d, fn(d, access.Load(d, x + i)), to + i);
    } else if constexpr (kOperands == 2) {
      access.Store(d, fn(d, access.Load(d, x + i), access.Load(d, y + i)), to + i);
    } else {
      access.Store(d, fn(d, access.Load(d, x + i), access.Load(d, y + i), access.Load(d, z + i)), to + i);
    }
  });
}

// Kernels of a function of single numbers.
template <auto kFn, typename T, typename Out, int kOperands>
void Numbers(void* out, const void* a, const void* b, const void* c, const void* /*last*/, std::int64_t n) {
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

// Bools as bytes of 0 and 1, of which compilers make vectors.
inline std::uint8_t AndBytes(std::uint8_t a, std::uint8_t b) { return a & b; }
inline std::uint8_t OrBytes(std::uint8_t a, std::uint8_t b) { return a | b; }
inline std::uint8_t NotByte(std::uint8_t a) { return a ^ 1; }

// Which lanes hold, of as many bools as a vector of T has lanes.
template <class D>
HWY_INLINE hn::Mask<D> LoadMask(D d, const bool* from) {
  const hn::RebindToUnsigned<D> lanes;
  const hn::Rebind<std::uint8_t, D> bytes;
  const auto values = hn::LoadU(bytes, reinterpret_cast<const std::uint8_t*>(from));
  if constexpr (sizeof(hn::TFromD<D>) == 4) {
    return hn::RebindMask(d, hn::Ne(hn::PromoteTo(lanes, values), hn::Zero(lanes)));
  } else {
    const hn::Rebind<std::uint32_t, D> words;
    return hn::RebindMask(d, hn::Ne(hn::PromoteTo(lanes, hn::PromoteTo(words, values)), hn::Zero(lanes)));
  }
}

template <typename T>
void Choose(void* out, const void* a, const void* b, const void* c, const void* /*last*/, std::int64_t n) {
  const bool* condition = static_cast<const bool*>(a);
  const T* then = static_cast<const T*>(b);
  const T* otherwise = static_cast<const T*>(c);
  T* to = static_cast<T*>(out);
  std::int64_t i = 0;
  if constexpr (!std::is_same_v<T, bool>) {
    const hn::ScalableTag<T> d;
    const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
    for (; i + lanes <= n; i += lanes) {
      const auto mask = LoadMask(d, condition + i);
      hn::StoreU(hn::IfThenElse(mask, hn::LoadU(d, then + i), hn::LoadU(d, otherwise + i)), d, to + i);
    }
  }
  STEPNET_ANY_ORDER
  for (std::int64_t k = i; k < n; ++k) {
    const T yes = then[k], no = otherwise[k];  // both are read, so that compilers need no branch
    to[k] = condition[k] ? yes : no;
  }
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

// The kernel of the function `op` of the table, from number k on.
template <typename T, size_t k = 0>
RegionKernel FunctionKernel(ExprOp op) {
  if constexpr (k < std::size(kExprFunctions)) {
    return kExprFunctions[k].op == op ? Numbers<kExprFunctions[k].Of<T>(), T, T, 1> : FunctionKernel<T, k + 1>(op);
  } else {
    return nullptr;
  }
}

// The C library computes sin and cos of double.
template <class Fn, typename T>
RegionKernel SinKernel(ExprOp op) {
  if constexpr (sizeof(T) == sizeof(float)) {
    return Vectors<Fn, T, 1>;
  } else {
    return FunctionKernel<T>(op);
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
    case ExprOp::kLog: return Vectors<LogFn, T, 1>;
    case ExprOp::kTanh: return Vectors<TanhFn, T, 1>;
    case ExprOp::kSigmoid: return Vectors<SigmoidFn, T, 1>;
    case ExprOp::kErfc: return Vectors<ErfcFn, T, 1>;
    case ExprOp::kSin: return SinKernel<SinFn, T>(op);
    case ExprOp::kCos: return SinKernel<CosFn, T>(op);
    default: return FunctionKernel<T>(op);
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

// Casts of what is only stored, as its bits.
template <class Fn, typename From, typename To>
void Conversion(void* out, const void* a, const void* /*b*/, const void* /*c*/, const void* /*last*/, std::int64_t n) {
  const hn::ScalableTag<float> d;
  const hn::Rebind<From, decltype(d)> from;
  const hn::Rebind<To, decltype(d)> to;
  const From* x = static_cast<const From*>(a);
  To* y = static_cast<To*>(out);
  const Fn fn;
  ForVectors<float, true>(n, AsksAhead<float>(2 * n), [&](auto access, std::int64_t i) HWY_ATTR {
    access.Store(to, fn(d, access.Load(from, x + i)), y + i);
  });
}

RegionKernel ConversionOf(DType from, DType to) {
  if (from == DType::kFloat16) return Conversion<LoadFloat16, std::uint16_t, float>;
  if (from == DType::kBFloat16) return Conversion<LoadBFloat16, std::uint16_t, float>;
  const bool is_half = to == DType::kFloat16;
  if (from == DType::kFloat) {
    return is_half ? Conversion<StoreFloat16, float, std::uint16_t> : Conversion<StoreBFloat16, float, std::uint16_t>;
  }
  return ForExprType(from, [&](auto zero) -> RegionKernel {
    using T = decltype(zero);
    return is_half ? Numbers<StoredAs<Float16, T>, T, Float16, 1> : Numbers<StoredAs<BFloat16, T>, T, BFloat16, 1>;
  });
}

RegionKernel KernelForTarget(ExprOp op, DType operand, DType result) {
  if (IsStoredFloat(operand) || IsStoredFloat(result)) return ConversionOf(operand, result);
  return ForExprType(operand, [&](auto zero) -> RegionKernel {
    using T = decltype(zero);
    if (const RegionKernel any = AnyKernel<T>(op, result)) return any;
    if constexpr (std::is_same_v<T, bool>) {
      switch (op) {
        case ExprOp::kAnd: return Numbers<AndBytes, std::uint8_t, std::uint8_t, 2>;
        case ExprOp::kOr: return Numbers<OrBytes, std::uint8_t, std::uint8_t, 2>;
        default: return Numbers<NotByte, std::uint8_t, std::uint8_t, 1>;
      }
    } else {
      return NumberKernel<T>(op);
    }
  });
}

// Words of a stream as numbers in [0, 1).
void UniformsForTarget(const std::uint32_t* words, DType dtype, void* out, std::int64_t n) {
  if (dtype == DType::kFloat) {
    STEPNET_ANY_ORDER
    for (std::int64_t i = 0; i < n; ++i) static_cast<float*>(out)[i] = scalar::UniformOf<float>(words[i]);
  } else {
    STEPNET_ANY_ORDER
    for (std::int64_t i = 0; i < n; ++i) static_cast<double*>(out)[i] = scalar::UniformOf<double>(words[i]);
  }
}

template <typename T>
void Copy(void* out, const void* a, const void* /*b*/, const void* /*c*/, const void* /*last*/, std::int64_t n) {
  const auto bytes = n * static_cast<std::int64_t>(sizeof(T));
  if (bytes >= kCpuTarget.regions.long_copy_bytes) {
    std::memmove(out, a, static_cast<size_t>(bytes));
    return;
  }
  const hn::ScalableTag<T> d;
  ForVectors<T, true>(n, AsksAhead<T>(2 * n), [&](auto access, std::int64_t i) HWY_ATTR {
    access.Store(d, access.Load(d, static_cast<const T*>(a) + i), static_cast<T*>(out) + i);
  });
}

template <typename T>
void Fill(void* out, const void* a, const void* /*b*/, const void* /*c*/, const void* /*last*/, std::int64_t n) {
  const hn::ScalableTag<T> d;
  const auto value = hn::Set(d, *static_cast<const T*>(a));
  ForVectors<T, true>(n, AsksAhead<T>(n),
                      [&](auto access, std::int64_t i) HWY_ATTR { access.Store(d, value, static_cast<T*>(out) + i); });
}

RegionKernel CopyKernelForTarget(std::int64_t bytes) {
  if (bytes <= 2) return bytes == 1 ? Copy<std::uint8_t> : Copy<std::uint16_t>;
  return bytes == 4 ? Copy<std::uint32_t> : Copy<std::uint64_t>;
}
RegionKernel FillKernelForTarget(std::int64_t bytes) {
  if (bytes <= 2) return bytes == 1 ? Fill<std::uint8_t> : Fill<std::uint16_t>;
  return bytes == 4 ? Fill<std::uint32_t> : Fill<std::uint64_t>;
}

}  // namespace HWY_NAMESPACE
}  // namespace stepnet
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace stepnet {

HWY_EXPORT(KernelForTarget);
HWY_EXPORT(CopyKernelForTarget);
HWY_EXPORT(FillKernelForTarget);
HWY_EXPORT(UniformsForTarget);

RegionKernel KernelOf(ExprOp op, DType operand, DType result) {
  return HWY_DYNAMIC_DISPATCH(KernelForTarget)(op, operand, result);
}
namespace {

// Whether all numbers are of one stream, and of elements that follow each other.
bool IsOneRun(const std::int64_t* elements, unsigned shared, std::int64_t n) {
  if (shared != (1u << kNumUniformKeys) - 1 || elements[0] < 0) return false;
  const auto first = static_cast<std::uint64_t>(elements[0]);
  std::uint64_t differences = 0;
  STEPNET_ANY_ORDER
  for (std::int64_t i = 0; i < n; ++i) {
    differences |= static_cast<std::uint64_t>(elements[i]) ^ (first + static_cast<std::uint64_t>(i));
  }
  return differences == 0;
}

// Numbers of elements [begin, begin + n).
void DrawRun(const RandomKeys& keys, std::uint64_t begin, DType dtype, void* out, std::int64_t n) {
  constexpr std::int64_t kBlocks = 65;  // of four words: those of a block of the program, wherever it begins
  std::uint32_t words[4 * kBlocks];
  for (std::int64_t i = 0; i < n;) {
    const std::uint64_t element = begin + static_cast<std::uint64_t>(i);
    const auto skipped = static_cast<std::int64_t>(element % 4);
    const std::int64_t count = std::min<std::int64_t>(n - i, 4 * kBlocks - skipped);
    RandomWords(keys, element / 4, (skipped + count + 3) / 4, words);
    HWY_DYNAMIC_DISPATCH(UniformsForTarget)
    (words + skipped, dtype, static_cast<char*>(out) + i * DTypeBytes(dtype), count);
    i += count;
  }
}

}  // namespace

void DrawUniform(const std::int64_t* const (&operands)[kMaxExprOperands], unsigned shared, DType dtype, void* out,
                 std::int64_t n) {
  if (n > 0 && IsOneRun(operands[4], shared, n)) {
    const RandomKeys keys{.seed = static_cast<std::uint64_t>(operands[0][0]),
                          .op = static_cast<std::uint64_t>(operands[1][0]),
                          .run = static_cast<std::uint64_t>(operands[2][0]),
                          .step = operands[3][0]};
    return DrawRun(keys, static_cast<std::uint64_t>(operands[4][0]), dtype, out, n);
  }
  std::int64_t key[kNumUniformKeys] = {};
  RandomStream stream(0, 0, 0, 0);
  std::uint64_t block = 0;
  std::array<std::uint32_t, 4> words = {};
  for (std::int64_t i = 0; i < n; ++i) {
    bool is_new = i == 0;
    for (int k = 0; k < kNumUniformKeys; ++k) {
      if (i > 0 && (shared >> k & 1) != 0) continue;
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
      static_cast<float*>(out)[i] = scalar::UniformOf<float>(word);
    } else {
      static_cast<double*>(out)[i] = scalar::UniformOf<double>(word);
    }
  }
}

#if defined(__x86_64__) || defined(__i386__)
// Not by __builtin_cpu_is, with which a process asks for all that a processor can do when it starts: each answer takes
// a virtual machine microseconds.
const bool gains_by_asking = [] {
  unsigned max = 0, name_begin = 0, name_end = 0, name_middle = 0;
  __cpuid(0, max, name_begin, name_end, name_middle);
  return name_begin != signature_AMD_ebx;
}();
#else
const bool gains_by_asking = true;
#endif

RegionKernel CopyKernelOf(DType dtype) { return HWY_DYNAMIC_DISPATCH(CopyKernelForTarget)(DTypeBytes(dtype)); }
RegionKernel FillKernelOf(DType dtype) { return HWY_DYNAMIC_DISPATCH(FillKernelForTarget)(DTypeBytes(dtype)); }

void AddStrided(const void* from, void* to, std::int64_t stride, DType dtype, std::int64_t n) {
  if (stride == 1 || n == 1) return KernelOf(ExprOp::kAdd, dtype, dtype)(to, to, from, nullptr, nullptr, n);
  ForExprType(dtype, [&](auto zero) {
    using T = decltype(zero);
    if constexpr (!std::is_same_v<T, bool>) {
      const T* const terms = static_cast<const T*>(from);
      T* sums = static_cast<T*>(to);
      if (stride == 0) {
        T sum = *sums;
        for (std::int64_t i = 0; i < n; ++i) sum = scalar::Add(sum, terms[i]);
        *sums = sum;
        return;
      }
      for (std::int64_t i = 0; i < n; ++i) sums[i * stride] = scalar::Add(sums[i * stride], terms[i]);
    }
  });
}

std::int64_t FirstFalse(const bool* holds, std::int64_t n) {
  const void* found = n == 0 ? nullptr : std::memchr(holds, 0, static_cast<size_t>(n));
  return found == nullptr ? n : static_cast<const bool*>(found) - holds;
}

}  // namespace stepnet
#endif  // HWY_ONCE

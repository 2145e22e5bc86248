// What kernels call: the primitives of core/expressions/expr.h for one element, reductions of a row by a warp, random
// numbers and faults. Kernels that are generated have this text before them, so it includes nothing: NVRTC compiles it
// on machines without a toolkit. Kernels written by hand include it.
//
// To be compiled without contraction (--fmad=false) and without fast math. A test that runs generated kernels on the
// CPU gives STEPNET_OWN_FUNCTIONS and functions of its own, whose last bits are those of the CPU.
#pragma once

namespace stepnet::device {

template <typename T>
inline constexpr bool kIsFloat = false;
template <>
inline constexpr bool kIsFloat<float> = true;
template <>
inline constexpr bool kIsFloat<double> = true;

template <typename T>
struct UnsignedOf;
template <>
struct UnsignedOf<int> {
  typedef unsigned Type;
};
template <>
struct UnsignedOf<long long> {
  typedef unsigned long long Type;
};
template <typename T>
using Unsigned = typename UnsignedOf<T>::Type;

// A parameter of a kernel: all take 8 bytes.
template <typename T>
struct alignas(8) Word {
  T value;
};

// Division of whole numbers below 2^31 by one that the host knew: Granlund and Montgomery, "Division by invariant
// integers using multiplication", PLDI 1994.
struct alignas(8) Divisor {
  unsigned factor;
  unsigned shift;
};
__device__ inline int Quotient(int n, Divisor divisor) {
  const unsigned high = static_cast<unsigned>(static_cast<unsigned long long>(n) * divisor.factor >> 32);
  return static_cast<int>((high + static_cast<unsigned>(n)) >> divisor.shift);
}

// ---- functions of one element

template <typename T>
__device__ inline T Add(T a, T b) {
  if constexpr (kIsFloat<T>)
    return a + b;
  else
    return static_cast<T>(static_cast<Unsigned<T>>(a) + static_cast<Unsigned<T>>(b));
}
template <typename T>
__device__ inline T Subtract(T a, T b) {
  if constexpr (kIsFloat<T>)
    return a - b;
  else
    return static_cast<T>(static_cast<Unsigned<T>>(a) - static_cast<Unsigned<T>>(b));
}
template <typename T>
__device__ inline T Multiply(T a, T b) {
  if constexpr (kIsFloat<T>)
    return a * b;
  else
    return static_cast<T>(static_cast<Unsigned<T>>(a) * static_cast<Unsigned<T>>(b));
}
template <typename T>
__device__ inline T Negate(T a) {
  if constexpr (kIsFloat<T>)
    return -a;
  else
    return static_cast<T>(Unsigned<T>{0} - static_cast<Unsigned<T>>(a));
}
template <typename T>
__device__ inline T Divide(T a, T b) {
  if constexpr (kIsFloat<T>)
    return a / b;
  else
    return b == 0 ? T{0} : b == -1 ? Negate(a) : static_cast<T>(a / b);
}
__device__ inline float FloatMod(float a, float b) { return fmodf(a, b); }
__device__ inline double FloatMod(double a, double b) { return fmod(a, b); }
template <typename T>
__device__ inline T Mod(T a, T b) {
  if constexpr (kIsFloat<T>)
    return FloatMod(a, b);
  else
    return b == 0 || b == -1 ? T{0} : static_cast<T>(a % b);
}
template <typename T>
__device__ inline T Min(T a, T b) {
  return a != a ? a : a < b ? a : b;
}
template <typename T>
__device__ inline T Max(T a, T b) {
  return a != a ? a : a > b ? a : b;
}
__device__ inline float FloatMulAdd(float a, float b, float c) { return fmaf(a, b, c); }
__device__ inline double FloatMulAdd(double a, double b, double c) { return fma(a, b, c); }
template <typename T>
__device__ inline T MulAdd(T a, T b, T c) {
  if constexpr (kIsFloat<T>)
    return FloatMulAdd(a, b, c);
  else
    return Add(Multiply(a, b), c);
}
__device__ inline float FloatAbs(float a) { return fabsf(a); }
__device__ inline double FloatAbs(double a) { return fabs(a); }
template <typename T>
__device__ inline T Abs(T a) {
  if constexpr (kIsFloat<T>)
    return FloatAbs(a);
  else
    return a < 0 ? Negate(a) : a;
}
template <typename T>
__device__ inline T Sign(T a) {
  return a > 0 ? T{1} : a < 0 ? T{-1} : a == 0 ? T{0} : a;
}

#define STEPNET_DEVICE_FUNCTION(Name, of_float, of_double)      \
  __device__ inline float Name(float a) { return of_float(a); } \
  __device__ inline double Name(double a) { return of_double(a); }
STEPNET_DEVICE_FUNCTION(Sqrt, sqrtf, sqrt)
STEPNET_DEVICE_FUNCTION(Expm1, expm1f, expm1)
STEPNET_DEVICE_FUNCTION(Log1p, log1pf, log1p)
STEPNET_DEVICE_FUNCTION(Erf, erff, erf)
STEPNET_DEVICE_FUNCTION(Floor, floorf, floor)
STEPNET_DEVICE_FUNCTION(Ceil, ceilf, ceil)
STEPNET_DEVICE_FUNCTION(Round, rintf, rint)
__device__ inline float Pow(float a, float b) { return powf(a, b); }
__device__ inline double Pow(double a, double b) { return pow(a, b); }
#ifndef STEPNET_OWN_FUNCTIONS
STEPNET_DEVICE_FUNCTION(Erfc, erfcf, erfc)
STEPNET_DEVICE_FUNCTION(Exp, expf, exp)
STEPNET_DEVICE_FUNCTION(Log, logf, log)
STEPNET_DEVICE_FUNCTION(Tanh, tanhf, tanh)
STEPNET_DEVICE_FUNCTION(Sin, sinf, sin)
STEPNET_DEVICE_FUNCTION(Cos, cosf, cos)
// Nothing overflows, so small results keep their digits.
template <typename T>
__device__ inline T Sigmoid(T a) {
  const T e = Exp(-Abs(a));
  return a != a ? a : (a < 0 ? e : T{1}) / (T{1} + e);
}
#endif
#undef STEPNET_DEVICE_FUNCTION

template <typename T>
__device__ inline bool Equal(T a, T b) {
  return a == b;
}
template <typename T>
__device__ inline bool NotEqual(T a, T b) {
  return a != b;
}
template <typename T>
__device__ inline bool Less(T a, T b) {
  return a < b;
}
template <typename T>
__device__ inline bool LessEqual(T a, T b) {
  return a <= b;
}
__device__ inline bool And(bool a, bool b) { return a && b; }
__device__ inline bool Or(bool a, bool b) { return a || b; }
__device__ inline bool Not(bool a) { return !a; }
template <typename T>
__device__ inline T Where(bool condition, T a, T b) {
  return condition ? a : b;
}

template <typename T>
struct Limits;
template <>
struct Limits<int> {
  static constexpr int kLowest = -2147483647 - 1;
  static constexpr int kGreatest = 2147483647;
};
template <>
struct Limits<long long> {
  static constexpr long long kLowest = -9223372036854775807LL - 1;
  static constexpr long long kGreatest = 9223372036854775807LL;
};

template <typename To, typename From>
struct CastTo {
  __device__ static To Of(From x) {
    if constexpr (kIsFloat<From> && !kIsFloat<To>) {
      // The bounds as floating-point numbers: the lowest, and 2^n above, exactly.
      constexpr From kLow = static_cast<From>(Limits<To>::kLowest);
      constexpr From kAbove = static_cast<From>(Limits<To>::kGreatest / 2 + 1) * 2;
      if (x != x) return 0;
      if (x < kLow) return Limits<To>::kLowest;
      return x >= kAbove ? Limits<To>::kGreatest : static_cast<To>(x);
    } else {
      return static_cast<To>(x);
    }
  }
};
template <typename From>
struct CastTo<bool, From> {
  __device__ static bool Of(From x) { return x != From{0}; }
};

// What is only stored, in 16 bits: what a value is loaded as and stored from is float. To nearest even.
struct Float16 {
  unsigned short bits;
};
struct BFloat16 {
  unsigned short bits;
};
__device__ inline bool IsNaN(unsigned bits_of_float) { return (bits_of_float & 0x7fffffffu) > 0x7f800000u; }
__device__ inline unsigned BitsOf(float x) { return static_cast<unsigned>(__float_as_int(x)); }
__device__ inline float FloatOf(unsigned bits) { return __int_as_float(static_cast<int>(bits)); }

__device__ inline float LoadedFrom(Float16 x) {
#ifdef __CUDA_ARCH__
  float y;
  asm("cvt.f32.f16 %0, %1;" : "=f"(y) : "h"(x.bits));
  return y;
#else
  const unsigned sign = (x.bits & 0x8000u) << 16, magnitude = (x.bits & 0x7fffu) << 13;
  if (magnitude >= 0x1fu << 23) return FloatOf(sign | (magnitude + (224u << 23)));
  if (magnitude >= 1u << 23) return FloatOf(sign | (magnitude + (112u << 23)));
  return FloatOf(sign | BitsOf(FloatOf(magnitude + (113u << 23)) - FloatOf(113u << 23)));  // fraction * 2^-24
#endif
}
__device__ inline float LoadedFrom(BFloat16 x) { return FloatOf(static_cast<unsigned>(x.bits) << 16); }

template <typename T>
__device__ inline T StoredAs(float x);
template <>
__device__ inline Float16 StoredAs<Float16>(float x) {
#ifdef __CUDA_ARCH__
  Float16 y;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(y.bits) : "f"(x));
  return y;
#else
  const unsigned bits = BitsOf(x), magnitude = bits & 0x7fffffffu;
  unsigned half = 0;
  if (magnitude >= 143u << 23) {  // 2^16
    half = IsNaN(bits) ? 0x7e00u : 0x7c00u;
  } else if (magnitude < 113u << 23) {  // below 2^-14: in units of 2^-24, the last bit of 0.5
    half = BitsOf(FloatOf(magnitude) + 0.5f) - (126u << 23);
  } else {
    half = (magnitude - (112u << 23) + 0xfffu + (magnitude >> 13 & 1u)) >> 13;
  }
  return {static_cast<unsigned short>((bits >> 16 & 0x8000u) | half)};
#endif
}
template <>
__device__ inline BFloat16 StoredAs<BFloat16>(float x) {
  const unsigned bits = BitsOf(x);
  const unsigned rounded = IsNaN(bits) ? bits | 0x400000u : bits + 0x7fffu + (bits >> 16 & 1u);
  return {static_cast<unsigned short>(rounded >> 16)};
}
// The float that is rounded to 16 bits as x would be (core/stored_float.h).
__device__ inline float FloatToStore(float x) { return x; }
__device__ inline float FloatToStore(double x) {
  const float nearest = static_cast<float>(x);
  if (static_cast<double>(nearest) == x || x != x) return nearest;
  const double magnitude = x < 0 ? -x : x, of_nearest = static_cast<double>(nearest < 0 ? -nearest : nearest);
  return FloatOf((BitsOf(nearest) - (of_nearest > magnitude ? 1u : 0u)) | 1u);
}
__device__ inline float FloatToStore(int x) { return FloatToStore(static_cast<double>(x)); }
__device__ inline float FloatToStore(long long x) {
  constexpr long long kExact = 1LL << 53, kLow = (1 << 11) - 1;
  if (-kExact <= x && x <= kExact) return FloatToStore(static_cast<double>(x));
  return FloatToStore(static_cast<double>((x & ~kLow) | ((x & kLow) != 0 ? kLow + 1 : 0)));
}
template <typename From>
struct CastTo<Float16, From> {
  __device__ static Float16 Of(From x) { return StoredAs<Float16>(FloatToStore(x)); }
};
template <typename From>
struct CastTo<BFloat16, From> {
  __device__ static BFloat16 Of(From x) { return StoredAs<BFloat16>(FloatToStore(x)); }
};
template <>
struct CastTo<float, Float16> {
  __device__ static float Of(Float16 x) { return LoadedFrom(x); }
};
template <>
struct CastTo<float, BFloat16> {
  __device__ static float Of(BFloat16 x) { return LoadedFrom(x); }
};
template <typename To, typename From>
__device__ inline To Cast(From x) {
  return CastTo<To, From>::Of(x);
}

// ---- reductions of a row by a warp: lane i brings the partial results i and i + 32 of the 64

template <typename T>
__device__ inline T Lowest() {
  if constexpr (kIsFloat<T>)
    return -static_cast<T>(__int_as_float(0x7f800000));
  else
    return Limits<T>::kLowest;
}
template <typename T>
__device__ inline T RowSum(T low, T high) {
  T sum = Add(low, high);  // the same in either order: all lanes come to it
  for (int width = 16; width > 0; width /= 2) sum = Add(sum, __shfl_xor_sync(0xffffffffu, sum, width));
  return sum;
}
template <typename T>
__device__ inline T RowMax(T low, T high) {
  T most = Max(low, high);
  for (int width = 16; width > 0; width /= 2) most = Max(most, __shfl_down_sync(0xffffffffu, most, width));
  return __shfl_sync(0xffffffffu, most, 0);
}

// ---- random numbers: RandomStream of core/random.h

__device__ inline unsigned long long MixBits(unsigned long long x) {
  x ^= x >> 30;
  x *= 0xbf58476d1ce4e5b9ull;
  x ^= x >> 27;
  x *= 0x94d049bb133111ebull;
  return x ^ (x >> 31);
}
// Word `element` of RandomStream(seed, op, run, step).
__device__ inline unsigned RandomWord(unsigned long long seed, unsigned long long op, unsigned long long run,
                                      unsigned long long step, unsigned long long element) {
  const unsigned long long key = MixBits(seed + 0x9e3779b97f4a7c15ull * (op + 1));
  const unsigned long long high = MixBits(run * 0xd1342543de82ef95ull + 1) ^ MixBits(step + 0x632be5abull);
  const unsigned long long block = element / 4;
  unsigned c0 = static_cast<unsigned>(block), c1 = static_cast<unsigned>(block >> 32);
  unsigned c2 = static_cast<unsigned>(high), c3 = static_cast<unsigned>(high >> 32);
  unsigned k0 = static_cast<unsigned>(key), k1 = static_cast<unsigned>(key >> 32);
  for (int round = 0; round < 10; ++round) {
    const unsigned long long p0 = 0xD2511F53ull * c0;
    const unsigned long long p1 = 0xCD9E8D57ull * c2;
    c0 = static_cast<unsigned>(p1 >> 32) ^ c1 ^ k0;
    c1 = static_cast<unsigned>(p1);
    c2 = static_cast<unsigned>(p0 >> 32) ^ c3 ^ k1;
    c3 = static_cast<unsigned>(p0);
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
  const unsigned low = element % 2 == 0 ? c0 : c1;
  return element % 4 < 2 ? low : element % 2 == 0 ? c2 : c3;
}
template <typename T>
__device__ inline T Uniform(long long seed, long long op, long long run, long long step, long long element) {
  const unsigned word = RandomWord(static_cast<unsigned long long>(seed), static_cast<unsigned long long>(op),
                                   static_cast<unsigned long long>(run), static_cast<unsigned long long>(step),
                                   static_cast<unsigned long long>(element));
  if constexpr (sizeof(T) == sizeof(float))
    return static_cast<float>(word >> 8) * 5.9604644775390625e-8f;  // 2^-24
  else
    return static_cast<double>(word) * 2.3283064365386963e-10;  // 2^-32
}

// ---- faults: gpu/device_fault.h has the same struct for the host

struct DeviceFault {
  unsigned long long lock;
  unsigned long long place;    // ~FaultSite::place; 0: there is no fault
  unsigned long long element;  // ~element
  unsigned long long requirement;
  unsigned long long values[4];
};

// Says where one run of a kernel is, which may be for the elements of several steps, one after the other.
struct FaultSite {
  unsigned long long place;     // of the first element
  long long next_place;         // what is added for each step behind
  long long elements_of_step;   // 0: all are of one step
  unsigned long long messages;  // number of the first requirement's
};

__device__ inline unsigned long long Bits(bool x) { return x; }
__device__ inline unsigned long long Bits(int x) { return static_cast<unsigned>(x); }
__device__ inline unsigned long long Bits(long long x) { return static_cast<unsigned long long>(x); }
__device__ inline unsigned long long Bits(float x) { return static_cast<unsigned>(__float_as_int(x)); }
__device__ inline unsigned long long Bits(double x) { return static_cast<unsigned long long>(__double_as_longlong(x)); }

// Lets the next kernel come to the processors, where it is launched early (LaunchEarly, gpu/cuda/cuda_runtime.h).
__device__ inline void LetNextKernelCome() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;");
#endif
}
// What a kernel begins with that is launched early: waits until all that kernels before it did is done, and lets the
// next one come. Only products let it come before they wait: if all did, the processors would fill with kernels that
// wait, and several blocks of one would share a processor while others have none of it.
__device__ inline void WaitForKernelsBefore() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
  LetNextKernelCome();
}

// Whether what runs here is to do nothing, because something before it has found a fault.
__device__ inline bool IsStopped(const DeviceFault* stop) {
  return stop != nullptr && static_cast<const volatile DeviceFault*>(stop)->place != 0;
}

// Whether the fault that is known comes first. Its place is read before its element, and written after it: so whatever
// another thread writes meanwhile, no fault is dropped that comes before the one that is known in the end.
__device__ inline bool ComesFirst(const volatile DeviceFault* known, unsigned long long place,
                                  unsigned long long element) {
  const unsigned long long known_place = known->place;
  __threadfence();
  return known_place > place || (known_place == place && known->element >= element);
}

// Keeps the fault unless one is known that comes first: by place, then element. `values` are up to 4, as Bits.
template <typename... Values>
__device__ inline void NoteFault(DeviceFault* fault, const FaultSite& site, long long element, int requirement,
                                 Values... values) {
  if (fault == nullptr) return;
  const long long steps = site.elements_of_step == 0 ? 0 : element / site.elements_of_step;
  const unsigned long long place = ~(site.place + static_cast<unsigned long long>(steps * site.next_place));
  const unsigned long long rank = ~static_cast<unsigned long long>(element - steps * site.elements_of_step);
  const unsigned long long shown[] = {values..., 0};
  for (bool is_done = false; !is_done;) {
    if (ComesFirst(fault, place, rank)) return;
    if (atomicCAS(&fault->lock, 0ull, 1ull) != 0) continue;
    __threadfence();
    if (!ComesFirst(fault, place, rank)) {
      volatile DeviceFault* const kept = fault;
      kept->requirement = site.messages + static_cast<unsigned long long>(requirement);
      for (int i = 0; i < static_cast<int>(sizeof...(values)); ++i) kept->values[i] = shown[i];
      kept->element = rank;
      __threadfence();
      kept->place = place;
    }
    __threadfence();
    atomicExch(&fault->lock, 0ull);
    is_done = true;
  }
}

// The same of one run of a kernel.
struct FaultSlot {
  DeviceFault* record = nullptr;
  FaultSite site = {};
};
template <typename... Values>
__device__ inline void NoteFault(const FaultSlot& slot, long long element, int requirement, Values... values) {
  NoteFault(slot.record, slot.site, element, requirement, values...);
}

}  // namespace stepnet::device

// What CUDA gives the library's own kernels (gpu/cuda/kernels), on a CPU: their files are compiled as C++ behind this
// header, each thread a turn of a loop, and with the functions of the CPU.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>

#include "stepnet/core/vector_math.h"

#define STEPNET_KERNELS_ON_HOST
#define __device__

struct Index1 {
  unsigned x = 0;
};
inline Index1 threadIdx;
inline void __syncthreads() {}
inline void __threadfence() {}
template <typename T>
T __shfl_sync(unsigned, T value, int) {
  return value;
}
template <typename T>
T __shfl_xor_sync(unsigned, T value, int) {
  return value;
}
template <typename T>
T __shfl_down_sync(unsigned, T value, int) {
  return value;
}
inline float __int_as_float(int x) { return std::bit_cast<float>(x); }
inline int __float_as_int(float x) { return std::bit_cast<int>(x); }
inline long long __double_as_longlong(double x) { return std::bit_cast<long long>(x); }
inline unsigned long long atomicCAS(unsigned long long* at, unsigned long long old, unsigned long long value) {
  const unsigned long long was = *at;
  if (was == old) *at = value;
  return was;
}
inline void atomicExch(unsigned long long* at, unsigned long long value) { *at = value; }

#define STEPNET_OWN_FUNCTIONS
namespace stepnet::device {
#define STEPNET_HOST_FUNCTION(Name, of_vectors) \
  template <typename T>                         \
  T Name(T a) {                                 \
    T y;                                        \
    of_vectors(&a, &y, 1);                      \
    return y;                                   \
  }
STEPNET_HOST_FUNCTION(Exp, VectorExp)
STEPNET_HOST_FUNCTION(Tanh, VectorTanh)
STEPNET_HOST_FUNCTION(Sigmoid, VectorSigmoid)
STEPNET_HOST_FUNCTION(Erfc, VectorErfc)
STEPNET_HOST_FUNCTION(Sin, VectorSin)
STEPNET_HOST_FUNCTION(Cos, VectorCos)
inline float Log(float a) {
  float y;
  VectorLog(&a, &y, 1);
  return y;
}
// It is the C library's, which random normal numbers of the CPU are made by.
inline double Log(double a) { return std::log(a); }
}  // namespace stepnet::device

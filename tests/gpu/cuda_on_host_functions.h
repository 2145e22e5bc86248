// What a test gives to kernels that run on the CPU.
#pragma once

#include <cstdint>

// The functions whose last bits are the CPU's own, as core/vector_math.h has them.
struct HostFunctions {
  void (*exp_float)(const float*, float*, std::int64_t);
  void (*exp_double)(const double*, double*, std::int64_t);
  void (*log_float)(const float*, float*, std::int64_t);
  void (*log_double)(const double*, double*, std::int64_t);
  void (*tanh_float)(const float*, float*, std::int64_t);
  void (*tanh_double)(const double*, double*, std::int64_t);
  void (*sigmoid_float)(const float*, float*, std::int64_t);
  void (*sigmoid_double)(const double*, double*, std::int64_t);
  void (*erfc_float)(const float*, float*, std::int64_t);
  void (*erfc_double)(const double*, double*, std::int64_t);
  void (*sin_float)(const float*, float*, std::int64_t);
  void (*sin_double)(const double*, double*, std::int64_t);
  void (*cos_float)(const float*, float*, std::int64_t);
  void (*cos_double)(const double*, double*, std::int64_t);
};

// Exp, log, tanh, sigmoid, erfc, sin and cos of arrays, on the widest vectors that the machine has.
//
// A value's result depends on the value alone: not on its place in the array, nor on what surrounds it. Work may
// therefore be cut among threads anywhere and gives the same bits. Errors are 3 units in the last place at most (of
// erfc 4, without FMA) over the whole range; what overflows gives infinity, what underflows denormals and then 0, and
// NaN stays NaN. vector_math-inl.h has the same functions for single vectors.
#pragma once

#include <cstdint>

namespace stepnet {

// out[i] = f(in[i]) for i < n. `in` and `out` are the same array or do not overlap; they need no alignment.
void VectorExp(const float* in, float* out, std::int64_t n);
void VectorExp(const double* in, double* out, std::int64_t n);
// log(0) is -infinity, log of what is below 0 is NaN.
void VectorLog(const float* in, float* out, std::int64_t n);
void VectorLog(const double* in, double* out, std::int64_t n);
void VectorTanh(const float* in, float* out, std::int64_t n);
void VectorTanh(const double* in, double* out, std::int64_t n);
void VectorSigmoid(const float* in, float* out, std::int64_t n);
void VectorSigmoid(const double* in, double* out, std::int64_t n);
void VectorErfc(const float* in, float* out, std::int64_t n);
void VectorErfc(const double* in, double* out, std::int64_t n);
// Functions of double are the C library's, one by one.
void VectorSin(const float* in, float* out, std::int64_t n);
void VectorSin(const double* in, double* out, std::int64_t n);
void VectorCos(const float* in, float* out, std::int64_t n);
void VectorCos(const double* in, double* out, std::int64_t n);

}  // namespace stepnet

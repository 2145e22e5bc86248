// STEPNET_ANY_ORDER: the loop that follows may run in any order. Compilers cannot see that arrays which overlap are the
// same array, and would leave loops that work in place without vectors.
#pragma once

#if defined(__clang__)
#define STEPNET_ANY_ORDER _Pragma("clang loop vectorize(assume_safety)")
#elif defined(__GNUC__)
#define STEPNET_ANY_ORDER _Pragma("GCC ivdep")
#else
#define STEPNET_ANY_ORDER
#endif

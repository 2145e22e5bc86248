// STEPNET_UNROLL: before a loop whose variables are to be registers. Clang sees that by itself, and asked for it takes
// all memory where sanitizers look at each access.
#pragma once

#if defined(__clang__)
#define STEPNET_UNROLL
#else
#define STEPNET_UNROLL _Pragma("GCC unroll 8")
#endif

// What CUDA gives a kernel, on a CPU: kernels that were printed for a GPU are compiled as C++ behind this header, and
// run a thread after the other. The lanes of a warp are fibers, because they exchange values.
#pragma once

#include <ucontext.h>

#include <cmath>
#include <cstdint>
#include <cstring>
#include <vector>

#include "cuda_on_host_functions.h"

#define __device__
#define __global__
#define __launch_bounds__(threads)

struct Index1 {
  unsigned x = 0;
};
static Index1 blockIdx, threadIdx;

static HostFunctions host_functions;
extern "C" void SetHostFunctions(const HostFunctions* functions) { host_functions = *functions; }

#define STEPNET_OWN_FUNCTIONS
namespace stepnet::device {
#define STEPNET_HOST_FUNCTION(Name, name)    \
  inline float Name(float a) {               \
    float y;                                 \
    host_functions.name##_float(&a, &y, 1);  \
    return y;                                \
  }                                          \
  inline double Name(double a) {             \
    double y;                                \
    host_functions.name##_double(&a, &y, 1); \
    return y;                                \
  }
STEPNET_HOST_FUNCTION(Exp, exp)
STEPNET_HOST_FUNCTION(Log, log)
STEPNET_HOST_FUNCTION(Tanh, tanh)
STEPNET_HOST_FUNCTION(Sigmoid, sigmoid)
}  // namespace stepnet::device

template <typename To, typename From>
inline To SameBits(From x) {
  static_assert(sizeof(To) == sizeof(From));
  To y;
  std::memcpy(&y, &x, sizeof(y));
  return y;
}
inline float __int_as_float(int x) { return SameBits<float>(x); }
inline int __float_as_int(float x) { return SameBits<int>(x); }
inline long long __double_as_longlong(double x) { return SameBits<long long>(x); }

inline void __threadfence() {}
inline unsigned long long atomicCAS(unsigned long long* at, unsigned long long old, unsigned long long value) {
  const unsigned long long was = *at;
  if (was == old) *at = value;
  return was;
}
inline unsigned long long atomicExch(unsigned long long* at, unsigned long long value) {
  const unsigned long long was = *at;
  *at = value;
  return was;
}

// The lanes of one warp. Each runs up to its next exchange, then the others do; what a lane has put into its slot is
// there when all have been there.
constexpr int kLanes = 32;
struct Warp {
  ucontext_t caller;
  ucontext_t lanes[kLanes];
  std::vector<char> stacks = std::vector<char>(kLanes << 16);
  bool is_done[kLanes];
  unsigned long long slots[kLanes];
  int lane = 0;
  void (*call)(const void*) = nullptr;
  const void* parameters = nullptr;
};
static Warp warp;

static void LaneMain() {
  warp.call(warp.parameters);
  warp.is_done[warp.lane] = true;
}
static void WaitForLanes() {
  const int lane = warp.lane;
  swapcontext(&warp.lanes[lane], &warp.caller);
}
template <typename T>
inline T Exchanged(T value, int lane) {
  std::memcpy(&warp.slots[warp.lane], &value, sizeof(value));
  WaitForLanes();
  T result;
  std::memcpy(&result, &warp.slots[lane], sizeof(result));
  WaitForLanes();
  return result;
}
template <typename T>
inline T __shfl_sync(unsigned, T value, int lane) {
  return Exchanged(value, lane);
}
template <typename T>
inline T __shfl_down_sync(unsigned, T value, int delta) {
  return Exchanged(value, warp.lane + delta < kLanes ? warp.lane + delta : warp.lane);
}

static void RunWarp(unsigned first_thread) {
  for (int lane = 0; lane < kLanes; ++lane) {
    getcontext(&warp.lanes[lane]);
    warp.lanes[lane].uc_stack.ss_sp = warp.stacks.data() + (static_cast<size_t>(lane) << 16);
    warp.lanes[lane].uc_stack.ss_size = 1 << 16;
    warp.lanes[lane].uc_link = &warp.caller;
    makecontext(&warp.lanes[lane], LaneMain, 0);
    warp.is_done[lane] = false;
  }
  for (bool is_left = true; is_left;) {
    is_left = false;
    for (warp.lane = 0; warp.lane < kLanes; ++warp.lane) {
      if (warp.is_done[warp.lane]) continue;
      threadIdx.x = first_thread + static_cast<unsigned>(warp.lane);
      swapcontext(&warp.caller, &warp.lanes[warp.lane]);
      is_left |= !warp.is_done[warp.lane];
    }
  }
}

// Runs `call` with the parameters for every thread.
extern "C" void LaunchOnHost(void (*call)(const void*), const void* parameters, long long blocks, int threads,
                             bool is_by_warps) {
  warp.call = call;
  warp.parameters = parameters;
  for (long long block = 0; block < blocks; ++block) {
    blockIdx.x = static_cast<unsigned>(block);
    for (int thread = 0; thread < threads; thread += is_by_warps ? kLanes : 1) {
      threadIdx.x = static_cast<unsigned>(thread);
      is_by_warps ? RunWarp(threadIdx.x) : call(parameters);
    }
  }
}

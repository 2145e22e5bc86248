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
#define __forceinline__
#define __grid_constant__
#define __shared__ static
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
STEPNET_HOST_FUNCTION(Erfc, erfc)
STEPNET_HOST_FUNCTION(Sin, sin)
STEPNET_HOST_FUNCTION(Cos, cos)
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

// The threads of a block that exchange values are fibers; each runs until it waits for others.
constexpr int kLanes = 32;
constexpr int kMaxThreads = 512;
constexpr size_t kStackBytes = 1 << 16;
struct Barrier {
  int waiting = 0;
  unsigned turn = 0;
};
struct Block {
  ucontext_t scheduler;
  ucontext_t threads[kMaxThreads];
  std::vector<char> stacks = std::vector<char>(kMaxThreads * kStackBytes);
  bool is_done[kMaxThreads];
  int num_threads = 0;
  int thread = 0;  // that runs
  Barrier barrier;
  Barrier of_warp[kMaxThreads / kLanes];
  unsigned long long slots[kMaxThreads];
  void (*call)(const void*) = nullptr;
  const void* parameters = nullptr;
};
static Block block;

static void ThreadMain() {
  block.call(block.parameters);
  block.is_done[block.thread] = true;
}
static void WaitAt(Barrier* barrier, int threads) {
  const unsigned turn = barrier->turn;
  if (++barrier->waiting == threads) {
    barrier->waiting = 0;
    ++barrier->turn;
  }
  const int thread = block.thread;
  while (barrier->turn == turn) swapcontext(&block.threads[thread], &block.scheduler);
}
static void __syncthreads() { WaitAt(&block.barrier, block.num_threads); }

template <typename T>
inline T Exchanged(T value, int lane) {
  const int warp = block.thread / kLanes;
  std::memcpy(&block.slots[block.thread], &value, sizeof(value));
  WaitAt(&block.of_warp[warp], kLanes);
  T result;
  std::memcpy(&result, &block.slots[warp * kLanes + lane], sizeof(result));
  WaitAt(&block.of_warp[warp], kLanes);
  return result;
}
template <typename T>
inline T __shfl_sync(unsigned, T value, int lane) {
  return Exchanged(value, lane);
}
template <typename T>
inline T __shfl_xor_sync(unsigned, T value, int lanes) {
  return Exchanged(value, block.thread % kLanes ^ lanes);
}
template <typename T>
inline T __shfl_down_sync(unsigned, T value, int delta) {
  const int lane = block.thread % kLanes;
  return Exchanged(value, lane + delta < kLanes ? lane + delta : lane);
}

static void RunBlock() {
  for (int thread = 0; thread < block.num_threads; ++thread) {
    ucontext_t& context = block.threads[thread];
    getcontext(&context);
    context.uc_stack.ss_sp = block.stacks.data() + static_cast<size_t>(thread) * kStackBytes;
    context.uc_stack.ss_size = kStackBytes;
    context.uc_link = &block.scheduler;
    makecontext(&context, ThreadMain, 0);
    block.is_done[thread] = false;
  }
  for (bool is_left = true; is_left;) {
    is_left = false;
    for (block.thread = 0; block.thread < block.num_threads; ++block.thread) {
      if (block.is_done[block.thread]) continue;
      threadIdx.x = static_cast<unsigned>(block.thread);
      swapcontext(&block.scheduler, &block.threads[block.thread]);
      is_left |= !block.is_done[block.thread];
    }
  }
}

// Runs `call` with the parameters for every thread.
extern "C" void LaunchOnHost(void (*call)(const void*), const void* parameters, long long blocks, int threads,
                             bool threads_exchange) {
  block.call = call;
  block.parameters = parameters;
  block.num_threads = threads;
  for (long long number = 0; number < blocks; ++number) {
    blockIdx.x = static_cast<unsigned>(number);
    if (threads_exchange) {
      RunBlock();
      continue;
    }
    for (int thread = 0; thread < threads; ++thread) {
      threadIdx.x = static_cast<unsigned>(thread);
      call(parameters);
    }
  }
}

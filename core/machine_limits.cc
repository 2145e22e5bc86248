#include "stepnet/core/machine_limits.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <barrier>
#include <chrono>
#include <exception>
#include <fstream>
#include <limits>
#include <new>
#include <thread>
#include <vector>

#include "stepnet/core/thread_pool.h"
#include "stepnet/core/vector_math.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "stepnet/core/machine_limits.cc"
#include <hwy/foreach_target.h>  // IWYU pragma: keep
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace stepnet {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using FloatVector = hn::Vec<hn::ScalableTag<float>>;

// So many sums hide the latency of one multiplication behind the others, and leave registers free. Returns what was
// computed, so that nothing is left out, and sets the operations that it took.
constexpr int kSums = 12;
float MultiplyAndAdd(std::int64_t rounds, double* operations) {
  const hn::ScalableTag<float> v;
  // They differ, or a compiler would compute one of them.
  const auto start = [&](float value) { return hn::Set(v, value); };
  FloatVector s0 = start(1), s1 = start(2), s2 = start(3), s3 = start(4), s4 = start(5), s5 = start(6), s6 = start(7),
              s7 = start(8), s8 = start(9), s9 = start(10), s10 = start(11), s11 = start(12);
  const FloatVector factor = hn::Set(v, 0.5F), term = hn::Set(v, 0.25F);
  for (std::int64_t i = 0; i < rounds; ++i) {
    s0 = hn::MulAdd(s0, factor, term);
    s1 = hn::MulAdd(s1, factor, term);
    s2 = hn::MulAdd(s2, factor, term);
    s3 = hn::MulAdd(s3, factor, term);
    s4 = hn::MulAdd(s4, factor, term);
    s5 = hn::MulAdd(s5, factor, term);
    s6 = hn::MulAdd(s6, factor, term);
    s7 = hn::MulAdd(s7, factor, term);
    s8 = hn::MulAdd(s8, factor, term);
    s9 = hn::MulAdd(s9, factor, term);
    s10 = hn::MulAdd(s10, factor, term);
    s11 = hn::MulAdd(s11, factor, term);
  }
  *operations = 2.0 * kSums * static_cast<double>(rounds) * static_cast<double>(hn::Lanes(v));
  FloatVector sum = hn::Zero(v);
  for (const FloatVector& one : {s0, s1, s2, s3, s4, s5, s6, s7, s8, s9, s10, s11}) sum = hn::Add(sum, one);
  return hn::GetLane(sum);
}

float AddUp(const float* HWY_RESTRICT data, std::int64_t count) {
  const hn::ScalableTag<float> v;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(v));
  FloatVector s0 = hn::Zero(v), s1 = s0, s2 = s0, s3 = s0;
  for (std::int64_t i = 0; i + 4 * lanes <= count; i += 4 * lanes) {
    s0 = hn::Add(s0, hn::LoadU(v, data + i));
    s1 = hn::Add(s1, hn::LoadU(v, data + i + lanes));
    s2 = hn::Add(s2, hn::LoadU(v, data + i + 2 * lanes));
    s3 = hn::Add(s3, hn::LoadU(v, data + i + 3 * lanes));
  }
  return hn::GetLane(hn::Add(hn::Add(s0, s1), hn::Add(s2, s3)));
}

}  // namespace HWY_NAMESPACE
}  // namespace stepnet
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace stepnet {
namespace {

// What the system says of a cache, or, where it says nothing, what is usual.
std::int64_t CacheBytes(int name, std::int64_t usual) {
  const std::int64_t bytes = sysconf(name);
  return bytes > 0 ? bytes : usual;
}

// The size in a file of the kernel, as "32768K"; 0 where there is none.
std::int64_t CacheBytesOfKernel(const char* path) {
  std::ifstream file(path);
  std::int64_t size = 0;
  char unit = 0;
  return file >> size >> unit && unit == 'K' ? size << 10 : 0;
}

HWY_EXPORT(MultiplyAndAdd);
HWY_EXPORT(AddUp);

// The least time of some runs, in microseconds.
template <typename Body>
double MinTime(const Body& body) {
  using Clock = std::chrono::steady_clock;
  constexpr int kRuns = 12;
  double min_time = std::numeric_limits<double>::infinity();
  for (int run = 0; run < kRuns; ++run) {
    const Clock::time_point begin = Clock::now();
    body();
    min_time = std::min(min_time, std::chrono::duration<double, std::micro>(Clock::now() - begin).count());
  }
  return min_time;
}

// How fast so many bytes are read, again and again.
double ReadRate(std::int64_t bytes) {
  constexpr std::int64_t kBytesOfRun = 4 << 20;
  const std::vector<float> data(static_cast<size_t>(bytes) / sizeof(float), 1.0F);
  const auto count = static_cast<std::int64_t>(data.size());
  const std::int64_t times = std::max<std::int64_t>(1, kBytesOfRun / bytes);
  volatile float result = 0;
  const double time = MinTime([&] {
    for (std::int64_t i = 0; i < times; ++i) result = result + HWY_DYNAMIC_DISPATCH(AddUp)(data.data(), count);
  });
  return static_cast<double>(times * bytes) / time;
}

// The same for several threads that read it at the same time: that of the slowest one.
double ReadRateOfThreads(std::int64_t bytes, int num_threads) {
  using Clock = std::chrono::steady_clock;
  constexpr int kRuns = 6;  // the first one brings the bytes into the cache
  const std::vector<float> data(static_cast<size_t>(bytes) / sizeof(float), 1.0F);
  std::vector<std::array<double, kRuns>> times(static_cast<size_t>(num_threads));
  std::barrier together(num_threads);
  const auto read = [&](std::array<double, kRuns>* times_of_thread) {
    volatile float result = 0;
    for (double& time : *times_of_thread) {
      together.arrive_and_wait();
      const Clock::time_point begin = Clock::now();
      result = result + HWY_DYNAMIC_DISPATCH(AddUp)(data.data(), static_cast<std::int64_t>(data.size()));
      time = std::chrono::duration<double, std::micro>(Clock::now() - begin).count();
    }
  };
  {
    std::vector<std::jthread> others;
    others.reserve(times.size());
    for (size_t t = 1; t < times.size(); ++t) {
      try {
        others.emplace_back(read, &times[t]);
      } catch (const std::exception&) {  // of the system, or of memory
        together.arrive_and_drop();      // the others would wait for it
      }
    }
    read(&times[0]);
  }
  double min_time = std::numeric_limits<double>::infinity();
  for (int run = 1; run < kRuns; ++run) {
    double slowest = 0;
    for (const std::array<double, kRuns>& of_thread : times) slowest = std::max(slowest, of_thread[run]);
    min_time = std::min(min_time, slowest);
  }
  return static_cast<double>(bytes) / min_time;
}

double FlopRate() {
  constexpr std::int64_t kRounds = 20'000;
  double operations = 0;
  volatile float result = 0;
  const double time = MinTime([&] { result = HWY_DYNAMIC_DISPATCH(MultiplyAndAdd)(kRounds, &operations); });
  return operations / time;
}

double FunctionRate(void (*function)(const float*, float*, std::int64_t)) {
  constexpr std::int64_t kElements = 1024;
  constexpr int kTimes = 64;
  std::vector<float> in, out(kElements);
  for (std::int64_t i = 0; i < kElements; ++i) in.push_back(static_cast<float>(i + 1) / kElements);
  const double time = MinTime([&] {
    for (int k = 0; k < kTimes; ++k) function(in.data(), out.data(), kElements);
  });
  return static_cast<double>(kTimes * kElements) / time;
}

std::vector<MachineLimits::Function> FunctionRates() {
  return {{ExprOp::kExp, "exp", FunctionRate(VectorExp)},    {ExprOp::kLog, "log", FunctionRate(VectorLog)},
          {ExprOp::kTanh, "tanh", FunctionRate(VectorTanh)}, {ExprOp::kSigmoid, "sigmoid", FunctionRate(VectorSigmoid)},
          {ExprOp::kErfc, "erfc", FunctionRate(VectorErfc)}, {ExprOp::kSin, "sin", FunctionRate(VectorSin)},
          {ExprOp::kCos, "cos", FunctionRate(VectorCos)}};
}

}  // namespace

std::int64_t FirstCacheBytes() {
  static const std::int64_t bytes = CacheBytes(_SC_LEVEL1_DCACHE_SIZE, 32 << 10);
  return bytes;
}
std::int64_t SecondCacheBytes() {
  static const std::int64_t bytes = CacheBytes(_SC_LEVEL2_CACHE_SIZE, 1 << 20);
  return bytes;
}
std::int64_t ThirdCacheBytes() {
  static const std::int64_t bytes = [] {
    // The C library adds up those of a processor that has several.
    const std::int64_t of_one = CacheBytesOfKernel("/sys/devices/system/cpu/cpu0/cache/index3/size");
    return of_one > 0 ? of_one : CacheBytes(_SC_LEVEL3_CACHE_SIZE, 16 << 20);
  }();
  return bytes;
}

const MachineLimits::Cache& MachineLimits::CacheOf(double bytes) const {
  const auto holds = [&](const Cache& cache) { return bytes <= static_cast<double>(cache.bytes); };
  const auto* const first = std::ranges::find_if(caches, holds);
  return first == caches.end() ? caches.back() : *first;
}

MachineLimits MeasureMachineLimits() {
  const std::int64_t first = FirstCacheBytes(), second = SecondCacheBytes(), third = ThirdCacheBytes();
  MachineLimits limits{.flops_per_microsecond = FlopRate(),
                       .caches = {{{"first cache", first}, {"second cache", second}, {"third cache", third}}}};
  // Half of a cache, as something else runs, too; of the third, which others share, several times what the second
  // holds.
  const std::int64_t read[] = {first / 2, second / 2, std::min(third / 2, 8 * second)};
  for (size_t i = 0; i < limits.caches.size(); ++i) limits.caches[i].bytes_per_microsecond = ReadRate(read[i]);
  limits.functions = FunctionRates();
  return limits;
}

double SharedBytesPerMicrosecond() {
  static const double rate = [] {
    try {
      return ReadRateOfThreads(2 * SecondCacheBytes(), std::min(NumCores(), kCpuTarget.max_threads));
    } catch (const std::bad_alloc&) {
      return 0.0;
    }
  }();
  return rate;
}

}  // namespace stepnet
#endif

// MachineLimits: what a core of this machine can do at most, measured: what times of operators are compared with.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "stepnet/core/expressions/expr.h"
#include "stepnet/core/target.h"

namespace stepnet {

// Caches of a core, but for the third, one of those that cores share: what the system says, or what is usual.
std::int64_t FirstCacheBytes();
std::int64_t SecondCacheBytes();
std::int64_t ThirdCacheBytes();
// The size that the target gives it, if it gives one; otherwise what the machine says.
inline std::int64_t SecondCacheBytes(const Target& target) {
  return target.second_cache_bytes > 0 ? target.second_cache_bytes : SecondCacheBytes();
}

struct MachineLimits {
  // A cache, for one core that reads what lies in it.
  struct Cache {
    const char* name;        // "second cache"
    std::int64_t bytes = 0;  // that it holds
    double bytes_per_microsecond = 0;
  };
  // Additions and multiplications of float, by vectors that do both at once.
  double flops_per_microsecond = 0;
  std::array<Cache, 3> caches;
  // A function of float, of what lies in the first cache.
  struct Function {
    ExprOp op = ExprOp::kTanh;
    const char* name = nullptr;  // "tanh"
    double per_microsecond = 0;
  };
  std::vector<Function> functions = {};  // those of core/vector_math.h

  // The first cache that holds so many bytes, or the last one.
  const Cache& CacheOf(double bytes) const;
};

// Measures the core that calls, which takes some ten milliseconds. Beside other work it finds less.
MachineLimits MeasureMachineLimits();

// What a core reads in a microsecond, while all cores read the same, of bytes that lie in the cache that they share and
// that no second cache holds. Measured when somebody asks for the first time, on as many threads as there are cores,
// or the system gives, which takes milliseconds; beside other work it finds less. 0 where there is no memory for that.
double SharedBytesPerMicrosecond();

}  // namespace stepnet

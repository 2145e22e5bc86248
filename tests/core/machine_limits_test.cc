#include "stepnet/core/machine_limits.h"

#include <gtest/gtest.h>

#include <cmath>
#include <string>

namespace stepnet {
namespace {

TEST(MachineLimits, BytesAreInTheFirstCacheThatHoldsThem) {
  const MachineLimits limits{.flops_per_microsecond = 1,
                             .caches = {{{"first", 10, 3}, {"second", 100, 2}, {"third", 1000, 1}}}};
  EXPECT_EQ(limits.CacheOf(0).name, std::string("first"));
  EXPECT_EQ(limits.CacheOf(10).name, std::string("first"));
  EXPECT_EQ(limits.CacheOf(11).name, std::string("second"));
  EXPECT_EQ(limits.CacheOf(1000).name, std::string("third"));
  EXPECT_EQ(limits.CacheOf(1e12).name, std::string("third"));
}

TEST(MachineLimits, AreMeasured) {
  const MachineLimits limits = MeasureMachineLimits();
  EXPECT_GT(limits.flops_per_microsecond, 100);  // one operation in 10 ns
  EXPECT_TRUE(std::isfinite(limits.flops_per_microsecond));
  std::int64_t bytes = 0;
  for (const MachineLimits::Cache& cache : limits.caches) {
    EXPECT_GT(cache.bytes, bytes) << cache.name;
    bytes = cache.bytes;
    EXPECT_GT(cache.bytes_per_microsecond, 10) << cache.name;
    EXPECT_TRUE(std::isfinite(cache.bytes_per_microsecond)) << cache.name;
  }
  EXPECT_EQ(limits.functions.size(), 7U);
  for (const MachineLimits::Function& function : limits.functions) {
    EXPECT_GT(function.per_microsecond, 1) << function.name;  // one in a microsecond
    EXPECT_TRUE(std::isfinite(function.per_microsecond)) << function.name;
  }
}

TEST(MachineLimits, SharedBytesAreMeasuredOnce) {
  const double rate = SharedBytesPerMicrosecond();
  EXPECT_GT(rate, 10);
  EXPECT_TRUE(std::isfinite(rate));
  EXPECT_EQ(SharedBytesPerMicrosecond(), rate);
}

}  // namespace
}  // namespace stepnet

#include "stepnet/compiler/plan_cache.h"

#include <gtest/gtest.h>

namespace stepnet {
namespace {

// How many plans are made while keys 0 to `num_keys` - 1 come three times in turn.
int NumMade(int num_keys) {
  PlanCache<int, int> cache;
  int made = 0;
  for (int k = 0; k < 3 * num_keys; ++k) {
    const int key = k % num_keys;
    const std::shared_ptr<const int> plan = cache.Get(key, [&] {
      ++made;
      return std::make_shared<const int>(key);
    });
    EXPECT_EQ(*plan, key);
  }
  return made;
}

TEST(PlanCache, KeepsThePlansOfManyKeys) {
  EXPECT_EQ(NumMade(1), 1);
  EXPECT_EQ(NumMade(64), 64);
}

TEST(PlanCache, HasABound) { EXPECT_EQ(NumMade(65), 3 * 65); }

TEST(PlanCache, DropsThePlanThatWasUsedLongestAgo) {
  PlanCache<int, int> cache;
  int made = 0;
  const auto get = [&](int key) {
    cache.Get(key, [&] {
      ++made;
      return std::make_shared<const int>(key);
    });
  };
  for (int key = 0; key < 64; ++key) get(key);
  get(0);
  get(64);
  get(0);
  EXPECT_EQ(made, 65);
  get(1);
  EXPECT_EQ(made, 66);
}

}  // namespace
}  // namespace stepnet

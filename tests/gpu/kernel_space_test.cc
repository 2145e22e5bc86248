#include "stepnet/gpu/kernel_space.h"

#include <gtest/gtest.h>

#include <random>

#include "stepnet/core/strings.h"

namespace stepnet {
namespace {

std::string Joined(const RegionIndex& sizes, const std::vector<RegionIndex>& operands, unsigned apart = 0) {
  std::string text;
  for (const SpaceDim& dim : JoinDims(sizes, 0, kRegionDims, operands, apart))
    text += StrCat(dim.dim, ":", dim.size, " ");
  return text;
}

TEST(KernelSpace, JoinsDimensionsThatAllOperandsGoThroughAsOne) {
  const RegionIndex sizes = {2, 3, 4, 5}, dense = {60, 20, 5, 1};
  EXPECT_EQ(Joined(sizes, {dense}), "3:120 ");
  EXPECT_EQ(Joined(sizes, {dense, {0, 0, 0, 1}}), "2:24 3:5 ");
  EXPECT_EQ(Joined(sizes, {dense, {0, 0, 0, 0}}), "3:120 ") << "the same everywhere";
  EXPECT_EQ(Joined(sizes, {dense}, 1 << 2), "1:6 2:4 3:5 ") << "an index that is read";
  EXPECT_EQ(Joined(sizes, {{60, 20, 6, 1}}), "1:6 2:4 3:5 ") << "gaps between rows";
  EXPECT_EQ(Joined({1, 3, 1, 5}, {{7, 5, 9, 1}}), "3:15 ") << "strides of one element say nothing";
  EXPECT_EQ(Joined({1, 1, 1, 1}, {dense}), "");
  EXPECT_EQ(Joined({2, 0, 1, 5}, {{0, 5, 0, 1}}), "3:0 ");
}

TEST(KernelSpace, DividesByMultiplication) {
  std::mt19937 random(1);
  constexpr std::int64_t kLimit = std::int64_t{1} << 31;
  const auto quotient = [](std::uint64_t n, std::uint64_t word) {
    const std::uint64_t factor = word & 0xffffffffu, high = n * factor >> 32;
    return ((high + n) & 0xffffffffu) >> (word >> 32);
  };
  for (int i = 0; i < 100000; ++i) {
    const auto divisor = static_cast<std::uint64_t>(1 + random() % (kLimit - 1)) >> (random() % 31) | 1;
    const std::uint64_t word = DivisorWord(static_cast<std::int64_t>(divisor));
    const std::uint64_t any = random() % kLimit;
    for (const std::uint64_t n : {any, any / divisor * divisor, (any / divisor + 1) * divisor - 1, kLimit - 1ul}) {
      if (n >= kLimit) continue;
      ASSERT_EQ(quotient(n, word), n / divisor) << n << " / " << divisor;
    }
  }
  for (int shift = 0; shift < 31; ++shift) {
    const std::uint64_t divisor = std::uint64_t{1} << shift;
    ASSERT_EQ(quotient(kLimit - 1, DivisorWord(static_cast<std::int64_t>(divisor))), (kLimit - 1) / divisor);
  }
}

TEST(KernelSpace, KnowsWhat32BitsHold) {
  const SpaceDim dims[] = {{.dim = 2, .size = 1 << 16}, {.dim = 3, .size = 1 << 14}};
  EXPECT_TRUE(FitsNarrow(dims, {0, 0, 1 << 14, 1}));
  EXPECT_FALSE(FitsNarrow(dims, {0, 0, 1 << 16, 1}));
  EXPECT_TRUE(IsDense(dims, {0, 0, 1 << 14, 1}));
  EXPECT_FALSE(IsDense(dims, {0, 0, 1 << 15, 1}));
}

}  // namespace
}  // namespace stepnet

#include "stepnet/io/memory_ahead.h"

#include <gtest/gtest.h>
#include <malloc.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <optional>
#include <string>

#include "stepnet/tests/core/filled_memory.h"
#include "stepnet/tests/core/large_pages.h"

namespace stepnet {
namespace {

// More than the C library maps for itself (32 MiB): such tensors begin without pages, but in memory that others gave
// back, whose pages malloc_trim gives to the system.
constexpr std::int64_t kBytes = 40 << 20;

// How many pages lie within the tensor and are there; the last of it, which it may share, is left out.
std::int64_t PagesOf(const Tensor& tensor) {
  const std::int64_t page = sysconf(_SC_PAGESIZE);
  const auto first = reinterpret_cast<std::uintptr_t>(tensor.raw());
  const std::uintptr_t begin = (first + page - 1) / page * page;
  const std::int64_t pages = (static_cast<std::int64_t>(first - begin) + tensor.size_bytes()) / page;
  std::vector<unsigned char> is_there(static_cast<size_t>(pages));
  EXPECT_EQ(mincore(reinterpret_cast<void*>(begin), static_cast<size_t>(pages * page), is_there.data()), 0);
  return std::ranges::count_if(is_there, [](unsigned char flags) { return (flags & 1) != 0; });
}

// What is there of a tensor that nobody has touched: pages at its ends, which others share, and large ones.
std::int64_t FewPages() { return 10 + 2 * (2 << 20) / sysconf(_SC_PAGESIZE); }

std::int64_t AllPages() { return kBytes / sysconf(_SC_PAGESIZE) - 1; }

class MemoryAheadTest : public testing::Test {
 protected:
  MemoryAheadTest() { malloc_trim(0); }

 private:
  const FilledMemory none_{std::nullopt};  // memory that is filled when it is given out has its pages already
};

bool CanTakeMemory() {
#ifdef MADV_POPULATE_WRITE
  return madvise(nullptr, 0, MADV_POPULATE_WRITE) == 0;  // Linux before 5.14 does not know it
#else
  return false;
#endif
}

// Tensors that are too small to ask for them themselves have them, too.
TEST_F(MemoryAheadTest, AsksForLargePagesFromTheFirstByteToTheLast) {
  if (!std::filesystem::exists("/sys/kernel/mm/transparent_hugepage")) GTEST_SKIP() << "the system has no large pages";
  constexpr std::int64_t kSmall = 3 << 20;
  std::vector<Tensor> places;
  for (std::int64_t bytes = 0; bytes < kBytes; bytes += kSmall) places.emplace_back(DType::kInt8, Shape({kSmall}));
  for (const Tensor& place : places) AskForSmallPages(place.raw(), kSmall);
  for (const Tensor& place : places) ASSERT_FALSE(MayHaveLargePages(place.raw()));
  const MemoryAhead ahead(places, true);
  for (const Tensor& place : places) {
    EXPECT_TRUE(MayHaveLargePages(place.raw()));
    EXPECT_TRUE(MayHaveLargePages(place.data<std::int8_t>() + kSmall - 1));
  }
}

// A tensor of that size has asked for large ones.
TEST_F(MemoryAheadTest, AsksForSmallPagesWhereLargeOnesComeFromAHost) {
  if (!std::filesystem::exists("/sys/kernel/mm/transparent_hugepage")) GTEST_SKIP() << "the system has no large pages";
  const Tensor place(DType::kInt8, {kBytes});
  ASSERT_TRUE(MayHaveLargePages(place.raw()));
  const MemoryAhead ahead({place}, false);
  EXPECT_FALSE(MayHaveLargePages(place.raw()));
  EXPECT_FALSE(MayHaveLargePages(place.data<std::int8_t>() + kBytes - 1));
}

TEST_F(MemoryAheadTest, TakesThePagesOfAllPlaces) {
  if (!CanTakeMemory()) GTEST_SKIP() << "the system takes no memory in one go";
  const std::vector<Tensor> places = {Tensor(DType::kInt8, {kBytes}), Tensor(DType::kInt8, {kBytes})};
  for (const Tensor& place : places) ASSERT_LT(PagesOf(place), FewPages());
  TakeMemory(places, std::stop_token());
  for (const Tensor& place : places) EXPECT_GE(PagesOf(place), AllPages());
}

TEST_F(MemoryAheadTest, LeavesWhatIsThere) {
  const Tensor place(DType::kInt8, {kBytes});
  std::fill_n(place.data<std::int8_t>(), kBytes, std::int8_t{7});
  TakeMemory({&place, 1}, std::stop_token());
  EXPECT_EQ(std::count(place.data<std::int8_t>(), place.data<std::int8_t>() + kBytes, std::int8_t{7}), kBytes);
}

TEST_F(MemoryAheadTest, EndsWhenItIsAskedTo) {
  const Tensor place(DType::kInt8, {kBytes});
  std::stop_source source;
  source.request_stop();
  TakeMemory({&place, 1}, source.get_token());
  EXPECT_LT(PagesOf(place), FewPages());
}

TEST_F(MemoryAheadTest, WorksOnAThreadAndLeavesOutPlacesThatAreNone) {
  if (!CanTakeMemory()) GTEST_SKIP() << "the system takes no memory in one go";
  const Tensor place(DType::kInt8, {kBytes});
  const MemoryAhead ahead({Tensor(), place});
  for (int tries = 0; tries < 100'000 && PagesOf(place) < AllPages(); ++tries) usleep(100);
  EXPECT_GE(PagesOf(place), AllPages());
}

}  // namespace
}  // namespace stepnet

// The memory of a device, without a device: the cache, the limit, and what is said when there is none left.
#include "stepnet/gpu/memory_cache.h"

#include <gtest/gtest.h>

#include <limits>
#include <set>
#include <vector>

#include "stepnet/tests/core/error_of.h"

namespace stepnet {
namespace {

// A device of so many bytes.
struct FakeDevice {
  std::int64_t bytes = 1 << 20;
  std::int64_t taken = 0;
  int waits = 0;
  std::map<void*, std::int64_t> blocks;

  MemoryCache::Source Source() {
    return {.device = "fake:0",
            .take = [this](std::int64_t block) -> void* {
              if (block > bytes - taken) return nullptr;
              taken += block;
              void* const memory = reinterpret_cast<void*>(std::uintptr_t{256} * (blocks.size() + 1 + waits * 1000));
              blocks[memory] = block;
              return memory;
            },
            .give_back =
                [this](void* memory) {
                  taken -= blocks.at(memory);
                  blocks.erase(memory);
                },
            .wait = [this] { ++waits; }};
  }
};

constexpr std::int64_t kNoLimit = std::numeric_limits<std::int64_t>::max();

TEST(MemoryCache, GivesOutAgainWhatWasFreed) {
  FakeDevice device;
  MemoryCache cache(device.Source(), kNoLimit);
  void* const first = cache.Allocate(1000);
  EXPECT_EQ(cache.use().current, 1024);
  cache.Free(first, 1000);
  EXPECT_EQ(cache.use().current, 0);
  EXPECT_EQ(cache.use().cached, 1024);
  EXPECT_EQ(cache.Allocate(1010), first);
  EXPECT_EQ(cache.use().cached, 0);
  EXPECT_EQ(cache.use().peak, 1024);
  EXPECT_EQ(device.taken, 1024);
  EXPECT_EQ(device.waits, 0);
  EXPECT_NE(cache.Allocate(0), nullptr);
}

TEST(MemoryCache, EmptiesItselfBeforeTheDeviceHasNoneLeft) {
  FakeDevice device{.bytes = 4096};
  MemoryCache cache(device.Source(), kNoLimit);
  cache.Free(cache.Allocate(2048), 2048);
  cache.Free(cache.Allocate(1024), 1024);
  EXPECT_EQ(device.taken, 3072);
  EXPECT_NE(cache.Allocate(4096), nullptr);
  EXPECT_EQ(device.waits, 1) << "what was freed may still be in use";
  EXPECT_EQ(device.taken, 4096);
  EXPECT_EQ(cache.use().cached, 0);
}

TEST(MemoryCache, TellsWhatIsMissingAndGoesOn) {
  FakeDevice device{.bytes = 4096};
  MemoryCache cache(device.Source(), kNoLimit);
  void* const held = cache.Allocate(1024);
  EXPECT_EQ(ErrorOf([&] { cache.Allocate(4000); }),
            "out of memory: fake:0 has no 4000 bytes left: by this process 1024 bytes of at most 9223372036854775807 "
            "are in use");
  EXPECT_EQ(cache.use().current, 1024);
  cache.Free(held, 1024);
  EXPECT_NE(cache.Allocate(4000), nullptr);
}

TEST(MemoryCache, KeepsALimitWithWhatItKeeps) {
  FakeDevice device;
  MemoryCache cache(device.Source(), 4096);
  void* const held = cache.Allocate(1024);
  cache.Free(cache.Allocate(2048), 2048);
  // Both fit, but not beside what is kept.
  void* const second = cache.Allocate(3000);
  EXPECT_EQ(device.taken, 4096);
  EXPECT_EQ(device.waits, 1);
  EXPECT_EQ(ErrorOf([&] { cache.Allocate(1); }),
            "out of memory: 1 bytes of fake:0 exceed the limit of its memory: 4096 bytes of at most 4096 are in use "
            "(raise the limit with --max_device_memory of rnn_runner, stepnet.set_max_memory of Python or "
            "DeviceRuntime::SetMemoryLimit)");
  EXPECT_EQ(ErrorOf([&] { cache.Allocate(kNoLimit / 2); }).substr(0, 15), "out of memory: ");
  EXPECT_EQ(ErrorOf([&] { cache.SetLimit(4095); }),
            "invalid argument: a limit of 4095 bytes for the memory of fake:0, of which 4096 are in use");
  cache.Free(second, 3000);
  cache.SetLimit(2048);
  EXPECT_EQ(cache.use().cached, 0);
  EXPECT_EQ(device.taken, 1024);
  cache.Free(held, 1024);
  EXPECT_NE(cache.Allocate(2048), nullptr);
}

}  // namespace
}  // namespace stepnet

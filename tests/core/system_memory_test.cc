#include "stepnet/core/system_memory.h"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <cstdint>
#include <filesystem>
#include <limits>
#include <string>

#include "control_group_files.h"
#include "large_pages.h"
#include "stepnet/core/tensor.h"
#include "stepnet/io/file.h"
#include "temp_dir.h"

namespace stepnet {
namespace {

constexpr std::int64_t kNone = std::numeric_limits<std::int64_t>::max();

struct Groups : ControlGroupFiles {
  std::int64_t Memory(const std::string& groups) const { return ControlGroupMemory(groups, mount()); }
};

TEST(ControlGroupMemory, IsThatOfTheGroupOrOfOneAroundIt) {
  const Groups groups;
  groups.Put("a/b/memory.max", "max\n");
  groups.Put("a/memory.max", "5000\n");
  EXPECT_EQ(groups.Memory("0::/a/b\n"), 5000);
  groups.Put("a/b/memory.max", "4000\n");
  EXPECT_EQ(groups.Memory("0::/a/b\n"), 4000);
  EXPECT_EQ(groups.Memory("0::/a\n"), 5000);
  EXPECT_EQ(groups.Memory("0::/\n"), kNone);
  groups.Put("memory.max", "3000\n");
  EXPECT_EQ(groups.Memory("0::/a/b\n"), 3000);
  EXPECT_EQ(groups.Memory("0::/\n"), 3000);
  EXPECT_EQ(groups.Memory("0::/not/shown/in/the/container\n"), 3000);
}

TEST(ControlGroupMemory, KnowsVersion1AndBothAtOnce) {
  const Groups groups;
  groups.Put("memory/docker/memory.limit_in_bytes", "7000\n");
  groups.Put("memory/memory.limit_in_bytes", "9223372036854771712\n");
  const std::string text = "12:cpu,cpuacct:/docker\n5:hugetlb,memory:/docker\n1:name=systemd:/docker\n";
  EXPECT_EQ(groups.Memory(text), 7000);
  groups.Put("unified/docker/memory.max", "6000\n");
  EXPECT_EQ(groups.Memory(text + "0::/docker\n"), 6000);
}

TEST(ControlGroupMemory, WhatIsNotThereLimitsNothing) {
  const Groups groups;
  for (const char* text : {"", "\n", "0", "0:", "0::", "::::", "memory", "5:memory:", "5:memorys:/"}) {
    EXPECT_EQ(groups.Memory(text), kNone) << text;
  }
  groups.Put("memory.max", "-1\n");
  EXPECT_EQ(groups.Memory("0::/\n"), kNone);
  groups.Put("memory.max", "99999999999999999999999999\n");
  EXPECT_EQ(groups.Memory("0::/\n"), kNone);
  groups.Put("memory.max", "");
  EXPECT_EQ(groups.Memory("0::/\n"), kNone);
}

TEST(SystemMemory, IsSomeAndNoMoreThanTheMachineHas) {
  EXPECT_GT(SystemMemory(), 0);
  EXPECT_LT(SystemMemory(), kNone);
}

// Where it may, libraries are prepared before threads run.
TEST(SystemMemory, MayBeRefusedWhereThereIsALimit) {
  for (const auto resource : {RLIMIT_AS, RLIMIT_DATA}) {
    rlimit before = {};
    ASSERT_EQ(getrlimit(resource, &before), 0);
    if (before.rlim_cur != RLIM_INFINITY) {
      EXPECT_TRUE(MayRefuseMemory());
      continue;
    }
    const bool may_refuse = MayRefuseMemory();
    const rlimit limited = {.rlim_cur = rlim_t{1} << 60, .rlim_max = before.rlim_max};
    ASSERT_EQ(setrlimit(resource, &limited), 0);
    EXPECT_TRUE(MayRefuseMemory());
    ASSERT_EQ(setrlimit(resource, &before), 0);
    EXPECT_EQ(MayRefuseMemory(), may_refuse);
  }
}

TEST(GivesFreeMemoryToHost, WhereABalloonReportsIt) {
  const TempDir balloons;
  EXPECT_FALSE(GivesFreeMemoryToHost(balloons.Path("not there")));
  EXPECT_FALSE(GivesFreeMemoryToHost(balloons.path()));
  const auto put = [&](const std::string& device, const std::string& features) {
    std::filesystem::create_directories(balloons.Path(device));
    WriteFile(balloons.Path(device + "/features"), features);
  };
  put("virtio0", "0110100000\n");
  put("virtio1", "01101");
  std::filesystem::create_directories(balloons.Path("module"));
  EXPECT_FALSE(GivesFreeMemoryToHost(balloons.path()));
  put("virtio2", "0110010000\n");
  EXPECT_TRUE(GivesFreeMemoryToHost(balloons.path()));
}

TEST(LargePages, AreAskedForWhereTensorsAreLarge) {
  if (!std::filesystem::exists("/sys/kernel/mm/transparent_hugepage")) GTEST_SKIP() << "the system has no large pages";
  // Larger than what the C library keeps, so that nothing has lain there.
  const Tensor large(DType::kFloat, Shape({64 << 20}));
  EXPECT_TRUE(MayHaveLargePages(large.data<float>() + large.size() / 2));
  AskForSmallPages(large.raw(), large.size_bytes());
  EXPECT_FALSE(MayHaveLargePages(large.data<float>() + large.size() / 2));
}

}  // namespace
}  // namespace stepnet

#include "stepnet/core/system_cores.h"

#include <gtest/gtest.h>
#include <sched.h>

#include <thread>

#include "control_group_files.h"
#include "stepnet/core/thread_pool.h"

namespace stepnet {
namespace {

struct Groups : ControlGroupFiles {
  int Cores(const std::string& groups) const { return ControlGroupCores(groups, mount()); }
};

TEST(ControlGroupCores, AreWholeOnesOfTheGroupAndThoseAroundIt) {
  const Groups groups;
  groups.Put("a/b/cpu.max", "350000 100000\n");
  EXPECT_EQ(groups.Cores("0::/a/b\n"), 3);
  EXPECT_EQ(groups.Cores("0::/a\n"), kMaxCores);
  groups.Put("a/cpu.max", "200000 100000\n");
  EXPECT_EQ(groups.Cores("0::/a/b\n"), 2);
  groups.Put("a/b/cpu.max", "20000 100000\n");
  EXPECT_EQ(groups.Cores("0::/a/b\n"), 1) << "less than a core";
  groups.Put("cpu/docker/cpu.cfs_quota_us", "800000\n");
  groups.Put("cpu/docker/cpu.cfs_period_us", "100000\n");
  EXPECT_EQ(groups.Cores("4:cpu,cpuacct:/docker\n2:memory:/a\n"), 8);
}

TEST(ControlGroupCores, WhatIsNotThereLimitsNothing) {
  const Groups groups;
  for (const char* text : {"max 100000\n", "-1 100000\n", "", "x", "100000", "100000 0\n", "1e300 1e-300\n"}) {
    groups.Put("cpu.max", text);
    EXPECT_EQ(groups.Cores("0::/\n"), kMaxCores) << text;
  }
}

TEST(SystemCores, AreNoMoreThanTheProcessMayRunOn) {
  EXPECT_LE(NumCores(), static_cast<int>(std::thread::hardware_concurrency()));
  std::thread([] {
    cpu_set_t mine, one;
    ASSERT_EQ(sched_getaffinity(0, sizeof(mine), &mine), 0);
    int core = 0;
    while (!CPU_ISSET(core, &mine)) ++core;
    CPU_ZERO(&one);
    CPU_SET(core, &one);
    ASSERT_EQ(sched_setaffinity(0, sizeof(one), &one), 0);
    EXPECT_EQ(NumCores(), 1);
  }).join();
}

}  // namespace
}  // namespace stepnet

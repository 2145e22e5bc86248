#include "stepnet/executor/kept_runs.h"

#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "stepnet/core/spare_memory.h"
#include "stepnet/tests/core/error_of.h"

namespace stepnet {
namespace {

struct Steps {
  bool holds_bases = false;
  void ReleaseBases() { holds_bases = false; }
};

// As much of a run as KeptRuns asks for.
struct TestRun {
  std::shared_ptr<const int> plan;
  std::int64_t bytes = 0;
  std::unique_ptr<Steps> steps = std::make_unique<Steps>();
  std::int64_t MemoryBytes() const { return bytes; }
};

class KeptRunsTest : public testing::Test {
 protected:
  // Takes a run of plan `plan`, which needs so many bytes, and lets go of it: the address tells runs apart.
  const TestRun* Run(int plan, std::int64_t bytes) {
    const auto run = Take(plan, bytes);
    run->steps->holds_bases = true;
    return run.get();
  }
  std::shared_ptr<TestRun> Take(int plan, std::int64_t bytes = 100) {
    const std::shared_ptr<const int>& taken = plans_.at(plan);
    return runs_.Take(taken, static_cast<double>(bytes), [&] {
      ++num_made_;
      return std::make_shared<TestRun>(TestRun{.plan = taken, .bytes = bytes});
    });
  }

  std::vector<std::shared_ptr<const int>> plans_ = std::vector<std::shared_ptr<const int>>{
      std::make_shared<int>(), std::make_shared<int>(), std::make_shared<int>(),
      std::make_shared<int>(), std::make_shared<int>(), std::make_shared<int>()};
  KeptRuns<TestRun> runs_;
  int num_made_ = 0;
};

TEST_F(KeptRunsTest, TwoPlansThatTakeTurnsHaveARunEach) {
  for (int turn = 0; turn < 100; ++turn) {
    Run(0, 100);
    Run(1, 30);
  }
  EXPECT_EQ(num_made_, 2);
}

TEST_F(KeptRunsTest, ARunThatSomebodyHoldsIsNotTaken) {
  const std::shared_ptr<TestRun> held = Take(0), other = Take(0);
  EXPECT_NE(held, other);
  EXPECT_EQ(num_made_, 2);
}

TEST_F(KeptRunsTest, AllTogetherTakeNoMoreThanTwiceTheLargest) {
  Run(0, 60);
  Run(1, 60);
  Run(2, 60);  // beside 1: with 0 all would take 180
  EXPECT_EQ(num_made_, 3);
  Run(1, 60);
  EXPECT_EQ(num_made_, 3);
  Run(0, 60);
  EXPECT_EQ(num_made_, 4) << "0 has been dropped";
}

// As a run forward, whose memory for temporaries the run back has made larger.
TEST_F(KeptRunsTest, ARunThatHasGrownCountsWithWhatItHas) {
  Run(1, 90);
  Run(2, 80);
  Take(0, 10)->bytes = 100;
  Take(0, 10);  // beside 2: with 1 all would take 270
  EXPECT_EQ(num_made_, 3);
  Run(1, 90);
  EXPECT_EQ(num_made_, 4) << "1 has been dropped";
}

TEST_F(KeptRunsTest, SmallOnesAreKeptBesideALargeOneUpToFourInAll) {
  for (int turn = 0; turn < 2; ++turn) {
    Run(0, 100);
    for (const int small : {1, 2, 3}) Run(small, 10);
  }
  EXPECT_EQ(num_made_, 4);
  Run(4, 10);
  EXPECT_EQ(num_made_, 5);
  Run(0, 100);
  EXPECT_EQ(num_made_, 6) << "the one used longest ago has gone";
}

TEST_F(KeptRunsTest, WhatNobodyAsksForIsFreed) {
  const std::weak_ptr<TestRun> large = Take(0);
  for (int run = 0; run < 64; ++run) Run(1, 10);
  EXPECT_FALSE(large.expired());
  Run(1, 10);
  EXPECT_TRUE(large.expired());
}

TEST_F(KeptRunsTest, WhatIsKeptLetsGoOfWhatItWasLent) {
  const TestRun* const other = Run(0, 100);
  EXPECT_TRUE(other->steps->holds_bases);
  Take(1);
  EXPECT_FALSE(other->steps->holds_bases);
}

TEST_F(KeptRunsTest, TensorsOfOthersTakeWhatNobodyHolds) {
  const std::shared_ptr<TestRun> held = Take(2);
  const std::weak_ptr<TestRun> first = Take(0), second = Take(1);
  EXPECT_TRUE(FreeSpareMemory());
  EXPECT_TRUE(first.expired()) << "the one used longest ago";
  EXPECT_FALSE(second.expired());
  EXPECT_TRUE(FreeSpareMemory());
  EXPECT_TRUE(second.expired());
  EXPECT_FALSE(FreeSpareMemory());
  Run(0, 100);
  EXPECT_EQ(num_made_, 4);
}

// What is played finds its memory where it was.
TEST(KeptRuns, OfADeviceAreNobodyElses) {
  KeptRuns<TestRun> runs(Device{.kind = DeviceKind::kCuda});
  const auto plan = std::make_shared<const int>();
  runs.Take(plan, 100, [&] { return std::make_shared<TestRun>(TestRun{.plan = plan, .bytes = 100}); });
  EXPECT_FALSE(FreeSpareMemory());
  EXPECT_TRUE(runs.DropIdle());
}

TEST_F(KeptRunsTest, WhereMemoryRunsShortNothingIsKept) {
  std::weak_ptr<TestRun> other = Take(0);
  const std::shared_ptr<TestRun> run = Take(1);
  int calls = 0;
  runs_.TakeMemory([&] {
    if (++calls == 1) throw Error(ErrorCode::kOutOfMemory, "little memory");
  });
  EXPECT_EQ(calls, 2);
  EXPECT_TRUE(other.expired());
  // Nothing is left that could be given back.
  const auto fails = [&](ErrorCode code) {
    return ErrorOf([&] { runs_.TakeMemory([&] { throw Error(code, "why"); }); });
  };
  EXPECT_EQ(fails(ErrorCode::kOutOfMemory), "out of memory: why");
  other = Take(0);
  EXPECT_EQ(fails(ErrorCode::kShapeMismatch), "shape mismatch: why");
  EXPECT_FALSE(other.expired()) << "another fault has nothing to do with it";
}

}  // namespace
}  // namespace stepnet

// Nets that real Caffe2 built: every blob that they leave in the workspace is the same whichever executor runs them.
#include <gtest/gtest.h>

#include "golden_case.h"
#include "layers.h"
#include "stepnet/core/strings.h"
#include "stepnet/tests/core/filled_memory.h"
#include "stepnet/tests/core/sanitized.h"

namespace stepnet {
namespace {

class ParallelGolden : public testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Threads, ParallelGolden, testing::Values(1, 2, 3, 4, 8, 16));

TEST_P(ParallelGolden, EveryBlobIsWhatTheSerialExecutorGives) {
  int num_parallel = 0;
  RunOptions options{.executor = "parallel", .threads = GetParam()};
  options.on_plan = [&](const StepPlan&) { ++num_parallel; };
  for (const GoldenCase* const golden : GoldenCasesInTurn(static_cast<size_t>(GetParam()))) {
    CaseRun serial(*golden, {.executor = "serial"});
    CaseRun parallel(*golden, options);
    for (size_t r = 0; r < golden->runs.size(); ++r) {
      const Workspace& expected = serial.Run(r);
      ExpectSameBlobs(expected, parallel.Run(r), StrCat(golden->name, ", run ", r));
    }
  }
  EXPECT_GT(GoldenCases().size(), 150u);
  EXPECT_GT(num_parallel, FewerIfSanitized(200)) << "the cases hold few recurrent networks";
}

class GoldenMemory : public testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(, GoldenMemory, testing::Values("serial", "parallel"),
                         [](const auto& info) { return std::string(info.param); });

TEST_P(GoldenMemory, NoBlobDependsOnWhatWasInMemory) {
  const RunOptions options{
      .executor = GetParam(), .threads = 2, .opt_level = GetParam() == std::string("serial") ? 0 : kMaxOptLevel};
  for (const GoldenCase* const golden : GoldenCasesInTurn(static_cast<size_t>(options.opt_level))) {
    std::vector<std::unique_ptr<CaseRun>> fills;
    for (size_t k = 0; k < std::size(kFills); ++k) fills.push_back(std::make_unique<CaseRun>(*golden, options));
    for (size_t r = 0; r < golden->runs.size(); ++r) {
      std::vector<const Workspace*> found;
      for (size_t k = 0; k < std::size(kFills); ++k) {
        const FilledMemory filled(kFills[k]);
        found.push_back(&fills[k]->Run(r));
      }
      ExpectSameBlobs(*found[0], *found[1], StrCat(golden->name, ", run ", r));
    }
  }
}

}  // namespace
}  // namespace stepnet

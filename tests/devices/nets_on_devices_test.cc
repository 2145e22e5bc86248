// Nets that real Caffe2 built, and random step nets with their gradients: every device computes what the CPU does, the
// same bits on every run, whichever of its executors runs the steps.
#include <algorithm>

#include "stepnet/core/strings.h"
#include "stepnet/tests/core/sanitized.h"
#include "stepnet/tests/executor/golden_case.h"
#include "stepnet/tests/executor/random_step.h"
#include "stepnet/tests/executor/recurrent_case.h"
#include "tested_devices.h"

namespace stepnet {
namespace {

class GoldenNets : public OnEveryDevice {};
INSTANTIATE_ON_EVERY_DEVICE(GoldenNets);

TEST_P(GoldenNets, LeaveTheBlobsThatTheyLeaveOnTheCpu) {
  int compared = 0;
  const PoisonCounts before = CountsOfPoisonDevice();
  for (const GoldenCase* const golden : GoldenCasesInTurn(static_cast<size_t>(GetParam().kind))) {
    if (!WhyRefused(golden->net, GetParam()).empty()) continue;
    for (const int level : {0, 1, 2}) {
      CaseRun cpu(*golden, Reference(level)), device(*golden, Options(level));
      for (size_t r = 0; r < golden->runs.size(); ++r) {
        const std::string what = StrCat(golden->name, ", run ", r, " at level ", level);
        const Workspace& expected = cpu.Run(r);
        ExpectNearBlobs(device.Run(r), expected, ToleranceOf(GetParam()), what);
      }
      ++compared;
    }
  }
  EXPECT_GT(compared, FewerIfSanitized(2 * (185 + 77)));
  const bool is_poison = GetParam() == kPoisonDevice;
  EXPECT_GE(CountsOfPoisonDevice().kernels, before.kernels + (is_poison ? FewerIfSanitized(20'000) : 0));
  EXPECT_EQ(CountsOfPoisonDevice().bytes, before.bytes) << "all memory is given back";
}

// The case with inputs that are others in each run: a GPU launches the kernels of the first runs, records those of one,
// and plays them from then on.
GoldenCase WithChangingInputs(const GoldenCase& golden) {
  GoldenCase changing = golden;
  changing.runs.clear();
  for (int r = 0; r < 7; ++r) {
    NamedTensors inputs = golden.runs[0];
    for (auto& [name, tensor] : inputs) {
      if (tensor.dtype() != DType::kFloat || name == "sequence_length") continue;
      tensor = tensor.Clone();
      for (std::int64_t i = 0; i < tensor.size(); ++i) tensor.data<float>()[i] *= 1 - 0.1f * static_cast<float>(r);
    }
    changing.runs.push_back(std::move(inputs));
  }
  return changing;
}

TEST_P(GoldenNets, GiveTheSameBitsWithEveryExecutorAndInEveryRun) {
  const std::int64_t played = CountsOfPoisonDevice().played;
  for (const GoldenCase* const golden : GoldenCasesInTurn(static_cast<size_t>(GetParam().kind))) {
    if (!WhyRefused(golden->net, GetParam()).empty()) continue;
    const GoldenCase changing = WithChangingInputs(*golden);
    CaseRun first(changing, Options(kMaxOptLevel, "serial"));
    std::vector<std::unique_ptr<CaseRun>> others;
    for (const std::string& executor : Executors()) {  // "serial" once more
      others.push_back(std::make_unique<CaseRun>(changing, Options(kMaxOptLevel, executor)));
    }
    for (size_t r = 0; r < changing.runs.size(); ++r) {
      const Workspace& expected = first.Run(r);  // on the poison device whenever somebody waits, others in any order
      const PoisonOrder order(static_cast<unsigned>(r) + 1);
      for (const auto& other : others) ExpectSameValues(other->Run(r), expected, StrCat(golden->name, ", run ", r));
    }
    if (HasFailure()) return;
  }
  EXPECT_GE(CountsOfPoisonDevice().played, played + (GetParam() == kPoisonDevice ? FewerIfSanitized(600) : 0));
}

class RandomStepNets : public OnEveryDevice {};
INSTANTIATE_ON_EVERY_DEVICE(RandomStepNets);

// A net in a workspace of its own.
struct RunningNet {
  RunningNet(const RandomStep& step, const NetDef& def, const RunOptions& options) {
    Feed(step.Feeds(1), workspace);
    net = Net::Create(def, workspace, options);
  }
  const Workspace& Run(const RandomStep& step, std::int64_t steps) {
    Feed(step.Feeds(steps), workspace);
    net->Run();
    return workspace;
  }

  Workspace workspace;
  std::unique_ptr<Net> net;
};

// Each number of steps three times, so that what was recorded is played.
TEST_P(RandomStepNets, TrainAsOnTheCpuWhileTheNumberOfStepsChanges) {
  Tolerance tolerance = ToleranceOf(GetParam());
  if (tolerance.of_double > 0) tolerance = {.of_double = 1e-9, .where_finite = true};  // numbers grow from step to step
  unsigned compared = 0;
  for (unsigned seed = 0; seed < NumSeeds(40); ++seed) {
    const int level = static_cast<int>(seed % (kMaxOptLevel + 1));
    const RandomStep step(seed, level < 2 ? 3 : 8, StepOperators::kKnownShapes);
    const NetDef net = step.Training();
    const std::string what = StrCat("seed ", seed, " of ", net.ShortDebugString());
    if (!WhyRefused(net, GetParam()).empty()) continue;
    ++compared;
    RunningNet cpu(step, net, Reference(level));
    std::vector<std::unique_ptr<RunningNet>> there;
    for (const std::string& executor : Executors()) {
      there.push_back(std::make_unique<RunningNet>(step, net, Options(level, executor)));
    }
    for (const std::int64_t steps : {1, 9, 2, 0, 9}) {
      const Workspace& expected = cpu.Run(step, steps);
      const std::string of_steps = StrCat(steps, " steps, ", what);
      Workspace first;
      for (int run = 0; run < 3; ++run) {
        for (const auto& device : there) {
          const Workspace& found = device->Run(step, steps);
          if (first.LocalBlobs().empty()) {
            for (const std::string& name : found.LocalBlobs()) {
              if (found.FindBlob(name)->HasTensor()) first.SetTensor(name, found.GetTensor(name).To({}).Clone());
            }
            ExpectNearBlobs(found, expected, tolerance, of_steps);
          } else {
            ExpectSameValues(found, first, StrCat("run ", run, ", ", of_steps));
          }
        }
      }
      if (HasFailure()) return;
    }
  }
  EXPECT_GT(compared, NumSeeds(40) / 4);
}

// Needs none.
TEST(NetsOfDeviceTests, HaveKernelsForAGpu) {
  if (FindDeviceSpec(kCuda.kind) == nullptr) GTEST_SKIP() << "this program was built without cuda";
  for (unsigned seed = 0; seed < NumSeeds(100); ++seed) {
    const RandomStep step(seed, 3, StepOperators::kKnownShapes);
    EXPECT_EQ(WhyRefused(step.Training(), kCuda), "") << seed;
  }
  const auto run_there = [](const GoldenCase& golden) { return WhyRefused(golden.net, kCuda).empty(); };
  EXPECT_GT(std::ranges::count_if(GoldenCases(), run_there), 185 + 76);
}

}  // namespace
}  // namespace stepnet

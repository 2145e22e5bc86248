// A device that has too little memory.
#include <gtest/gtest.h>

#include <cstring>

#include "stepnet/compiler/step_plan.h"
#include "stepnet/core/error.h"
#include "stepnet/core/strings.h"
#include "stepnet/tests/core/error_of.h"
#include "stepnet/tests/poison_device/poison_device.h"
#include "stepnet/tests/tools/training_case.h"

namespace stepnet {
namespace {

constexpr std::int64_t kSteps = 1000;

// Before its first step, for what the steps compute; at an operator, for its inputs and outputs. Nothing else is left.
TEST(DeviceMemory, ARunThatFindsTooLittleSaysSoAndTheNextOneWorks) {
  RecurrentCase on_cpu = TrainingCase(kSteps), net = TrainingCase(kSteps);
  on_cpu.Run();
  DeviceRuntime& runtime = RuntimeOf(kPoisonDevice);
  const MemoryUse before = runtime.memory();
  const std::unique_ptr<Net> made = Net::Create(net.Build(), net.workspace(), OnDevice({}, kPoisonDevice));
  bool works = false, names_steps = false, names_gradient = false;
  int refused = 0;
  for (std::int64_t room = 4 << 10; !works && room < (4 << 20); room += 8 << 10) {
    runtime.SetMemoryLimit(std::max(runtime.memory().current, before.current + room));
    try {
      made->Run();
      made->Wait();
      works = true;
    } catch (const Error& error) {
      ++refused;
      const std::string text = error.what();
      EXPECT_EQ(error.code(), ErrorCode::kOutOfMemory) << text;
      EXPECT_FALSE(error.places().empty()) << text;
      names_steps = names_steps || text.find("a run of 1000 steps needs ") != std::string::npos;
      names_gradient = names_gradient || text.find(", and its gradient ") != std::string::npos;
    }
  }
  runtime.SetMemoryLimit(before.limit);
  EXPECT_TRUE(works);
  EXPECT_TRUE(names_steps);
  EXPECT_TRUE(names_gradient);
  EXPECT_GT(refused, 3);
  for (const char* blob : {"h_all", "x_grad"}) {
    const Tensor got = net.workspace().GetTensor(blob).To({}), wanted = on_cpu.workspace().GetTensor(blob);
    ASSERT_EQ(got.size_bytes(), wanted.size_bytes());
    EXPECT_EQ(std::memcmp(got.raw(), wanted.raw(), static_cast<size_t>(got.size_bytes())), 0) << blob;
  }
}

// States, and what the steps compute, forward and backward: as numbers, once a gradient has been computed.
TEST(DeviceMemory, TooLittleOfItForALongerRunIsToldWithAllThatItNeeds) {
  RecurrentCase net = TrainingCase(kSteps), longer = TrainingCase(2 * kSteps);
  DeviceRuntime& runtime = RuntimeOf(kPoisonDevice);
  const std::int64_t limit = runtime.memory().limit;
  std::shared_ptr<const StepPlan> forward, backward;
  RunOptions options = OnDevice({}, kPoisonDevice);
  options.on_plan = [&](const StepPlan& plan) {
    (plan.backward ? backward : forward) = std::make_shared<const StepPlan>(plan);
  };
  const std::unique_ptr<Net> made = Net::Create(net.Build(), net.workspace(), options);
  made->Run();
  made->Wait();
  net.workspace().SetTensor("x", longer.workspace().GetTensor("x").To(kPoisonDevice));
  runtime.SetMemoryLimit(runtime.memory().current + (64 << 10));
  const std::string error = ErrorOf([&] { made->Run(); });
  runtime.SetMemoryLimit(limit);
  const std::int64_t steps = forward->ArenaBytes(2 * kSteps), steps_back = backward->ArenaBytes(2 * kSteps);
  EXPECT_NE(error.find("out of memory: a run of 2000 steps needs "), std::string::npos) << error;
  EXPECT_NE(error.find(StrCat(" bytes for states and outputs and ", steps, " for what the steps compute, and its ")),
            std::string::npos)
      << error;
  EXPECT_NE(error.find(StrCat(" for those of states and ", steps_back, " for what the steps back compute: ")),
            std::string::npos)
      << error;
}

}  // namespace
}  // namespace stepnet

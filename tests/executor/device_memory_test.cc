// A device that has too little memory.
#include <gtest/gtest.h>

#include <cstring>

#include "stepnet/core/error.h"
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
  bool works = false, names_steps = false;
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
      names_steps = names_steps || text.find("what 1000 steps compute needs ") != std::string::npos;
    }
  }
  runtime.SetMemoryLimit(before.limit);
  EXPECT_TRUE(works);
  EXPECT_TRUE(names_steps);
  EXPECT_GT(refused, 3);
  for (const char* blob : {"h_all", "x_grad"}) {
    const Tensor got = net.workspace().GetTensor(blob).To({}), wanted = on_cpu.workspace().GetTensor(blob);
    ASSERT_EQ(got.size_bytes(), wanted.size_bytes());
    EXPECT_EQ(std::memcmp(got.raw(), wanted.raw(), static_cast<size_t>(got.size_bytes())), 0) << blob;
  }
}

}  // namespace
}  // namespace stepnet

// Memory of a device that somebody else has lent: it is read where it is, and goes back when the device has read it.
#include "stepnet/core/error.h"
#include "stepnet/nets/net.h"
#include "stepnet/tests/operators/op_test.h"
#include "tested_devices.h"

namespace stepnet {
namespace {

class TensorsLentOnDevices : public OnEveryDevice {};
INSTANTIATE_ON_EVERY_DEVICE(TensorsLentOnDevices);

NetDef Relu(const std::string& to) {
  NetDef net;
  OperatorDef& op = *net.add_op();
  op.set_type("Relu");
  op.add_input("x");
  op.add_output(to);
  return net;
}

Tensor Lend(const Tensor& memory, std::function<void()> release = {}) {
  return Tensor::Wrap(memory.raw(memory.device()), memory.dtype(), memory.shape(), std::move(release), memory.device());
}

TEST_P(TensorsLentOnDevices, AreReadWhereTheyAre) {
  const Tensor memory = Tensor::Of<float>({2, 2}, {-1, 2, -3, 4}).To(GetParam());
  Workspace workspace;
  workspace.SetTensor("x", Lend(memory));
  RunNetOnce(Relu("y"), workspace, Options());
  EXPECT_EQ(workspace.GetTensor("x").device(), GetParam());
  EXPECT_EQ(workspace.GetTensor("x").raw(GetParam()), memory.raw(GetParam()));
  ExpectNearTensor(workspace.GetTensor("y"), Tensor::Of<float>({2, 2}, {0, 2, 0, 4}), {}, "y");
}

TEST_P(TensorsLentOnDevices, AreNotWritten) {
  const Tensor memory = Tensor::Of<float>({2}, {-1, 2}).To(GetParam());
  Workspace workspace;
  workspace.SetTensor("x", Lend(memory));
  ExpectError([&] { RunNetOnce(Relu("x"), workspace, Options()); },
              "…blob \"x\" holds memory that is lent to be read (Tensor::Wrap), which an operator cannot write in "
              "place; let it write another blob, or give the blob a copy");
  ExpectNearTensor(memory, Tensor::Of<float>({2}, {-1, 2}), {}, "memory");
}

TEST_P(TensorsLentOnDevices, GoBackWhenTheDeviceHasReadThem) {
  if (GetParam().IsHost()) GTEST_SKIP() << "the host has read what it is given";
  DeviceRuntime& runtime = RuntimeOf(GetParam());
  runtime.queue().Wait();
  const Tensor memory = Tensor::Of<float>({1000}, std::vector<float>(1000, 3)).To(GetParam());
  int released = 0, done = 0;
  {
    Workspace workspace;
    workspace.SetTensor("x", Lend(memory, [&] {
                          ++released;
                          runtime.WhenDone([&] { ++done; });
                        }));
    RunNetOnce(Relu("y"), workspace, Options());
    EXPECT_EQ(released, 0);
  }
  EXPECT_EQ(released, 1);
  if (GetParam() == kPoisonDevice) {  // whose work is done when somebody waits
    EXPECT_EQ(done, 0);
  }
  runtime.queue().Wait();
  EXPECT_EQ(done, 1);
  runtime.queue().Wait();
  EXPECT_EQ(done, 1);
}

TEST_P(TensorsLentOnDevices, AreCalledForOneAfterTheOther) {
  if (GetParam().IsHost()) GTEST_SKIP() << "the host has no queue";
  DeviceRuntime& runtime = RuntimeOf(GetParam());
  const Tensor memory = Tensor::Zeros(DType::kFloat, {1000}, GetParam());
  int done = 0;
  for (int i = 0; i < 100; ++i) {
    runtime.queue().Fill(memory.raw(GetParam()), 0, memory.size_bytes());
    runtime.WhenDone([&done, &runtime, i] {
      EXPECT_EQ(done++, i);
      if (i == 50) static_cast<void>(runtime.memory());  // which wants a lock of the runtime's
    });
  }
  memory.To({});  // waits
  EXPECT_EQ(done, 100);
}

}  // namespace
}  // namespace stepnet

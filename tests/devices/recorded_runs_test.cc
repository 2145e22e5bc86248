// Runs that a device records and plays again: they draw new numbers, find faults, and overlap, as runs of the CPU do.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <thread>
#include <vector>

#include "stepnet/core/device.h"
#include "stepnet/core/strings.h"
#include "stepnet/nets/net.h"
#include "stepnet/nets/op_builder.h"
#include "stepnet/tests/core/error_of.h"
#include "stepnet/tests/executor/layers.h"
#include "stepnet/tests/executor/recurrent_case.h"
#include "tested_devices.h"

namespace stepnet {
namespace {

class RecordedRuns : public OnEveryDevice {};
INSTANTIATE_ON_EVERY_DEVICE(RecordedRuns);

// Layers are at different chunks of the steps at the same time; runs of other lengths come between.
TEST_P(RecordedRuns, OfLayersGiveTheBitsOfOneAfterTheOther) {
  const NetDef def = Layers(4, /*training=*/true);
  Workspace overlapped, in_turn;
  std::unique_ptr<Net> fast, slow;
  for (int run = 0; run < 12; ++run) {
    const std::int64_t steps = run == 7 ? 1 : run == 8 ? 0 : run == 9 ? 64 : 300;
    for (Workspace* workspace : {&overlapped, &in_turn}) {
      FeedLayers(4, steps, static_cast<unsigned>(run / 2), *workspace);
    }
    if (fast == nullptr) {
      fast = Net::Create(def, overlapped, Options());
      slow = Net::Create(def, in_turn, Options(kMaxOptLevel, "serial"));
    }
    fast->Run();
    slow->Run();
    ExpectSameValues(overlapped, in_turn, StrCat("run ", run));
  }
}

TEST_P(RecordedRuns, DrawNewNumbersEachTime) {
  NetDef def;
  AddOp(&def, "Dropout", {"x"}, {"y", "mask"}).Float("ratio", 0.5F).Int("is_test", 0);
  AddOp(&def, "Dropout", {"y"}, {"z", "mask2"}).Float("ratio", 0.25F).Int("is_test", 0);
  AddOp(&def, "UniformFill", {}, {"u"}).Ints("shape", {64, 32});
  AddOp(&def, "UniformIntFill", {}, {"n"}).Ints("shape", {64, 32}).Int("max", 1000);
  Tensor x(DType::kFloat, {64, 32});
  std::fill_n(x.data<float>(), x.size(), 1.0F);
  Workspace there, on_cpu;
  there.SetTensor("x", x.Clone());
  on_cpu.SetTensor("x", x.Clone());
  const auto net = Net::Create(def, there, Options());
  const auto reference = Net::Create(def, on_cpu, Reference());
  Tensor last = x;
  for (int run = 0; run < 8; ++run) {
    net->Run();
    reference->Run();
    const Tensor z = there.GetTensor("z").To({}).Clone();
    ExpectSame(z, on_cpu.GetTensor("z"), StrCat("run ", run));
    ExpectSame(there.GetTensor("u").To({}), on_cpu.GetTensor("u"), StrCat("uniform numbers of run ", run));
    ExpectSame(there.GetTensor("n").To({}), on_cpu.GetTensor("n"), StrCat("uniform integers of run ", run));
    EXPECT_NE(std::memcmp(z.raw(), last.raw(), static_cast<size_t>(z.size_bytes())), 0) << run;
    last = z;
  }
}

// What outlives a run with a fault stays as it was.
TEST_P(RecordedRuns, FindFaults) {
  NetDef def;
  AddOp(&def, "Div", {"a", "b"}, {"q"});
  AddOp(&def, "Add", {"sum", "q"}, {"sum"});
  Workspace there, on_cpu;
  const auto tensor = [](std::int32_t last) { return Tensor::Of<std::int32_t>({3}, {8, 6, last}); };
  for (Workspace* workspace : {&there, &on_cpu}) workspace->SetTensor("sum", tensor(0));
  std::unique_ptr<Net> net, reference;
  for (int run = 0; run < 12; ++run) {
    const bool is_faulty = run % 4 == 3;
    for (Workspace* workspace : {&there, &on_cpu}) {
      workspace->SetTensor("a", tensor(run));
      workspace->SetTensor("b", tensor(is_faulty ? 0 : 1));
    }
    if (net == nullptr) {
      net = Net::Create(def, there, Options());
      reference = Net::Create(def, on_cpu, Reference());
    }
    const std::string expected = ErrorOf([&] { reference->Run(); });
    const std::string found = ErrorOf([&] { net->Run(); });
    EXPECT_EQ(found.substr(0, found.find(" with ")), expected.substr(0, expected.find(" with "))) << run;
    EXPECT_EQ(expected != "no error", is_faulty);
    ExpectSame(there.GetTensor("sum").To({}), on_cpu.GetTensor("sum"), StrCat("run ", run));
  }
}

// Who holds on to an output keeps its values.
TEST_P(RecordedRuns, LeaveWhatSomebodyHolds) {
  NetDef def;
  AddOp(&def, "Tanh", {"x"}, {"y"});
  AddOp(&def, "Add", {"y", "y"}, {"z"});
  Workspace workspace;
  const auto net = [&] {
    workspace.SetTensor("x", Tensor::Of<float>({2}, {1, 2}));
    return Net::Create(def, workspace, Options());
  }();
  for (int run = 0; run < 6; ++run) net->Run();
  const Tensor held = workspace.GetTensor("z"), before = held.To({}).Clone();
  workspace.SetTensor("x", Tensor::Of<float>({2}, {3, 4}));
  for (int run = 0; run < 6; ++run) net->Run();
  ExpectSame(held.To({}), before, "what is held");
  EXPECT_FLOAT_EQ(workspace.GetTensor("z").To({}).data<float>()[1], 2 * std::tanh(4.0F));
}

// A call in a lane that puts in nothing, as an operator that gives a view, is behind its lane, and others behind it.
TEST_P(RecordedRuns, WaitForLanesThroughCallsThatPutInNothing) {
  if (GetParam().IsHost()) GTEST_SKIP() << "nothing is recorded on the CPU";
  DeviceRuntime& runtime = RuntimeOf(GetParam());
  const std::unique_ptr<Recorder> recorder = runtime.MakeRecorder();
  const Tensor given = Tensor::Of<float>({4}, {1, 2, 3, 4}).To(GetParam());
  Tensor between(DType::kFloat, {4}, GetParam()), found(DType::kFloat, {4}, GetParam());
  std::string refusal;
  recorder->Record(
      [&] {
        Queue& queue = runtime.queue();
        recorder->InLane(1, {},
                         [&] { queue.Copy(given.raw(GetParam()), between.raw(GetParam()), given.size_bytes()); });
        recorder->InLane(1, {}, [] {});
        recorder->InLane(0, std::vector<int>{1},
                         [&] { queue.Copy(between.raw(GetParam()), found.raw(GetParam()), given.size_bytes()); });
      },
      &refusal);
  ASSERT_EQ(refusal, "");
  for (int run = 0; run < 20; ++run) {
    for (Tensor* const tensor : {&between, &found})
      runtime.queue().Fill(tensor->raw(GetParam()), 0, given.size_bytes());
    while (recorder->num_pieces() == 0) std::this_thread::yield();
    recorder->Play(0);
    ExpectSame(found.To({}), given.To({}), StrCat("run ", run));
  }
}

}  // namespace
}  // namespace stepnet

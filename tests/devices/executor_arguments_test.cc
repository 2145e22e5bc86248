// What Caffe2's nets say about its executor chooses how fast a run is, never what it computes, on every device.
#include <algorithm>

#include "stepnet/compiler/step_plan.h"
#include "stepnet/core/strings.h"
#include "stepnet/gpu/cuda_target.h"
#include "stepnet/nets/backward.h"
#include "stepnet/nets/backward_step.h"
#include "stepnet/nets/net.h"
#include "stepnet/tests/executor/layers.h"
#include "stepnet/tests/executor/recurrent_case.h"
#include "tested_devices.h"

namespace stepnet {
namespace {

constexpr std::int64_t kSteps = 130;  // a GPU takes 64 at once

// Two layers with gradients of the last one alone, which no step waits for.
NetDef LastLayerAlone() {
  NetDef net = Layers(2, /*training=*/false);
  AddBackwardStepNets(&net);
  return AddGradients(net, {"l1_all"}, {"l0_w", "l0_u", "l1_w", "l1_u", "x"}).net;
}

struct ExecutorArguments {
  std::int64_t enabled, threads, streams, debug;
};

NetDef With(NetDef net, const ExecutorArguments& arguments) {
  for (OperatorDef& op : *net.mutable_op()) {
    if (!op.type().starts_with("RecurrentNetwork")) continue;
    AddInt(&op, "enable_rnn_executor", arguments.enabled);
    AddInt(&op, "rnn_executor.num_threads", arguments.threads);
    AddInt(&op, "rnn_executor.max_cuda_streams", arguments.streams);
    AddInt(&op, "rnn_executor_debug", arguments.debug);
  }
  return net;
}

class ExecutorArgumentsOfNets : public OnEveryDevice {};
INSTANTIATE_ON_EVERY_DEVICE(ExecutorArgumentsOfNets);

// S1 of docs/caffe2_compatibility.md: there, steps of a backward pass overwrite each other's buffers.
TEST_P(ExecutorArgumentsOfNets, S1HundredBackwardRunsGiveTheBitsOfOneStream) {
  Workspace one, many;
  const auto serial = Net::Create(LastLayerAlone(), one, Options(kMaxOptLevel, "serial"));
  const auto streams = Net::Create(With(LastLayerAlone(), {1, 4, 4, 0}), many, Options());
  const std::int64_t played = CountsOfPoisonDevice().played;
  for (unsigned run = 0; run < 100; ++run) {
    FeedLayers(2, kSteps, run % 7, one);
    FeedLayers(2, kSteps, run % 7, many);
    serial->Run();
    streams->Run();
    ExpectSameValues(many, one, StrCat("run ", run));
    if (HasFailure()) return;
  }
  // What streams put in beside each other is what is recorded.
  if (GetParam() == kPoisonDevice) {
    EXPECT_GT(CountsOfPoisonDevice().played, played + 50);
  }
}

// As plans for a GPU have it (gpu/cuda/stage_streams.h): else there would be one stream there, whatever a net says.
TEST(ExecutorArguments, AreTriedWhereStagesOfAGpuAreAtSeveralChunksAtOnce) {
  Target target = kCudaTarget;
  target.device = DeviceKind::kPrivate;
  std::vector<std::string> found;
  RunOptions options = OnDevice({}, kPoisonDevice);
  options.target = &target;
  options.on_plan = [&](const StepPlan& plan) {
    const auto takes_chunks = [](const Stage& stage) { return stage.steps_at_once != kAllSteps; };
    const std::int64_t chunks = plan.chunk_steps == 0 ? 1 : (kSteps + plan.chunk_steps - 1) / plan.chunk_steps;
    found.push_back(StrCat(std::ranges::count_if(plan.stages, takes_chunks), " stages, ", chunks, " chunks, up to ",
                           plan.max_queues, " streams"));
  };
  Workspace workspace;
  FeedLayers(2, kSteps, 1, workspace);
  RunNetOnce(With(LastLayerAlone(), {1, 4, 4, 0}), workspace, options);
  EXPECT_EQ(found, (std::vector<std::string>(2, "4 stages, 3 chunks, up to 4 streams")));
}

TEST_P(ExecutorArgumentsOfNets, ChangeNoResult) {
  const NetDef net = LastLayerAlone();
  Workspace expected;
  FeedLayers(2, kSteps, 1, expected);
  RunNetOnce(net, expected, Options(kMaxOptLevel, "serial"));
  for (const std::int64_t enabled : {0, 1}) {
    for (const std::int64_t threads : {-1, 0, 1, 3}) {
      for (const std::int64_t streams : {-1, 0, 1, 2, 8}) {
        RunOptions options = Options();
        options.quiet = true;
        Workspace found;
        FeedLayers(2, kSteps, 1, found);
        const auto running = Net::Create(With(net, {enabled, threads, streams, 1}), found, options);
        for (int run = 0; run < 3; ++run) running->Run();
        ExpectSameValues(found, expected, StrCat(enabled, " ", threads, " ", streams));
      }
    }
  }
}

// As Caffe2 writes nets for a GPU: the device in the net, inputs and outputs copied by operators.
TEST(NetsOfCaffe2ForAGpu, RunWhereTheyAreMeantToRun) {
  if (const std::string why = WhyNoDeviceHere(kCuda); !why.empty()) GTEST_SKIP() << why;
  NetDef net = With(LastLayerAlone(), {1, 2, 2, 0});
  Workspace expected;
  FeedLayers(2, kSteps, 1, expected);
  RunNetOnce(net, expected, Reference());
  NetDef on_gpu = net;
  on_gpu.mutable_device_option()->set_device_type(1);
  on_gpu.clear_op();
  *on_gpu.add_op() = ParseOp("x_there = CopyCPUToGPU(x)");
  for (OperatorDef op : net.op()) {
    for (std::string& input : *op.mutable_input()) input = input == "x" ? "x_there" : input;
    for (Argument& argument : *op.mutable_arg()) {
      for (std::string& name : *argument.mutable_strings()) name = name == "x" ? "x_there" : name;
    }
    *on_gpu.add_op() = op;
  }
  *on_gpu.add_op() = ParseOp("l1_here = CopyGPUToCPU(l1_all)");
  Workspace found;
  FeedLayers(2, kSteps, 1, found);
  const auto running = Net::Create(on_gpu, found);  // options name no device
  for (int run = 0; run < 3; ++run) {
    running->Run();
    ASSERT_TRUE(found.GetTensor("l1_here").device().IsHost());
    EXPECT_EQ(found.GetTensor("l1_all").device(), kCuda);
    for (const std::string blob : {"l0_w_grad", "l1_u_grad", "x_grad"}) {
      const Tolerance tolerance = ToleranceOf(kCuda);
      ExpectNearTensor(found.GetTensor(blob), expected.GetTensor(blob), tolerance, blob);
    }
    ExpectNearTensor(found.GetTensor("l1_here"), expected.GetTensor("l1_all"), ToleranceOf(kCuda), "l1_all");
  }
}

}  // namespace
}  // namespace stepnet

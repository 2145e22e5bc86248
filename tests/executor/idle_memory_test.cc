// Memory that operators keep for later runs is there for whoever needs it.
#include <gtest/gtest.h>

#include "recurrent_case.h"
#include "stepnet/core/spare_memory.h"
#include "stepnet/core/strings.h"
#include "stepnet/executor/recurrent_record.h"
#include "stepnet/nets/backward.h"
#include "stepnet/nets/backward_step.h"
#include "stepnet/nets/net.h"
#include "stepnet/tests/compiler/needs_usual_plans.h"
#include "stepnet/tests/core/limited_memory.h"
#include "stepnet/tests/examples/cell_case.h"

namespace stepnet {
namespace {

// An LSTM of three layers in two directions, each layer an operator, with the gradients of its parameters.
struct TrainedLayers {
  TrainedLayers() : made(cell.Expand()) {
    AddBackwardStepNets(&made.net);
    net = AddGradients(made.net, {made.net.external_output(0)}, made.parameters).net;
  }
  static CellSource Source() {
    CellSource source = ReadExampleCell("lstm");
    source.def.mutable_options()->set_layers(3);
    source.def.mutable_options()->set_direction(CellOptions::BIDIRECTIONAL);
    return source;
  }
  void Feed(Workspace& workspace) const {
    for (const auto& [blob, tensor] : cell.RandomValues(made)) workspace.SetTensor(blob, tensor.Clone());
  }

  const CellCase cell{.cell = Source(), .use = {.sizes = {{"D", 8}, {"H", 16}}}, .num_steps = 40, .batch = 4};
  CellNet made;
  NetDef net;
};

class LimitedRuns : public testing::TestWithParam<const char*> {
 protected:
  // Runs a new net so often; returns what each run gave as the gradient of a parameter, undefined where it was refused.
  std::vector<Tensor> Run(const TrainedLayers& layers, std::int64_t bytes, int num_runs) {
    Workspace workspace;
    layers.Feed(workspace);
    NetDef def = layers.net;
    def.set_type(GetParam());
    const auto net = Net::Create(def, workspace, {.executor = "serial"});
    const std::int64_t before = TensorMemory().current;
    const LimitedMemory limited(before + bytes);
    ResetPeakTensorMemory();
    std::vector<Tensor> gradients;
    for (int run = 0; run < num_runs; ++run) {
      try {
        net->Run();
        gradients.push_back(workspace.GetTensor(layers.made.parameters[0] + "_grad").Clone());
      } catch (const Error& error) {
        EXPECT_EQ(error.code(), ErrorCode::kOutOfMemory) << error.what();
        gradients.emplace_back();
      }
    }
    peak_ = TensorMemory().peak - before;
    return gradients;
  }

  std::int64_t peak_ = 0;  // of the last net, beside what it is fed
};
INSTANTIATE_TEST_SUITE_P(, LimitedRuns, testing::Values("simple", "dag"));

TEST_P(LimitedRuns, WhatSucceededOnceSucceedsAgain) {
  const TrainedLayers layers;
  const Tensor expected = Run(layers, std::int64_t{1} << 40, 1)[0];
  const std::int64_t peak = peak_;
  int num_successful = 0;
  for (int k = 0; k < 24; ++k) {
    const std::int64_t bytes = peak - k * peak / 40;
    const std::vector<Tensor> gradients = Run(layers, bytes, 4);
    if (!gradients[0].defined()) continue;
    ++num_successful;
    for (const Tensor& gradient : gradients) {
      ASSERT_TRUE(gradient.defined()) << "within " << bytes << " of " << peak << " bytes";
      ExpectSame(gradient, expected, StrCat("within ", bytes, " bytes"));
    }
  }
  EXPECT_GT(num_successful, 2);
}

// Two nets take turns: neither is under way while the other one runs.
TEST(IdleMemory, IsThereForOtherNets) {
  NEEDS_ALL_PASSES();
  const TrainedLayers layers;
  Workspace workspace;
  layers.Feed(workspace);
  const auto net = Net::Create(layers.net, workspace, {.executor = "serial"});
  net->Run();
  const Tensor expected = workspace.GetTensor(layers.made.parameters[0] + "_grad").Clone();
  const std::int64_t before = TensorMemory().current;
  {
    const LimitedMemory limited(before);
    const Tensor other(DType::kUInt8, Shape({1}));
    EXPECT_LT(TensorMemory().current, before);
  }
  for (const std::string& blob : workspace.LocalBlobs()) {
    const auto record = workspace.GetBlob(blob).GetObject<RecurrentRecord>();
    if (record == nullptr) continue;
    EXPECT_EQ(record->spare.Recomputed().size(), 0U) << "what costs no time goes first";
  }
  net->Run();
  ExpectSame(workspace.GetTensor(layers.made.parameters[0] + "_grad"), expected, "gradient");
  EXPECT_EQ(TensorMemory().current, before);
}

}  // namespace
}  // namespace stepnet

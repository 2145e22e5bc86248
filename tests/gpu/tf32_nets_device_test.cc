// Nets whose products a GPU computes in TF32: near what they are in float32, and the same in each run. Needs a GPU.
#include <gtest/gtest.h>

#include "stepnet/core/strings.h"
#include "stepnet/nets/backward.h"
#include "stepnet/nets/backward_step.h"
#include "stepnet/nets/net.h"
#include "stepnet/tests/devices/tested_devices.h"
#include "stepnet/tests/examples/cell_case.h"

namespace stepnet {
namespace {

class Tf32Nets : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    if (const std::string why = WhyNoDeviceHere(kCuda); !why.empty()) GTEST_SKIP() << why;
    CellCase test{.cell = ReadExampleCell(GetParam()), .num_steps = 12, .batch = 16};
    for (const CellSize& size : test.cell.def.size()) test.use.sizes[size.name()] = size.name() == "S" ? 12 : 128;
    const CellNet cell = test.Expand();
    def_ = cell.net;
    AddBackwardStepNets(&def_);
    def_ = AddGradients(def_, cell.outputs, cell.parameters).net;
    given_ = test.RandomValues(cell);
    // So small that a step does not grow what the one before has rounded.
    for (const std::string& name : cell.parameters) {
      Tensor& parameter = given_.at(name);
      for (std::int64_t i = 0; i < parameter.size(); ++i) parameter.data<double>()[i] /= 8;
    }
  }

  void Run(Math math, const std::string& executor, Workspace& workspace) const {
    FeedAs(DType::kFloat, given_, workspace);
    RunOptions options = OnDevice({}, kCuda);
    options.math = math;
    options.executor = executor;
    const std::unique_ptr<Net> net = Net::Create(def_, workspace, options);
    for (int run = 0; run < 6; ++run) net->Run();
    net->Wait();
  }

  NetDef def_;
  Tensors given_;
};
INSTANTIATE_TEST_SUITE_P(, Tf32Nets, testing::Values("lstm", "gru", "layer_norm_lstm", "attention_dot"),
                         [](const auto& info) { return std::string(info.param); });

// Factors have 10 bits behind the point.
TEST_P(Tf32Nets, AreNearFloat32WithItsGradients) {
  Workspace exact, rounded;
  Run(Math::kFloat32, "cuda", exact);
  Run(Math::kTf32, "cuda", rounded);
  ExpectNearBlobs(rounded, exact, {.of_float = 3e-2}, GetParam());
  bool differs = false;
  for (const std::string& name : exact.LocalBlobs()) {
    if (!exact.FindBlob(name)->HasTensor() || exact.GetTensor(name).dtype() != DType::kFloat) continue;
    const Tensor a = exact.GetTensor(name).To({}), b = rounded.GetTensor(name).To({});
    differs = differs || !std::equal(a.data<float>(), a.data<float>() + a.size(), b.data<float>());
  }
  EXPECT_TRUE(differs) << "no product was rounded";
}

TEST_P(Tf32Nets, HaveTheSameBitsInEachRunPlayedOrNot) {
  Workspace first, again, launched;
  Run(Math::kTf32, "cuda", first);
  Run(Math::kTf32, "cuda", again);
  Run(Math::kTf32, "serial", launched);
  ExpectSameValues(again, first, "another net");
  ExpectSameValues(launched, first, "launched");
}

}  // namespace
}  // namespace stepnet

// The cells of examples/cells, forward and backward, in float and in double, while the number of steps and the batch
// change from run to run. (All options of cells, in double: tests/examples/cell_options_test.cc, on every device too.)
#include "stepnet/core/strings.h"
#include "stepnet/nets/backward.h"
#include "stepnet/nets/backward_step.h"
#include "stepnet/nets/double_net.h"
#include "stepnet/nets/net.h"
#include "stepnet/tests/core/sanitized.h"
#include "stepnet/tests/examples/cell_case.h"
#include "tested_devices.h"

namespace stepnet {
namespace {

// The net of the cell with the gradients of the sum of its outputs by parameters and sequences.
NetDef WithGradients(const CellNet& cell, DType dtype) {
  NetDef net = dtype == DType::kDouble ? InDouble(cell.net) : cell.net;
  std::vector<std::string> wanted = cell.parameters;
  std::set<std::string> not_floating;
  for (const CellNetInput& input : cell.inputs) {
    if (input.dtype == DType::kFloat) {
      wanted.push_back(input.blob);
    } else {
      not_floating.insert(input.blob);
    }
  }
  AddBackwardStepNets(&net, [&](const std::string& blob) { return !not_floating.contains(blob); });
  return AddGradients(net, cell.outputs, wanted).net;
}

CellCase Case(const std::string& name, bool has_lengths) {
  CellCase test{.cell = ReadExampleCell(name)};
  if (has_lengths) test.cell.def.mutable_options()->set_lengths("lengths");
  test.use.sizes = SmallSizes(test.cell.def);
  return test;
}

struct Sizes {
  std::int64_t steps, batch;
};

class CellsOnDevices : public OnEveryDevice {
 protected:
  // One net for all sizes there, a fresh one for each on the CPU.
  void ExpectAsOnTheCpu(CellCase test, DType dtype, const std::vector<Sizes>& runs) {
    const CellNet cell = test.Expand();
    const NetDef def = WithGradients(cell, dtype);
    if (!WhyRefused(def, GetParam()).empty()) return;
    Workspace there;
    std::unique_ptr<Net> net;
    for (const Sizes& sizes : runs) {
      test.num_steps = sizes.steps;
      test.batch = sizes.batch;
      const Tensors given = test.RandomValues(cell);
      Workspace expected;
      FeedAs(dtype, given, expected);
      RunNetOnce(def, expected, Reference());
      FeedAs(dtype, given, there);
      if (net == nullptr) net = Net::Create(def, there, Options());
      for (int run = 0; run < 3; ++run) {
        net->SetRunCounter(0);
        net->Run();
        ExpectNearBlobs(there, expected, ToleranceOf(GetParam()),
                        StrCat(sizes.steps, " steps, batch of ", sizes.batch, ", run ", run));
      }
      if (HasFailure()) return;
    }
  }
};
INSTANTIATE_ON_EVERY_DEVICE(CellsOnDevices);

TEST_P(CellsOnDevices, TrainAsOnTheCpuWhileStepsAndBatchChange) {
  int trial = 0;
  for (const std::string& name : ExampleCells()) {
    for (const bool has_lengths : {false, true}) {
      for (const DType dtype : {DType::kFloat, DType::kDouble}) {
        if (!IsTried(trial++)) continue;
        SCOPED_TRACE(StrCat(name, has_lengths ? " with lengths" : "", " in ", dtype));
        ExpectAsOnTheCpu(Case(name, has_lengths), dtype, {{5, 3}, {1, 1}, {0, 3}, {7, 2}, {5, 0}, {5, 3}});
        if (HasFailure()) return;
      }
    }
  }
}

// Their gradients follow from sums over the steps, behind all of them.
TEST_P(CellsOnDevices, TrainDerivedWeightsAsOnTheCpu) {
  for (const bool has_lengths : {false, true}) {
    CellCase test{.cell = ParseCell("cell c(x[D]; h[H]) {\n size D = 3\n size H = 6\n param w[2*H, D]\n"
                                    " param v[2*H, H]\n param g[2*H, 1]\n param s[H]\n"
                                    " u = g * v / Sqrt(ReduceSum(v * v, axes=[1], keepdims=1))\n"
                                    " a, b = Split(x @ Softmax(w, axis=-1) + h @ u, axis=-1)\n"
                                    " h = Sigmoid(a) * Tanh(b) + Sigmoid(s) * h\n output h\n}\n",
                                    "c")};
    if (has_lengths) test.cell.def.mutable_options()->set_lengths("lengths");
    for (const DType dtype : {DType::kFloat, DType::kDouble}) {
      SCOPED_TRACE(StrCat(has_lengths ? "with lengths in " : "in ", dtype));
      ExpectAsOnTheCpu(test, dtype, {{5, 3}, {1, 1}, {0, 3}, {20, 2}, {5, 0}, {5, 3}});
    }
  }
}

// Needs none.
TEST(CellsOfDeviceTests, HaveKernelsForAGpu) {
  if (FindDeviceSpec(kCuda.kind) == nullptr) GTEST_SKIP() << "this program was built without cuda";
  for (const std::string& name : ExampleCells()) {
    for (const bool has_lengths : {false, true}) {
      const NetDef net = WithGradients(Case(name, has_lengths).Expand(), DType::kFloat);
      EXPECT_EQ(WhyRefused(net, kCuda), "") << name;
    }
  }
}

}  // namespace
}  // namespace stepnet

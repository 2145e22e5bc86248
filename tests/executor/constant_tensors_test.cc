// What runs compute of constant tensors alone they keep: Tensor::SetConstant.
#include "recurrent_case.h"
#include "stepnet/core/observer.h"
#include "stepnet/core/target.h"
#include "stepnet/nets/model.h"
#include "stepnet/tests/compiler/needs_usual_plans.h"
#include "stepnet/tests/operators/op_test.h"

namespace stepnet {
namespace {

constexpr std::int64_t kUnits = 64, kBatch = 4;
const std::int64_t kLong = kCpuTarget.min_steps_to_pack;

Tensor Weights(unsigned seed) {
  Tensor u = Random({kUnits, kUnits}, seed);
  for (std::int64_t i = 0; i < u.size(); ++i) u.data<double>()[i] /= kUnits;
  return u;
}

Tensor Sequence(std::int64_t steps) { return Random({steps, kBatch, kUnits}, 1); }

OperatorDef Product(const std::string& text) {
  OperatorDef op = ParseOp(text);
  AddInt(&op, "axis", 2);
  return op;
}

// h = tanh(x + h (u + v)), whose sum of weights follows from them alone.
RecurrentCase Layer() {
  RecurrentCase net;
  net.Sequence("x", "x_t").State("h", "h0", "h_prev", "h_next").Captured("u").Captured("v").Step("w = Sum(u, v)");
  net.Step(Product("r = FC(h_prev, w)")).Step("s = Sum(x_t, r)").Step("h_next = Tanh(s)").Output("all", "h", 1);
  net.Feed("h0", Random({kBatch, kUnits}, 2));
  return net;
}

// Counts what runs once for all steps.
class OnceCounter : public Observer {
 public:
  void Start(const RunEvent& event) override {
    if (event.op_type == nullptr) return;
    num_packs += event.op_text != nullptr && event.op_text->ends_with("= Pack(w)") ? 1 : 0;
    num_sums += event.op_text != nullptr && *event.op_text == "w = Sum(u, v)" ? 1 : 0;
  }
  void Stop(const RunEvent&) override {}

  std::atomic<int> num_packs = 0;
  std::atomic<int> num_sums = 0;
};

// Runs of one net on ever other tensors, each beside a net that has run nothing before.
class ConstantTensors : public testing::TestWithParam<int> {
 protected:
  ConstantTensors() {
    options_.threads = GetParam();
    if (GetParam() == 0) options_ = {.executor = "serial"};
  }

  void Run(std::int64_t steps, const Tensor& u, const Tensor& v, int packs, int sums) {
    const auto what = StrCat(steps, " steps");
    workspace_.SetTensor("x", Sequence(steps));
    workspace_.SetTensor("h0", Random({kBatch, kUnits}, 2));
    workspace_.SetTensor("u", u);
    workspace_.SetTensor("v", v);
    if (net_ == nullptr) net_ = Net::Create(Layer().Build(), workspace_, options_);
    OnceCounter counter;
    net_->AttachObserver(&counter);
    net_->Run();
    net_->DetachObserver(&counter);
    EXPECT_EQ(counter.num_packs, packs) << what;
    EXPECT_EQ(counter.num_sums, sums) << what;
    const Tensor expected =
        Layer().Feed("x", Sequence(steps)).Feed("u", u.Clone()).Feed("v", v.Clone()).Run().Get("all");
    ExpectSame(workspace_.GetTensor("all"), expected, what);
  }

  RunOptions options_;
  Workspace workspace_;
  std::unique_ptr<Net> net_;
};

INSTANTIATE_TEST_SUITE_P(Threads, ConstantTensors, testing::Values(0, 1, 2, 3),
                         [](const auto& info) { return info.param == 0 ? "Serial" : StrCat(info.param, "Threads"); });

TEST_P(ConstantTensors, WhatFollowsFromThemIsComputedOnce) {
  NEEDS_USUAL_PLANS();
  const Tensor u = Weights(3), v = Weights(4);
  Run(kLong, u, v, 1, 1);
  Run(kLong, u, v, 1, 1);
  u.SetConstant();
  Run(kLong, u, v, 1, 1);
  Run(kLong, u, v, 1, 1);  // v may have changed
  v.SetConstant();
  Run(kLong, u, v, 1, 1);
  Run(kLong, u, v, 0, 0);
  Run(2 * kLong, u, v, 0, 0);
}

TEST_P(ConstantTensors, OthersAreReadAnew) {
  NEEDS_USUAL_PLANS();
  Tensor u = Weights(3), v = Weights(4);
  u.SetConstant();
  v.SetConstant();
  Run(kLong, u, v, 1, 1);
  for (unsigned seed = 5; seed < 9; ++seed) {
    u = Tensor();  // its memory is free for the next one
    u = Weights(seed);
    Run(kLong, u, v, 1, 1);
    u.SetConstant();
    Run(kLong, u, v, 1, 1);
    Run(kLong, u, v, 0, 0);
  }
}

TEST_P(ConstantTensors, ShortRunsBetweenLongOnesLoseNothing) {
  NEEDS_USUAL_PLANS();
  const Tensor u = Weights(3), v = Weights(4);
  u.SetConstant();
  v.SetConstant();
  Run(2, u, v, 0, 1);
  Run(3, u, v, 0, 0);
  Run(kLong, u, v, 1, 1);  // packed weights come to what is kept
  Run(2, u, v, 0, 0);
  Run(kLong + 1, u, v, 0, 0);
}

TEST(ConstantTensor, IsNotWrittenInPlace) {
  Workspace workspace;
  const Tensor kept = Random({3}, 1);
  const Tensor before = kept.Clone();
  kept.SetConstant();
  workspace.SetTensor("a", kept);
  NetDef net;
  *net.add_op() = ParseOp("a = Tanh(a)");
  ExpectError([&] { RunNetOnce(net, workspace); }, "…blob \"a\" holds a constant tensor");
  ExpectSame(kept, before, "in place");
  *net.mutable_op(0) = ParseOp("a = Tanh(b)");
  workspace.SetTensor("b", Random({3}, 2));
  workspace.SetTensor("a", kept);
  const void* const address = kept.raw();
  const Tensor view = kept.Slice(0, 1);
  RunNetOnce(net, workspace);
  EXPECT_NE(workspace.GetTensor("a").raw(), address);
  ExpectSame(kept, before, "written by another operator");
}

// The blob alone holds the memory, which operators take for what they give otherwise.
TEST(ConstantTensor, KeepsItsMemory) {
  Workspace workspace;
  Blob& blob = workspace.CreateBlob("a");
  const void* const address = blob.MakeTensor(DType::kFloat, Shape({3})).raw();
  EXPECT_EQ(blob.MakeTensor(DType::kFloat, Shape({3})).raw(), address);
  blob.GetTensor().SetConstant();
  EXPECT_EQ(blob.MakeTensor(DType::kFloat, Shape({3})).ConstantId(), 0);
}

TEST(ConstantTensor, SetConstantLeavesOutWhatTheNetWrites) {
  Workspace workspace;
  for (const char* name : {"w", "b", "x", "momentum"}) workspace.SetTensor(name, Random({3}, 1));
  workspace.SetTensor("view", workspace.GetTensor("x").Slice(0, 1));
  workspace.CreateBlob("empty");
  NetDef net;
  *net.add_op() = ParseOp("x = Sum(x, w)");
  *net.add_op() = ParseOp("momentum = Sum(momentum, b)");
  SetConstant({"w", "view", "momentum", "empty", "none"}, net, workspace);
  EXPECT_NE(workspace.GetTensor("w").ConstantId(), 0);
  for (const char* name : {"b", "x", "momentum", "view"}) EXPECT_EQ(workspace.GetTensor(name).ConstantId(), 0) << name;
}

}  // namespace
}  // namespace stepnet

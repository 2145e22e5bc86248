// What operators of a net compute of constant tensors alone they compute once: Tensor::SetConstant.
#include "stepnet/nets/kept_outputs.h"

#include <mutex>
#include <set>
#include <utility>

#include "stepnet/core/formulas/formula.h"
#include "stepnet/core/observer.h"
#include "stepnet/io/proto_io.h"
#include "stepnet/nets/net.h"
#include "stepnet/proto/net.pb.h"
#include "stepnet/tests/executor/recurrent_case.h"
#include "stepnet/tests/operators/op_test.h"

namespace stepnet {
namespace {

NetDef NetOf(const std::vector<std::string>& ops, const std::string& type = "simple") {
  NetDef net;
  net.set_type(type);
  for (const std::string& op : ops) *net.add_op() = ParseOp(op);
  return net;
}

// The operators that run, as text.
class Seen : public Observer {
 public:
  void Start(const RunEvent& event) override {
    const std::lock_guard lock(mutex_);
    if (event.kind == RunEventKind::kOperator && event.op_text != nullptr) texts_.insert(*event.op_text);
  }
  void Stop(const RunEvent&) override {}
  std::set<std::string> Take() { return std::exchange(texts_, {}); }

 private:
  std::mutex mutex_;
  std::set<std::string> texts_;
};

class KeptOutputsTest : public testing::TestWithParam<std::string> {
 protected:
  // The operators that run, of a net on the tensors of the workspace.
  std::set<std::string> Run() {
    net_->AttachObserver(&seen_);
    net_->Run();
    net_->DetachObserver(&seen_);
    return seen_.Take();
  }
  std::set<std::string> Run(const std::vector<std::string>& ops) {
    net_ = Net::Create(NetOf(ops, GetParam()), workspace_);
    return Run();
  }
  Tensor Feed(const std::string& name, unsigned seed, bool constant = true) {
    const Tensor tensor = Random({4, 3}, seed);
    if (constant) tensor.SetConstant();
    workspace_.SetTensor(name, tensor);
    return tensor;
  }
  // A net that has run nothing before gives the same.
  void ExpectFresh(const std::string& output) {
    Workspace workspace;
    NetDef def;
    for (const auto& op : net_->operators()) *def.add_op() = ParseOp(op->text());
    for (const char* name : {"w", "v", "x"}) {
      if (workspace_.HasBlob(name)) workspace.SetTensor(name, workspace_.GetTensor(name).Clone());
    }
    RunNetOnce(def, workspace);
    ExpectSame(workspace_.GetTensor(output), workspace.GetTensor(output), output);
  }

  Workspace workspace_;
  std::unique_ptr<Net> net_;
  Seen seen_;
};

INSTANTIATE_TEST_SUITE_P(Types, KeptOutputsTest, testing::Values("simple", "dag"),
                         [](const auto& info) { return info.param; });

using Texts = std::set<std::string>;

TEST_P(KeptOutputsTest, WhatFollowsFromConstantsRunsOnce) {
  Feed("w", 1), Feed("v", 2), Feed("x", 3, /*constant=*/false);
  EXPECT_EQ(Run({"t = Transpose(w)", "s = Sum(t, t)", "y = FC(x, w)"}).size(), 3u);
  EXPECT_EQ(Run(), Texts{"y = FC(x, w)"});
  Feed("x", 4, /*constant=*/false);
  EXPECT_EQ(Run(), Texts{"y = FC(x, w)"});
  ExpectFresh("s");
  ExpectFresh("y");
}

TEST_P(KeptOutputsTest, OthersAreReadAnew) {
  Feed("w", 1, /*constant=*/false), Feed("v", 2);
  EXPECT_EQ(Run({"t = Transpose(w)", "s = Sum(t, t)", "r = Relu(v)"}).size(), 3u);
  EXPECT_EQ(Run(), (Texts{"t = Transpose(w)", "s = Sum(t, t)"}));
  for (unsigned seed = 5; seed < 9; ++seed) {
    workspace_.GetBlob("w").Reset();  // its memory is free for the next one
    Feed("w", seed);
    EXPECT_EQ(Run(), (Texts{"t = Transpose(w)", "s = Sum(t, t)"}));
    ExpectFresh("s");
    EXPECT_EQ(Run(), Texts{});
  }
}

TEST_P(KeptOutputsTest, AnotherViewOfTheSameConstantIsAnother) {
  const Tensor w = Feed("w", 1);
  Run({"t = Relu(w)"});
  for (const Tensor& view : {w.Reshaped({3, 4}), w.Slice(1, 3), w.Slice(2, 4), w}) {
    workspace_.SetTensor("w", view);
    EXPECT_EQ(Run(), Texts{"t = Relu(w)"});
    ExpectFresh("t");
    EXPECT_EQ(Run(), Texts{});
  }
}

TEST_P(KeptOutputsTest, OutputsThatWereReplacedAreComputedAgain) {
  Feed("w", 1);
  Run({"t = Relu(w)"});
  workspace_.SetTensor("t", Random({4, 3}, 9));
  EXPECT_EQ(Run(), Texts{"t = Relu(w)"});
  ExpectFresh("t");
  workspace_.GetBlob("t").Reset();
  EXPECT_EQ(Run(), Texts{"t = Relu(w)"});
  ExpectFresh("t");
}

TEST_P(KeptOutputsTest, WhatIsWrittenMoreThanOnceIsNotKept) {
  Feed("w", 1);
  for (int run = 0; run < 2; ++run) {
    const std::vector<std::string> ops = {"t = Transpose(w)", "t = Relu(t)", "u = Relu(w)", "u = Sum(w, w)"};
    EXPECT_EQ(run == 0 ? Run(ops).size() : Run().size(), 4u);
    ExpectFresh("t");
    ExpectFresh("u");
  }
}

TEST_P(KeptOutputsTest, RandomNumbersAreDrawnInEachRun) {
  Feed("w", 1);
  Run({"t, mask = Dropout(w)"});  // of every second one
  const Tensor first = workspace_.GetTensor("mask").Clone();
  bool differs = false;
  for (int run = 0; run < 8; ++run) {
    EXPECT_EQ(Run().size(), 1u);
    differs = differs || !std::equal(first.data<bool>(), first.data<bool>() + first.size(),
                                     workspace_.GetTensor("mask").data<bool>());
  }
  EXPECT_TRUE(differs);
}

const Registration counts = Operator("test.Counts")
                                .Input("x", "any")
                                .Output("y", "as x")
                                .Shapes(SameAsInput(0))
                                .Cpu([](const OperatorCall&) -> RunFn {
                                  return [count = std::make_shared<double>(0)](const OpRun& run) {
                                    for (std::int64_t i = 0; i < run.Out(0).size(); ++i)
                                      run.Out(0).As<double>()[i] = *count;
                                    ++*count;
                                  };
                                });

TEST_P(KeptOutputsTest, KernelsOfWhichNothingIsKnownRun) {
  Feed("w", 1);
  Run({"t = test.Counts(w)"});
  EXPECT_EQ(Run().size(), 1u);
  EXPECT_EQ(workspace_.GetTensor("t").data<double>()[0], 1);
}

const Registration fails = Operator("test.FailsBelowZero")
                               .Input("x", "any")
                               .Output("y", "as x")
                               .Formula(
                                   [](Formula& f) {
                                     f.Check(f.In("x") >= 0, "x is {}", f.In("x"));
                                     f.Out({f.In("x")});
                                   },
                                   {.checks_values = true});

TEST_P(KeptOutputsTest, FaultsAreFoundInEachRun) {
  Feed("w", 1);  // some are below 0
  net_ = Net::Create(NetOf({"t = test.FailsBelowZero(w)"}, GetParam()), workspace_);
  for (int run = 0; run < 3; ++run) EXPECT_THROW(net_->Run(), Error);
  const Tensor positive = Tensor::Zeros(DType::kDouble, {4, 3});
  positive.SetConstant();
  workspace_.SetTensor("w", positive);
  EXPECT_EQ(Run().size(), 1u);
  EXPECT_EQ(Run().size(), 0u);
}

}  // namespace
}  // namespace stepnet

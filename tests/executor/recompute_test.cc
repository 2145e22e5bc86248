// What runs forward do not keep where memory is short, and runs back compute again: the bits stay what they were.
#include <gtest/gtest.h>

#include <atomic>
#include <cmath>
#include <thread>

#include "golden_case.h"
#include "layers.h"
#include "random_step.h"
#include "recurrent_case.h"
#include "stepnet/core/spare_memory.h"
#include "stepnet/core/strings.h"
#include "stepnet/executor/recurrent_record.h"
#include "stepnet/nets/backward.h"
#include "stepnet/nets/backward_step.h"
#include "stepnet/tests/compiler/needs_usual_plans.h"
#include "stepnet/tests/core/error_of.h"
#include "stepnet/tests/core/limited_memory.h"
#include "stepnet/tests/core/sanitized.h"
#include "stepnet/tests/examples/cell_case.h"

namespace stepnet {
namespace {

// Frees so much of what can be spared before each operator of a net.
class Freeing : public Observer {
 public:
  explicit Freeing(int at_a_time) : at_a_time_(at_a_time) {}
  void Start(const RunEvent& event) override {
    if (event.kind != RunEventKind::kOperator || event.plan != nullptr) return;
    for (int k = 0; k < at_a_time_ && FreeSpareMemory(); ++k) ++num_freed_;
  }
  void Stop(const RunEvent&) override {}
  int num_freed() const { return num_freed_; }

 private:
  const int at_a_time_;
  int num_freed_ = 0;
};

struct Setting {
  int opt_level = 0;
  int threads = 1;
  int at_a_time = 1;
};

class Recompute : public testing::TestWithParam<Setting> {
 protected:
  static RunOptions Options() {
    return {.executor = GetParam().threads == 1 ? "serial" : "parallel",
            .threads = GetParam().threads,
            .opt_level = GetParam().opt_level};
  }

  // Runs the net with all that there is, and where memory is short, three times with what is fed for each of `turns`:
  // what a run has freed, the next does not keep. Returns how many values were freed.
  static int ExpectSameBits(const NetDef& net, const std::function<void(size_t, Workspace&)>& feed,
                            const std::string& what, size_t turns = 1) {
    Workspace whole, spared;
    Freeing freeing(GetParam().at_a_time);
    std::unique_ptr<Net> keeps, frees;
    for (size_t run = 0; run < 3 * turns; ++run) {
      feed(run / 3, whole);
      feed(run / 3, spared);
      if (run == 0) {
        keeps = Net::Create(net, whole, Options());
        frees = Net::Create(net, spared, Options());
        frees->AttachObserver(&freeing);
      }
      keeps->Run();
      frees->Run();
      ExpectSameBlobs(whole, spared, StrCat(what, ", run ", run));
    }
    return freeing.num_freed();
  }
};
INSTANTIATE_TEST_SUITE_P(, Recompute,
                         testing::Values(Setting{0, 1, 1}, Setting{1, 1, 100}, Setting{1, 2, 1}, Setting{2, 1, 1},
                                         Setting{2, 1, 100}, Setting{2, 2, 100}),
                         [](const auto& info) {
                           return StrCat("level", info.param.opt_level, "_threads", info.param.threads, "_by",
                                         info.param.at_a_time);
                         });

NetDef TrainingOf(NetDef net, const std::string& output, const std::vector<std::string>& inputs) {
  AddBackwardStepNets(&net);
  return AddGradients(net, {output}, inputs).net;
}

// The cell of the text, with the gradients of its parameters, and of others that it reads.
struct TrainedCell {
  TrainedCell(const std::string& text, std::int64_t num_steps, std::int64_t batch, CellSizes sizes = {},
              const std::vector<std::string>& others = {})
      : TrainedCell(ParseCell(text, "c"), num_steps, batch, std::move(sizes), others) {}
  TrainedCell(CellSource source, std::int64_t num_steps, std::int64_t batch, CellSizes sizes = {},
              const std::vector<std::string>& others = {})
      : cell{.cell = std::move(source), .use = {.sizes = std::move(sizes)}, .num_steps = num_steps, .batch = batch},
        made(cell.Expand()),
        net(TrainingOf(made.net, made.net.external_output(0), WithOthers(made.parameters, others))) {}
  static std::vector<std::string> WithOthers(std::vector<std::string> parameters,
                                             const std::vector<std::string>& others) {
    parameters.insert(parameters.end(), others.begin(), others.end());
    return parameters;
  }
  void Feed(Workspace& workspace) const {
    for (const auto& [blob, tensor] : cell.RandomValues(made)) workspace.SetTensor(blob, tensor.Clone());
  }

  const CellCase cell;
  const CellNet made;
  const NetDef net;
};

TEST_P(Recompute, GradientsOfCellsKeepTheirBits) {
  std::map<std::string, int> freed;
  for (const std::string& name : ExampleCells()) {
    CellCase cell{.cell = ReadExampleCell(name), .num_steps = 20, .batch = 3};
    const CellNet made = cell.Expand();
    const NetDef net = TrainingOf(made.net, made.net.external_output(0), made.parameters);
    const auto feed = [&](size_t, Workspace& workspace) {
      for (const auto& [blob, tensor] : cell.RandomValues(made)) workspace.SetTensor(blob, tensor.Clone());
    };
    freed[name] = ExpectSameBits(net, feed, name);
  }
  for (const char* name : {"lstm", "peephole_lstm", "layer_norm_lstm"}) EXPECT_GT(freed.at(name), 0) << name;
}

// Products of the loop, by weights that are laid out for it, and in runs too short for that.
TEST_P(Recompute, ProductsKeepTheirBits) {
  std::int64_t trial = GetParam().opt_level + GetParam().threads;  // others with other settings
  for (const char* name : {"lstm", "gru", "layer_norm_lstm", "peephole_lstm"}) {
    for (const std::int64_t num_steps : {18, 7}) {
      if (!IsTried(trial++)) continue;
      const TrainedCell cell(ReadExampleCell(name), num_steps, 16, {{"D", 64}, {"H", 256}});
      const int num_freed = ExpectSameBits(
          cell.net, [&](size_t, Workspace& workspace) { cell.Feed(workspace); }, name);
      EXPECT_GT(num_freed, 1) << name;
    }
  }
}

// Caffe2's own backward step nets.
TEST_P(Recompute, GradientsOfGoldenNetsKeepTheirBits) {
  int num_freed = 0;
  for (const GoldenCase* const golden : GoldenCasesInTurn(static_cast<size_t>(GetParam().opt_level))) {
    const auto feed = [&](size_t turn, Workspace& workspace) {
      for (const auto& [name, tensor] : golden->runs[turn]) workspace.SetTensor(name, tensor.Clone());
    };
    num_freed += ExpectSameBits(golden->net, feed, golden->name, golden->runs.size());
  }
  EXPECT_GT(num_freed, 0);
}

TEST_P(Recompute, GradientsOfRandomStepsKeepTheirBits) {
  int num_freed = 0;
  constexpr unsigned kSeeds = 600;
  for (unsigned seed = 0; seed < NumSeeds(kSeeds); ++seed) {
    const RandomStep step(seed, 3, StepOperators::kAny);
    const auto feed = [&](size_t turn, Workspace& workspace) {
      for (const auto& [name, tensor] : step.Feeds(turn == 0 ? 7 : 20)) workspace.SetTensor(name, tensor);
    };
    num_freed += ExpectSameBits(step.Training(), feed, StrCat("seed ", seed), 2);
    if (testing::Test::HasFailure()) return;
  }
  EXPECT_GT(num_freed, MinOfSeeds(200, kSeeds));
}

// The mask is a function of seed, operator, step and run.
TEST_P(Recompute, MasksAreDrawnAgain) {
  const TrainedCell cell(
      "cell c(x[D]; h[H]) {\n size D = 3\n size H = 5\n param w[H, D]\n param u[H, H]\n"
      " a = Tanh(x @ w + h @ u)\n d, mask = Dropout(a, ratio=0.5, is_test=0)\n h = Sigmoid(d)\n output h\n}\n",
      20, 3);
  EXPECT_GT(ExpectSameBits(
                cell.net, [&](size_t, Workspace& workspace) { cell.Feed(workspace); }, "dropout"),
            0);
}

// What the gradient reads of the run forward some operator writes anew between both.
TEST_P(Recompute, IsOfWhatTheRunForwardRead) {
  const TrainedCell cell(
      "cell c(x[H]; h[H]) {\n size H = 5\n param w[H, H]\n y = Tanh(x)\n h = Tanh(h @ w) * y\n output h\n}\n", 20, 3);
  const auto& operators = cell.net.op();
  const auto is_forward = [](const OperatorDef& op) { return op.type() == "RecurrentNetwork"; };
  const auto forward = std::ranges::find_if(operators, is_forward);
  ASSERT_NE(forward, operators.end());
  for (const std::string& blob : {forward->input(0), forward->output(0)}) {
    NetDef net = cell.net;
    OperatorDef* const scale = net.add_op();
    *scale = ParseOp(StrCat(blob, " = Scale(", blob, ")"));
    Argument* const factor = scale->add_arg();
    factor->set_name("scale");
    factor->set_f(2);
    const auto first = net.mutable_op()->begin() + (forward - operators.begin()) + 1;
    std::rotate(first, net.mutable_op()->end() - 1, net.mutable_op()->end());
    ExpectSameBits(
        net, [&](size_t, Workspace& workspace) { cell.Feed(workspace); }, blob);
  }
}

// The terms of both directions' steps are added to one sum.
TEST_P(Recompute, GradientsOfCapturedTensorsKeepTheirBits) {
  const TrainedCell cell(
      "cell c(x[D]; h[H], c[K]; cv[H]) {\n size D = 16\n size H = 33\n size K = 4\n param p[H, D]\n param q[K, 1]\n"
      " h = Tanh(x @ p)\n s = ReduceMean(cv * Sigmoid(h), axes=[-1], keepdims=1)\n c = Tanh(s @ q)\n output c\n"
      " option direction = bidirectional\n}\n",
      20, 4, {}, {"cv"});
  EXPECT_GT(ExpectSameBits(
                cell.net, [&](size_t, Workspace& workspace) { cell.Feed(workspace); }, "captured"),
            0);
}

// What their gradients follow from is computed once in any case, and read behind all steps.
TEST_P(Recompute, GradientsOfDerivedWeightsKeepTheirBits) {
  const TrainedCell cell(
      "cell c(x[D]; h[H]) {\n size D = 16\n size H = 33\n param w[2*H, D]\n param v[2*H, H]\n param g[2*H, 1]\n"
      " u = g * v / Sqrt(ReduceSum(v * v, axes=[1], keepdims=1))\n a, b = Split(x @ Tanh(w) + h @ u, axis=-1)\n"
      " h = Sigmoid(a) * Tanh(b)\n output h\n}\n",
      20, 4);
  EXPECT_GT(ExpectSameBits(
                cell.net, [&](size_t, Workspace& workspace) { cell.Feed(workspace); }, "derived"),
            0);
}

// A product of the step back could add to the value, were it not apart.
TEST_P(Recompute, TermsOfSumsKeepTheirBits) {
  const auto product = [](const std::string& text) {
    OperatorDef op = ParseOp(text);
    AddInt(&op, "axis", 2);
    return op;
  };
  RecurrentCase net;
  net.Sequence("x", "x_t").State("h", "h0", "h_prev", "h_t").Captured("w");
  net.Step("t = Tanh(h_prev)").Step("h_t = Mul(t, x_t)").Output("h_all", "h", 1);
  net.BackwardStep(product("q = FC(h_t_grad, w)")).BackwardStep("h_prev_grad = Add(t, q)");
  net.BackwardStep("x_t_grad = Tanh(h_t_grad)").BackwardLink("x_t_grad", "x_grad", 0);
  net.BackwardLink("h_t_grad", "h_grad", 1).BackwardLink("h_prev_grad", "h_grad", 0);
  net.OutputGradient("h_all").WithGradient();
  const auto feed = [](size_t, Workspace& workspace) {
    workspace.SetTensor("x", Random({20, 3, 64}, 1, DType::kFloat));
    workspace.SetTensor("h0", Random({3, 64}, 2, DType::kFloat));
    workspace.SetTensor("w", Random({64, 64}, 3, DType::kFloat));
    workspace.SetTensor("h_all_grad", Random({20, 3, 64}, 4, DType::kFloat));
  };
  EXPECT_GT(ExpectSameBits(net.Build(), feed, "terms"), 0);
}

constexpr std::int64_t kSteps = 100, kBatch = 4, kSize = 64;
TrainedCell LargeLstm() { return {ReadExampleCell("lstm"), kSteps, kBatch, {{"D", 8}, {"H", kSize}}}; }
constexpr std::int64_t kBytesOfValue = kSteps * kBatch * kSize * 8;  // of all steps, double

struct LimitedRun {
  std::int64_t peak = 0;                // bytes beside what it is fed
  std::vector<std::string> recomputed;  // of the last plan back
  Tensor gradient;
};

LimitedRun RunWithin(const TrainedCell& cell, std::int64_t bytes, RunOptions options = {.executor = "serial"}) {
  LimitedRun run;
  Workspace workspace;
  cell.Feed(workspace);
  options.on_plan = [&](const StepPlan& plan) {
    if (!plan.backward) return;
    run.recomputed.clear();
    for (const RecomputedValue& value : plan.recomputed) {
      run.recomputed.insert(run.recomputed.end(), value.blobs.begin(), value.blobs.end());
    }
  };
  const auto net = Net::Create(cell.net, workspace, options);
  const std::int64_t before = TensorMemory().current;
  for (int k = 0; k < 2; ++k) {  // once as memory comes to be short, once as it is
    const LimitedMemory limited(before + bytes);
    ResetPeakTensorMemory();
    net->Run();
    run.peak = TensorMemory().peak - before;
  }
  run.gradient = workspace.GetTensor("u_grad").Clone();
  return run;
}

constexpr std::int64_t kMuch = std::int64_t{1} << 40;

TEST(RecomputeUnderALimit, IsDoneAsFarAsMemoryIsShort) {
  const TrainedCell cell = LargeLstm();
  const LimitedRun whole = RunWithin(cell, kMuch);
  EXPECT_EQ(whole.recomputed, std::vector<std::string>());
  EXPECT_EQ(RunWithin(cell, whole.peak).recomputed, std::vector<std::string>());
  const LimitedRun limited = RunWithin(cell, whole.peak - kBytesOfValue / 2);
  EXPECT_EQ(limited.recomputed.size(), 1U);
  EXPECT_LE(limited.peak, whole.peak - kBytesOfValue / 2);
  ExpectSame(limited.gradient, whole.gradient, "gradient");
}

// What each pair of units has is not kept, however much memory there is: as bits are those of step by step, one value
// after the other.
TEST(RecomputeWithoutALimit, IsDoneWhereValuesFollowFromLess) {
  NEEDS_ALL_PASSES();
  const std::int64_t steps = 200, batch = 8, size = 32, bytes = steps * batch * size * size * 8;
  const TrainedCell cell(
      "cell c(x[H]; h[H]) {\n  size H = 32\n  param u[H, H]\n  param v[H, H]\n"
      "  pairs = u * Sigmoid(v * ExpandDims(h, dims=[3]) - u)\n"
      "  h = Tanh(x + ReduceSum(pairs * pairs, axes=[-1], keepdims=false))\n  output h\n}\n",
      steps, batch);
  const LimitedRun run = RunWithin(cell, kMuch);
  EXPECT_GE(run.recomputed.size(), 2U);
  EXPECT_LT(run.peak, bytes) << "all of one value";
  for (const RunOptions& options :
       {RunOptions{.executor = "serial", .opt_level = 0}, RunOptions{.executor = "parallel", .threads = 3}}) {
    const Tensor other = RunWithin(cell, kMuch, options).gradient;
    for (std::int64_t i = 0; i < other.size(); ++i) {
      ASSERT_NEAR(run.gradient.data<double>()[i], other.data<double>()[i],
                  1e-12 * (1 + std::abs(other.data<double>()[i])));
    }
  }
}

// Gates follow from products alone.
TEST(RecomputeUnderALimit, IsDoneByProductsWhereNothingElseHelps) {
  NEEDS_ALL_PASSES();
  const std::int64_t steps = 50, batch = 16, size = 256, bytes = steps * batch * size * 8;
  const TrainedCell cell(ReadExampleCell("lstm"), steps, batch, {{"D", 64}, {"H", size}});
  const LimitedRun whole = RunWithin(cell, kMuch);
  EXPECT_EQ(RunWithin(cell, whole.peak - bytes / 2).recomputed.size(), 1U);
  const LimitedRun limited = RunWithin(cell, whole.peak - 4 * bytes);
  EXPECT_EQ(limited.recomputed.size(), 5U);
  EXPECT_LE(limited.peak, whole.peak - 4 * bytes);
  ExpectSame(limited.gradient, whole.gradient, "gradient");
}

// What is computed again is no operator of the backward step net.
TEST(RecomputeUnderALimit, ErrorsNumberOperatorsAsTheNetDoes) {
  RecurrentCase net;
  net.Sequence("x", "x_t").State("h", "h0", "h_prev", "h_t").Captured("rows");
  net.Step("t = Tanh(h_prev)").Step("h_t = Mul(t, x_t)").Output("h_all", "h", 1);
  net.BackwardStep("h_prev_grad = TanhGradient(t, h_t_grad)").BackwardStep("x_t_grad = Gather(h_t_grad, rows)");
  net.BackwardLink("x_t_grad", "x_grad", 0);
  net.BackwardLink("h_t_grad", "h_grad", 1).BackwardLink("h_prev_grad", "h_grad", 0);
  net.OutputGradient("h_all").WithGradient();
  const auto error_of = [&](int at_a_time) {
    Workspace workspace;
    workspace.SetTensor("x", Random({20, 3, 64}, 1, DType::kFloat));
    workspace.SetTensor("h0", Random({3, 64}, 2, DType::kFloat));
    workspace.SetTensor("rows", Tensor::Of<std::int64_t>(Shape({1}), {7}));
    workspace.SetTensor("h_all_grad", Random({20, 3, 64}, 4, DType::kFloat));
    Freeing freeing(at_a_time);
    const auto made = Net::Create(net.Build(), workspace, {.executor = "serial"});
    made->AttachObserver(&freeing);
    std::string error = ErrorOf([&] { made->Run(); });
    EXPECT_EQ(freeing.num_freed(), at_a_time);
    return error;
  };
  const std::string error = error_of(0);
  EXPECT_NE(error.find("at op 1 `x_t_grad = Gather(h_t_grad, rows)`"), std::string::npos) << error;
  EXPECT_EQ(error_of(1), error);
}

TEST(RecomputeUnderALimit, IsRefusedWhereItDoesNotHelp) {
  NEEDS_ALL_PASSES();
  const TrainedCell cell = LargeLstm();
  const std::int64_t peak = RunWithin(cell, kMuch).peak;
  const std::string error = ErrorOf([&] { RunWithin(cell, peak - 2 * kBytesOfValue); });
  EXPECT_NE(error.find("out of memory: a run of 100 steps needs "), std::string::npos) << error;
  EXPECT_NE(error.find(StrCat(", ", kBytesOfValue, " more where nothing is computed again")), std::string::npos)
      << error;
}

// Another operator's tensor needs the memory.
TEST(RecomputeUnderALimit, MakesRoomForOthers) {
  NEEDS_ALL_PASSES();
  const TrainedCell cell = LargeLstm();
  NetDef forward = cell.net, backward = cell.net;
  const auto is_gradient = [](const OperatorDef& op) { return op.type() == "RecurrentNetworkGradient"; };
  const int first = static_cast<int>(std::ranges::find_if(cell.net.op(), is_gradient) - cell.net.op().begin());
  forward.mutable_op()->DeleteSubrange(first, cell.net.op_size() - first);
  backward.mutable_op()->DeleteSubrange(0, first);
  Workspace workspace;
  cell.Feed(workspace);
  const auto runs_forward = Net::Create(forward, workspace, {.executor = "serial"});
  runs_forward->Run();
  const std::int64_t before = TensorMemory().current;
  {
    const LimitedMemory limited(before + 1000);
    const Tensor other(DType::kDouble, Shape({kBytesOfValue / 8}));
    EXPECT_LE(TensorMemory().current, before + 1000);
    EXPECT_THROW(Tensor(DType::kDouble, Shape({1000})), Error);
  }
  EXPECT_EQ(TensorMemory().current, before - kBytesOfValue);
  RunNetOnce(backward, workspace, {.executor = "serial"});
  ExpectSame(workspace.GetTensor("u_grad"), RunWithin(cell, kMuch).gradient, "gradient");
}

// The sizes that Concat joins are a tensor where somebody makes a plan: who frees makes none.
TEST(RecomputeUnderALimit, IsFoundOutWithoutMemory) {
  const TrainedCell cell(
      "cell c(x[D]; h[D], m[D]) {\n size D = 8\n param u[D, 2 * D]\n m = m + Concat(h, x, axis=-1) @ u\n"
      " h = Tanh(m) * Sigmoid(x)\n output h\n}\n",
      20, 3);
  class FreeingWithoutMemory : public Freeing {
   public:
    FreeingWithoutMemory() : Freeing(100) {}
    void Start(const RunEvent& event) override {
      const LimitedMemory limited(64);
      Freeing::Start(event);
    }
  } freeing;
  Workspace workspace;
  cell.Feed(workspace);
  const auto net = Net::Create(cell.net, workspace, {.executor = "serial"});
  net->AttachObserver(&freeing);
  net->Run();
  EXPECT_GT(freeing.num_freed(), 0);
}

// Values are freed at any time; the runs of one net, which come one after the other, and those of others go on.
TEST(RecomputeUnderALimit, MayBeAskedForFromAnyThread) {
  const TrainedCell cell(ReadExampleCell("layer_norm_lstm"), 20, 3);
  const Tensor expected = RunWithin(cell, kMuch).gradient;
  std::atomic<int> num_running = 4, num_freed = 0;
  std::vector<std::thread> threads;
  for (int k = num_running; k > 0; --k) {
    threads.emplace_back([&] {
      Workspace workspace;
      cell.Feed(workspace);
      const auto net = Net::Create(cell.net, workspace, {.executor = "serial"});
      // On a busy machine nobody may have asked in thirty runs.
      for (int run = 0; run < 30 || (num_freed <= 4 && run < 3000); ++run) {
        net->Run();
        ExpectSame(workspace.GetTensor("u_grad"), expected, "gradient");
      }
      --num_running;
    });
  }
  while (num_running > 0) num_freed += FreeSpareMemory() ? 1 : 0;
  for (std::thread& thread : threads) thread.join();
  EXPECT_GT(num_freed, 4);
}

// Others may hold what a run has kept for longer than its operator.
TEST(RecomputeUnderALimit, LeavesRecordsInUseAlone) {
  NEEDS_ALL_PASSES();
  const TrainedCell cell = LargeLstm();
  Workspace workspace;
  cell.Feed(workspace);
  RunNetOnce(cell.net, workspace, {.executor = "serial"});
  std::shared_ptr<const RecurrentRecord> record;
  for (const std::string& blob : workspace.LocalBlobs()) {
    if (const auto found = workspace.GetBlob(blob).GetObject<RecurrentRecord>()) record = found;
  }
  ASSERT_NE(record, nullptr);
  {
    const RecordUse use(*record);
    EXPECT_FALSE(FreeSpareMemory());
    const RecordUse other(*record);
    EXPECT_FALSE(record->spare.FreeNextInUse());
  }
  EXPECT_EQ(record->spare.Recomputed().size(), 0U);
  EXPECT_TRUE(FreeSpareMemory());
  EXPECT_EQ(record->spare.Recomputed().size(), 1U);
  EXPECT_FALSE(FreeSpareMemory());
}

}  // namespace
}  // namespace stepnet

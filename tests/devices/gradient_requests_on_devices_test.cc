// Requests of gradients, on every device, with each of its executors, at every level and on several threads: `none`
// leaves the other gradients the same, bit for bit, and `add` gives before + gradient, bit for bit. The cells of
// examples/cells, and the golden nets.
#include <algorithm>
#include <iterator>

#include "stepnet/core/error.h"
#include "stepnet/core/strings.h"
#include "stepnet/nets/backward.h"
#include "stepnet/nets/backward_step.h"
#include "stepnet/nets/double_net.h"
#include "stepnet/nets/net.h"
#include "stepnet/nets/net_blobs.h"
#include "stepnet/tests/core/sanitized.h"
#include "stepnet/tests/examples/cell_case.h"
#include "stepnet/tests/executor/golden_case.h"
#include "stepnet/tests/executor/recurrent_case.h"
#include "tested_devices.h"

namespace stepnet {
namespace {

// A net without gradients, what it is given, and what to differentiate.
struct Problem {
  NetDef net;
  NamedInputs given;
  std::vector<std::string> losses;
  std::vector<std::string> inputs;
};

NamedInputs Elements(const Workspace& workspace, const NetWithGradients& made) {
  NamedInputs gradients;
  for (const auto& [input, gradient] : made.gradients) gradients[input] = workspace.GetTensor(gradient.dense).To({});
  return gradients;
}

// The gradients of the losses as `requests` says, in a workspace that holds `sums` for them to be added to.
NamedInputs GradientsOf(const Problem& problem, const GradientRequests& requests, const NamedInputs& sums,
                        const RunOptions& options) {
  NetDef net = problem.net;
  const std::vector<std::string> asked = AskedFor(problem.inputs, requests);
  AddBackwardStepNets(&net, asked);
  const NetWithGradients made = AddGradients(net, problem.losses, problem.inputs, requests);
  Workspace workspace;
  Feed(problem.given, workspace);
  for (const auto& [input, sum] : sums) workspace.SetTensor(made.gradients.at(input).dense, sum.Clone());
  RunNetOnce(made.net, workspace, options);
  return Elements(workspace, made);
}

// Before + gradient, in the type of both.
template <typename T>
void ExpectSum(const Tensor& found, const Tensor& before, const Tensor& gradient, const std::string& what) {
  ASSERT_EQ(found.shape(), gradient.shape()) << what;
  for (std::int64_t i = 0; i < gradient.size(); ++i) {
    const T expected = before.data<T>()[i] + gradient.data<T>()[i];
    ASSERT_EQ(found.data<T>()[i], expected) << what << ", element " << i << ": " << before.data<T>()[i] << " before";
  }
}

// Requests for the inputs in turn, starting with number `first`: none, add, write, none, ….
GradientRequests InTurn(const std::vector<std::string>& inputs, size_t first) {
  constexpr GradientRequest kTurn[] = {GradientRequest::kNone, GradientRequest::kAdd, GradientRequest::kWrite};
  GradientRequests requests;
  for (size_t i = 0; i < inputs.size(); ++i) requests[inputs[i]] = kTurn[(first + i) % 3];
  return requests;
}

void ExpectAsRequested(const Problem& problem, const RunOptions& options, const std::string& what) {
  const NamedInputs all = GradientsOf(problem, {}, {}, options);
  for (size_t first = 0; first < 3; ++first) {
    const GradientRequests requests = InTurn(problem.inputs, first);
    NamedInputs sums;
    for (const auto& [input, request] : requests) {
      const Tensor& gradient = all.at(input);
      if (request == GradientRequest::kAdd) sums[input] = Random(gradient.shape(), 77, gradient.dtype());
    }
    const NamedInputs found = GradientsOf(problem, requests, sums, options);
    for (const auto& [input, request] : requests) {
      const std::string where = StrCat(what, ", ", input, " ", GradientRequestName(request), ", turn ", first);
      if (request == GradientRequest::kNone) {
        EXPECT_FALSE(found.contains(input)) << where;
      } else if (request == GradientRequest::kWrite) {
        ExpectSame(found.at(input), all.at(input), where);
      } else if (all.at(input).dtype() == DType::kDouble) {
        ExpectSum<double>(found.at(input), sums.at(input), all.at(input), where);
      } else {
        ExpectSum<float>(found.at(input), sums.at(input), all.at(input), where);
      }
    }
    if (testing::Test::HasFailure()) return;
  }
}

Problem OfCell(const std::string& name, DType dtype) {
  CellCase test{.cell = ReadExampleCell(name), .use = {}, .num_steps = 5, .batch = 3};
  test.use.sizes = SmallSizes(test.cell.def);
  const CellNet cell = test.Expand();
  Problem problem{.net = dtype == DType::kDouble ? InDouble(cell.net) : cell.net,
                  .given = {},
                  .losses = cell.outputs,
                  .inputs = cell.parameters};
  Workspace workspace;
  FeedAs(dtype, test.RandomValues(cell), workspace);
  for (const auto& [blob, tensor] : test.RandomValues(cell)) problem.given[blob] = workspace.GetTensor(blob);
  for (const CellNetInput& input : cell.inputs) {
    if (input.dtype == DType::kFloat) problem.inputs.push_back(input.blob);
  }
  return problem;
}

class GradientRequestsOnDevices : public OnEveryDevice {};
INSTANTIATE_ON_EVERY_DEVICE(GradientRequestsOnDevices);

TEST_P(GradientRequestsOnDevices, AreKeptByCells) {
  int problems = 0;
  for (const std::string& name : ExampleCells()) {
    for (const DType dtype : {DType::kFloat, DType::kDouble}) {
      const Problem problem = OfCell(name, dtype);
      if (!WhyRefused(problem.net, GetParam()).empty()) continue;
      ++problems;
      for (const int level : {0, 1, 2}) {
        if (!IsTried(problems + level)) continue;
        ExpectAsRequested(problem, Options(level), StrCat(name, " in ", dtype, " at level ", level));
        if (HasFailure()) return;
      }
    }
  }
}

TEST_P(GradientRequestsOnDevices, AreKeptByEveryExecutorAndOnThreads) {
  for (const char* name : {"lstm", "gru"}) {
    const Problem problem = OfCell(name, DType::kFloat);
    for (const std::string& executor : Executors()) {
      for (const int threads : {1, 4}) {
        RunOptions options = Options(kMaxOptLevel, executor);
        options.threads = threads;
        ExpectAsRequested(problem, options, StrCat(name, " on ", threads, " threads of ", executor));
      }
    }
  }
}

// The operators of a golden net that compute no gradients, backward step nets with them, and the losses that have one.
Problem OfGolden(const GoldenCase& golden) {
  Problem problem{.net = golden.net};
  problem.net.clear_op();
  problem.net.clear_external_output();
  std::set<std::string> gone;
  for (const OperatorDef& op : golden.net.op()) {
    const bool reads_gone = std::ranges::any_of(op.input(), [&](const auto& blob) { return gone.contains(blob); });
    if (op.is_gradient_op() || reads_gone) {
      gone.insert(op.output().begin(), op.output().end());
    } else {
      *problem.net.add_op() = op;
    }
  }
  for (const auto& [name, tensor] : golden.runs[0]) problem.given[name] = tensor;
  Workspace workspace;
  Feed(problem.given, workspace);
  RunNetOnce(problem.net, workspace);
  const auto is_floating = [&](const std::string& blob) {
    const Blob* const found = workspace.FindBlob(blob);
    const bool is_tensor = found != nullptr && found->HasTensor();
    return is_tensor && (found->GetTensor().dtype() == DType::kFloat || found->GetTensor().dtype() == DType::kDouble);
  };
  std::ranges::copy_if(UnreadBlobs(problem.net), std::back_inserter(problem.losses), is_floating);
  // Those that the losses depend on.
  NetDef net = problem.net;
  AddBackwardStepNets(&net, [&](const std::string& blob) { return !workspace.HasBlob(blob) || is_floating(blob); });
  std::vector<std::string> inputs;
  std::ranges::copy_if(ReadFirst(problem.net), std::back_inserter(inputs), is_floating);
  for (const auto& [input, gradient] : AddGradients(net, problem.losses, inputs).gradients) {
    if (!gradient.dense.empty()) problem.inputs.push_back(input);
  }
  return problem;
}

TEST_P(GradientRequestsOnDevices, AreKeptByGoldenNets) {
  int compared = 0;
  std::string refused;
  for (const GoldenCase* const golden : GoldenCasesInTurn(static_cast<size_t>(GetParam().kind))) {
    if (!WhyRefused(golden->net, GetParam()).empty()) continue;
    Problem problem;
    try {
      problem = OfGolden(*golden);
    } catch (const Error& error) {  // some have no gradients
      refused += StrCat(golden->name, ": ", error.what(), "\n");
      continue;
    }
    if (problem.inputs.empty()) continue;
    ExpectAsRequested(problem, Options(), golden->name);
    if (HasFailure()) return;
    ++compared;
  }
  EXPECT_GT(compared, FewerIfSanitized(200)) << refused;
}

// A backward step divides integers, by 0 in the last but one. What is added to w_grad is added before and behind that.
TEST_P(GradientRequestsOnDevices, AddLeavesTheSumAsItWasWhereTheRunFails) {
  RecurrentCase steps;
  steps.Sequence("x", "x_t").Sequence("divisors", "divisor").State("h", "h0", "h_prev", "h_next").Captured("w");
  OperatorDef product = ParseOp("p = FC(h_prev, w, b)");
  AddInt(&product, "axis", 2);
  steps.Captured("b").Step(product).Step("s = Sum(p, x_t)").Step("h_next = Tanh(s)").Output("h_all", "h", 1);
  steps.Step("twice = Add(divisor, divisor)");
  NetDef net = steps.Build();
  AddBackwardStepNets(&net);
  net = AddGradients(net, {"h_all"}, {"w"}).net;
  for (OperatorDef& op : *net.mutable_op()) {
    if (op.type() != "RecurrentNetworkGradient") continue;
    std::vector<std::string> requests;
    for (const std::string& output : op.output()) requests.push_back(output == "w_grad" ? "add" : "write");
    AddStrings(&op, "gradient_requests", requests);
    for (Argument& arg : *op.mutable_arg()) {
      if (arg.name() == "backward_step_net") *arg.mutable_n()->add_op() = ParseOp("junk = Div(divisor, divisor)");
    }
  }
  for (const char* type : {"simple", "dag"}) {
    for (const int level : {0, 1, 2}) {
      const std::string what = StrCat(type, " at level ", level);
      net.set_type(type);
      Workspace workspace;
      workspace.SetTensor("x", Random({4, 2, 3}, 1));
      workspace.SetTensor("h0", Random({2, 3}, 2));
      workspace.SetTensor("w", Random({3, 3}, 3));
      workspace.SetTensor("b", Random({3}, 4));
      workspace.SetTensor("h_all_grad", Random({4, 2, 3}, 5));
      const Tensor before = Random({3, 3}, 6);
      workspace.SetTensor("w_grad", before.Clone());
      const auto feed = [&](std::int64_t divisor) {
        workspace.SetTensor("divisors", Tensor::Of<std::int64_t>({4, 1, 1}, {1, divisor, 2, 3}));
      };
      const auto run = [running = Net::Create(net, workspace, Options(level))] {
        running->Run();
        running->Wait();
      };
      feed(1);
      run();
      const Tensor once = workspace.GetTensor("w_grad").To({}).Clone();
      EXPECT_NE(once.data<double>()[0], before.data<double>()[0]) << what;
      for (int times = 0; times < 3; ++times) {
        feed(0);
        EXPECT_THROW(run(), Error) << what;
        ExpectSame(workspace.GetTensor("w_grad").To({}), once, what);
      }
    }
  }
}

}  // namespace
}  // namespace stepnet

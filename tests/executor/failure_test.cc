// What happens when an operator of a step net fails: rules F1-F4 and M9 of docs/caffe2_compatibility.md.
#include <atomic>
#include <new>
#include <stdexcept>

#include "failing_operator.h"
#include "recurrent_case.h"
#include "stepnet/compiler/schedule.h"
#include "stepnet/tests/compiler/needs_usual_plans.h"
#include "stepnet/tests/core/error_of.h"
#include "stepnet/tests/operators/op_test.h"

namespace stepnet {
namespace {

RecurrentCase FailingCase() {
  RecurrentCase net;
  net.Sequence("x", "x_t").State("h", "h0", "h_prev", "h_next");
  net.Step("s = Sum(x_t, h_prev)").Step("f = test.FailsInStep(s)").Step("h_next = Mul(f, x_t)").Output("h_all", "h", 1);
  net.BackwardStep("df = Mul(h_next_grad, x_t)").BackwardStep("s_grad = test.FailsInStep(df)");
  net.BackwardLink("h_next_grad", "h_grad", 1).BackwardLink("s_grad", "h_grad", 0).BackwardLink("s_grad", "x_grad", 0);
  net.OutputGradient("h_all").WithGradient();
  net.Feed("x", Random({4, 2, 3}, 1)).Feed("h0", Random({2, 3}, 2)).Feed("h_all_grad", Random({4, 2, 3}, 3));
  return net;
}

class Failures : public testing::Test {
 protected:
  void TearDown() override {
    fails_at = -1;
    fails_with = Thrown::kRuntimeError;
  }
};

TEST_F(Failures, F1F2AnythingThatIsThrownFailsTheRun) {
  RecurrentCase net = FailingCase();
  for (const auto& [kind, code, text] : std::vector<std::tuple<Thrown, ErrorCode, std::string>>{
           {Thrown::kError, ErrorCode::kInvalidArgument, "as asked"},
           {Thrown::kRuntimeError, ErrorCode::kFailed, "as asked"},
           {Thrown::kBadAlloc, ErrorCode::kOutOfMemory, "the system has no more memory to give"},
           {Thrown::kInt, ErrorCode::kFailed, "an exception that is no std::exception"}}) {
    fails_with = kind;
    fails_at = 2;
    try {
      net.Run();
      ADD_FAILURE() << "no error";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), code);
      EXPECT_EQ(error.message(), text);
    }
  }
}

TEST_F(Failures, F3TheNextRunGivesWhatAFreshNetGives) {
  RecurrentCase net = FailingCase();
  for (std::int64_t step = 0; step < 4; ++step) {
    fails_at = step;
    EXPECT_THROW(net.Run(), Error);
    fails_at = -1;
    RecurrentCase fresh = FailingCase();
    fresh.Run();
    net.Run();
    for (const char* blob : {"h_all", "x_grad", "h0_grad"}) ExpectSame(net.Get(blob), fresh.Get(blob), blob);
  }
}

TEST_F(Failures, F4TheErrorNamesOperatorStepShapesAndCause) {
  RecurrentCase net = FailingCase();
  fails_at = 2;
  ExpectError([&] { net.Run(); },
              "operator failed: as asked\n"
              "  at op 1 `f = test.FailsInStep(s)` with s double [1, 2, 3]\n"
              "  in net \"step\", step 2\n"
              "  at op 0 `h_all, record = RecurrentNetwork(x, h0)` with x double [4, 2, 3], h0 double [2, 3]\n"
              "  in net \"case\"");
}

TEST_F(Failures, F4TheErrorNamesTheBackwardStep) {
  RecurrentCase net = FailingCase();
  NetDef def = net.Build();
  for (Argument& argument : *def.mutable_op(0)->mutable_arg()) {  // fail in the backward pass alone
    if (argument.name() == "step_net") argument.mutable_n()->mutable_op(1)->set_type("Copy");
  }
  fails_at = 1;
  ExpectError([&] { RunNetOnce(def, net.workspace()); },
              "…operator failed: as asked\n"
              "  at op 1 `s_grad = test.FailsInStep(df)` with df double [1, 2, 3]\n"
              "  in net \"backward_step\", step 1\n"
              "  at op 1 `x_grad, h0_grad = RecurrentNetworkGradient(");
}

TEST_F(Failures, M9ObserversAreBalancedAfterAFailure) {
  struct Balance : Observer {
    void Start(const RunEvent& event) override {
      ++started;
      if (event.kind == RunEventKind::kNet || event.kind == RunEventKind::kOperator) ++operators;
    }
    void Stop(const RunEvent&) override { ++stopped; }
    int started = 0;
    int stopped = 0;
    int operators = 0;  // and the net
  } balance;
  RecurrentCase net = FailingCase();
  net.net().AttachObserver(&balance);
  fails_at = 1;
  EXPECT_THROW(net.Run(), Error);
  EXPECT_EQ(balance.started, balance.stopped);
  // The net, RecurrentNetwork, three operators of step 0 and two of step 1.
  EXPECT_EQ(balance.operators, 1 + 1 + 3 + 2);
  fails_at = -1;
  balance = {};
  net.net().AttachObserver(&balance);
  net.net().DetachObserver(&balance);
  net.Run();
  EXPECT_EQ(balance.started, 0);
}

TEST_F(Failures, UnknownOperatorsOfStepNetsAreFoundWhenTheNetIsMade) {
  RecurrentCase net;
  net.Sequence("x", "x_t").State("h", "h0", "h_prev", "h_next");
  net.Step("h_next = Tahn(x_t)").Step("z = Mul(h_next, nowhere)").Output("h_all", "hh", 1);
  ExpectError([&] { net.net(); },
              "…net \"step\", op 0 `h_next = Tahn(x_t)`: no operator type \"Tahn\"; did you mean \"Tanh\"?");
  ExpectError([&] { net.net(); },
              "…net \"step\", op 1 `z = Mul(h_next, nowhere)`: \"nowhere\" is read before anything writes it");
  ExpectError([&] { net.net(); }, "…alias_src names \"hh\", which is no state; did you mean \"h\"?");
}

TEST_F(Failures, D16OutputsThatWouldHoldTwoThingsAreFoundWhenTheNetIsMade) {
  RecurrentCase net;
  net.Sequence("x", "x_t").State("h", "h0", "h_prev", "h_next").Step("h_next = Sum(x_t, h_prev)");
  net.Output("all", "h", 1).Output("all", "h", -1);
  ExpectError(
      [&] { net.net(); },
      "…\"all\" would hold both the rows of the state \"h\" from 1 on and the rows of the state \"h\" from -1 on");
}

// An input would be gone before it is read.
TEST_F(Failures, InputsThatAreWrittenAreFoundWhenTheNetIsMade) {
  const auto make = [] {
    RecurrentCase net;
    net.Sequence("x", "x_t").State("h", "h0", "h_prev", "h_next").Step("h_next = Sum(x_t, h_prev)");
    net.BackwardStep("x_t_grad = Copy(h_next_grad)").BackwardLink("h_next_grad", "h_grad", 1);
    net.BackwardLink("x_t_grad", "x_grad", 0).BackwardLink("h_next_grad", "h_grad", 0);
    return net;
  };
  RecurrentCase output = make();
  output.Output("x", "h", 1);
  ExpectError([&] { output.net(); }, "…RecurrentNetwork cannot work in place: \"x\" is an input and output 0");
  RecurrentCase state;
  state.Sequence("x", "x_t").State("x", "h0", "h_prev", "h_next").Step("h_next = Sum(x_t, h_prev)");
  ExpectError([&] { state.net(); }, "…recurrent_states names \"x\", which is an input");
  RecurrentCase gradient = make();
  gradient.Output("all", "h", 1).OutputGradient("all").WithGradient({"all_grad", "h0_grad"});
  ExpectError([&] { gradient.net(); },
              "…RecurrentNetworkGradient cannot work in place: \"all_grad\" is an input and output 0");
}

TEST_F(Failures, StepOutputsThatTheStepNetDoesNotHaveAreFoundWhenTheNetIsMade) {
  RecurrentCase net;
  net.Sequence("x", "x_t").State("h", "h0", "h_prev", "h_next").Step("h_next = Sum(x_t, h_prev)");
  net.forward().add_output("shown");
  AddStrings(&net.forward(), "step_output_src", {"h_nxt"});
  AddStrings(&net.forward(), "step_output_dst", {"shown"});
  ExpectError([&] { net.net(); },
              "…step_output_src names \"h_nxt\", which the step net does not have; did you mean \"h_next\"?");
}

TEST_F(Failures, StepOutputsOfWhatIsNoBlobOfTheStepSayWhatItIs) {
  const auto problem = [](const std::string& source, const std::string& destination) {
    RecurrentCase net;
    net.Sequence("x", "x_t").State("h", "h0", "h_prev", "h_next").Step("h_next = Sum(x_t, h_prev)").Captured("w");
    net.forward().add_output("shown");
    AddStrings(&net.forward(), "step_output_src", {source});
    AddStrings(&net.forward(), "step_output_dst", {destination});
    return ErrorOf([&] { net.net(); });
  };
  const auto expect = [&](const std::string& source, const std::string& destination, const std::string& text) {
    EXPECT_NE(problem(source, destination).find(text), std::string::npos) << problem(source, destination);
  };
  expect(
      "w", "shown",
      "step_output_src names \"w\", which no operator of the step net reads; let a Copy in it read it, and name what "
      "that gives");
  expect("timestep", "shown", "step_output_src names \"timestep\", which no operator of the step net reads;");
  expect("x", "shown", "step_output_src names \"x\", of which the step net sees rows as \"x_t\"");
  expect("h_next", "shwn",
         "step_output_dst names \"shwn\", which is no output of the operator; did you mean \"shown\"?");
}

TEST_F(Failures, M11StepNetsAreCheckedLikeOtherNets) {
  RecurrentCase net = FailingCase();
  net.step_net().set_type("async_quick");
  net.step_net().add_external_output("nobody");
  ExpectError([&] { net.net(); }, "…no net type \"async_quick\"");
  ExpectError([&] { net.net(); }, "…nothing produces the external output \"nobody\"");
}

TEST_F(Failures, M12OperatorsOnOtherDevicesAreRefused) {
  RecurrentCase net = FailingCase();
  net.step_net().mutable_device_option()->set_device_type(1);
  ExpectError([&] { net.net(); }, "…the step net places Sum on cuda:0, and is run on cpu");
}

TEST_F(Failures, TheTimestepCannotBeWritten) {
  RecurrentCase net;
  net.Sequence("x", "x_t").State("h", "h0", "h_prev", "h_next").Step("timestep = Copy(x_t)").Step("h_next = Copy(x_t)");
  net.Output("h_all", "h", 1);
  ExpectError([&] { net.net(); }, "…operator Copy of the step net writes \"timestep\", the number of the step");
}

TEST_F(Failures, TheTimestepIsNothingElse) {
  const auto net_with = [](const std::string& input, const std::string& internal) {
    RecurrentCase net;
    net.Sequence(input, internal).State("h", "h0", "h_prev", "h_next").Step("h_next = Copy(timestep)");
    net.Output("h_all", "h", 1);
    return net;
  };
  RecurrentCase linked = net_with("x", "timestep");
  ExpectError(
      [&] { linked.net(); },
      "…\"timestep\" is the number of the step, and linked to \"x\"; the argument timestep can name it otherwise, as "
      "\"timestep_number\"");
  RecurrentCase captured = net_with("timestep", "x_t");
  ExpectError([&] { captured.net(); }, "…\"timestep\" is the number of the step, and an input that the step net reads");
}

std::int64_t failing_rows = -1;

// y = x, for any number of steps at once; w is read and does not matter. As if a step took a tenth of a millisecond.
const Registration failing_rows_op =
    Operator("test.RowsMayFail")
        .Input("x", "[M, K]")
        .Input("w", "any")
        .Output("y", "as x")
        .Shapes(SameAsInput(0))
        .CostIs([](const ShapeQuery& query, std::span<const TensorInfo>) {
          return Cost{.flops = 8e6 * static_cast<double>(query.In(0).shape[0])};
        })
        .Rows([](const ShapeQuery&) { return RowOperands{.inputs = {0}, .outputs = {0}}; })
        .Cpu([](const OperatorCall&) -> RunFn {
          return [](const OpRun& run) {
            if ((*run.In(0).shape)[0] == failing_rows) throw std::runtime_error("as asked");
            CopyElements(run.In(0), run.Out(0));
          };
        });

// A chunk, a loop and another chunk, of 150 steps: 37 chunks of four steps and a rest of two.
NetDef SlowStages() {
  RecurrentCase net;
  net.Sequence("x", "x_t").State("h", "h0", "h_prev", "h_next").State("z_state", "h0", "", "z").Captured("w");
  net.Step("a = test.RowsMayFail(x_t, w)").Step("r = test.RowsMayFail(h_prev, w)").Step("h_next = Sum(a, r)");
  return net.Step("z = test.RowsMayFail(h_next, w)").Output("z_all", "z_state", 1).Build();
}

TEST_F(Failures, AnErrorInAChunkNamesNoStepAndTheNextRunWorks) {
  NEEDS_ALL_PASSES();
  for (const int threads : {1, 2, 3}) {
    Workspace workspace;
    workspace.SetTensor("x", Random({150, 16, 3}, 1));
    workspace.SetTensor("h0", Random({16, 3}, 2));
    workspace.SetTensor("w", Random({64, 3}, 3));
    RunOptions options{.executor = threads == 1 ? "serial" : "parallel", .threads = threads};
    bool overlaps = false;
    options.on_plan = [&](const StepPlan& plan) {
      EXPECT_EQ(plan.stages.size(), 3u);
      overlaps = plan.pipeline != nullptr && plan.pipeline->min_steps <= 150;
    };
    const auto net = Net::Create(SlowStages(), workspace, options);
    net->Run();
    EXPECT_EQ(overlaps, threads > 1) << "for which the operators are said to be slow";
    const Tensor expected = workspace.GetTensor("z_all").Clone();
    for (const std::int64_t rows : {4, 2}) {  // of the first operator that takes so many
      failing_rows = rows;
      ExpectError([&] { net->Run(); }, StrCat("operator failed: as asked\n"
                                              "  at op 0 `a = test.RowsMayFail(x_t, w)` with x_t double [",
                                              rows,
                                              ", 16, 3], w double [64, 3]\n"
                                              "  in net \"step\"\n"
                                              "  at op 0 `z_all, record = RecurrentNetwork(x, h0, w)` with x "
                                              "double [150, 16, 3], h0 double [16, 3], w double [64, 3]\n"
                                              "  in net \"case\""));
      failing_rows = -1;
      workspace.GetBlob("z_all").Reset();
      net->Run();
      ExpectSame(workspace.GetTensor("z_all"), expected, StrCat("z_all, ", threads, " threads"));
    }
  }
}

}  // namespace
}  // namespace stepnet

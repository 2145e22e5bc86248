// States of which only the last row is seen lie in a few rows that steps use in turn: random step nets give, bit for
// bit, what they give where all rows of their states are outputs.
#include <algorithm>
#include <memory>
#include <set>

#include "random_step.h"
#include "recurrent_case.h"
#include "stepnet/compiler/graph_text.h"
#include "stepnet/compiler/step_plan.h"
#include "stepnet/core/strings.h"
#include "stepnet/nets/net.h"
#include "stepnet/nets/op_arguments.h"
#include "stepnet/tests/compiler/needs_usual_plans.h"
#include "stepnet/tests/core/filled_memory.h"
#include "stepnet/tests/operators/op_test.h"

namespace stepnet {
namespace {

int NumRings(const StepPlan& plan) {
  std::set<int> bases;
  for (const Slot& slot : plan.slots) {
    if (slot.storage_class == StorageClass::kLinked && slot.ring_rows > 0) bases.insert(slot.base);
  }
  return static_cast<int>(bases.size());
}

// Every other plan is cut as where products stay in loops.
const Target* TargetFor(unsigned seed) {
  static constexpr Target kInLoops = {.second_cache_bytes = 1 << 20, .min_rows_of_step = 1, .min_bytes_in_loop = 0};
  return seed % 2 == 0 ? &kCpuTarget : &kInLoops;
}

class StatesInTurn : public testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Parallel, StatesInTurn, testing::Values(0, 1, 2),
                         [](const auto& info) { return StrCat("level", info.param); });

TEST_P(StatesInTurn, EndAsWhereAllTheirRowsAreOutputs) {
  NEEDS_USUAL_PLANS();
  const unsigned usual_seeds = GetParam() == 2 ? 200 : 80;
  int num_rings = 0;
  for (unsigned seed = 0; seed < NumSeeds(usual_seeds); ++seed) {
    const RandomStep step(seed, /*size=*/GetParam() < 2 ? 3 : 8, StepOperators::kAny);
    const NetDef whole = step.Recurrent(), last = WithLastRows(whole);
    RunOptions options{.executor = "serial", .target = TargetFor(seed), .opt_level = GetParam()};
    Workspace with_all;
    for (const auto& [name, tensor] : step.Feeds(1)) with_all.SetTensor(name, tensor);
    const auto reference = Net::Create(whole, with_all, options);
    for (const int threads : {1, 2, 3}) {
      options.executor = threads == 1 && seed % 2 == 0 ? "serial" : "parallel";
      options.threads = threads;
      options.on_plan = [&](const StepPlan& plan) { num_rings += NumRings(plan); };
      options.on_pass = [](const std::string&, const StepGraph& graph) {
        EXPECT_EQ(GraphText(ParseGraph(GraphText(graph))), GraphText(graph));
      };
      Workspace workspace;
      for (const auto& [name, tensor] : step.Feeds(1)) workspace.SetTensor(name, tensor);
      const auto net = Net::Create(last, workspace, options);
      for (const std::int64_t steps : {1, 9, 2, 0, 5, 40}) {
        for (const auto& [name, tensor] : step.Feeds(steps)) {
          with_all.SetTensor(name, tensor);
          workspace.SetTensor(name, tensor);
        }
        {
          const FilledMemory filled(kFills[0]);
          reference->Run();
        }
        const FilledMemory filled(kFills[1]);
        net->Run();
        const std::string what =
            StrCat("seed ", seed, ", ", steps, " steps, ", threads, " threads: ", last.ShortDebugString());
        for (const std::string& state : FindArgument(last.op(0), "recurrent_states")->strings()) {
          const Tensor& rows = with_all.GetTensor(state);
          ExpectSame(workspace.GetTensor(state + "_all"), rows.Slice(rows.dim(0) - 1, rows.dim(0)), what);
          EXPECT_FALSE(workspace.HasBlob(state)) << what;
        }
        for (const std::string& output : step.Outputs()) {
          if (!output.ends_with("_out")) continue;
          ExpectSame(workspace.GetTensor(output), with_all.GetTensor(output), what);
        }
        if (testing::Test::HasFailure()) return;
      }
    }
  }
  EXPECT_GT(num_rings, MinOfSeeds(static_cast<int>(usual_seeds), usual_seeds));
}

// h = tanh(x + h) of which the last row is an output.
RecurrentCase LastOfSums() {
  RecurrentCase net;
  net.Sequence("x", "x_t").State("h", "h0", "h_prev", "h_next");
  net.Step("sum = Sum(x_t, h_prev)").Step("h_next = Tanh(sum)").Output("h_last", "h", -1);
  AddInt(&net.forward(), "private_states", 1);
  return net;
}

std::int64_t PeakOfARun(RecurrentCase& net, std::int64_t steps) {
  net.Feed("x", Random({steps, 2, 64}, 1)).Feed("h0", Random({2, 64}, 2));
  ResetPeakTensorMemory();
  const std::int64_t before = TensorMemory().current;
  net.Run();
  return TensorMemory().peak - before;
}

TEST(StatesInTurn, TakeAsMuchMemoryForAnyNumberOfSteps) {
  RecurrentCase few = LastOfSums(), many = LastOfSums();
  EXPECT_EQ(PeakOfARun(few, 100), PeakOfARun(many, 1000));
}

// Runs that somebody else reads keep all rows.
TEST(StatesInTurn, AreNoneWhereRowsAreSeen) {
  const auto num_rings = [](RecurrentCase& net) {
    int rings = 0;
    RunOptions options;
    options.on_plan = [&](const StepPlan& plan) { rings += NumRings(plan); };
    net.Feed("x", Random({3, 2, 4}, 1)).Feed("h0", Random({2, 4}, 2));
    Net::Create(net.Build(), net.workspace(), options)->Run();
    return rings;
  };
  RecurrentCase net = LastOfSums();
  EXPECT_EQ(num_rings(net), 1);
  RecurrentCase all = LastOfSums();
  all.Output("h_all", "h", 1);
  EXPECT_EQ(num_rings(all), 0);
  RecurrentCase named = LastOfSums();  // the state itself is an output
  named.forward().add_output("h");
  EXPECT_EQ(num_rings(named), 0);
  RecurrentCase readable = LastOfSums();
  NewArgument(&readable.forward(), "private_states")->set_i(0);
  EXPECT_EQ(num_rings(readable), 0);
  EXPECT_EQ(readable.Get("h").dim(0), 4);
}

TEST(StatesInTurn, HaveNoGradientInAnotherNet) {
  RecurrentCase net = LastOfSums();
  net.BackwardStep("sum_grad = TanhGradient(h_next, h_next_grad)").BackwardLink("h_next_grad", "h_grad", 1);
  net.BackwardLink("sum_grad", "h_grad", 0).OutputGradient("h_last").WithGradient();
  NetDef forward = net.Build(), backward = forward;
  forward.mutable_op()->RemoveLast();
  backward.mutable_op()->DeleteSubrange(0, 1);
  for (const char* const argument : {"backward_step_net", "backward_link_internal", "backward_link_external",
                                     "backward_link_offset", "backward_link_window", "outputs_with_grads"}) {
    NewArgument(forward.mutable_op(0), argument);
  }
  OperatorDef* const op = forward.mutable_op(0);
  const auto is_empty = [](const Argument& argument) { return argument.ByteSizeLong() <= argument.name().size() + 2; };
  op->mutable_arg()->erase(std::remove_if(op->mutable_arg()->begin(), op->mutable_arg()->end(), is_empty),
                           op->mutable_arg()->end());
  net.Feed("x", Random({3, 2, 4}, 1)).Feed("h0", Random({2, 4}, 2)).Feed("h_last_grad", Random({1, 2, 4}, 3));
  RunNetOnce(forward, net.workspace());
  ExpectError(
      [&] { RunNetOnce(backward, net.workspace()); },
      "…invalid argument: the run behind \"record\" kept but a few rows of its states: RecurrentNetworkGradient "
      "must be in the same net as its RecurrentNetwork, after it\n");
}

}  // namespace
}  // namespace stepnet

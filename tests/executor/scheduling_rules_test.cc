// Rules of docs/caffe2_compatibility.md for the order in which things run, as a user can see them: S6, S8, S10-S14, M3.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <ctime>
#include <filesystem>
#include <thread>

#include "layers.h"
#include "probe.h"
#include "recurrent_case.h"
#include "stepnet/compiler/schedule.h"
#include "stepnet/core/strings.h"
#include "stepnet/tests/operators/op_test.h"

namespace stepnet {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;

// Counts, in the direction of the run, the steps that have begun.
class Begun {
 public:
  void Note(std::int64_t step) {
    std::int64_t max = max_;
    while (step > max && !max_.compare_exchange_weak(max, step)) {
    }
  }
  std::int64_t max() const { return max_; }

 private:
  std::atomic<std::int64_t> max_ = -1;
};

TEST(ParallelRules, S6AStepIsOverWhenEveryOperatorOfItIs) {
  // Nothing waits for o_next, which reads a temporary whose row comes back a few steps later.
  RecurrentCase net;
  net.Sequence("x", "x_t").State("h", "h0", "h_prev", "h_next").State("o", "o0", "", "o_next");
  net.Step("a = Tanh(x_t)").Step("o_next = Copy(a)").Step("h_next = Sum(x_t, h_prev)");
  net.Output("h_all", "h", 1).Output("o_all", "o", 1);
  const NetDef def = Probed(net.Build());
  const auto feed = [](Workspace& workspace) {
    workspace.SetTensor("x", Random({40, 2, 3}, 1));
    workspace.SetTensor("h0", Random({2, 3}, 2));
    workspace.SetTensor("o0", Random({2, 3}, 3));
  };
  Workspace expected;
  feed(expected);
  RunNetOnce(def, expected, {.executor = "serial"});
  for (const int threads : {2, 3}) {
    for (const std::int64_t slow : {0, 7, 39}) {
      Begun begun;
      std::int64_t furthest = 0;
      const Probe probe([&](const ProbePlace& place) {
        begun.Note(place.step);
        if (place.step != slow || place.op.find("o_next") == std::string::npos) return;
        std::this_thread::sleep_for(milliseconds(3));
        furthest = begun.max();
      });
      Workspace workspace;
      feed(workspace);
      RunNetOnce(def, workspace, {.executor = "parallel", .threads = threads});
      ExpectSameBlobs(expected, workspace, StrCat(threads, " threads, step ", slow));
      EXPECT_LT(furthest, slow + StepsUnderWay(Schedule{}, threads, kCpuTarget))
          << "while step " << slow << " was not over";
    }
  }
}

std::atomic<int> num_inside = 0;
std::atomic<int> max_inside = 0;

// y = x, of a shape that is known only when it runs.
const Registration unforeseen = Operator("test.Unforeseen")
                                    .Input("x", "any shape")
                                    .Output("y", "as x")
                                    .Cpu({.make = [](const OperatorCall&) -> RunFn {
                                            return [](const OpRun& run) {
                                              run.host().Output(0).SetTensor(run.host().Input(0).GetTensor().Clone());
                                            };
                                          },
                                          .takes_blobs = true});

// y = x; notes how many of it run at once.
const Registration counts_itself = Operator("test.CountsItself")
                                       .Input("x", "any shape")
                                       .Input("another", "is not read")
                                       .Output("y", "as x")
                                       .Shapes(SameAsInput(0))
                                       .Cpu([](const OperatorCall&) -> RunFn {
                                         return [](const OpRun& run) {
                                           const int inside = ++num_inside;
                                           max_inside = std::max<int>(max_inside, inside);
                                           std::this_thread::sleep_for(microseconds(300));
                                           CopyElements(run.In(0), run.Out(0));
                                           --num_inside;
                                         };
                                       });

TEST(ParallelRules, S6AnOperatorThatRemembersShapesIsNeverInTwoStepsAtOnce) {
  RecurrentCase net;
  net.Sequence("x", "x_t").State("h", "h0", "", "h_next").Step("a = test.Unforeseen(x_t)");
  net.Step("c = Tanh(x_t)").Step("b = test.CountsItself(a, c)").Step("h_next = Copy(x_t)").Output("h_all", "h", 1);
  NetDef def = net.Build();
  // What a step writes is kept, in blobs of its own.
  *def.add_op() = ParseOp("kept = RecurrentNetworkBlobFetcher(record)");
  Workspace workspace;
  workspace.SetTensor("x", Random({20, 2, 3}, 1));
  workspace.SetTensor("h0", Random({2, 3}, 2));
  max_inside = 0;
  RunNetOnce(def, workspace, {.executor = "parallel", .threads = 4});
  EXPECT_EQ(max_inside, 1);
}

TEST(ParallelRules, S8FewStepsUnderWayAtOnceEndInBothDirections) {
  constexpr std::int64_t kSteps = 12;
  const NetDef plain = Probed(Layers(2, /*training=*/true));
  Workspace expected;
  FeedLayers(2, kSteps, 1, expected);
  RunNetOnce(plain, expected, {.executor = "serial", .opt_level = 0});
  for (const int max_workspaces : {1, 2, 3}) {
    NetDef def = plain;
    for (OperatorDef& op : *def.mutable_op()) {
      if (op.type().starts_with("RecurrentNetwork")) AddInt(&op, "num_workspaces", max_workspaces);
    }
    for (const int threads : {2, 4}) {
      // Operators of each step, forward and backward, that have begun.
      std::array<std::array<std::atomic<int>, kSteps>, 2> begun = {};
      std::atomic<bool> too_far = false;
      std::array<int, 2> of_a_step = {8, 0};
      Workspace workspace;
      FeedLayers(2, kSteps, 1, workspace);
      const auto net = Net::Create(def, workspace, {.executor = "parallel", .threads = threads, .opt_level = 0});
      for (const ProbePlace& place : PlacesOf([&] { net->Run(); })) {
        if (place.step == 0 && place.op.find("_grad") != std::string::npos) ++of_a_step[1];
      }
      const Probe probe([&](const ProbePlace& place) {
        const bool backward = place.op.find("_grad") != std::string::npos;
        const std::int64_t k = backward ? kSteps - 1 - place.step : place.step;
        ++begun[backward][k];
        if (k >= max_workspaces && begun[backward][k - max_workspaces] < of_a_step[backward]) too_far = true;
        if (k % 3 == 0) std::this_thread::sleep_for(microseconds(50));
      });
      net->Run();
      EXPECT_FALSE(too_far) << "with num_workspaces=" << max_workspaces;
      ExpectSameBlobs(expected, workspace, StrCat("num_workspaces=", max_workspaces, ", ", threads, " threads"));
    }
  }
}

TEST(ParallelRules, S10DependenciesThroughManyStatesAreFoundAndAreTheSameEveryTime) {
  // Each state hands what it has on to the next one: s39 holds what s0 held 39 steps ago.
  constexpr int kStates = 40;
  constexpr std::int64_t kSteps = 60;
  RecurrentCase net;
  net.Sequence("x", "x_t").State("s0", "zero", "p0", "a").Step("a = Tanh(x_t)");
  for (int i = 1; i < kStates; ++i) net.State(StrCat("s", i), "zero", StrCat("p", i), StrCat("p", i - 1));
  net.State("h", "zero", "", "h_next").Step(StrCat("h_next = Sum(x_t, p", kStates - 1, ")")).Output("h_all", "h", 1);
  std::vector<StepPlan> plans;
  RunOptions options{.executor = "parallel", .threads = 3};
  options.on_plan = [&](const StepPlan& plan) { plans.push_back(plan); };
  Workspace workspace;
  const Tensor x = Random({kSteps, 1, 2}, 1);
  workspace.SetTensor("x", x);
  workspace.SetTensor("zero", Tensor::Zeros(DType::kDouble, {1, 2}));
  const NetDef def = net.Build();
  for (int run = 0; run < 10; ++run) RunNetOnce(def, workspace, options);
  ASSERT_EQ(plans.size(), 10u);
  for (const StepPlan& plan : plans) {
    EXPECT_EQ(plan.schedules[0]->dependencies.edges, plans[0].schedules[0]->dependencies.edges);
  }
  const std::vector<double> in = Values(x), out = Values(workspace.GetTensor("h_all"));
  for (size_t i = 0; i < out.size(); ++i) {
    const double past = i < 2 * kStates ? 0 : std::tanh(in[i - 2 * kStates]);
    ASSERT_NEAR(out[i], in[i] + past, 1e-15) << i;
  }
}

TEST(ParallelRules, S11EveryStepSeesItsNumberAlsoInACopyOfTheNet) {
  RecurrentCase net;
  OperatorDef cast = ParseOp("number = Cast(timestep)"), add = ParseOp("h_next = Add(x_t, number)");
  AddString(&cast, "to", "double");
  AddInt(&add, "broadcast", 1);
  net.Sequence("x", "x_t").State("h", "h0", "", "h_next").Step(cast).Step(add).Output("h_all", "h", 1);
  const NetDef def = net.Build();
  const NetDef copy = def;
  Workspace first, second;
  const auto feed = [](Workspace& workspace, std::int64_t steps) {
    workspace.SetTensor("x", Tensor::Zeros(DType::kDouble, {steps, 1, 1}));
    workspace.SetTensor("h0", Tensor::Zeros(DType::kDouble, {1, 1}));
  };
  feed(first, 1);
  feed(second, 1);
  const RunOptions options{.executor = "parallel", .threads = 3};
  const auto one = Net::Create(def, first, options), other = Net::Create(copy, second, options);
  for (const std::int64_t steps : {7, 3, 30}) {
    feed(first, steps);
    feed(second, steps);
    one->Run();
    other->Run();
    for (const Workspace* workspace : {&first, &second}) {
      const std::vector<double> numbers = Values(workspace->GetTensor("h_all"));
      for (std::int64_t t = 0; t < steps; ++t) EXPECT_EQ(numbers[t], static_cast<double>(t));
    }
  }
}

TEST(ParallelRules, S12AStepNetReadsNothingThatItsOperatorDoesNotList) {
  RecurrentCase net;
  net.Sequence("x", "x_t").State("h", "h0", "h_prev", "h_next").Step("h_next = Sum(x_t, h_prev, outside)");
  net.Output("h_all", "h", 1).Feed("x", Random({4, 2, 3}, 1)).Feed("h0", Random({2, 3}, 2));
  net.Feed("outside", Random({1, 2, 3}, 3));  // is there, and no input: an outer dag net could not order its writer
  ExpectError([&] { net.net(); },
              "…\"outside\" is read before anything writes it\n  at op 0 `h_next = Sum(x_t, h_prev, outside)`\n  in "
              "net \"step\"");
  net.Captured("outside").Run();
}

TEST(ParallelRules, S13AStepNetForTwoDevicesIsRefusedWithTheOperatorNamed) {
  RecurrentCase net;
  OperatorDef elsewhere = ParseOp("a = Tanh(x_t)");
  elsewhere.mutable_device_option()->set_device_type(1);
  net.Sequence("x", "x_t").State("h", "h0", "h_prev", "h_next").Step(elsewhere).Step("h_next = Sum(a, h_prev)");
  net.Output("h_all", "h", 1).Feed("x", Random({4, 2, 3}, 1)).Feed("h0", Random({2, 3}, 2));
  ExpectError([&] { net.net(); },
              "…the step net places Tanh on cuda:0, and is run on cpu\n  at op 0 `a = Tanh(x_t)`\n  in net \"step\"");
}

double ProcessSeconds() { return static_cast<double>(std::clock()) / CLOCKS_PER_SEC; }

TEST(ParallelRules, S14ThreadsThatHaveNothingToDoSleep) {
  NetDef def = Probed(Layers(2, /*training=*/false));
  AddInt(def.mutable_op(0), "num_workspaces", 1);
  Workspace workspace;
  FeedLayers(2, 6, 1, workspace);
  const auto net =
      Net::Create(def, workspace, {.executor = "parallel", .threads = 4, .disabled_passes = {"fuse_regions"}});
  bool slept = false;
  const Probe probe([&](const ProbePlace& place) {
    if (place.step != 3 || place.op.find("l1_h") == std::string::npos) return;
    // All others wait for this one. Sooner or later the process uses no time while it sleeps.
    for (int look = 0; look < 500 && !slept; ++look) {
      const double before = ProcessSeconds();
      std::this_thread::sleep_for(milliseconds(10));
      slept = ProcessSeconds() - before < 0.001;
    }
  });
  net->Run();
  EXPECT_TRUE(slept) << "the process is never idle while its steps wait for one operator";
}

// A device with queues asks the plan how many stages may use.
TEST(ParallelRules, PlansKnowHowManyStreamsTheNetAllows) {
  NetDef def = Layers(2, /*training=*/true);
  for (OperatorDef& op : *def.mutable_op()) {
    if (op.type().starts_with("RecurrentNetwork")) AddInt(&op, "rnn_executor.max_cuda_streams", 3);
  }
  std::vector<std::int64_t> max_queues;
  RunOptions options{.executor = "serial"};
  options.on_plan = [&](const StepPlan& plan) { max_queues.push_back(plan.max_queues); };
  Workspace workspace;
  FeedLayers(2, 6, 1, workspace);
  RunNetOnce(def, workspace, options);
  EXPECT_EQ(max_queues, (std::vector<std::int64_t>{3, 3}));
}

TEST(ParallelRules, M3OperatorsAndNetsOwnNoThreads) {
  const std::filesystem::path tasks = "/proc/self/task";
  if (!std::filesystem::exists(tasks)) GTEST_SKIP() << "there is no " << tasks;
  const auto num_threads = [&] {
    return std::distance(std::filesystem::directory_iterator(tasks), std::filesystem::directory_iterator());
  };
  const NetDef def = Layers(3, /*training=*/true);
  std::vector<std::unique_ptr<Workspace>> workspaces;
  std::vector<std::unique_ptr<Net>> nets;
  const auto add_and_run = [&] {
    workspaces.push_back(std::make_unique<Workspace>());
    FeedLayers(3, 10, 1, *workspaces.back());
    nets.push_back(Net::Create(def, *workspaces.back(), {.executor = "parallel", .threads = 4}));
    nets.back()->Run();
  };
  add_and_run();
  const auto of_one = num_threads();
  for (int k = 0; k < 10; ++k) add_and_run();
  EXPECT_EQ(num_threads(), of_one);
}

}  // namespace
}  // namespace stepnet

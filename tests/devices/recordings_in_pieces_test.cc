// Long runs, which a device plays in pieces (Recorder::Cut): with the bits of runs that are launched, and an end
// between two of them where somebody asks for it.
#include "recorded_nets.h"
#include "stepnet/compiler/step_plan.h"
#include "stepnet/core/cancellation.h"
#include "stepnet/core/recording_times.h"
#include "stepnet/core/strings.h"
#include "stepnet/nets/backward.h"
#include "stepnet/nets/backward_step.h"
#include "stepnet/nets/op_builder.h"
#include "stepnet/tests/compiler/needs_usual_plans.h"
#include "stepnet/tests/examples/cell_case.h"
#include "stepnet/tests/executor/layers.h"

namespace stepnet {
namespace {

// The target of a device, with graphs of a few operators.
Target SmallGraphs(Device device, std::int64_t max_operators_of_graph) {
  Target target = *(device.IsHost() ? RunOptions().target : GetDeviceSpec(device.kind).target);
  target.max_operators_of_graph = max_operators_of_graph;
  return target;
}

class RecordingsInPieces : public RecordedNetsOnEveryDevice {
 protected:
  // Runs the net, in pieces and launched, 8 times; gives how many pieces have been played, in the first of 6 plays.
  std::int64_t NumPiecesOf(const NetDef& def, const std::function<void(unsigned seed, Workspace&)>& feed,
                           std::int64_t max_operators_of_graph, const std::string& what) {
    return NumPiecesOf(def, feed, SmallGraphs(GetParam(), max_operators_of_graph), what);
  }
  std::int64_t NumPiecesOf(const NetDef& def, const std::function<void(unsigned seed, Workspace&)>& feed,
                           const Target& target, const std::string& what) {
    Target without_blocks = target;
    without_blocks.block_bytes = 0;
    RunOptions options = Options(), in_turn = Options(kMaxOptLevel, "serial");
    options.target = &target;
    in_turn.target = &without_blocks;
    Workspace played, launched;
    for (Workspace* workspace : {&played, &launched}) feed(1, *workspace);
    const std::unique_ptr<Net> fast = Net::Create(def, played, options);
    const std::unique_ptr<Net> slow = Net::Create(def, launched, in_turn);
    const RecordingTimes before = RecordingsSoFar();
    const std::int64_t num_played = NumPlayed();
    for (unsigned run = 0; run < 8; ++run) {
      for (Workspace* workspace : {&played, &launched}) feed(run / 2, *workspace);
      fast->Run();
      slow->Run();
      ExpectSameValues(played, launched, StrCat(what, ", run ", run));
      if (HasFailure()) return 0;
    }
    const RecordingTimes after = RecordingsSoFar();
    EXPECT_EQ(after.recordings - before.recordings, 1) << fast->Recordable().why_no_more;
    if (IsCounted()) {
      EXPECT_EQ(NumPlayed() - num_played, 6 * (after.graphs - before.graphs)) << what;
    }
    return after.graphs - before.graphs;
  }
};
INSTANTIATE_ON_EVERY_DEVICE(RecordingsInPieces);

TEST_P(RecordingsInPieces, OfLayersGiveTheBitsOfOneAfterTheOther) {
  if (GetParam().IsHost()) GTEST_SKIP() << "nothing is recorded on the CPU";
  const auto feed = [](unsigned seed, Workspace& workspace) { FeedLayers(4, 300, seed, workspace); };
  for (const bool training : {false, true}) {
    const NetDef def = Layers(4, training);
    std::int64_t last = 1;
    for (const std::int64_t max : {1'000'000, 1'000, 100, 1}) {
      const std::int64_t pieces = NumPiecesOf(def, feed, max, StrCat("graphs of ", max));
      if (HasFailure()) return;
      EXPECT_GE(pieces, last);
      if (max == 1'000'000) {
        EXPECT_EQ(pieces, 1);
      }
      last = pieces;
    }
    EXPECT_GT(last, 3) << "each chunk is one at least";
  }
}

// Stages that come to the rows of a block again, whatever is played at the same time: they wait for those who read
// them.
TEST_P(RecordingsInPieces, OfLayersInShortBlocksGiveTheBitsOfOneAfterTheOther) {
  if (GetParam().IsHost()) GTEST_SKIP() << "nothing is recorded on the CPU";
  const auto feed = [](unsigned seed, Workspace& workspace) { FeedLayers(4, 300, seed, workspace); };
  for (const bool training : {false, true}) {
    for (const std::int64_t max : {1'000'000, 500}) {
      Target target = SmallGraphs(GetParam(), max);
      target.block_bytes = 1;
      target.min_chunks_of_block = 1;
      const std::int64_t pieces = NumPiecesOf(Layers(4, training), feed, target, StrCat("graphs of ", max));
      if (HasFailure()) return;
      EXPECT_EQ(pieces > 1, max == 500);
    }
  }
}

// Behind an operator of the host steps are played on their own.
TEST_P(RecordingsInPieces, OfStepsAloneGiveTheBitsOfOneAfterTheOther) {
  if (GetParam().IsHost()) GTEST_SKIP() << "nothing is recorded on the CPU";
  NetDef def;
  *def.add_op() = ParseOp("x = Relu(raw)");
  def.mutable_op(0)->mutable_device_option()->set_device_type(0);
  def.mutable_op()->MergeFrom(Layers(2, /*training=*/false).op());
  const auto feed = [](unsigned seed, Workspace& workspace) {
    FeedLayers(2, 300, seed, workspace);
    workspace.SetTensor("raw", Random({300, 3, 12}, seed));
  };
  EXPECT_EQ(NumPiecesOf(def, feed, 1'000'000, "graphs of all"), 1);
  EXPECT_GT(NumPiecesOf(def, feed, 50, "graphs of 50"), 3);
}

// A cut in one of the lanes is one in all.
TEST_P(RecordingsInPieces, OfLoopsBesideEachOtherGiveTheBitsOfOneAfterTheOther) {
  if (GetParam().IsHost()) GTEST_SKIP() << "nothing is recorded on the CPU";
  CellCase test{.cell = ReadExampleCell("lstm"), .num_steps = 30, .batch = 3};
  test.cell.def.mutable_options()->set_layers(2);
  test.cell.def.mutable_options()->set_direction(CellOptions::BIDIRECTIONAL);
  test.use.sizes = SmallSizes(test.cell.def);
  const CellNet cell = test.Expand();
  NetDef def = cell.net;
  AddBackwardStepNets(&def);
  def = AddGradients(def, cell.outputs, cell.parameters).net;
  const Tensors given = test.RandomValues(cell);
  for (const std::int64_t max : {1'000, 50, 7}) {
    int num_fed = 0;
    const auto feed = [&](unsigned, Workspace& workspace) {
      if (num_fed++ < 2) FeedAs(DType::kFloat, given, workspace);
    };
    const std::int64_t pieces = NumPiecesOf(def, feed, max, StrCat("graphs of ", max));
    if (HasFailure()) return;
    EXPECT_EQ(pieces > 4, max < 1'000) << pieces;
  }
}

// h_t = a_t / d_t - h_{t-1} - a_t: three operators a step.
NetDef Divides() {
  RecurrentCase net;
  net.Sequence("a", "a_t").Sequence("d", "d_t").State("h", "h0", "h_prev", "h_next");
  net.Step("q = Div(a_t, d_t)").Step("r = Sub(q, h_prev)").Step("h_next = Sub(r, a_t)").Output("h_all", "h", 1);
  return net.Build();
}

Tensor Integers(std::int64_t steps, std::int64_t first) {
  Tensor tensor(DType::kInt64, {steps, 1, 2});
  for (std::int64_t i = 0; i < tensor.size(); ++i) tensor.data<std::int64_t>()[i] = first + i % 7;
  return tensor;
}

// As many operators as are written.
RunOptions AsWritten(const Target& target, Device device) {
  RunOptions options = OnDevice({.opt_level = 0}, device);
  options.target = &target;
  return options;
}

TEST_P(RecordingsInPieces, NameTheStepOfAFault) {
  if (GetParam().IsHost()) GTEST_SKIP() << "nothing is recorded on the CPU";
  constexpr std::int64_t kSteps = 100;
  const Target target = SmallGraphs(GetParam(), 30);
  Twins twins(AsWritten(target, GetParam()));
  const Tensor divisors = Integers(kSteps, 1);
  twins.Feed("a", Integers(kSteps, 100));
  twins.Feed("h0", Tensor::Of<std::int64_t>({1, 2}, {1, 4}));
  twins.Feed("d", divisors);
  twins.Add(Divides());
  const auto feed = [&](std::int64_t step) {
    Tensor bad = divisors.Clone();
    if (step >= 0) bad.data<std::int64_t>()[2 * step + 1] = 0;
    twins.Feed("d", bad);
  };
  for (int run = 0; run < 4; ++run) twins.Run(StrCat("run ", run));
  const std::int64_t before = NumPlayed();
  for (const std::int64_t step : {15, 0, 99, 9, 10}) {
    feed(step);
    const std::string error = ErrorOf([&] {
      twins.there().Run();
      twins.there().Wait();
    });
    EXPECT_TRUE(error.starts_with("invalid argument: Div of the integer ")) << error;
    EXPECT_NE(error.find(StrCat(", step ", step, "\n")), std::string::npos) << error;
    feed(-1);
    twins.Run(StrCat("after a fault in step ", step));
  }
  if (IsCounted()) {
    EXPECT_EQ(NumPlayed() - before, 10 * 10);
  }
}

TEST_P(RecordingsInPieces, OfOtherLengthsTakeTurns) {
  if (GetParam().IsHost()) GTEST_SKIP() << "nothing is recorded on the CPU";
  const Target target = SmallGraphs(GetParam(), 30);
  Twins twins(AsWritten(target, GetParam()));
  twins.Feed("h0", Tensor::Of<std::int64_t>({1, 2}, {1, 4}));
  const std::int64_t before = NumPlayed();
  for (int run = 0; run < 40; ++run) {
    const std::int64_t lengths[] = {100, 37, 0, 1, 200};
    const std::int64_t steps = lengths[run < 20 ? run / 4 : run % 5];
    twins.Feed("a", Integers(steps, 100 + run));
    twins.Feed("d", Integers(steps, 1 + run));
    if (run == 0) twins.Add(Divides());
    twins.Run(StrCat("run ", run, " of ", steps, " steps"));
    if (HasFailure()) return;
  }
  if (IsCounted()) {
    EXPECT_GT(NumPlayed() - before, 10);
  }
}

// What is kept has no more operators in all than may be recorded, or is one run.
TEST(RecordingsInPiecesOfThePoisonDevice, AreKeptWhileTheyTakeLittleMemory) {
  NEEDS_USUAL_PLANS();
  constexpr std::int64_t kOperators = 3, kRuns = 48;
  // In the last half of runs of 40 and 50 steps in turn.
  const auto num_recorded = [](std::int64_t max_recorded_operators, const std::string& why_not = "") {
    Target target = SmallGraphs(kPoisonDevice, 30);
    target.max_recorded_operators = max_recorded_operators;
    Twins twins(AsWritten(target, kPoisonDevice));
    twins.Feed("h0", Tensor::Of<std::int64_t>({1, 2}, {1, 4}));
    std::int64_t before = 0;
    for (int run = 0; run < kRuns; ++run) {
      if (run == kRuns / 2) before = RecordingsSoFar().recordings;
      const std::int64_t steps = run % 2 == 0 ? 40 : 50;
      twins.Feed("a", Integers(steps, 100 + run));
      twins.Feed("d", Integers(steps, 1 + run));
      if (run == 0) twins.Add(Divides());
      twins.Run(StrCat("run ", run));
    }
    EXPECT_EQ(twins.there().Recordable().why_no_more, why_not);
    return RecordingsSoFar().recordings - before;
  };
  EXPECT_EQ(num_recorded(kOperators * (40 + 50)), 0) << "both are kept";
  EXPECT_GT(num_recorded(kOperators * (40 + 50) - 1), 0) << "one of them is, and goes for the other";
  EXPECT_EQ(
      num_recorded(kOperators * 40 - 1, "operator 0, RecurrentNetwork: its steps have more than 119 operators in all"),
      0);
}

// Who asks, when its next call but so many is done on the device, for the end of the run.
Cancellation* to_cancel = nullptr;
int calls_before = -1;

// y = x, and maybe the end of the run.
const Registration cancels = Operator("test.Cancels")
                                 .Doc("y = x.")
                                 .Input("x", "any shape")
                                 .Output("y", "the shape of x")
                                 .Shapes(SameAsInput(0))
                                 .StopsGradient()
                                 .Cpu([](const OperatorCall&) -> RunFn {
                                   return [](const OpRun& run) {
                                     if (to_cancel != nullptr && calls_before-- == 0) to_cancel->Cancel();
                                     CopyElements(run.In(0), run.Out(0));
                                   };
                                 });

// The run ends soon behind the piece that was under way; what it noted is none of the next run's.
TEST(RecordingsInPiecesOfThePoisonDevice, EndWhereSomebodyAsksForIt) {
  constexpr std::int64_t kSteps = 60;
  RecurrentCase net;
  net.Sequence("a", "a_t").Sequence("d", "d_t").State("h", "h0", "h_prev", "h_next");
  net.Step("q = Div(a_t, d_t)").Step("r = test.Cancels(q)").Step("h_next = Sub(r, h_prev)").Output("h_all", "h", 1);
  const Target target = SmallGraphs(kPoisonDevice, 30);  // of 10 steps
  Twins twins(AsWritten(target, kPoisonDevice));
  const Tensor divisors = Integers(kSteps, 1);
  twins.Feed("a", Integers(kSteps, 100));
  twins.Feed("h0", Tensor::Of<std::int64_t>({1, 2}, {1, 4}));
  twins.Feed("d", divisors);
  twins.Add(net.Build());
  for (int run = 0; run < 4; ++run) twins.Run(StrCat("run ", run));
  Tensor with_fault = divisors.Clone();
  with_fault.data<std::int64_t>()[2] = 0;
  for (const int call : {0, 9, 10, 35}) {
    twins.Feed("d", with_fault);
    Cancellation cancellation;
    to_cancel = &cancellation;
    calls_before = call;
    const std::int64_t before = CountsOfPoisonDevice().played;
    const std::string error = ErrorOf([&] { twins.there().Run(&cancellation); });
    EXPECT_TRUE(error.starts_with("cancelled: the run was cancelled")) << error;
    // The one that asks, the one that was under way beside it, and none behind.
    EXPECT_EQ(CountsOfPoisonDevice().played - before, call / 10 + 2) << call;
    to_cancel = nullptr;
    twins.Feed("d", divisors);
    const std::int64_t played = CountsOfPoisonDevice().played;
    twins.Run(StrCat("after call ", call));
    EXPECT_EQ(CountsOfPoisonDevice().played - played, 6) << call;
  }
  // The last of two pieces is put in before anybody waits, that of many as soon as one is left.
  Cancellation late;
  to_cancel = &late;
  calls_before = 45;
  EXPECT_EQ(ErrorOf([&] { twins.there().Run(&late); }), "no error");
  to_cancel = nullptr;
}

// Whatever is refused while it is recorded, or fails while it is played: the next runs work.
TEST(RecordingsInPiecesOfThePoisonDevice, WorkAfterFailures) {
  NEEDS_USUAL_PLANS();
  const Target target = SmallGraphs(kPoisonDevice, 30);
  for (const PoisonFault fault : {PoisonFault::kLaunch, PoisonFault::kWork}) {
    for (const std::int64_t k : {0, 1, 3, 9, 40}) {
      Twins twins(AsWritten(target, kPoisonDevice));
      twins.Feed("a", Integers(40, 100));
      twins.Feed("d", Integers(40, 1));
      twins.Feed("h0", Tensor::Of<std::int64_t>({1, 2}, {1, 4}));
      twins.Add(Divides());
      for (int run = 0; run < 2; ++run) twins.Run(StrCat("run ", run));
      for (int run = 2; run < 4; ++run) {
        // (Work that is to fail would be kept.)
        const PoisonFailure failing(run == 2 ? PoisonFault::kLaunch : fault, k);
        static_cast<void>(ErrorOf([&] {
          twins.there().Run();
          twins.there().Wait();
        }));
      }
      for (int run = 4; run < 8; ++run) twins.Run(StrCat("run ", run, ", failure ", k));
      if (testing::Test::HasFailure()) return;
    }
  }
}

}  // namespace
}  // namespace stepnet

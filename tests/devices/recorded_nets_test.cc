// Nets whose whole runs a device records and plays: whatever happens to their blobs between runs, the values are those
// of the CPU, and what a run leaves on the host is what a run that is launched leaves.
#include "recorded_nets.h"

#include <array>
#include <random>
#include <utility>

#include "small_training.h"
#include "stepnet/core/playing_observer.h"
#include "stepnet/core/recording_times.h"
#include "stepnet/core/strings.h"
#include "stepnet/gpu/kernel_fault.h"
#include "stepnet/nets/backward.h"
#include "stepnet/nets/backward_step.h"
#include "stepnet/nets/op_builder.h"
#include "stepnet/tests/examples/cell_case.h"
#include "stepnet/tests/executor/layers.h"

namespace stepnet {
namespace {

class RecordedNets : public RecordedNetsOnEveryDevice {};
INSTANTIATE_ON_EVERY_DEVICE(RecordedNets);

TEST_P(RecordedNets, TrainBitForBitAsTheyDoLaunched) {
  SmallTraining played(Options()), launched(Options(kMaxOptLevel, "serial"));
  const std::int64_t before = NumPlayed();
  for (int iteration = 0; iteration < 8; ++iteration) {
    played.Iterate();
    launched.Iterate();
    const NamedInputs found = played.Kept();
    for (const auto& [name, tensor] : launched.Kept())
      ExpectSame(found.at(name), tensor, StrCat(name, ", ", iteration));
  }
  if (IsCounted()) {
    EXPECT_EQ(NumPlayed() - before, 6) << "the first two are launched";
  }
}

// Launched, watched, recorded and played: nothing but the check of indices behind the whole run makes the host wait.
TEST_P(RecordedNets, TrainWithoutWaitingForTheDevice) {
  if (GetParam().IsHost()) GTEST_SKIP() << "nobody waits for the CPU";
  DeviceRuntime& runtime = RuntimeOf(GetParam());
  const NetDef layers = Layers(2, /*training=*/true);
  for (const char* executor : {"serial", ""}) {
    Workspace workspace;
    FeedLayers(2, 5, 1, workspace);
    const std::unique_ptr<Net> net = Net::Create(layers, workspace, Options(kMaxOptLevel, executor));
    const std::int64_t before = runtime.num_host_waits();
    for (int run = 0; run < 6; ++run) net->Run();
    EXPECT_EQ(runtime.num_host_waits() - before, 0) << executor;
  }
  SmallTraining training(Options());
  for (int iteration = 0; iteration < 6; ++iteration) {
    const std::int64_t before = runtime.num_host_waits();
    training.Iterate();
    EXPECT_LE(runtime.num_host_waits() - before, 2) << "for indices, and in the end: iteration " << iteration;
  }
}

TEST_P(RecordedNets, AreCountedWithTheirNodes) {
  SmallTraining training(Options());
  const RecordingTimes before = RecordingsSoFar();
  for (int iteration = 0; iteration < 6; ++iteration) training.Iterate();
  const RecordingTimes after = RecordingsSoFar();
  EXPECT_EQ(after.recordings - before.recordings, GetParam().IsHost() ? 0 : 1);
  EXPECT_EQ(after.nodes - before.nodes > 10, !GetParam().IsHost()) << after.nodes - before.nodes;
  EXPECT_GE(after.seconds(), before.seconds());
}

// Counts operators and moves.
class CountingObserver : public PlayingObserver {
 public:
  explicit CountingObserver(bool lets_play) : lets_play_(lets_play) {}
  bool LetsPlay() const override { return lets_play_; }
  void Start(const RunEvent& event) override {
    if (event.kind == RunEventKind::kOperator || event.kind == RunEventKind::kMove) ++count_;
  }
  void Stop(const RunEvent&) override {}
  int TakeCount() { return std::exchange(count_, 0); }

 private:
  const bool lets_play_;
  int count_ = 0;
};

// Such observers see what is put in, launched or recorded, and not what is played.
TEST_P(RecordedNets, ArePlayedBesideObserversThatLetThem) {
  if (!IsCounted()) GTEST_SKIP() << "played runs are counted on the poison device alone";
  for (const bool lets_play : {false, true}) {
    Workspace workspace;
    FeedLayers(2, 5, 1, workspace);
    const std::unique_ptr<Net> net = Net::Create(Layers(2, /*training=*/true), workspace, Options());
    for (int run = 0; run < 5; ++run) net->Run();
    CountingObserver observer(lets_play);
    net->AttachObserver(&observer);
    const std::int64_t before = NumPlayed();
    std::vector<int> counts;
    for (int run = 0; run < 6; ++run) {
      net->Run();
      counts.push_back(observer.TakeCount());
    }
    // What was recorded before it looked is not played: launched, watched, recorded and played, and played.
    EXPECT_EQ(NumPlayed() - before, lets_play ? 4 : 0);
    EXPECT_GT(counts[0], 20);
    EXPECT_EQ(counts[1], counts[0]);
    EXPECT_EQ(counts[2], counts[0]);
    EXPECT_EQ(counts[3] < counts[0] / 4, lets_play) << counts[3] << ": inputs are brought to the device each time";
    EXPECT_EQ(counts[5], counts[3]);
    net->DetachObserver(&observer);
    for (int run = 0; run < 4; ++run) net->Run();
    EXPECT_EQ(NumPlayed() - before, lets_play ? 8 : 2) << "of four more";
    EXPECT_EQ(observer.TakeCount(), 0);
  }
}

TEST_P(RecordedNets, FindFaultsInAnIterationThatIsPlayed) {
  SmallTraining training(Options());
  for (int iteration = 0; iteration < 4; ++iteration) training.Iterate();
  // What kernels of other sizes say makes nobody forget what those say that are played.
  for (int size = 0; size < 1000; ++size) FaultMessagesOf(std::array{RequirementOf(StrCat("of size ", size), {})});
  for (int k = 0; k < 3; ++k) {
    const NamedInputs before = training.Kept();
    training.SetRows(7);
    const std::int64_t played = NumPlayed();
    const std::string error = ErrorOf([&] { training.Iterate(); });
    if (IsCounted()) {
      EXPECT_EQ(NumPlayed(), played + 1);
    }
    EXPECT_TRUE(
        error.starts_with("invalid argument: Gather: element 5 of the indices is 7; the data have 5 rows\n  at "
                          "op 0 `embedded = Gather(table, rows)`"))
        << error;
    const NamedInputs after = training.Kept();
    for (const auto& [name, tensor] : before) ExpectSame(after.at(name), tensor, name);
    training.SetRows();
    training.Iterate();
  }
}

// What a run hands on to the next one is part of the recording, and stays where something before it has found a fault.
TEST_P(RecordedNets, LeaveWhatTheyCarryOnWhereThereIsAFault) {
  NetDef def = NetOf({"y = Gather(table, rows)", "h = Add(carried, y)", "count = Copy(more)", "carried = Copy(h)"});
  Twins twins(Options());
  const auto feed = [&](int row) { twins.Feed("rows", Tensor::Of<std::int32_t>({3}, {1, row, 0})); };
  twins.Feed("table", Values({1, 2}));
  twins.Feed("carried", Values({0, 0, 0}));
  twins.Feed("more", Tensor::Of<std::int64_t>({1}, {7}));
  twins.Feed("count", Tensor::Of<std::int64_t>({1}, {5}));
  feed(0);
  twins.Add(def);
  std::int64_t before = 0;
  for (int run = 0; run < 8; ++run) {
    if (run == 4) before = NumPlayed();
    feed(7 + run);
    twins.RunWithFault("carried");
    feed(run % 2);
    const std::int64_t waits = GetParam().IsHost() ? 0 : RuntimeOf(GetParam()).num_host_waits();
    twins.there().Run();
    if (!GetParam().IsHost()) {
      EXPECT_EQ(RuntimeOf(GetParam()).num_host_waits() - waits, 1) << "for indices";
    }
    twins.RunOnCpu();
    ExpectNearTensor(twins.workspace().GetTensor("carried"), twins.on_cpu().GetTensor("carried"),
                     ToleranceOf(GetParam()), StrCat("run ", run));
  }
  if (!GetParam().IsHost()) {
    EXPECT_EQ(twins.there().Recordable().why_no_more, "");
  }
  if (IsCounted()) {
    EXPECT_EQ(NumPlayed() - before, 8);
  }
}

TEST_P(RecordedNets, GiveTheBitsOfLaunchedRunsWhileLengthsAndBatchesChange) {
  const NetDef def = Layers(2, /*training=*/true);
  Workspace played, launched;
  std::unique_ptr<Net> fast, slow;
  const std::int64_t before = NumPlayed();
  for (int run = 0; run < 30; ++run) {
    const std::int64_t steps = run < 6 ? 5 : run < 12 ? 9 : run < 16 ? 5 + run % 2 : run < 24 ? 0 : 3;
    for (Workspace* workspace : {&played, &launched}) FeedLayers(2, steps, static_cast<unsigned>(run), *workspace);
    if (fast == nullptr) {
      fast = Net::Create(def, played, Options());
      slow = Net::Create(def, launched, Options(kMaxOptLevel, "serial"));
    }
    fast->Run();
    slow->Run();
    ExpectSameValues(played, launched, StrCat("run ", run));
    if (HasFailure()) return;
  }
  if (IsCounted()) {
    EXPECT_GE(NumPlayed() - before, 12);
  }
}

// Lanes of what is played may be done at the same time; the poison device takes another order each time.
TEST_P(RecordedNets, PlayLoopsBesideEachOther) {
  for (const char* name : {"lstm", "gru", "attention_dot"}) {
    CellCase test{.cell = ReadExampleCell(name), .num_steps = 7, .batch = 3};
    test.cell.def.mutable_options()->set_layers(2);
    test.cell.def.mutable_options()->set_direction(CellOptions::BIDIRECTIONAL);
    test.cell.def.mutable_options()->set_lengths("lengths");
    test.use.sizes = SmallSizes(test.cell.def);
    NetDef def;
    std::vector<std::string> outputs, parameters;
    std::set<std::string> not_floating;
    Tensors given;
    for (const char* scope : {"a/", "b/"}) {
      test.use.scope = scope;
      const CellNet cell = test.Expand();
      def.mutable_op()->MergeFrom(cell.net.op());
      outputs.insert(outputs.end(), cell.outputs.begin(), cell.outputs.end());
      parameters.insert(parameters.end(), cell.parameters.begin(), cell.parameters.end());
      for (const CellNetInput& input : cell.inputs) {
        if (input.dtype != DType::kFloat) not_floating.insert(input.blob);
      }
      given.merge(test.RandomValues(cell));
    }
    AddBackwardStepNets(&def, [&](const std::string& blob) { return !not_floating.contains(blob); });
    def = AddGradients(def, outputs, parameters).net;
    Workspace played, launched;
    for (Workspace* workspace : {&played, &launched}) FeedAs(DType::kFloat, given, *workspace);
    const std::unique_ptr<Net> fast = Net::Create(def, played, Options());
    const std::unique_ptr<Net> slow = Net::Create(def, launched, Options(kMaxOptLevel, "serial"));
    const std::int64_t before = NumPlayed();
    for (int run = 0; run < 12; ++run) {
      fast->Run();
      slow->Run();
      ExpectSameValues(played, launched, StrCat(name, ", run ", run));
      if (HasFailure()) return;
    }
    if (IsCounted()) {
      EXPECT_EQ(NumPlayed() - before, 10) << name << ": " << fast->Recordable().why_no_more;
    }
  }
}

// (The other one makes y larger, gives it other memory, or lets it share memory with a blob that is not to change.)
TEST_P(RecordedNets, ShareBlobsWithOtherNets) {
  Twins twins(Options());
  twins.Feed("x", Values({1, 2, 3}));
  twins.Feed("w", Values({4, 5, 6, 7, 8}));
  twins.Add(NetOf({"y = Tanh(x)", "z = Add(y, y)"}));
  twins.Add(NetOf({"y = Tanh(w)"}));
  twins.Add(NetOf({"z = Tanh(w)", "y = Relu(z)"}));
  const std::int64_t before = NumPlayed();
  for (int round = 0; round < 4; ++round) {
    for (int run = 0; run < 5; ++run) {
      if (run % 2 == 1) twins.Feed("x", Values({1, static_cast<float>(run), 3}));
      twins.Run(StrCat("run ", run, " of round ", round));
    }
    twins.Run("the second net", 1);
    twins.Run("the first net behind the second");
    twins.Run("the third net", 2);
    twins.Run("the first net behind the third");
    for (Workspace* workspace : {&twins.workspace(), &twins.on_cpu()}) {
      workspace->SetTensor("y", workspace->GetTensor("w").Slice(0, 3));
    }
    twins.Run("the first net, whose output shared memory");
  }
  if (IsCounted()) {
    EXPECT_GE(NumPlayed() - before, 8);
  }
}

TEST_P(RecordedNets, ChangeShapesInPlace) {
  for (const std::vector<std::string>& ops : {std::vector<std::string>{"x = ExpandDims(x)"},
                                              {"y = Tanh(x)", "y = ExpandDims(y)"},
                                              {"y = Tanh(x)", "y = ExpandDims(y)", "y = Squeeze(y)"},
                                              {"y = Relu(x)", "x = ExpandDims(x)", "z = Tanh(x)"}}) {
    NetDef def = NetOf(ops);
    for (OperatorDef& op : *def.mutable_op()) {
      if (op.type() != "Tanh" && op.type() != "Relu") AddInts(&op, "dims", {0});
    }
    Twins twins(Options());
    twins.Feed("x", Values({1, 2, 3}));
    twins.Add(def);
    for (int run = 0; run < 6; ++run) twins.Run(StrCat(ops.back(), ", run ", run));
    twins.Feed("x", Values({4, 2, 3}));
    for (int run = 0; run < 4; ++run) twins.Run(StrCat(ops.back(), ", run ", run, " on another input"));
  }
}

// Who holds on to what a run wrote keeps its values; who gives it other memory is obeyed.
TEST_P(RecordedNets, SeeWhatBecomesOfTheirBlobsBetweenRuns) {
  Twins twins(Options());
  twins.Feed("x", Values({1, 2}));
  twins.Feed("sum", Values({0, 0}));
  twins.Add(NetOf({"y = Tanh(x)", "sum = Add(sum, y)", "z = Relu(sum)"}));
  const std::int64_t before = NumPlayed();
  for (int run = 0; run < 5; ++run) twins.Run(StrCat("run ", run));
  if (IsCounted()) {
    EXPECT_EQ(NumPlayed() - before, 3);
  }
  const Tensor z = twins.workspace().GetTensor("z"), y = twins.workspace().GetTensor("y");
  const Tensor old_z = z.To({}).Clone(), old_y = y.To({}).Clone();
  twins.Feed("x", Values({-5, 7}));
  for (int run = 0; run < 5; ++run) twins.Run(StrCat("run ", run, " while outputs are held"));
  ExpectSame(z.To({}), old_z, "z, which was held");
  ExpectSame(y.To({}), old_y, "y, which was held");
  twins.Feed("sum", Values({10, 20}));
  for (int run = 0; run < 5; ++run) twins.Run(StrCat("run ", run, " from another sum"));
  twins.workspace().GetBlob("y").Reset();
  twins.on_cpu().GetBlob("y").Reset();
  for (int run = 0; run < 5; ++run) twins.Run(StrCat("run ", run, " behind an empty output"));
  for (const std::int64_t size : {3, 1, 2}) {
    twins.Feed("x", Tensor::Zeros(DType::kFloat, {size}));
    twins.Feed("sum", Tensor::Of<float>({size}, std::vector<float>(static_cast<size_t>(size), 2)));
    for (int run = 0; run < 4; ++run) twins.Run(StrCat("run ", run, " of ", size));
  }
}

// d, mask = Dropout(x_t), half of it.
OperatorDef HalfDropped() {
  NetDef net;
  AddOp(&net, "Dropout", {"x_t"}, {"d", "mask"}).Float("ratio", 0.5F).Int("is_test", 0);
  return net.op(0);
}

// The forward and the backward pass draw the same masks, others in each run.
TEST_P(RecordedNets, DrawMasksInStepsAsLaunchedRunsDo) {
  RecurrentCase net;
  net.Sequence("x", "x_t").State("h", "h0", "h_prev", "h_next");
  net.Step(HalfDropped()).Step("s = Add(d, h_prev)").Step("h_next = Tanh(s)").Output("h_all", "h", 1);
  NetDef def = net.Build();
  AddBackwardStepNets(&def);
  def = AddGradients(def, {"h_all"}, {"x", "h0"}).net;
  Twins twins(Options());
  twins.Feed("x", Random({4, 3, 5}, 1, DType::kFloat));
  twins.Feed("h0", Random({3, 5}, 2, DType::kFloat));
  twins.Add(def);
  const std::int64_t before = NumPlayed();
  Tensor last;
  for (int run = 0; run < 7; ++run) {
    twins.Run(StrCat("run ", run));
    const Tensor gradient = twins.on_cpu().GetTensor("x_grad").Clone();
    if (last.defined()) {
      EXPECT_NE(Values(gradient), Values(last)) << run;
    }
    last = gradient;
  }
  if (IsCounted()) {
    EXPECT_EQ(NumPlayed() - before, 5);
  }
}

// What a run of steps leaves is read by another net: its masks are those of the run that was played last.
TEST_P(RecordedNets, LeaveRecordsOfStepsThatOtherNetsGoBackThrough) {
  RecurrentCase net;
  net.Sequence("x", "x_t").State("h", "h0", "h_prev", "h_next");
  net.Step(HalfDropped()).Step("s = Add(d, h_prev)").Step("h_next = Tanh(s)").Output("h_all", "h", 1);
  AddStrings(&net.forward(), "recompute_blobs_on_backward", {"d", "mask"});
  NetDef def = net.Build();
  AddBackwardStepNets(&def);
  const NetDef whole = AddGradients(def, {"h_all"}, {"x", "h0"}).net;
  NetDef forward = whole, backward = whole;
  const auto first_backward =
      std::ranges::find(whole.op(), "RecurrentNetwork", &OperatorDef::type) - whole.op().begin();
  forward.mutable_op()->DeleteSubrange(static_cast<int>(first_backward) + 1,
                                       whole.op_size() - static_cast<int>(first_backward) - 1);
  backward.mutable_op()->DeleteSubrange(0, static_cast<int>(first_backward) + 1);
  Twins twins(Options());
  twins.Feed("x", Random({4, 3, 5}, 1, DType::kFloat));
  twins.Feed("h0", Random({3, 5}, 2, DType::kFloat));
  twins.Add(forward);
  twins.Run("the first run");
  twins.Add(backward);
  for (int run = 0; run < 6; ++run) {
    twins.Feed("x", Random({4, 3, 5}, static_cast<unsigned>(run), DType::kFloat));
    twins.Run(StrCat("forward, run ", run));
    twins.Run(StrCat("backward, run ", run), 1);
  }
}

// States are blobs that the operator makes where there are none.
TEST_P(RecordedNets, MakeBlobsOfStatesThatAreRemovedOrHeld) {
  RecurrentCase net;
  net.Sequence("x", "x_t").State("h", "h0", "h_prev", "h_next");
  net.Step("h_next = Add(x_t, h_prev)").Output("h_all", "h", 1);
  Twins twins(Options());
  twins.Feed("x", Random({4, 3, 5}, 1, DType::kFloat));
  twins.Feed("h0", Random({3, 5}, 2, DType::kFloat));
  twins.Add(net.Build());
  const std::int64_t before = NumPlayed();
  for (int run = 0; run < 5; ++run) twins.Run(StrCat("run ", run));
  if (IsCounted()) {
    EXPECT_EQ(NumPlayed() - before, 3);
  }
  for (Workspace* workspace : {&twins.workspace(), &twins.on_cpu()}) EXPECT_TRUE(workspace->RemoveBlob("h"));
  for (int run = 0; run < 5; ++run) twins.Run(StrCat("run ", run, " without the state"));
  twins.workspace().GetBlob("h").Reset();
  twins.on_cpu().GetBlob("h").Reset();
  twins.Run("with an empty state");
  const Tensor h = twins.workspace().GetTensor("h"), old_h = h.To({}).Clone();
  twins.Feed("x", Random({4, 3, 5}, 3, DType::kFloat));
  for (int run = 0; run < 5; ++run) twins.Run(StrCat("run ", run, " while the state is held"));
  ExpectSame(h.To({}), old_h, "the state that is held");
}

// Steps that draw masks, with gradients, rows of a table, a sum that runs add to, and a shape that changes in place.
NetDef NetOfAllKinds() {
  RecurrentCase steps;
  steps.Sequence("x", "x_t").State("h", "h0", "h_prev", "h_next");
  steps.Step(HalfDropped()).Step("s = Add(d, h_prev)").Step("h_next = Tanh(s)").Output("h_all", "h", 1);
  NetDef net = NetOf({"rows_of = Gather(table, rows)", "rows_of = ExpandDims(rows_of)"});
  AddInts(net.mutable_op(1), "dims", {0});
  net.mutable_op()->MergeFrom(steps.Build().op());
  AddBackwardStepNets(&net);
  net = AddGradients(net, {"h_all"}, {"x", "h0"}).net;
  *net.add_op() = ParseOp("acc = Add(acc, x_grad)");
  return net;
}

// Whatever comes between runs, in whatever order.
TEST_P(RecordedNets, GiveTheValuesOfTheCpuWhateverComesBetween) {
  const std::int64_t before = NumPlayed();
  for (unsigned seed = 0; seed < 12; ++seed) {
    std::mt19937 random(seed);
    Twins twins(Options());
    const auto on_both = [&](const std::function<void(Workspace&)>& change) {
      change(twins.workspace());
      change(twins.on_cpu());
    };
    const auto feed_sizes = [&](std::int64_t steps, std::int64_t batch) {
      twins.Feed("x", Random({steps, batch, 5}, static_cast<unsigned>(random()), DType::kFloat));
      twins.Feed("h0", Random({batch, 5}, static_cast<unsigned>(random()), DType::kFloat));
      twins.Feed("acc", Tensor::Zeros(DType::kFloat, {steps, batch, 5}));
    };
    const auto feed_rows = [&](std::int32_t row) { twins.Feed("rows", Tensor::Of<std::int32_t>({2}, {1, row})); };
    feed_sizes(4, 3);
    feed_rows(0);
    twins.Feed("table", Random({3, 2}, seed, DType::kFloat));
    twins.Feed("w", Random({4, 3, 5}, seed, DType::kFloat));
    twins.Add(NetOfAllKinds());
    twins.Add(NetOf({"x_grad = Tanh(w)", "h_all = Relu(w)", "rows_of = Tanh(x_grad)"}));
    twins.Add(NetOf({"h = Tanh(w)"}));
    std::vector<std::pair<Tensor, Tensor>> held;  // with what it was
    for (int event = 0; event < 120 && !HasFailure(); ++event) {
      const char* const blobs[] = {"h_all", "x_grad", "rows_of", "acc", "h", "h_grad", "x"};
      const char* const blob = blobs[random() % std::size(blobs)];
      switch (random() % 24) {
        case 0: feed_sizes(1 + random() % 4, random() % 4); break;
        case 1: twins.Feed("x", Random(twins.on_cpu().GetTensor("x").shape(), event, DType::kFloat)); break;
        case 2: twins.Run("the second net", 1); break;
        case 3: twins.Run("the third net", 2); break;
        case 4:  // but for the sum in place, which whoever holds it sees grow
          if (const Blob* const there = twins.workspace().FindBlob(blob);
              there != nullptr && there->HasTensor() && there->name() != "acc") {
            held.emplace_back(there->GetTensor(), there->GetTensor().To({}).Clone());
          }
          break;
        case 5: held.clear(); break;
        case 6:
          if (const std::string name = blob; name != "x" && name != "acc") {
            on_both([&](Workspace& workspace) { workspace.CreateBlob(name).Reset(); });
          }
          break;
        case 7:
          on_both([](Workspace& workspace) { workspace.SetTensor("rows_of", workspace.GetTensor("table")); });
          break;
        case 8: {
          feed_rows(5);
          twins.RunWithFault("acc");
          feed_rows(static_cast<std::int32_t>(random() % 3));
          break;
        }
        default: break;
      }
      twins.Run(StrCat("event ", event, " of seed ", seed));
    }
    if (!GetParam().IsHost()) {
      EXPECT_EQ(twins.there().Recordable().why_no_more, "") << seed;
    }
    for (const auto& [tensor, was] : held) ExpectSame(tensor.To({}), was, "what is held");
    if (HasFailure()) return;
  }
  if (IsCounted()) {
    EXPECT_GE(NumPlayed() - before, 200);
  }
}

TEST_P(RecordedNets, AreCancelledBetweenRuns) {
  Twins twins(Options());
  twins.Feed("x", Values({1, 2}));
  twins.Feed("sum", Values({0, 0}));
  twins.Add(NetOf({"y = Tanh(x)", "sum = Add(sum, y)"}));
  for (int run = 0; run < 8; ++run) {
    Cancellation cancellation;
    cancellation.Cancel();
    EXPECT_TRUE(ErrorOf([&] { twins.there().Run(&cancellation); }).starts_with("cancelled")) << run;
    twins.there().SetRunCounter(static_cast<std::uint64_t>(run));
    twins.Run(StrCat("run ", run, " behind one that was cancelled"));
  }
}

// Needs none.
TEST(RecordedNetsOfAGpu, AreWholeIterationsOfTraining) {
  if (FindDeviceSpec(kCuda.kind) == nullptr) GTEST_SKIP() << "this program was built without cuda";
  const SmallTraining training(OnDevice({}, kCuda));
  EXPECT_EQ(training.net().Recordable().why_no_more, "");
  EXPECT_EQ(training.net().Recordable().count, static_cast<int>(training.net().operators().size()));
  RunOptions serial = OnDevice({}, kCuda);
  serial.executor = "serial";
  EXPECT_EQ(SmallTraining(serial).net().Recordable().count, 0);
}

// What fails while an iteration is recorded, or played: either it is launched after all, or it changes nothing.
TEST(RecordedNetsOfThePoisonDevice, FailAsLaunchedOnes) {
  constexpr int kIterations = 6;
  const RunOptions options = OnDevice({}, kPoisonDevice);
  SmallTraining reference(options);
  std::vector<NamedInputs> expected;
  for (int iteration = 0; iteration < kIterations; ++iteration) {
    expected.push_back(reference.Kept());
    reference.Iterate();
  }
  const auto expect_kept = [&](const SmallTraining& training, int iterations, const std::string& what) {
    const NamedInputs found = training.Kept();
    for (const auto& [name, tensor] : expected[iterations])
      ExpectSame(found.at(name), tensor, StrCat(name, ", ", what));
  };
  int num_failed = 0;
  for (const PoisonFault fault : {PoisonFault::kAllocation, PoisonFault::kLaunch}) {
    for (int failing_one = 1; failing_one <= 4; ++failing_one) {
      for (std::int64_t k = 0;; ++k) {
        const std::string what = StrCat("failure ", k, " in iteration ", failing_one);
        SmallTraining training(options);
        for (int iteration = 0; iteration < failing_one; ++iteration) training.Iterate();
        bool has_thrown = false;
        {
          const PoisonFailure failing(fault, k);
          const std::string error = ErrorOf([&] { training.Iterate(); });
          has_thrown = error != "no error";
          if (!failing.has_happened()) break;
        }
        ++num_failed;
        // A launch may fail between two updates.
        if (has_thrown && failing_one > 2) expect_kept(training, failing_one, what);
        if (has_thrown) training.SetKept(expected[failing_one]);
        for (int iteration = failing_one + (has_thrown ? 0 : 1); iteration + 1 < kIterations; ++iteration) {
          expect_kept(training, iteration, what);
          training.Iterate();
        }
        if (HasFailure()) return;
      }
    }
  }
  EXPECT_GT(num_failed, 80);
}

}  // namespace
}  // namespace stepnet

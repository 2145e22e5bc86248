// Nets of which a device keeps several recordings (nets/net_recordings.h): what takes turns is played, with the values
// of the CPU, and what the runs between have changed is seen.
#include "recorded_nets.h"
#include "stepnet/core/strings.h"
#include "stepnet/nets/backward.h"
#include "stepnet/nets/backward_step.h"
#include "stepnet/tests/examples/cell_case.h"

namespace stepnet {
namespace {

class RecordingsInTurn : public RecordedNetsOnEveryDevice {};
INSTANTIATE_ON_EVERY_DEVICE(RecordingsInTurn);

// Each of the two is played where it was, with new inputs.
TEST_P(RecordingsInTurn, OfTwoLengthsAndTwoBatchesArePlayed) {
  const CellSource cell = ReadExampleCell("lstm");
  for (const bool by_batch : {false, true}) {
    Workspace played, launched;
    std::unique_ptr<Net> fast, slow;
    const std::int64_t before = NumPlayed();
    constexpr int kRuns = 32;
    std::int64_t of_last_runs = 0, allocations = 0;
    for (int run = 0; run < kRuns; ++run) {
      const bool is_other = run % 2 == 1;
      CellCase test{.cell = cell, .num_steps = 5, .batch = 3, .seed = static_cast<unsigned>(run)};
      if (is_other) (by_batch ? test.batch : test.num_steps) = 7;
      test.use.sizes = SmallSizes(cell.def);
      const CellNet net = test.Expand();
      for (Workspace* workspace : {&played, &launched}) FeedAs(DType::kFloat, test.RandomValues(net), *workspace);
      if (fast == nullptr) {
        NetDef def = net.net;
        AddBackwardStepNets(&def);
        def = AddGradients(def, net.outputs, net.parameters).net;
        fast = Net::Create(def, played, Options());
        slow = Net::Create(def, launched, Options(kMaxOptLevel, "serial"));
      }
      const std::int64_t before_run = NumPlayed();
      if (run == kRuns / 2) allocations = CountsOfPoisonDevice().allocations;
      fast->Run();
      slow->Run();
      if (run == kRuns - 1) allocations -= CountsOfPoisonDevice().allocations;
      if (run >= kRuns / 2) of_last_runs += NumPlayed() - before_run;
      ExpectSameValues(played, launched, StrCat(by_batch ? "batches" : "lengths", ", run ", run));
      if (HasFailure()) return;
    }
    if (IsCounted()) {
      EXPECT_EQ(allocations, 0);
      EXPECT_EQ(of_last_runs, kRuns / 2) << NumPlayed() - before << " in all: " << fast->Recordable().why_no_more;
    }
  }
}

// A run that leaves the memory of outputs to who holds it takes other memory: what was recorded with it is not played.
TEST_P(RecordingsInTurn, LeaveWhatSomebodyHolds) {
  RecurrentCase net;
  net.Sequence("x", "x_t").State("h", "h0", "h_prev", "h_next");
  net.Step("s = Add(x_t, h_prev)").Step("h_next = Tanh(s)").Output("h_all", "h", 1);
  Twins twins(Options());
  std::vector<Tensor> on_cpu, there;
  for (const unsigned seed : {1U, 2U, 3U}) {
    on_cpu.push_back(Random({4, 3, 5}, seed, DType::kFloat));
    there.push_back(on_cpu.back().To(GetParam()));
  }
  const auto run = [&](int number) {
    twins.workspace().SetTensor("x", there[number % 3]);
    twins.on_cpu().SetTensor("x", on_cpu[number % 3]);
    twins.Run(StrCat("run ", number));
  };
  twins.Feed("x", on_cpu[0]);
  twins.Feed("h0", Random({3, 5}, 2, DType::kFloat));
  NetDef def = net.Build();
  AddBackwardStepNets(&def);
  twins.Add(AddGradients(def, {"h_all"}, {"x", "h0"}).net);
  int number = 0;
  while (number < 18) run(number++);
  const std::int64_t before = NumPlayed();
  while (number < 21) run(number++);
  if (IsCounted()) {
    EXPECT_EQ(NumPlayed() - before, 3) << twins.there().Recordable().why_no_more;
  }
  const Tensor held = twins.workspace().GetTensor("h_all"), old = held.To({}).Clone();
  while (number < 30) {
    run(number++);
    ExpectSame(held.To({}), old, StrCat("what is held, after run ", number));
    if (HasFailure()) return;
  }
}

// The record of a run that is played tells of that run, whatever run there was before.
TEST_P(RecordingsInTurn, LeaveRecordsOfTheLengthThatWasPlayed) {
  RecurrentCase net;
  net.Sequence("x", "x_t").State("h", "h0", "h_prev", "h_next");
  net.Step("s = Add(x_t, h_prev)").Step("h_next = Tanh(s)").Output("h_all", "h", 1);
  NetDef def = net.Build();
  AddBackwardStepNets(&def);
  const NetDef whole = AddGradients(def, {"h_all"}, {"x", "h0"}).net;
  NetDef forward = whole, backward = whole;
  forward.mutable_op()->DeleteSubrange(1, whole.op_size() - 1);
  backward.mutable_op()->DeleteSubrange(0, 1);
  Twins twins(Options());
  twins.Feed("x", Random({4, 3, 5}, 1, DType::kFloat));
  twins.Feed("h0", Random({3, 5}, 2, DType::kFloat));
  twins.Add(forward);
  twins.Run("the first run");
  twins.Add(backward);
  const std::int64_t before = NumPlayed();
  for (int run = 0; run < 16; ++run) {
    twins.Feed("x", Random({run % 2 == 0 ? 4 : 6, 3, 5}, static_cast<unsigned>(run), DType::kFloat));
    twins.Run(StrCat("forward, run ", run));
    if (run > 10) twins.Run(StrCat("backward, run ", run), 1);
    if (HasFailure()) return;
  }
  if (IsCounted()) {
    EXPECT_GE(NumPlayed() - before, 6);
  }
}

}  // namespace
}  // namespace stepnet

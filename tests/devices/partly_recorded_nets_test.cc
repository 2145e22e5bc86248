// Nets of which a device cannot record all: what ends a recording is launched, with the values of the CPU, and the net
// says why.
#include "recorded_nets.h"
#include "stepnet/compiler/step_plan.h"
#include "stepnet/core/strings.h"
#include "stepnet/nets/op_builder.h"
#include "stepnet/tests/compiler/needs_usual_plans.h"
#include "stepnet/tests/executor/layers.h"

namespace stepnet {
namespace {

class PartlyRecordedNets : public RecordedNetsOnEveryDevice {};
INSTANTIATE_ON_EVERY_DEVICE(PartlyRecordedNets);

// An operator on the CPU ends what is recorded; what comes behind it is launched.
TEST_P(PartlyRecordedNets, AreRecordedUpToWhatNeedsTheHost) {
  if (GetParam().IsHost()) GTEST_SKIP() << "nothing is recorded on the CPU";
  NetDef def = NetOf({"y = Tanh(x)", "sum = Add(sum, y)", "p = Relu(y)", "q = Tanh(p)", "x = Copy(q)"});
  def.mutable_op(2)->mutable_device_option()->set_device_type(0);
  Twins twins(Options());
  twins.Feed("x", Values({1, 2}));
  twins.Feed("sum", Values({0, 0}));
  twins.Add(def);
  const std::int64_t before = NumPlayed();
  for (int run = 0; run < 7; ++run) twins.Run(StrCat("run ", run));
  if (IsCounted()) {
    EXPECT_GE(NumPlayed() - before, 3);
  }
  EXPECT_EQ(twins.there().Recordable().why_no_more, "operator 2, Relu, runs on the host");
  EXPECT_NE(twins.there().Recordable().count, 0);
}

TEST_P(PartlyRecordedNets, SayWhatCannotBeRecorded) {
  if (GetParam().IsHost()) GTEST_SKIP() << "nothing is recorded on the CPU";
  const auto why = [&](const NetDef& def, const std::string& executor = "") {
    Workspace workspace;
    for (const char* blob : {"x", "table"}) workspace.SetTensor(blob, Values({1, 2}));
    workspace.SetTensor("rows", Tensor::Of<std::int32_t>({1}, {0}));
    workspace.SetTensor("shape", Tensor::Of<std::int64_t>({1}, {2}));
    return Net::Create(def, workspace, Options(kMaxOptLevel, executor))->Recordable().why_no_more;
  };
  EXPECT_EQ(why(NetOf({"y = Tanh(x)"})), "");
  EXPECT_EQ(why(NetOf({"y = Tanh(x)"}), "serial"), "the executor \"serial\" does not record");
  // It runs on the host where the device has no kernel for it.
  const std::string of_print = why(NetOf({"y = Tanh(x)", "= Print(y)"}));
  EXPECT_TRUE(of_print == "operator 1, Print, does more than to compute" ||
              of_print == "operator 1, Print, runs on the host")
      << of_print;
  EXPECT_EQ(why(NetOf({"y = Gather(table, rows)", "z = Tanh(table)", "table = Alias(z)"})),
            "operator 2, Alias, runs only when the host has looked for bad values");
  NetDef dag = NetOf({"y = Tanh(x)"});
  dag.set_type("dag");
  EXPECT_EQ(why(dag), "a net of this type runs operators side by side");
}

// The host waits for the values of an input where shapes follow from them, and only there; and never plays such a run.
TEST_P(PartlyRecordedNets, AskForValuesWhereShapesFollowFromThem) {
  NetDef like, of_values;
  AddOp(&like, "ConstantFill", {"x"}, {"y"}).Float("value", 3);
  AddOp(&of_values, "Tanh", {"x"}, {"z"});
  AddOp(&of_values, "ConstantFill", {"sizes"}, {"w"}).Int("input_as_shape", 1);
  Twins twins(Options());
  twins.Feed("x", Values({1, 2}));
  twins.Feed("sizes", Tensor::Of<std::int64_t>({2}, {1, 2}));
  twins.Add(like);
  twins.Add(of_values);
  const PoisonCounts before = CountsOfPoisonDevice();
  for (int run = 0; run < 5; ++run) twins.there().Run();
  if (IsCounted()) {
    EXPECT_EQ(CountsOfPoisonDevice().host_waits, before.host_waits);
    EXPECT_EQ(CountsOfPoisonDevice().played, before.played + 3);
  }
  twins.Run("like x");
  for (int run = 0; run < 12; ++run) {
    if (run > 5) twins.Feed("sizes", Tensor::Of<std::int64_t>({2}, {1 + run % 2, 2}));
    twins.Run(StrCat("of the shape that is given, run ", run), 1);
  }
  if (!GetParam().IsHost()) {
    EXPECT_EQ(twins.there(1).Recordable().why_no_more, "operator 1, ConstantFill: shapes follow from values");
  }
}

// Graphs of so many nodes would take too much memory.
TEST(PartlyRecordedNetsOfThePoisonDevice, AreLaunchedWhereTheyHaveVeryManySteps) {
  NEEDS_USUAL_PLANS();
  RecurrentCase net;
  net.Sequence("x", "x_t").State("h", "h0", "h_prev", "h_next");
  net.Step("a = Tanh(x_t)").Step("b = Add(a, h_prev)").Step("h_next = Tanh(b)").Output("h_all", "h", 1);
  NetDef def = net.Build();
  AddOp(&def, "Tanh", {"x"}, {"y"});
  def.mutable_op()->SwapElements(0, 1);
  const Target target = {.device = DeviceKind::kPrivate, .max_recorded_operators = 3'000};
  RunOptions options = OnDevice({.opt_level = 0}, kPoisonDevice);
  options.target = &target;
  Twins twins(options);
  twins.Feed("x", Random({1'001, 1, 1}, 1, DType::kFloat));
  twins.Feed("h0", Random({1, 1}, 2, DType::kFloat));
  twins.Add(def);
  const PoisonCounts before = CountsOfPoisonDevice();
  for (int run = 0; run < 4; ++run) twins.Run(StrCat("run ", run));
  EXPECT_EQ(twins.there().Recordable().why_no_more,
            "operator 1, RecurrentNetwork: its steps have more than 3000 operators in all");
  EXPECT_GE(CountsOfPoisonDevice().kernels - before.kernels, std::int64_t{4} * 3 * 1'001);
  EXPECT_EQ(CountsOfPoisonDevice().played, before.played);
}

// A product that takes all steps at once is one node, however many steps there are.
TEST(PartlyRecordedNetsOfThePoisonDevice, CountWhatTakesManyStepsAtOnceOnce) {
  NEEDS_USUAL_PLANS();
  constexpr std::int64_t kSteps = 100;
  std::int64_t if_each_took_one = 0, num_runs = 0;
  const auto count = [&](const StepPlan& plan) {
    if_each_took_one = std::ssize(plan.instructions) * kSteps;
    num_runs = 0;
    for (const Stage& stage : plan.stages) {
      const std::int64_t at_once = stage.steps_at_once == kAllSteps ? kSteps : stage.steps_at_once;
      num_runs += (stage.end - stage.begin) * ((kSteps + at_once - 1) / at_once);
    }
  };
  const auto num_played = [&](std::int64_t max_recorded_operators) {
    const Target target = {.device = DeviceKind::kPrivate,
                           .chunk_rows = 1024,
                           .takes_all_over_time = true,
                           .max_recorded_operators = max_recorded_operators};
    RunOptions options = OnDevice({.on_plan = count}, kPoisonDevice);
    options.target = &target;
    Workspace workspace;
    FeedLayers(1, kSteps, 1, workspace);
    const std::unique_ptr<Net> net = Net::Create(Layers(1, /*training=*/false), workspace, options);
    const std::int64_t before = CountsOfPoisonDevice().played;
    for (int run = 0; run < 6; ++run) net->Run();
    net->Wait();
    return CountsOfPoisonDevice().played - before;
  };
  EXPECT_EQ(num_played(1'000'000), 4);
  ASSERT_LT(num_runs, if_each_took_one);
  EXPECT_EQ(num_played(num_runs), 4);
  EXPECT_EQ(num_played(num_runs - 1), 0);
}

// Calls of test.Meets that are not to be as they should.
int calls_that_work = -1;

// y = x, in place or not. On the poison device one of its calls meets the host.
const Registration meets = Operator("test.Meets")
                               .Doc("y = x.")
                               .Input("x", "any shape")
                               .Output("y", "the shape of x")
                               .Shapes(SameAsInput(0))
                               .InPlace({{0, 0}})
                               .StopsGradient()
                               .OnEveryDevice({.make = [](const OperatorCall&) -> RunFn {
                                 return [](const OpRun& run) {
                                   if (run.context().queue != nullptr && calls_that_work-- == 0) run.queue().Wait();
                                   const TensorView &x = run.In(0), &y = run.Out(0);
                                   if (run.context().queue == nullptr) return CopyElements(x, y);
                                   if (x.data != y.data) run.queue().Copy(x.data, y.data, y.size_bytes());
                                 };
                               }});

// Whichever call meets the host, in whichever run: operators in place are done once.
TEST_P(PartlyRecordedNets, WhoseRecordingIsRefusedHalfwayRunOperatorsOnce) {
  NetDef def = NetOf({"start = Copy(h_last)", "sum = Add(sum, x)", "sum = ExpandDims(sum)", "y = test.Meets(sum)",
                      "sum = Squeeze(sum)", "y = test.Meets(y)", "z = Add(y, y)"});
  for (const int op : {2, 4}) AddInts(def.mutable_op(op), "dims", {0});
  RecurrentCase steps;
  steps.Sequence("s", "s_t").State("h", "start", "h_prev", "h_next");
  steps.Step("h_next = Add(s_t, h_prev)").Output("h_last", "h", -1);
  NetDef with_steps = def;
  with_steps.mutable_op()->Clear();
  for (int op = 0; op < def.op_size(); ++op) {
    *with_steps.add_op() = def.op(op);
    if (op == 4) with_steps.mutable_op()->MergeFrom(steps.Build().op());
  }
  for (int call = 0; call < 12; ++call) {
    Twins twins(Options());
    twins.Feed("x", Values({1, 2}));
    twins.Feed("sum", Values({0, 0}));
    twins.Feed("s", Random({3, 1, 2}, 3, DType::kFloat));
    twins.Feed("h_last", Random({1, 1, 2}, 4, DType::kFloat));
    twins.Add(with_steps);
    if (!GetParam().IsHost()) {
      EXPECT_EQ(twins.there().Recordable().why_no_more, "");
    }
    calls_that_work = call;
    for (int run = 0; run < 8; ++run) twins.Run(StrCat("run ", run, ", call ", call));
    calls_that_work = -1;
    if (HasFailure()) return;
  }
}

}  // namespace
}  // namespace stepnet

#include "stepnet/nets/net_check.h"

#include "stepnet/io/proto_io.h"
#include "stepnet/nets/net.h"
#include "stepnet/proto/net.pb.h"
#include "stepnet/tests/operators/op_test.h"
#include "stepnet/tests/poison_device/poison_device.h"

namespace stepnet {
namespace {

using Messages = std::vector<std::string>;

RunFn Nothing(const OperatorCall&) {
  return [](const OpRun&) {};
}

// x, optional lengths -> y; may work in place on x alone.
const Registration unary = Operator("test.Unary")
                               .Input("x", "")
                               .OptionalInput("lengths", "")
                               .Output("y", "")
                               .InPlace({{0, 0}})
                               .Shapes(SameAsInput(0))
                               .Cpu(Nothing);
const Registration two_outputs = Operator("test.TwoOutputs")
                                     .Input("x", "")
                                     .Output("a", "")
                                     .Output("b", "")
                                     .Cpu({.make = Nothing, .takes_blobs = true});
const Registration two_kept =
    Operator("test.TwoKept").Input("x", "").Outputs("ys", "").Shapes(SameAsInput(0)).Cpu(Nothing);
const Registration must_share = Operator("test.MustShare")
                                    .Input("x", "")
                                    .Input("sum", "")
                                    .Output("y", "")
                                    .EnforceInPlace({{1, 0}})
                                    .Shapes(SameAsInput(0))
                                    .Cpu(Nothing);
const Registration many = Operator("test.Many").Inputs("xs", "").Output("y", "").Shapes(SameAsInput(0)).Cpu(Nothing);
const Registration no_kernel = Operator("test.NoKernel").Input("x", "").Output("y", "");
const Registration checked =
    Operator("test.Checked")
        .OptionalInput("x", "")
        .Check([](const OperatorCall&, std::vector<NetProblem>* problems) {
          problems->push_back({.message = "own problem"});
          problems->push_back({.net = "inner", .op_index = 3, .op_text = "q = Inner()", .message = "problem within"});
        })
        .Cpu({.make = Nothing, .takes_blobs = true});

NetDef NetOf(const std::string& text) {
  NetDef net;
  ParseMessageText(text, "test", &net);
  return net;
}

Messages Problems(const std::string& text, const NetCheckOptions& options = {}) {
  Messages messages;
  for (const NetProblem& problem : CheckNet(NetOf(text), options)) messages.push_back(problem.message);
  return messages;
}

TEST(NetCheck, AcceptsSoundNets) {
  EXPECT_EQ(Problems(""), Messages{});
  EXPECT_EQ(
      Problems("op { type: 'test.Unary' input: 'x' output: 'x' } op { type: 'test.Unary' input: ['x', 'l'] output: "
               "'y' } external_input: ['x', 'l'] external_output: 'y'"),
      Messages{});
}

TEST(NetCheck, WarnsOfBlobsThatAreWrittenAgainUnread) {
  const auto warnings = [](const std::string& text) {
    Messages messages;
    for (const NetProblem& warning : WarningsOfNet(NetOf(text))) messages.push_back(warning.message);
    return messages;
  };
  const std::string twice =
      "op { type: 'test.TwoOutputs' input: 'x' output: 'a' output: 'b' }"
      "op { type: 'test.TwoOutputs' input: 'x' output: 'b' output: 'c' }";
  EXPECT_EQ(
      warnings(twice),
      (Messages{"it writes \"b\" again, which op 0 `a, b = test.TwoOutputs(x)` wrote and nothing has read since; names "
                "of several cells in one net are kept apart by `expand` with a prefix"}));
  EXPECT_EQ(
      warnings("op { type: 'test.Unary' input: 'x' output: 'y' } op { type: 'test.Unary' input: 'y' output: 'y' }"
               "op { type: 'test.Unary' input: 'y' output: 'z' } op { type: 'test.Unary' input: 'x' output: 'y' }"),
      Messages{});
}

TEST(NetCheck, FindsUnknownTypes) {
  EXPECT_EQ(Problems("op { type: 'test.Unray' input: 'x' output: 'y' }"),
            Messages{"no operator type \"test.Unray\"; did you mean \"test.Unary\"?"});
}

TEST(NetCheck, FindsMissingKernels) {
  const std::string net = "op { type: 'test.NoKernel' input: 'x' output: 'y' }";
  EXPECT_EQ(Problems(net), Messages{"test.NoKernel has no kernel for cpu"});
  // What a device has no kernel for runs on the CPU, but within a step net.
  const RunOptions on_device = OnDevice({}, kPoisonDevice);
  EXPECT_EQ(Problems(net, {.run = on_device, .is_step_net = true}),
            Messages{"test.NoKernel has no kernel for private"});
  EXPECT_EQ(Problems(net, {.run = on_device}), Messages{"test.NoKernel has no kernel for cpu"});
}

TEST(NetCheck, FindsWrongArity) {
  EXPECT_EQ(Problems("op { type: 'test.Unary' output: 'y' }"), Messages{"test.Unary takes 1 to 2 inputs, has 0"});
  EXPECT_EQ(Problems("op { type: 'test.Unary' input: ['x', 'l', 'z'] output: ['y', 'q'] }"),
            (Messages{"test.Unary takes 1 to 2 inputs, has 3", "test.Unary takes 1 output, has 2"}));
  EXPECT_EQ(Problems("op { type: 'test.Many' output: 'y' }"), Messages{"test.Many takes at least 1 input, has 0"});
  EXPECT_EQ(Problems("op { type: 'test.TwoOutputs' input: 'x' }"), Messages{"test.TwoOutputs takes 2 outputs, has 0"});
}

TEST(NetCheck, FindsWrongArguments) {
  EXPECT_EQ(Problems("op { type: 'test.Unary' input: 'x' output: 'y' arg { name: 'axis' i: 1 } }"),
            Messages{"test.Unary has no argument \"axis\""});
}

TEST(NetCheck, FindsForbiddenInPlace) {
  EXPECT_EQ(Problems("op { type: 'test.Unary' input: ['x', 'y'] output: 'y' }"),
            Messages{"test.Unary cannot work in place: \"y\" is an input and output 0"});
  // One allowed pair suffices when the blob is read twice.
  EXPECT_EQ(Problems("op { type: 'test.Unary' input: ['x', 'x'] output: 'x' }"), Messages{});
  EXPECT_EQ(Problems("op { type: 'test.TwoKept' input: 'x' output: ['a', 'b', 'a', 'a'] }"),
            (Messages{"\"a\" is output 0 and output 2", "\"a\" is output 0 and output 3"}));
  // Operators that manage their outputs replace tensors and write into none.
  EXPECT_EQ(Problems("op { type: 'test.TwoOutputs' input: 'x' output: ['x', 'z'] }"), Messages{});
  EXPECT_EQ(Problems("op { type: 'test.TwoOutputs' input: 'x' output: ['z', 'z'] }"),
            Messages{"\"z\" is output 0 and output 1"});
}

TEST(NetCheck, FindsMissingInPlace) {
  EXPECT_EQ(Problems("op { type: 'test.MustShare' input: ['x', 's'] output: 'y' }"),
            Messages{"test.MustShare works in place: output 0 must be \"s\", is \"y\""});
  EXPECT_EQ(Problems("op { type: 'test.MustShare' input: ['x', 's'] output: 's' }"), Messages{});
}

TEST(NetCheck, FindsBlobsThatNothingWrites) {
  const std::string net =
      "external_input: 'input' op { type: 'test.Unary' input: 'inptu' output: 'y' } op { type: 'test.Unary' input: 'z' "
      "output: 'z2' } op { type: 'test.Unary' input: 'y' output: 'z' } external_output: ['y', 'yy1']";
  EXPECT_EQ(Problems(net),
            (Messages{"\"inptu\" is read before anything writes it and is no external_input of the net; did you mean "
                      "\"input\"?",
                      "\"z\" is read before anything writes it and is no external_input of the net",
                      "nothing produces the external output \"yy1\""}));
  EXPECT_EQ(Problems(net, {.blob_exists = [](const std::string& blob) { return blob == "inptu" || blob == "yy1"; }}),
            Messages{"\"z\" is read before anything writes it and is no external_input of the net"});
  // Without external_input a net reads what there is, unless that is known.
  const std::string open = "op { type: 'test.Unary' input: 'x' output: 'y' }";
  EXPECT_EQ(Problems(open), Messages{});
  EXPECT_EQ(Problems(open, {.all_inputs_known = true}), Messages{"\"x\" is read before anything writes it"});
  const std::string twice = "op { type: 'Sum' input: ['x', 'x'] output: 'y' }";
  EXPECT_EQ(Problems(twice, {.all_inputs_known = true}), Messages{"\"x\" is read before anything writes it"});
}

TEST(NetCheck, FindsOtherDevices) {
  const std::string op = "op { type: 'test.Unary' input: 'x' output: 'y' ";
  const std::string unknown = "the net places test.Unary on device type 3, which is unknown here";
  EXPECT_EQ(Problems(op + "device_option { device_type: 3 } }"), Messages{unknown});
  EXPECT_EQ(Problems(op + "} device_option { device_type: 3 }"), Messages{unknown});
  EXPECT_EQ(Problems(op + "device_option { } } device_option { device_type: 3 }"), Messages{});
  EXPECT_EQ(Problems(op + "device_option { device_type: 5 } }"), Messages{});  // a back end of the CPU
  EXPECT_EQ(Problems(op + "} device_option { device_type: 1 }", {.is_step_net = true}),
            Messages{"the step net places test.Unary on cuda:0, and is run on cpu"});
}

TEST(NetCheck, FindsWrongTypesOfNets) {
  EXPECT_EQ(Problems("type: 'simpel'"), Messages{"no net type \"simpel\"; did you mean \"simple\"?"});
  EXPECT_EQ(Problems("type: 'opengl'"), Messages{"no net type \"opengl\""});
  EXPECT_EQ(Problems("num_workers: -1"), Messages{"num_workers is -1, must be at least 0"});
}

TEST(NetCheck, AddsWhatOperatorsFind) {
  const std::vector<NetProblem> problems = CheckNet(NetOf("name: 'outer' op { type: 'test.Checked' }"));
  ASSERT_EQ(problems.size(), 2u);
  EXPECT_EQ(problems[0].Text(), "net \"outer\", op 0 `test.Checked()`: own problem");
  EXPECT_EQ(problems[1].Text(), "net \"inner\", op 3 `q = Inner()`: problem within");
}

TEST(NetCheck, OneProblemIsAnErrorWithItsPlace) {
  Workspace workspace;
  ExpectError([&] { Net::Create(NetOf("name: 'n' op { type: 'test.Unary' output: 'y' }"), workspace); },
              "invalid net: test.Unary takes 1 to 2 inputs, has 0\n  at op 0 `y = test.Unary()`\n  in net \"n\"");
}

TEST(NetCheck, SeveralProblemsAreAllInTheError) {
  Workspace workspace;
  std::string net = "name: 'n' ";
  for (int i = 0; i < 2; ++i) net += "op { type: 'test.Unary' output: 'y' } ";
  ExpectError([&] { Net::Create(NetOf(net), workspace); },
              "invalid net: 2 problems\n"
              "  net \"n\", op 0 `y = test.Unary()`: test.Unary takes 1 to 2 inputs, has 0\n"
              "  net \"n\", op 1 `y = test.Unary()`: test.Unary takes 1 to 2 inputs, has 0\n"
              "  in net \"n\"");
  for (int i = 0; i < 30; ++i) net += "op { type: 'test.Unary' output: 'y' } ";
  ExpectError([&] { Net::Create(NetOf(net), workspace); }, "…\n  … and 12 more");
}

// Sizes at which anything quadratic would take minutes.
TEST(NetCheck, HostileNetsAreCheckedInTime) {
  NetDef net;
  net.add_external_input("x");
  for (int i = 0; i < 50000; ++i) {  // one hub, and one fault each
    OperatorDef* op = net.add_op();
    op->set_type("test.Unary");
    op->add_input(i % 2 == 0 ? "x" : StrCat("missing", i));
    op->add_output(StrCat("y", i));
  }
  const std::vector<NetProblem> problems = CheckNet(net);
  EXPECT_EQ(problems.size(), 1001u);
  EXPECT_EQ(problems.back().message, "too many problems; the rest of the net is not checked");
  for (OperatorDef& op : *net.mutable_op()) op.set_input(0, "x");
  net.set_type("dag");
  Workspace workspace;
  EXPECT_EQ(Net::Create(net, workspace)->operators().size(), 50000u);
  NetDef wide;
  OperatorDef* op = wide.add_op();
  op->set_type("test.TwoKept");
  op->add_input("x");
  for (int i = 0; i < 50000; ++i) op->add_output(StrCat("y", i));
  EXPECT_TRUE(CheckNet(wide).empty());
}

TEST(OperatorText, HasTheFirstNamesOfLongLists) {
  OperatorDef op;
  op.set_type("F");
  op.add_output("y");
  EXPECT_EQ(OperatorText(op), "y = F()");
  for (int i = 0; i < 100000; ++i) op.add_input(StrCat("rnn/layer_", i, "/gates"));
  EXPECT_EQ(OperatorText(op), "y = F(rnn/layer_0/gates, rnn/layer_1/gates, rnn/layer_2/gates, … (99997 more))");
}

TEST(OperatorText, CutsLongNamesBetweenCharacters) {
  OperatorDef op;
  op.set_type("F");
  op.add_output("z");
  op.add_input(std::string(59, 'a') + "äb");
  op.add_input("b");
  EXPECT_EQ(OperatorText(op), StrCat("z = F(", std::string(59, 'a'), "…, … (1 more))"));
}

TEST(ReadersOfOutputs, ListsTypesUntilTheNextWrite) {
  const auto readers = ReadersOfOutputs(
      NetOf("op { type: 'A' output: 'x' } op { type: 'B' input: ['x', 'x'] output: 'y' } op { type: 'C' input: 'x' "
            "output: 'x' } op { type: 'D' input: 'x' } external_output: ['x', 'y']"));
  using Types = std::vector<std::string>;
  ASSERT_EQ(readers.size(), 4u);
  EXPECT_EQ(readers[0], std::vector<Types>({{"B", "B", "C"}}));
  EXPECT_EQ(readers[1], std::vector<Types>({{""}}));
  EXPECT_EQ(readers[2], std::vector<Types>({{"D", ""}}));
  EXPECT_TRUE(readers[3].empty());
}

TEST(ReadersOfOutputs, KnowWhetherTheSourcesOfARecordChange) {
  const auto change = [](const std::string& outputs, const std::string& between, const std::string& behind) {
    const auto readers = ReadersOfOutputs(NetOf(
        StrCat("op { type: 'RecurrentNetwork' input: ['x', 'w'] output: [", outputs, ", 'record'] } ", between,
               " op { type: 'RecurrentNetworkGradient' input: ['h_grad', 'x', 'w', 'h', 'record'] output: 'w_grad' } ",
               behind)));
    return std::ranges::count(readers[0].back(), kSourcesChange) > 0;
  };
  const auto writes = [](const char* blob) { return StrCat("op { type: 'A' output: '", blob, "' }"); };
  EXPECT_FALSE(change("'h'", "", ""));
  EXPECT_FALSE(change("'h'", writes("h_grad"), writes("w")));
  EXPECT_FALSE(change("'h', 'last'", writes("last"), "")) << "the gradient does not read it";
  for (const char* blob : {"x", "w", "h"}) EXPECT_TRUE(change("'h'", writes(blob), "")) << blob;
  EXPECT_TRUE(change("'h', 'x'", "", ""));
}

TEST(NetCheck, AsksFormulasWhateverTheirArgumentsAre) {
  for (const char* axis : {"9223372036854775807", "-9223372036854775808", "4294967295", "-3"}) {
    EXPECT_EQ(Problems(StrCat("op { type: 'Softmax' input: 'x' output: 'y' arg { name: 'axis' i: ", axis, " } }")),
              Messages{});
  }
}

}  // namespace
}  // namespace stepnet

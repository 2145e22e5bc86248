// Backward step nets that are made from step nets, against central differences in double.
#include "stepnet/nets/backward_step.h"

#include <algorithm>

#include "stepnet/nets/backward.h"
#include "stepnet/nets/net_check.h"
#include "stepnet/tests/core/error_of.h"
#include "stepnet/tests/executor/recurrent_case.h"
#include "stepnet/tests/operators/op_test.h"

namespace stepnet {
namespace {

using Feeds = std::vector<std::pair<std::string, Tensor>>;

TEST(AddBackwardStepNets, DifferentiatesAnElmanCell) {
  RecurrentCase net;
  net.Sequence("x", "x_t").State("h", "h0", "h_prev", "h_next").Captured("w").Captured("b");
  OperatorDef product = ParseOp("g = FC(h_prev, w, b)");
  AddInt(&product, "axis", 2);
  net.Step(product).Step("g = Sum(g, x_t)").Step("h_next = Tanh(g)");
  net.Output("h_all", "h", 1).Output("h_last", "h", -1);
  for (const std::int64_t steps : {0, 1, 2, 5}) {
    ExpectMadeGradientsMatch(
        net.Build(), {"h_all", "h_last"},
        {{"x", Random({steps, 2, 3}, 1)}, {"h0", Random({2, 3}, 2)}, {"w", Random({3, 3}, 3)}, {"b", Random({3}, 4)}});
  }
}

TEST(AddBackwardStepNets, GivesEachBlobThatASumPassesOnAGradientOfItsOwn) {
  RecurrentCase net;
  net.Sequence("x", "x_t").State("h", "h0", "h_prev", "h_next").Step("h_next = Sum(x_t, h_prev)");
  net.Output("h_all", "h", 1);
  ExpectMadeGradientsMatch(net.Build(), {"h_all"}, {{"x", Random({4, 2, 3}, 1)}, {"h0", Random({2, 3}, 2)}});
}

TEST(AddBackwardStepNets, MakesAnEmptyNetForAStepThatPassesNoGradient) {
  RecurrentCase net;
  net.Sequence("x", "x_t").State("h", "h0", "", "h_next").Step("h_next = ConstantFill(x_t)");
  net.Output("h_whole", "h", 0);
  NetDef def = net.Build();
  ExpectMadeGradientsMatch(def, {"h_whole"}, {{"x", Random({4, 2, 3}, 1)}, {"h0", Random({2, 3}, 2)}});
  AddBackwardStepNets(&def);
  const auto made = std::ranges::find(def.op(0).arg(), "backward_step_net", &Argument::name);
  EXPECT_EQ(made->n().op_size(), 0);
}

TEST(AddBackwardStepNets, DifferentiatesTwoStatesThatReadEachOther) {
  RecurrentCase net;
  net.Sequence("x", "x_t").State("a", "a0", "a_prev", "a_next").State("b", "b0", "b_prev", "b_next");
  net.Step("s = Mul(x_t, b_prev)").Step("a_next = Tanh(s)").Step("m = Mul(a_next, a_prev)");
  net.Step("b_next = Sum(m, x_t, b_prev)").Output("a_all", "a", 1).Output("b_last", "b", -1);
  ExpectMadeGradientsMatch(net.Build(), {"a_all", "b_last"},
                           {{"x", Random({4, 2, 3}, 1)}, {"a0", Random({2, 3}, 2)}, {"b0", Random({2, 3}, 3)}});
}

TEST(AddBackwardStepNets, DifferentiatesABlobThatBecomesTwoStates) {
  RecurrentCase net;
  net.Sequence("x", "x_t").State("a", "a0", "a_prev", "next").State("b", "b0", "b_prev", "next");
  net.Step("s = Mul(x_t, b_prev)").Step("t = Sum(s, a_prev)").Step("next = Tanh(t)");
  net.Output("a_all", "a", 1).Output("b_last", "b", -1);
  ExpectMadeGradientsMatch(net.Build(), {"a_all", "b_last"},
                           {{"x", Random({4, 2, 3}, 1)}, {"a0", Random({2, 3}, 2)}, {"b0", Random({2, 3}, 3)}});
}

TEST(AddBackwardStepNets, DifferentiatesWindowsAndSeveralSequences) {
  RecurrentCase net;
  net.Sequence("x", "x_t").Sequence("y", "y_t");
  net.State("h", "h0", "h_prev", "h_next", 2).Link("h_window", "h", 0, 2);
  OperatorDef sum = ParseOp("m = ReduceSum(h_window)");
  AddInts(&sum, "axes", {0});
  net.Step(sum).Step("p = Mul(x_t, y_t)").Step("q = Tanh(p)").Step("r = Mul(m, q)").Step("s = Sum(r, h_prev)");
  net.Step("h_next = Tanh(s)").Output("h_all", "h", 2);
  ExpectMadeGradientsMatch(net.Build(), {"h_all"},
                           {{"x", Random({4, 2, 3}, 1)}, {"y", Random({4, 2, 3}, 2)}, {"h0", Random({2, 2, 3}, 3)}});
}

// A table that each step reads by the indices of its step, and whole.
TEST(AddBackwardStepNets, SumsTheRowsOfATableOverTheSteps) {
  for (const bool is_read_whole : {false, true}) {
    RecurrentCase net;
    net.Sequence("i", "i_t").State("h", "h0", "h_prev", "h_next").Captured("w").Step("e = Gather(w, i_t)");
    OperatorDef product = ParseOp("s = FC(sum, w)");
    AddInt(&product, "axis", 2);
    net.Step("sum = Sum(e, h_prev)").Step(is_read_whole ? product : ParseOp("s = Copy(sum)"));
    net.Step("h_next = Tanh(s)").Output("h_all", "h", 1);
    ExpectMadeGradientsMatch(net.Build(), {"h_all"},
                             {{"i", Tensor::Of<std::int64_t>({3, 2}, {0, 2, 2, 1, 0, 2})},
                              {"h0", Random({2, 3}, 1)},
                              {"w", Random({3, 3}, 2)}});
  }
}

// Blobs of the step net that become outputs: one of its own, one that is a state too, one that it only reads, one
// without the dimension of the step, and one that is no number of which there is a gradient.
RecurrentCase CaseWithStepOutputs() {
  RecurrentCase net;
  net.Sequence("x", "x_t").State("h", "h0", "h_prev", "h_next").Step("s = Sum(x_t, h_prev)").Step("h_next = Tanh(s)");
  OperatorDef squeeze = ParseOp("flat = Squeeze(y)");
  AddInts(&squeeze, "dims", {0});
  net.Step("y = Mul(h_next, x_t)").Step(squeeze).Step("is_positive = GT(y, s)");
  AddStrings(&net.forward(), "step_output_src", {"y", "h_next", "h_prev", "flat", "is_positive"});
  AddStrings(&net.forward(), "step_output_dst", {"y_all", "next_all", "prev_all", "flat_all", "positive_all"});
  for (const char* output : {"y_all", "next_all", "prev_all", "flat_all", "positive_all"}) {
    net.forward().add_output(output);
  }
  net.Output("h_all", "h", 1);
  return net;
}

TEST(AddBackwardStepNets, DifferentiatesStepOutputs) {
  const NetDef net = CaseWithStepOutputs().Build();
  const std::vector<std::vector<std::string>> losses = {
      {"y_all"},    {"next_all"}, {"prev_all"},
      {"flat_all"}, {"h_all"},    {"y_all", "next_all", "prev_all", "flat_all", "h_all"}};
  for (const std::vector<std::string>& loss : losses) {
    SCOPED_TRACE(testing::PrintToString(loss));
    for (const std::int64_t steps : {0, 1, 4}) {
      ExpectMadeGradientsMatch(net, loss, {{"x", Random({steps, 2, 3}, 1)}, {"h0", Random({2, 3}, 2)}});
    }
  }
}

TEST(AddBackwardStepNets, RefusesAGradientThatTheBackwardStepNetIgnores) {
  RecurrentCase net = CaseWithStepOutputs();
  net.BackwardStep("x_t_grad = Copy(h_next_grad)").BackwardLink("h_next_grad", "h_grad", 1);
  net.BackwardLink("x_t_grad", "x_grad", 0);
  ExpectError(
      [&] { AddGradients(net.Build(), {"y_all"}, {"x"}); },
      "…invalid net: output \"y_all\" is a blob of the step net, and no backward link names \"y_all_grad\": the "
      "backward step net would ignore its gradient\n  at op 0 ");
  const auto run = [](RecurrentCase& wrong) {
    wrong.Feed("x", Random({2, 2, 3}, 1)).Feed("h0", Random({2, 3}, 2)).Feed("y_all_grad", Random({2, 2, 3}, 3)).Run();
  };
  ExpectError([&] { run(net.OutputGradient("y_all").WithGradient()); },
              "…output \"y_all\" is a blob of the step net, and no backward link names \"y_all_grad\"");
  RecurrentCase shifted = CaseWithStepOutputs();
  shifted.BackwardStep("x_t_grad = Copy(y_grad)").BackwardLink("y_grad", "y_all_grad", 1);
  shifted.BackwardLink("x_t_grad", "x_grad", 0).OutputGradient("y_all").WithGradient();
  ExpectError([&] { run(shifted); },
              "…the backward link of \"y_grad\" has offset 1 and window 1; \"y_all\" is a step output, whose row t "
              "belongs to step t");
}

TEST(AddBackwardStepNets, G2SumsTheGradientsOfABlobWithSeveralParts) {
  RecurrentCase net;
  net.Sequence("x", "x_t").State("a", "h0", "a_prev", "a_next").State("b", "h0", "b_prev", "b_next").Captured("h0");
  net.Step("s = Mul(x_t, b_prev)").Step("a_next = Sum(s, a_prev)").Step("m = Mul(a_next, x_t)");
  OperatorDef add = ParseOp("b_next = Add(m, h0)");
  AddInt(&add, "broadcast", 1);
  net.Step(add).Output("a_all", "a", 1).Output("b_all", "b", 1);
  NetDef def = net.Build();
  const Feeds feeds = {{"x", Random({3, 2, 3}, 1)}, {"h0", Random({3}, 2)}};
  ExpectMadeGradientsMatch(def, {"a_all", "b_all"}, feeds);
  // The blob as two inputs of the operator.
  def.mutable_op(0)->add_input("h0");
  for (Argument& argument : *def.mutable_op(0)->mutable_arg()) {
    if (argument.name() == "initial_recurrent_state_ids") argument.set_ints(1, 2);
  }
  ExpectMadeGradientsMatch(def, {"a_all", "b_all"}, feeds);
}

TEST(AddBackwardStepNets, G4SumsTheGradientsOfAliasesOfTheSameRows) {
  RecurrentCase net;
  net.Sequence("x", "x_t").State("h", "h0", "h_prev", "h_next").Step("m = Mul(x_t, h_prev)").Step("h_next = Tanh(m)");
  net.Output("h_all", "h", 1).Output("h_again", "h", 1).Output("h_last", "h", -1).Output("h_whole", "h", 0);
  ExpectMadeGradientsMatch(net.Build(), {"h_all", "h_again", "h_last", "h_whole"},
                           {{"x", Random({3, 2, 3}, 1)}, {"h0", Random({2, 3}, 2)}});
}

RecurrentCase CaseThatComputesAgain(const std::vector<std::string>& blobs) {
  RecurrentCase net;
  net.Sequence("x", "x_t").State("h", "h0", "h_prev", "h_next").Captured("w");
  OperatorDef product = ParseOp("g = FC(h_prev, w)");
  AddInt(&product, "axis", 2);
  net.Step(product).Step("g = Sum(g, x_t)").Step("d, mask = Dropout(g)").Step("h_next = Tanh(d)");
  net.Output("h_all", "h", 1);
  AddStrings(&net.forward(), "recompute_blobs_on_backward", blobs);
  return net;
}

TEST(AddBackwardStepNets, ComputesAgainWhatTheForwardRunDoesNotKeep) {
  NetDef net = CaseThatComputesAgain({"g", "d", "mask"}).Build();
  net.mutable_op(0)->mutable_device_option()->set_random_seed(7);
  ExpectMadeGradientsMatch(net, {"h_all"},
                           {{"x", Random({3, 2, 3}, 1)}, {"h0", Random({2, 3}, 2)}, {"w", Random({3, 3}, 3)}});
  AddBackwardStepNets(&net);
  const auto made = std::ranges::find(net.op(0).arg(), "backward_step_net", &Argument::name);
  std::vector<std::string> types;
  for (const OperatorDef& op : made->n().op()) types.push_back(op.type());
  EXPECT_EQ(types,
            (std::vector<std::string>{"FC", "Sum", "Dropout", "TanhGradient", "DropoutGrad", "FCGradient", "Copy"}));
}

// The types of the backward step net where these blobs are named.
std::vector<std::string> TypesOfBackwardStep(const std::vector<std::string>& again) {
  RecurrentCase net;
  net.Sequence("x", "x_t").State("h", "h0", "h_prev", "h_next").Captured("w");
  OperatorDef product = ParseOp("p = FC(h_prev, w)");
  AddInt(&product, "axis", 2);
  net.Step(product).Step("s = Add(p, x_t)").Step("t = Tanh(s)").Step("h_next = Sigmoid(t)").Output("h_all", "h", 1);
  AddStrings(&net.forward(), "recompute_blobs_on_backward", again);
  NetDef def = net.Build();
  ExpectMadeGradientsMatch(def, {"h_all"},
                           {{"x", Random({3, 2, 3}, 1)}, {"h0", Random({2, 3}, 2)}, {"w", Random({3, 3}, 3)}});
  AddBackwardStepNets(&def);
  const auto made = std::ranges::find(def.op(0).arg(), "backward_step_net", &Argument::name);
  std::vector<std::string> types;
  for (const OperatorDef& op : made->n().op()) types.push_back(op.type());
  return types;
}

// Otherwise more would be kept: what they are computed from.
TEST(AddBackwardStepNets, ComputesAgainNoValueThatIsNotReadOrIsThere) {
  const std::vector<std::string> without = TypesOfBackwardStep({});
  for (const char* blob : {"s", "h_next", "p"}) EXPECT_EQ(TypesOfBackwardStep({blob}), without) << blob;
  const auto with = [&](std::vector<std::string> types) {
    types.insert(types.end(), without.begin(), without.end());
    return types;
  };
  EXPECT_EQ(TypesOfBackwardStep({"t"}), with({"Tanh"}));
  EXPECT_EQ(TypesOfBackwardStep({"t", "s", "h_next"}), with({"Add", "Tanh"}));
  EXPECT_EQ(TypesOfBackwardStep({"t", "s", "p"}), with({"FC", "Add", "Tanh"}));
}

TEST(AddBackwardStepNets, ExpectsToComputeAgainWhatTheStepGives) {
  const auto error = [](const char* blob) {
    RecurrentCase net = CaseThatComputesAgain({blob});
    net.Feed("x", Random({3, 2, 3}, 1)).Feed("h0", Random({2, 3}, 2)).Feed("w", Random({3, 3}, 3));
    return ErrorOf([&] { net.Run(); });
  };
  const std::string place = "\n  at op 0 `h_all, record = RecurrentNetwork(x, h0, w)`\n  in net \"case\"";
  EXPECT_EQ(error("masc"),
            "invalid net: recompute_blobs_on_backward names \"masc\", which no operator of the step net gives; did you "
            "mean \"mask\"?" +
                place);
  EXPECT_EQ(error("x_t"),
            "invalid net: recompute_blobs_on_backward names \"x_t\", which no operator of the step net gives" + place);
}

TEST(AddBackwardStepNets, RefusesToComputeAgainWhatItCannot) {
  NetDef half = CaseThatComputesAgain({"d"}).Build();
  ExpectError(
      [&] { AddBackwardStepNets(&half); },
      "…recompute_blobs_on_backward names an output of op 2 `d, mask = Dropout(g)`, which cannot be computed again: "
      "\"mask\", another of its outputs, is not");
  RecurrentCase overwritten;
  overwritten.Sequence("x", "x_t").State("h", "h0", "h_prev", "h_next").Step("s = Sum(h_prev, x_t)");
  overwritten.Step("t = Tanh(s)").Step("s = Sum(s, t)").Step("h_next = Mul(t, s)").Output("h_all", "h", 1);
  AddStrings(&overwritten.forward(), "recompute_blobs_on_backward", {"t"});
  NetDef def = overwritten.Build();
  ExpectError([&] { AddBackwardStepNets(&def); },
              "…recompute_blobs_on_backward names an output of op 1 `t = Tanh(s)`, which cannot be computed again: its "
              "input \"s\" is overwritten by op 2");
}

// Caffe2's BasicRNN with lengths: what the step gives is first what it would be, then what the lengths make of it.
TEST(AddBackwardStepNets, GivesNamesToValuesThatAStepOverwrites) {
  RecurrentCase net;
  net.Sequence("x", "x_t").Sequence("v", "v_t").State("h", "h0", "h_prev", "h_t").Captured("w").Captured("b");
  OperatorDef product = ParseOp("h_t = FC(h_prev, w, b)");
  AddInt(&product, "axis", 2);
  net.Step(product).Step("h_t = Sum(h_t, x_t)").Step("h_t = Tanh(h_t)").Step("valid = Mul(h_t, v_t)");
  net.Step("h_t = Add(valid, h_prev)").Output("h_all", "h", 1);
  NetDef def = net.Build();
  ExpectMadeGradientsMatch(def, {"h_all"},
                           {{"x", Random({4, 2, 3}, 1)},
                            {"v", Random({4, 2, 3}, 2)},
                            {"h0", Random({2, 3}, 3)},
                            {"w", Random({3, 3}, 4)},
                            {"b", Random({3}, 5)}});
  AddBackwardStepNets(&def);
  const auto step = std::ranges::find(def.op(0).arg(), "step_net", &Argument::name);
  std::vector<std::string> lines;
  for (const OperatorDef& op : step->n().op()) lines.push_back(OperatorText(op));
  // One value is kept; the others share the row of the state, as they did.
  EXPECT_EQ(lines,
            (std::vector<std::string>{"h_t = FC(h_prev, w, b)", "h_t = Sum(h_t, x_t)", "h_t_before_1 = Tanh(h_t)",
                                      "valid = Mul(h_t_before_1, v_t)", "h_t = Add(valid, h_prev)"}));
}

// Messages call an operator by the first of its blobs, and the one that gets a new name may be the last of many.
TEST(AddBackwardStepNets, GivesNamesToTheLastOfManyBlobs) {
  RecurrentCase net;
  net.Sequence("x", "x_t").State("h", "h0", "h_prev", "h_t");
  std::string parts;
  for (int i = 0; i < 30; ++i) parts += StrCat("part", i, ", ");
  OperatorDef split = ParseOp(StrCat(parts, "last = Split(x_t)"));
  AddInt(&split, "axis", 2);
  net.Step(split).Step(StrCat("greatest = Max(", parts, "last)")).Step("last = Tanh(part0)");
  net.Step("h_t = Sum(h_prev, last, greatest)").Output("h_all", "h", 1);
  ExpectMadeGradientsMatch(net.Build(), {"h_all"}, {{"x", Random({3, 2, 31}, 1)}, {"h0", Random({2, 1}, 2)}});
}

TEST(AddBackwardStepNets, KeepsWhatALinkGivesWhereTheStepOverwritesIt) {
  // A row of a sequence.
  RecurrentCase sequence;
  sequence.Sequence("x", "x_t").Sequence("y", "y_t").State("h", "h0", "h_prev", "h_next");
  sequence.Step("m = Mul(y_t, y_t)").Step("y_t = Tanh(m)").Step("y_t = Mul(y_t, x_t)");
  sequence.Step("h_next = Mul(y_t, h_prev)").Output("h_all", "h", 1);
  ExpectMadeGradientsMatch(sequence.Build(), {"h_all"},
                           {{"x", Random({4, 2, 3}, 1)}, {"y", Random({4, 2, 3}, 2)}, {"h0", Random({2, 3}, 3)}});
  // What a state was, in the blob that becomes what it is.
  RecurrentCase state;
  state.Sequence("x", "x_t").State("h", "h0", "h", "h").Step("m = Mul(h, x_t)").Step("m = Sum(m, h)");
  state.Step("h = Tanh(m)").Step("h = Mul(h, h)").Output("h_all", "h", 1);
  ExpectMadeGradientsMatch(state.Build(), {"h_all"}, {{"x", Random({4, 2, 3}, 1)}, {"h0", Random({2, 3}, 2)}});
}

TEST(AddBackwardStepNets, RefusesWhatAStepOverwritesForTheNextOne) {
  RecurrentCase captured;
  captured.Sequence("x", "x_t").State("h", "h0", "h_prev", "h_next").Captured("w").Step("w = Tanh(w)");
  captured.Step("m = Mul(x_t, w)").Step("h_next = Mul(m, h_prev)").Output("h_all", "h", 1);
  NetDef def = captured.Build();
  ExpectError([&] { AddBackwardStepNets(&def); },
              "…the step net overwrites its input \"w\", which the next step reads; no gradient can be made");
  RecurrentCase rows;
  rows.Sequence("x", "x_t").State("h", "h0", "h_prev", "h_next").Step("h_prev = Tanh(h_prev)");
  rows.Step("h_next = Mul(x_t, h_prev)").Output("h_all", "h", 1);
  def = rows.Build();
  ExpectError([&] { AddBackwardStepNets(&def); },
              "…the step net overwrites \"h_prev\", rows of \"h\" that others see too; no gradient can be made");
}

TEST(AddBackwardStepNets, RefusesRowsThatAStepWritesTwiceAndReadsByAnotherName) {
  RecurrentCase net;
  net.Sequence("x", "x_t").State("h", "h0", "h_prev", "h_next").Link("again", "h", 1).Captured("v");
  net.Step("h_next = Tanh(x_t)").Step("k = Mul(again, v)").Step("q = Sum(k, h_prev)").Step("h_next = Copy(q)");
  NetDef def = net.Output("all", "h", 1).Build();
  ExpectError([&] { AddBackwardStepNets(&def); },
              "…rows of \"h\" are written more than once, which the step net sees as \"h_next\" and as \"again\"; no "
              "gradient can be made");
}

// Issue 12, lines 2 and 5: what a step reads of a row that it has written, by another name of the row.
TEST(AddBackwardStepNets, BringsGradientsOfOtherNamesToTheRow) {
  RecurrentCase alone;
  alone.Sequence("x", "x_t").State("h", "h0", "h_prev", "h_next").State("g", "g0", "", "g_next");
  alone.Link("again", "h", 1).Step("h_next = Mul(x_t, h_prev)").Step("g_next = Copy(again)").Output("g_all", "g", 1);
  ExpectMadeGradientsMatch(alone.Build(), {"g_all"},
                           {{"x", Random({4, 2, 3}, 1)}, {"h0", Random({2, 3}, 2)}, {"g0", Random({2, 3}, 3)}});
  RecurrentCase several;
  several.Sequence("x", "x_t").State("h", "h0", "h_prev", "h_next").State("g", "g0", "", "g_next");
  several.Link("again", "h", 1).Link("other", "h", 1).Step("h_next = Mul(x_t, h_prev)").Step("a = Mul(again, other)");
  several.Step("b = Mul(a, h_next)").Step("g_next = Sum(b, again)").Output("g_all", "g", 1).Output("h_all", "h", 1);
  ExpectMadeGradientsMatch(several.Build(), {"h_all", "g_all"},
                           {{"x", Random({4, 2, 3}, 1)}, {"h0", Random({2, 3}, 2)}, {"g0", Random({2, 3}, 3)}});
}

TEST(AddBackwardStepNets, RefusesRowsThatSeveralStepsWrite) {
  const auto refuse = [](const std::string& blob, std::int64_t offset, const std::vector<std::string>& more,
                         const std::string& names) {
    RecurrentCase net;
    net.Sequence("x", "x_t").State("h", "h0", "h_prev", "h_next").Link(blob, "h", offset);
    for (const std::string& op : more) net.Step(op);
    NetDef def = net.Step("h_next = Sum(x_t, h_prev)").Output("h_all", "h", 1).Build();
    ExpectError([&] { AddBackwardStepNets(&def); },
                StrCat("…rows of \"h\" are written more than once, which the step net sees as ", names,
                       "; no gradient can be made"));
  };
  refuse("h_next", 0, {}, "\"h_next\"");
  refuse("h_prev", 1, {}, "\"h_next\" and as \"h_prev\"");
  refuse("older", 0, {"older = Tanh(x_t)"}, "\"h_next\" and as \"older\"");
  // Read before the row is written, and after.
  refuse("again", 1, {"a = Tanh(again)", "h_next = Mul(a, h_prev)", "b = Mul(again, a)"},
         "\"h_next\" and as \"again\"");
}

// Arguments name what a recurrent operator reads and gives, too.
TEST(AddBackwardStepNets, GivesNamesToWhatRecurrentOperatorsReadAndGive) {
  RecurrentCase layer;
  layer.Sequence("x", "x_t").State("h", "h0", "h_prev", "h_next").Captured("w").Step("m = Mul(x_t, h_prev)");
  layer.Step("p = Mul(m, w)").Step("h_next = Tanh(p)").Output("h_all", "h", 1);
  NetDef net = layer.Build();
  net.clear_op();
  const OperatorDef recurrent = layer.Build().op(0);
  *net.add_op() = ParseOp("w = Tanh(v)");
  *net.add_op() = recurrent;
  *net.add_op() = ParseOp("w = Sin(w)");
  *net.add_op() = ParseOp("x = Sin(h_all)");
  *net.add_op() = recurrent;
  *net.add_op() = ParseOp("h_all = Sigmoid(h_all)");
  ExpectMadeGradientsMatch(net, {"h_all"},
                           {{"x", Random({4, 2, 3}, 1)}, {"h0", Random({2, 3}, 2)}, {"v", Random({1, 2, 3}, 3)}});
}

TEST(AddBackwardStepNets, G11LeavesOutWhatIsNotRequested) {
  RecurrentCase net;
  net.Sequence("x", "x_t").State("h", "h0", "h_prev", "h_next").Captured("w");
  net.Step("m = Mul(x_t, h_prev)").Step("h_next = Mul(m, w)").Output("h_all", "h", 1);
  AddStrings(&net.forward(), "gradient_requests", {"none", "write", "none"});
  NetDef def = net.Build();
  AddBackwardStepNets(&def);
  const NetWithGradients made = AddGradients(def, {"h_all"}, {"x", "w", "h0"});
  EXPECT_EQ(made.gradients.size(), 1u);
  Workspace workspace;
  const Tensor one = Tensor::Of<double>({1, 1, 1}, {1}), w = Tensor::Of<double>({1, 1, 1}, {3});
  for (const auto& [name, tensor] : Feeds{{"x", one}, {"h0", one}, {"w", w}}) workspace.SetTensor(name, tensor);
  RunNetOnce(made.net, workspace);
  EXPECT_EQ(Values(workspace.GetTensor(made.gradients.at("w").dense)), std::vector<double>{1});
  EXPECT_FALSE(workspace.GetBlob("x_grad").HasTensor());
  AddStrings(def.mutable_op(0), "gradient_requests", {"none", "write", "none"});
  for (Argument& argument : *def.mutable_op(0)->mutable_arg()) {
    if (argument.name() == "gradient_requests") argument.mutable_strings()->RemoveLast();
  }
  ExpectError([&] { AddGradients(def, {"h_all"}, {"x"}); },
              "…invalid argument: gradient_requests has 2 entries; the gradient operator has 3 outputs");
}

// Each step runs a sequence of its own, the rows that its window shows.
TEST(AddBackwardStepNets, DifferentiatesARecurrentNetworkInAStep) {
  RecurrentCase inner;
  inner.Sequence("window", "w_t").State("k", "h_prev", "k_prev", "k_next").Captured("w").Step("m = Mul(w_t, k_prev)");
  OperatorDef product = ParseOp("p = FC(m, w)");
  AddInt(&product, "axis", 2);
  inner.Step(product).Step("k_next = Tanh(p)").Output("k_last", "k", -1);
  RecurrentCase outer;
  outer.Sequence("x", "x_t").Sequence("y", "window", 0, 3).State("h", "h0", "h_prev", "h_next").Captured("w");
  outer.Step(inner.Build().op(0)).Step("h_next = Sum(k_last, x_t)").Output("h_all", "h", 1);
  NetDef net = outer.Build();
  ExpectMadeGradientsMatch(
      net, {"h_all"},
      {{"x", Random({4, 2, 3}, 1)}, {"y", Random({6, 2, 3}, 4)}, {"h0", Random({2, 3}, 2)}, {"w", Random({3, 3}, 3)}});
}

// Gradients that nobody asks for get names of their own in both step nets.
TEST(AddBackwardStepNets, LeavesOutGradientsOfWhatARecurrentNetworkInAStepCaptures) {
  RecurrentCase inner;
  inner.Sequence("x_t", "i_t").State("k", "h_prev", "k_prev", "k_next").Captured("w").Captured("b");
  OperatorDef product = ParseOp("p = FC(i_t, w, b)");
  AddInt(&product, "axis", 2);
  inner.Step(product).Step("k_next = Mul(p, k_prev)").Output("k_last", "k", -1);
  RecurrentCase outer;
  outer.Sequence("x", "x_t").State("h", "h0", "h_prev", "h_next").Captured("w").Captured("b");
  outer.Step(inner.Build().op(0)).Step("h_next = Tanh(k_last)").Output("h_all", "h", 1);
  const Feeds feeds = {
      {"x", Random({3, 2, 3}, 1)}, {"h0", Random({2, 3}, 2)}, {"w", Random({3, 3}, 3)}, {"b", Random({3}, 4)}};
  const auto gradient = [&](const std::string& input, const std::vector<std::string>& asked) {
    NetDef net = outer.Build();
    AddBackwardStepNets(&net, asked);
    const NetWithGradients made = AddGradients(net, {"h_all"}, asked);
    Workspace workspace;
    for (const auto& [name, tensor] : feeds) workspace.SetTensor(name, tensor);
    RunNetOnce(made.net, workspace);
    return Values(workspace.GetTensor(made.gradients.at(input).dense));
  };
  for (const char* input : {"x", "h0", "w", "b"}) {
    EXPECT_EQ(gradient(input, {input}), gradient(input, {"x", "h0", "w", "b"})) << input;
  }
}

TEST(AddBackwardStepNets, RefusesASequenceThatTheStepReadsWholeToo) {
  RecurrentCase net;
  net.Sequence("x", "x_t").State("h", "h0", "h_prev", "h_next").Step("s = MatMul(x, x_t)");
  net.Step("h_next = Sum(s, h_prev)").Output("h_all", "h", 1);
  NetDef def = net.Build();
  ExpectError([&] { AddBackwardStepNets(&def); },
              "…invalid net: the step net reads \"x\" whole and, through a link, by rows; no gradient can be made");
}

TEST(AddBackwardStepNets, DifferentiatesALayerOnALayerAndASequenceThatIsReadTwice) {
  RecurrentCase lower, upper;
  lower.Sequence("x", "x_t").State("h", "h0", "h_prev", "h_next").Step("m = Mul(x_t, h_prev)").Step("h_next = Tanh(m)");
  lower.Output("h_all", "h", 1).Output("h_last", "h", -1);
  upper.Sequence("h_all", "x_t").State("k", "h_last", "k_prev", "k_next").Step("m = Mul(x_t, k_prev)");
  upper.Step("k_next = Sum(m, x_t)").Output("k_all", "k", 1);
  NetDef net = lower.Build();
  net.MergeFrom(upper.Build());
  net.mutable_op(1)->set_output(1, "upper record");
  net.clear_external_input();
  *net.add_op() = ParseOp("y = Mul(k_all, h_all)");
  *net.add_op() = ParseOp("z = Mul(y, x)");
  ExpectMadeGradientsMatch(net, {"z", "h_last"}, {{"x", Random({3, 2, 2}, 1)}, {"h0", Random({2, 2}, 2)}});
}

// A delay line: each state is what the one before it was. Operators read the first and the last of them, and x.
TEST(AddBackwardStepNets, DifferentiatesWhatAStepHandsOnFromStateToState) {
  RecurrentCase net;
  net.Sequence("x", "x_t").State("a", "a0", "a_prev", "a_next").State("b", "b0", "b_prev", "a_prev");
  net.State("c", "c0", "c_prev", "b_prev", 2).State("past", "past0", "past_prev", "x_t");
  net.Step("m = Mul(x_t, c_prev)").Step("s = Sum(m, a_prev, past_prev)").Step("a_next = Tanh(s)");
  net.Output("a_all", "a", 1).Output("c_all", "c", 1).Output("past_last", "past", -1);
  const std::vector<std::pair<std::string, Tensor>> feeds = {{"x", Random({5, 2, 3}, 1)},
                                                             {"a0", Random({2, 3}, 2)},
                                                             {"b0", Random({2, 3}, 3)},
                                                             {"c0", Random({2, 2, 3}, 4)},
                                                             {"past0", Random({2, 3}, 5)}};
  ExpectMadeGradientsMatch(net.Build(), {"a_all"}, feeds);
  ExpectMadeGradientsMatch(net.Build(), {"a_all", "c_all", "past_last"}, feeds);
}

// h_next is an output beside the state, so that two gradients come to it; the window adds to one of them first.
TEST(AddBackwardStepNets, DifferentiatesAWindowThatEndsWithTheRowOfItsStep) {
  RecurrentCase net;
  net.Sequence("x", "x_t").State("h", "h0", "h_prev", "h_next").State("y", "y0", "", "y_next");
  net.Link("h_both", "h", 0, 2).Step("h_next = Mul(x_t, h_prev)");
  OperatorDef sum = ParseOp("y_next = ReduceSum(squares)");
  AddInts(&sum, "axes", {0});
  net.Step("squares = Mul(h_both, h_both)").Step(sum).Output("y_all", "y", 1);
  net.forward().add_output("h_out");
  AddStrings(&net.forward(), "step_output_src", {"h_next"});
  AddStrings(&net.forward(), "step_output_dst", {"h_out"});
  ExpectMadeGradientsMatch(net.Build(), {"y_all", "h_out"},
                           {{"x", Random({4, 2, 3}, 1)}, {"h0", Random({2, 3}, 2)}, {"y0", Random({2, 3}, 3)}});
}

TEST(AddBackwardStepNets, LeavesOutInputsThatHaveNoGradient) {
  RecurrentCase net;
  net.Sequence("x", "x_t").State("h", "h0", "h_prev", "h_next").State("c", "c0", "c_prev", "c_next");
  net.Captured("lengths").Step("s = Sum(x_t, x_t)");
  OperatorDef unit = ParseOp("h_next, c_next = LSTMUnit(h_prev, c_prev, s, lengths, timestep)");
  AddInt(&unit, "drop_states", 0);
  net.Step(unit).Output("h_all", "h", 1);
  ExpectMadeGradientsMatch(net.Build(), {"h_all"},
                           {{"x", Random({3, 2, 8}, 1)},
                            {"h0", Random({1, 2, 2}, 2)},
                            {"c0", Random({1, 2, 2}, 3)},
                            {"lengths", Tensor::Of<std::int32_t>({2}, {3, 1})}});
}

// Blobs of the step that are called as the gradients of others would be.
TEST(AddBackwardStepNets, KeepsBlobsApartFromGradientsOfTheirNames) {
  for (const char* taken : {"h_next_grad", "h_prev_grad", "x_t_grad", "w_grad", "h_passed_grad", "y_grad", "n_grad"}) {
    SCOPED_TRACE(taken);
    for (const bool is_captured : {false, true}) {
      RecurrentCase net;
      net.Sequence("x", "x_t").State("h", "h0", "h_prev", "h_next").Captured("w").Captured("n");
      const std::string blob = is_captured ? "g" : taken, weight = is_captured ? taken : "v";
      net.Captured(weight);
      net.Step(blob + " = Mul(h_prev, " + weight + ")").Step("p = Sum(" + blob + ", x_t)").Step("t = Tanh(p)");
      net.Step("y = Mul(t, " + blob + ")").Step("z = Mul(y, w)").Step("h_next = Where(n, z, h_prev)");
      AddStrings(&net.forward(), "step_output_src", {"y"});
      AddStrings(&net.forward(), "step_output_dst", {"y_all"});
      net.forward().add_output("y_all");
      net.Output("h_all", "h", 1);
      ExpectMadeGradientsMatch(net.Build(), {"h_all", "y_all"},
                               {{"x", Random({3, 2, 3}, 1)},
                                {"h0", Random({2, 3}, 2)},
                                {"w", Random({3}, 3)},
                                {weight, Random({3}, 4)},
                                {"n", Tensor::Of<bool>({1, 2, 3}, {true, false, true, true, true, false})}});
    }
  }
}

TEST(AddBackwardStepNets, RefusesTheNameUnderWhichGradientsOfAStateAreKept) {
  RecurrentCase net;
  net.Sequence("x", "x_t").State("h", "h0", "h_prev", "h_next").Captured("h_grad");
  net.Step("p = Mul(x_t, h_grad)").Step("h_next = Sum(p, h_prev)").Output("h_all", "h", 1);
  NetDef def = net.Build();
  AddBackwardStepNets(&def);
  ExpectError(
      [&] { AddGradients(def, {"h_all"}, {"x"}); },
      "…the net has a blob \"h_grad\", and its RecurrentNetworkGradient would keep the gradients of a state in one of "
      "that name; rename the blob, or the state");
}

TEST(AddBackwardStepNets, KeepsABackwardStepNetThatIsThere) {
  RecurrentCase net;
  net.Sequence("x", "x_t").State("h", "h0", "h_prev", "h_next").Step("h_next = Mul(x_t, h_prev)");
  net.Output("h_all", "h", 1).BackwardStep("x_t_grad = Mul(h_next_grad, h_prev)");
  net.BackwardLink("h_next_grad", "h_grad", 1).BackwardLink("x_t_grad", "x_grad", 0);
  const NetDef before = net.Build();
  NetDef after = before;
  AddBackwardStepNets(&after);
  EXPECT_EQ(after.SerializeAsString(), before.SerializeAsString());
}

TEST(AddBackwardStepNets, NamesTheOperatorThatIsNotDifferentiable) {
  RecurrentCase net;
  net.Sequence("x", "x_t").State("h", "h0", "h_prev", "h_next");
  net.Step("s = SumReduceLike(x_t, h_prev)").Step("h_next = Tanh(s)").Output("h_all", "h", 1);
  NetDef def = net.Build();
  ExpectError([&] { AddBackwardStepNets(&def); },
              "…SumReduceLike declares no gradient; the gradient of \"h_next\" comes to it by\n"
              "    op 1 `h_next = Tanh(s)`\n"
              "  at op 0 `s = SumReduceLike(x_t, h_prev)`\n"
              "  in net \"step\"\n"
              "  at op 0 `h_all, record = RecurrentNetwork(x, h0)`\n"
              "  in net \"case\"");
}

}  // namespace
}  // namespace stepnet

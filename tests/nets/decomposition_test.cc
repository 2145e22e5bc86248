#include "stepnet/nets/decomposition.h"

#include "stepnet/nets/net.h"
#include "stepnet/nets/net_check.h"
#include "stepnet/nets/op_builder.h"
#include "stepnet/tests/executor/recurrent_case.h"
#include "stepnet/tests/operators/op_test.h"

namespace stepnet {
namespace {

// y = 4 x, by way of a blob of its own; in training y = x. With `fails` one part adds tensors that do not fit.
const Registration four_times = Operator("test.FourTimes")
                                    .Input("x", "float or double")
                                    .Output("y", "the shape of x")
                                    .Arg("fails", false, "")
                                    .Arg("letters", 0, "of the name of the first part", AtLeast(0))
                                    .Shapes(SameAsInput(0));
const DecompositionRegistration of_four_times("test.FourTimes", [](const OperatorCall& op,
                                                                   const DecompositionContext& context) {
  NetDef parts;
  const std::string twice = context.scope + "twice";
  const float factor = context.use == NetUse::kTraining ? 0.5f : 2;
  AddOp(&parts, "Scale", {op.inputs()[0]}, {twice}).Float("scale", factor);
  parts.mutable_op(0)->set_name(std::string(op.Int("letters"), 'a'));
  if (op.Bool("fails")) AddOp(&parts, "Transpose", {twice}, {twice + "_turned"});
  AddOp(&parts, "Add", {twice, op.Bool("fails") ? twice + "_turned" : twice}, op.outputs());
  return parts;
});

NetDef NetOf(const std::vector<std::string>& ops) {
  NetDef net;
  net.set_name("test");
  for (const std::string& op : ops) *net.add_op() = ParseOp(op);
  return net;
}

std::vector<std::string> Texts(const NetDef& net) {
  std::vector<std::string> texts;
  for (const OperatorDef& op : net.op()) texts.push_back(OperatorText(op));
  return texts;
}

DecomposedNet Made(const std::vector<std::string>& ops, NetUse use = NetUse::kInference) {
  return Decomposed(std::make_shared<NetDef>(NetOf(ops)), use);
}

TEST(Decomposed, PutsPartsInThePlaceOfAnOperator) {
  const DecomposedNet made = Made({"a = Copy(x)", "y = test.FourTimes(a)", "z = Copy(y)"});
  EXPECT_EQ(Texts(*made.net), (std::vector<std::string>{"a = Copy(x)", "y/twice = Scale(a)",
                                                        "y = Add(y/twice, y/twice)", "z = Copy(y)"}));
  EXPECT_EQ(made.origins, (std::vector<int>{0, 1, 1, 2}));
  ASSERT_EQ(made.wholes.size(), 1U);
  EXPECT_EQ(made.wholes.at(1).text, "y = test.FourTimes(a)");
  EXPECT_EQ(made.wholes.at(1).inputs, std::vector<std::string>{"a"});
}

TEST(Decomposed, LeavesOtherNetsAsTheyAre) {
  const auto net = std::make_shared<const NetDef>(NetOf({"a = Copy(x)", "b = Copy(a)"}));
  const DecomposedNet made = Decomposed(net, NetUse::kInference);
  EXPECT_EQ(made.net, net);
  EXPECT_EQ(made.origins, (std::vector<int>{0, 1}));
  EXPECT_TRUE(made.wholes.empty());
}

TEST(Decomposed, GivesPartsNamesThatNobodyHas) {
  const DecomposedNet made = Made({"y/twice = Copy(x)", "y = test.FourTimes(y/twice)", "y = test.FourTimes(x)"});
  EXPECT_EQ(made.net->op(1).output(0), "y//twice");
  EXPECT_EQ(made.net->op(3).output(0), "y///twice");
}

TEST(Decomposed, TellsPartsWhatTheNetIsFor) {
  EXPECT_EQ(Made({"y = test.FourTimes(x)"}, NetUse::kTraining).net->op(0).arg(0).f(), 0.5f);
}

TEST(Decomposed, GivesPartsTheDeviceAndTheControlInputsOfTheOperator) {
  NetDef net = NetOf({"y = test.FourTimes(x)"});
  net.mutable_op(0)->mutable_device_option()->set_random_seed(7);
  net.mutable_op(0)->add_control_input("first");
  const DecomposedNet made = Decomposed(std::make_shared<NetDef>(net), NetUse::kInference);
  for (const OperatorDef& part : made.net->op()) {
    EXPECT_EQ(part.device_option().random_seed(), 7);
    EXPECT_EQ(part.control_input(0), "first");
  }
}

TEST(Decomposed, ReachesOperatorsOfStepNets) {
  RecurrentCase net;
  net.Sequence("x", "x_t").State("h", "h0", "h_prev", "h_next").Step("s = test.FourTimes(x_t)");
  net.Step("h_next = Sum(s, h_prev)").Output("h_all", "h", 1);
  net.Feed("x", Column({1, 2, 3})).Feed("h0", One(0)).Run();
  EXPECT_EQ(Values(net.Get("h_all")), (std::vector<double>{4, 12, 24}));
}

TEST(Decomposed, RefusesWhatIsWrongByItself) {
  ExpectError(
      [] {
        Made({"a = Copy(x)", "y = test.FourTimes(a, a)"});
      },
      "…test.FourTimes takes 1 input, has 2\n"
      "  at op 1 `y = test.FourTimes(a, a)`\n"
      "  in net \"test\"");
}

TEST(Decomposed, RefusesPartsBeyondMeasure) {
  NetDef net = NetOf({"y = test.FourTimes(x)", "y = test.FourTimes(x)"});
  for (OperatorDef& op : *net.mutable_op()) AddInt(&op, "letters", 33 << 20);
  ExpectError([&] { Decomposed(std::make_shared<NetDef>(net), NetUse::kInference); },
              "invalid net: the operators that this one and those before it stand for take more than 64 MB\n"
              "  at op 1 `y = test.FourTimes(x)`\n"
              "  in net \"test\"");
}

TEST(NetsOfDecompositions, NameTheOperatorAsItIsWritten) {
  NetDef net = NetOf({"a = Copy(x)", "y = test.FourTimes(a)", "z = Add(y, w)"});
  const auto run = [&](const Shape& w) {
    Workspace workspace;
    workspace.SetTensor("x", Random({2, 3}, 1));
    workspace.SetTensor("w", Random(w, 2));
    RunNetOnce(net, workspace);
  };
  run({2, 3});
  ExpectError([&] { run({3, 2}); }, "…  at op 2 `z = Add(y, w)` with y double [2, 3], w double [3, 2]\n");
  AddInt(net.mutable_op(1), "fails", 1);
  ExpectError(
      [&] {
        run({2, 3});
      },
      "…  at op 1 `y = test.FourTimes(a)` with a double [2, 3]\n"
      "  in net \"test\"");
}

TEST(NetsOfDecompositions, AreCheckedAsTheyAreWritten) {
  const std::vector<NetProblem> problems =
      CheckNet(NetOf({"y = test.FourTimes(x)", "z = test.FourTimes(y, y)", "u = Nothing(z)"}));
  ASSERT_EQ(problems.size(), 2u);
  EXPECT_EQ(problems[0].Text(), "net \"test\", op 1 `z = test.FourTimes(y, y)`: test.FourTimes takes 1 input, has 2");
  EXPECT_EQ(problems[1].op_index, 2);
}

}  // namespace
}  // namespace stepnet

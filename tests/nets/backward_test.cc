// Gradients of whole nets, against central differences in double.
#include "stepnet/nets/backward.h"

#include <cmath>

#include "stepnet/nets/net_check.h"
#include "stepnet/tests/executor/recurrent_case.h"
#include "stepnet/tests/operators/op_test.h"

namespace stepnet {
namespace {

using Feeds = std::vector<std::pair<std::string, Tensor>>;

NetDef NetOf(const std::vector<std::string>& lines) {
  NetDef net;
  net.set_name("n");
  for (const std::string& line : lines) *net.add_op() = ParseOp(line);
  return net;
}

std::vector<std::string> Lines(const NetDef& net, int first) {
  std::vector<std::string> lines;
  for (int k = first; k < net.op_size(); ++k) lines.push_back(OperatorText(net.op(k)));
  return lines;
}

std::vector<std::string> ForwardLines(const NetWithGradients& made) {
  std::vector<std::string> lines = Lines(made.net, 0);
  lines.resize(made.num_forward);
  return lines;
}

void Feed(const Feeds& feeds, Workspace& workspace) {
  for (const auto& [name, tensor] : feeds) workspace.SetTensor(name, tensor.Clone());
}

// Runs the net with its gradients and compares those of all `feeds` of double with differences of the sum of `losses`.
void ExpectGradientsOfNet(const NetDef& net, const std::vector<std::string>& losses, const Feeds& feeds) {
  std::vector<std::string> inputs;
  for (const auto& [name, tensor] : feeds) {
    if (tensor.dtype() == DType::kDouble) inputs.push_back(name);
  }
  const NetWithGradients made = AddGradients(net, losses, inputs);
  Workspace workspace;
  Feed(feeds, workspace);
  RunNetOnce(made.net, workspace);
  const auto loss = [&] {
    Workspace forward;
    Feed(feeds, forward);
    RunNetOnce(net, forward);
    double sum = 0;
    for (const std::string& blob : losses) {
      for (const double value : Values(forward.GetTensor(blob))) sum += value;
    }
    return sum;
  };
  for (const auto& [name, tensor] : feeds) {
    if (tensor.dtype() != DType::kDouble) continue;
    ASSERT_TRUE(made.gradients.contains(name)) << name;
    const std::vector<double> gradient = Values(workspace.GetTensor(made.gradients.at(name).dense));
    ASSERT_EQ(static_cast<std::int64_t>(gradient.size()), tensor.size()) << name;
    for (const auto& [i, numeric] : Differences(tensor, loss)) {
      EXPECT_NEAR(gradient[i], numeric, 1e-7) << name << " element " << i;
    }
  }
}

TEST(AddGradients, AppendsAGradientOperatorForEachOperator) {
  const NetDef net = NetOf({"g = FC(x, w, b)", "y = Tanh(g)"});
  const NetWithGradients made = AddGradients(net, {"y"}, {"x", "w"});
  EXPECT_EQ(Lines(made.net, net.op_size()),
            (std::vector<std::string>{"y_autogen_grad = ConstantFill(y)", "g_grad = TanhGradient(y, y_autogen_grad)",
                                      "w_grad, b_grad, x_grad = FCGradient(x, w, g_grad)"}));
  EXPECT_EQ(made.gradients.at("x").dense, "x_grad");
  EXPECT_EQ(made.gradients.at("w").dense, "w_grad");
  EXPECT_FALSE(made.gradients.contains("b"));
  ExpectGradientsOfNet(net, {"y"}, {{"x", Random({2, 3}, 1)}, {"w", Random({4, 3}, 2)}, {"b", Random({4}, 3)}});
}

TEST(AddGradients, SumsThePartsOfWhatSeveralOperatorsRead) {
  const NetDef net = NetOf({"g = FC(x, w, b)", "a = Tanh(g)", "m = Mul(g, a)", "y = Sum(m, x, g)", "z = Sigmoid(g)"});
  const NetWithGradients made = AddGradients(net, {"y", "z"}, {"x"});
  EXPECT_EQ(made.gradients.at("x").dense, "x_grad");
  ExpectGradientsOfNet(net, {"y", "z"}, {{"x", Random({3, 3}, 1)}, {"w", Random({3, 3}, 2)}, {"b", Random({3}, 3)}});
}

TEST(AddGradients, CountsABlobThatAnOperatorReadsTwiceTwice) {
  ExpectGradientsOfNet(NetOf({"y = Mul(x, x)"}), {"y"}, {{"x", Random({5}, 1)}});
  ExpectGradientsOfNet(NetOf({"y = Sum(x, x, x)"}), {"y"}, {{"x", Random({5}, 1)}});
  ExpectGradientsOfNet(NetOf({"s = Sum(x, x)", "y = Mul(s, x)"}), {"y", "s"}, {{"x", Random({5}, 1)}});
}

TEST(AddGradients, KnowsTheValuesOfANameThatIsWrittenTwice) {
  // Sum and Tanh work in place; the first value of g is gone, and no gradient needs it.
  ExpectGradientsOfNet(NetOf({"g = FC(x, w, b)", "g = Sum(g, x)", "g = Tanh(g)", "y = Mul(g, x)"}), {"y"},
                       {{"x", Random({3, 3}, 1)}, {"w", Random({3, 3}, 2)}, {"b", Random({3}, 3)}});
}

TEST(AddGradients, GivesTheGradientOfAnInputThatIsOverwritten) {
  const NetDef net = NetOf({"x = Tanh(x)", "y = Mul(x, x)"});
  const NetWithGradients made = AddGradients(net, {"y"}, {"x"});
  EXPECT_NE(made.gradients.at("x").dense, "x_grad");  // that is the gradient of what x is in the end
  ExpectGradientsOfNet(net, {"y"}, {{"x", Random({4}, 1)}});
}

TEST(AddGradients, GivesANameToAValueThatIsOverwrittenBeforeItsGradient) {
  const Feeds feeds = {{"x", Random({3}, 1)}, {"v", Random({3}, 2)}};
  const NetDef net = NetOf({"h = Tanh(x)", "k = Mul(h, v)", "h = Add(k, x)"});
  const NetWithGradients made = AddGradients(net, {"h"}, {"x", "v"});
  EXPECT_EQ(ForwardLines(made),
            (std::vector<std::string>{"h_before = Tanh(x)", "k = Mul(h_before, v)", "h = Add(k, x)"}));
  ExpectGradientsOfNet(net, {"h"}, feeds);
  // Values that no gradient needs keep the name that they share.
  const NetDef other = NetOf({"h = Sum(x, v)", "k = Sum(h, v)", "h = Tanh(h)", "h = Mul(h, k)"});
  EXPECT_EQ(
      ForwardLines(AddGradients(other, {"h"}, {"x", "v"})),
      (std::vector<std::string>{"h = Sum(x, v)", "k = Sum(h, v)", "h_before_0 = Tanh(h)", "h = Mul(h_before_0, k)"}));
  ExpectGradientsOfNet(other, {"h", "k"}, feeds);
}

TEST(AddGradients, CopiesWhatIsThereBeforeTheNetAndIsOverwritten) {
  const NetDef net = NetOf({"y = Mul(x, w)", "w = Tanh(w)"});
  const NetWithGradients made = AddGradients(net, {"y"}, {"x"});
  EXPECT_EQ(made.num_forward, 3);
  EXPECT_EQ(Lines(made.net, 0), (std::vector<std::string>{"w_before = Copy(w)", "y = Mul(x, w_before)",
                                                          "w = Tanh(w_before)", "y_autogen_grad = ConstantFill(y)",
                                                          "x_grad_autogen_pre_red = Mul(y_autogen_grad, w_before)",
                                                          "x_grad = SumReduceLike(x_grad_autogen_pre_red, x)"}));
  ExpectGradientsOfNet(net, {"y", "w"}, {{"x", Random({4}, 1)}, {"w", Random({4}, 2)}});
}

TEST(AddGradients, LeavesOperatorsInPlaceThatMustBe) {
  // The gradient of LSTMUnit reads the number of the step, which counts on.
  NetDef net = NetOf({"t = Cast(n)", "h, c = LSTMUnit(h0, c0, gates, t)", "t = Iter(t)"});
  AddString(net.mutable_op(0), "to", "int64");
  AddInt(net.mutable_op(1), "sequence_lengths", 0);
  const std::vector<std::string> lines = ForwardLines(AddGradients(net, {"h", "c"}, {"gates"}));
  ASSERT_EQ(lines.size(), 4u);
  EXPECT_EQ(lines[1], "t_before = Copy(t)");
  EXPECT_EQ(lines[3], "t = Iter(t)");
}

TEST(AddGradients, TakesTheLossFromTheMiddleOfTheNet) {
  ExpectGradientsOfNet(NetOf({"a = Tanh(x)", "b = Mul(a, a)", "c = Sigmoid(b)"}), {"a", "c"}, {{"x", Random({4}, 1)}});
}

TEST(AddGradients, StopsWhereOperatorsSaySo) {
  const NetWithGradients made =
      AddGradients(NetOf({"a = Tanh(x)", "s = StopGradient(a)", "y = Mul(s, w)"}), {"y"}, {"x", "w"});
  EXPECT_FALSE(made.gradients.contains("x"));
  EXPECT_EQ(made.gradients.at("w").dense, "w_grad");
}

TEST(AddGradients, LeavesOperatorsAloneThatNoInputReaches) {
  // Print has no gradient; what it reads does not depend on x.
  const NetDef net = NetOf({"c = ConstantFill(x)", "k = GT(c, c)", "l = Not(k)", "y = Mul(x, x)"});
  EXPECT_EQ(AddGradients(net, {"y"}, {"x"}).gradients.at("x").dense, "x_grad");
}

TEST(AddGradients, FillsInZerosWhereAnOutputHasNoGradient) {
  // Nothing reads the cell state, and the gradient of LSTMUnit needs that of both outputs.
  NetDef net = NetOf({"h, c = LSTMUnit(h_prev, c_prev, gates, t)"});
  AddInt(net.mutable_op(0), "sequence_lengths", 0);
  ExpectGradientsOfNet(net, {"h"},
                       {{"h_prev", Random({1, 2, 3}, 1)},
                        {"c_prev", Random({1, 2, 3}, 2)},
                        {"gates", Random({1, 2, 12}, 3)},
                        {"t", Tensor::Of<std::int32_t>({1}, {0})}});
}

TEST(AddGradients, AddsRowsOfSparseGradients) {
  const NetDef net = NetOf({"a = Gather(w, i)", "b = Gather(w, j)", "y = Mul(a, b)"});
  const NetWithGradients made = AddGradients(net, {"y"}, {"w"});
  const GradientBlobs& gradient = made.gradients.at("w");
  ASSERT_TRUE(gradient.dense.empty());
  Workspace workspace;
  workspace.SetTensor("w", Tensor::Of<double>({3, 1}, {2, 3, 5}));
  workspace.SetTensor("i", Tensor::Of<std::int32_t>({2}, {0, 1}));
  workspace.SetTensor("j", Tensor::Of<std::int32_t>({2}, {1, 2}));
  RunNetOnce(made.net, workspace);
  std::vector<double> sums(3);
  const std::vector<double> values = Values(workspace.GetTensor(gradient.values));
  const std::vector<double> rows = ToDoubles(workspace.GetTensor(gradient.indices));
  ASSERT_EQ(rows.size(), 4u);
  for (size_t k = 0; k < rows.size(); ++k) sums[static_cast<size_t>(rows[k])] += values[k];
  EXPECT_EQ(sums, (std::vector<double>{3, 2 + 5, 3}));
}

// An embedding whose table is also the output layer.
TEST(AddGradients, AddsSparseAndWholeGradientsOfOneBlob) {
  const Feeds feeds = {{"w", Random({4, 3}, 1)}, {"i", Tensor::Of<std::int32_t>({3}, {2, 0, 2})}};
  ExpectGradientsOfNet(NetOf({"e = Gather(w, i)", "h = Tanh(e)", "y = FC(h, w)"}), {"y"}, feeds);
  ExpectGradientsOfNet(NetOf({"s = Tanh(w)", "e = Gather(w, i)", "f = Gather(w, i)", "y = FC(e, s)", "z = FC(f, w)"}),
                       {"y", "z"}, feeds);
}

TEST(AddGradients, PassesOnTheGradientOfATableThatTheNetComputes) {
  const Feeds feeds = {{"v", Random({4, 3}, 1)},
                       {"i", Tensor::Of<std::int32_t>({2, 2}, {2, 0, 2, 1})},
                       {"j", Tensor::Of<std::int32_t>({1, 2}, {3, 3})}};
  ExpectGradientsOfNet(NetOf({"w = Tanh(v)", "y = Gather(w, i)"}), {"y"}, feeds);
  ExpectGradientsOfNet(NetOf({"w = Tanh(v)", "y = Gather(w, i)", "z = Gather(w, j)"}), {"y", "z"}, feeds);
  ExpectGradientsOfNet(NetOf({"w = Tanh(v)", "y = Gather(w, i)", "w = Sigmoid(y)"}), {"w"}, feeds);
}

TEST(AddGradients, KeepsOffNamesThatTheNetUses) {
  const NetDef net = NetOf({"x_grad = Tanh(x)", "y = Mul(x_grad, x)", "y_autogen_grad = Tanh(y)"});
  ExpectGradientsOfNet(net, {"y", "y_autogen_grad"}, {{"x", Random({4}, 1)}});
}

// The rule of Mul calls the gradient of x so, and reads the shape of the other factor when it has written that.
TEST(AddGradients, TellsTheGradientOfAFactorFromAFactorOfThatName) {
  for (const char* taken : {"x_grad", "x_grad_autogen_pre_red", "y_grad", "x_grad_grad", "x_grad_"}) {
    const std::string name = taken;
    for (const std::string& product : {"Mul(x, " + name + ")", "Mul(" + name + ", x)"}) {
      SCOPED_TRACE(product);
      const Feeds feeds = {{"x", Random({2, 3}, 1)}, {name, Random({3}, 2)}};
      ExpectGradientsOfNet(NetOf({"p = " + product, "y = Tanh(p)"}), {"y"}, feeds);
      ExpectGradientsOfNet(NetOf({"p = Mul(x, x)", "x = " + product, "y = Mul(x, p)", "z = Mul(y, " + name + ")"}),
                           {"y", "z"}, feeds);
    }
  }
}

TEST(AddGradients, RefusesWhatIsNotDifferentiable) {
  ExpectError(
      [] {
        AddGradients(NetOf({"a = Tanh(x)", "y = SumReduceLike(a, a)"}), {"y"}, {"x"});
      },
      "invalid net: SumReduceLike declares no gradient\n  at op 1 `y = SumReduceLike(a, a)`\n  in net \"n\"");
  ExpectError([] { AddGradients(NetOf({"sum = Tanh(x)"}), {"smu"}, {"x"}); },
              "invalid net: the net has no blob \"smu\"; did you mean \"sum\"?");
}

TEST(AddGradients, ShowsTheWayFromTheLossToWhatIsNotDifferentiable) {
  ExpectError(
      [] {
        AddGradients(NetOf({"a = Tanh(x)", "b = SumReduceLike(a, a)", "c = Sigmoid(x)", "b = Sum(b, c)",
                            "d = Sum(b, c)", "loss = SumElements(d)"}),
                     {"loss"}, {"x"});
      },
      "invalid net: SumReduceLike declares no gradient; the gradient of \"loss\" comes to it by\n"
      "    op 5 `loss = SumElements(d)`\n"
      "    op 4 `d = Sum(b, c)`\n"
      "    op 3 `b = Sum(b, c)`\n"
      "  at op 1 `b = SumReduceLike(a, a)`\n"
      "  in net \"n\"");
}

TEST(AddGradients, RefusesGradientsOfGradients) {
  const NetDef net = NetOf({"a = Tanh(x)", "y = Mul(a, a)"});
  NetDef with_gradients = AddGradients(net, {"y"}, {"x"}).net;
  *with_gradients.add_op() = ParseOp("penalty = SumSqrElements(x_grad)");
  ExpectError(
      [&] { AddGradients(with_gradients, {"penalty"}, {"x"}); },
      "…invalid net: TanhGradient computes a gradient, and gradients of gradients are not computed; the gradient "
      "of \"penalty\" comes to it by\n    op 7 `penalty = SumSqrElements(x_grad)`\n  at op ");
  // An operator of any type, where a gradient rule made it.
  ExpectError([&] { AddGradients(with_gradients, {"a_grad"}, {"x"}); },
              "…invalid net: Sum computes a gradient, and gradients of gradients are not computed\n  at op ");
  // Gradient operators that are not on the way do not matter: another loss of the same net.
  const NetWithGradients more = AddGradients(with_gradients, {"a"}, {"x"});
  Workspace workspace;
  workspace.SetTensor("x", Tensor::Of<double>({1}, {0.5}));
  RunNetOnce(more.net, workspace);
  const double a = std::tanh(0.5);
  EXPECT_NEAR(Values(workspace.GetTensor("x_grad"))[0], 2 * a * (1 - a * a), 1e-12);
  EXPECT_NEAR(Values(workspace.GetTensor(more.gradients.at("x").dense))[0], 1 - a * a, 1e-12);
}

TEST(AddGradients, RefusesNetsThatAreNone) {
  ExpectError([] { AddGradients(NetOf({"y = Mul(x)"}), {"y"}, {"x"}); },
              "invalid net: Mul takes 2 inputs, has 1\n  at op 0 `y = Mul(x)`\n  in net \"n\"");
}

TEST(AddGradientsFrom, StartsFromGradientsThatExistAndLeavesThemAsTheyAre) {
  const NetDef net = NetOf({"a = Tanh(x)", "y = Mul(a, x)"});
  const NetWithGradients made = AddGradientsFrom(net, {{"y", "dy"}, {"a", "a_grad"}}, {"x"});
  Workspace workspace;
  workspace.SetTensor("x", Tensor::Of<double>({2}, {0.5, -1}));
  workspace.SetTensor("dy", Tensor::Of<double>({2}, {2, 3}));
  workspace.SetTensor("a_grad", Tensor::Of<double>({2}, {5, 7}));
  RunNetOnce(made.net, workspace);
  const std::vector<double> found = Values(workspace.GetTensor(made.gradients.at("x").dense));
  const double x[] = {0.5, -1}, dy[] = {2, 3}, da[] = {5, 7};
  for (size_t i = 0; i < 2; ++i) {
    const double a = std::tanh(x[i]);
    EXPECT_NEAR(found[i], dy[i] * a + (dy[i] * x[i] + da[i]) * (1 - a * a), 1e-12);
  }
  EXPECT_EQ(Values(workspace.GetTensor("a_grad")), (std::vector<double>{5, 7}));
}

}  // namespace
}  // namespace stepnet

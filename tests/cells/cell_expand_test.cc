// The nets that cells stand for: names, what runs outside of the loop, chance, and what is shown of a step.
#include "stepnet/cells/cell_expand.h"

#include <algorithm>
#include <cmath>

#include "stepnet/compiler/plan_text.h"
#include "stepnet/core/strings.h"
#include "stepnet/core/workspace.h"
#include "stepnet/io/proto_io.h"
#include "stepnet/nets/backward_step.h"
#include "stepnet/nets/net.h"
#include "stepnet/nets/op_arguments.h"
#include "stepnet/nets/op_builder.h"
#include "stepnet/report/net_text.h"
#include "stepnet/tests/compiler/needs_usual_plans.h"
#include "stepnet/tests/examples/cell_case.h"
#include "stepnet/tests/executor/recurrent_case.h"
#include "stepnet/tests/operators/op_test.h"

namespace stepnet {
namespace {

CellSource Cell(const std::string& text) { return ParseCell(text, "c"); }

std::vector<std::string> Types(const NetDef& net) {
  std::vector<std::string> types;
  for (const OperatorDef& op : net.op()) types.push_back(op.type());
  return types;
}

Tensor RandomSteps(std::int64_t steps, std::int64_t batch, std::int64_t size) {
  Tensor x(DType::kDouble, Shape({steps, batch, size}));
  for (std::int64_t i = 0; i < x.size(); ++i) x.data<double>()[i] = std::cos(static_cast<double>(i)) + 2;
  return x;
}

using Names = std::vector<std::string>;

// The cell says nothing of that: the plan does.
TEST(ExpandCell, ProductsOfInputsRunBeforeTheLoop) {
  NEEDS_USUAL_PLANS();
  const CellNet cell = ExpandCell(ReadExampleCell("lstm"), {.sizes = {{"D", 64}, {"H", 64}}});
  EXPECT_EQ(Types(cell.net), (Names{"RecurrentNetwork"}));
  RunOptions options{.threads = 1};
  std::string plan;
  options.on_plan = [&](const StepPlan& made) { plan = PlanText(made); };
  Workspace workspace;
  Net::Create(cell.init_net, workspace)->Run();
  Tensor x(DType::kFloat, Shape({4, 2, 64}));
  std::fill_n(x.data<float>(), x.size(), 1.0F);
  workspace.CreateBlob("x").SetTensor(x);
  Net::Create(cell.net, workspace, options)->Run();
  EXPECT_NE(plan.find("steps at once:\n  1: i.1 = FC(x_t, w, b)"), std::string::npos) << plan;
}

TEST(ExpandCell, NamesLayersAndDirections) {
  CellSource cell = ReadExampleCell("elman");
  cell.def.mutable_options()->set_layers(2);
  cell.def.mutable_options()->set_direction(CellOptions::BIDIRECTIONAL);
  const CellNet net = ExpandCell(cell, {.scope = "enc/", .inputs = {{"x", "embedded"}}});
  EXPECT_EQ(net.parameters,
            (Names{"enc/layer0/w", "enc/layer0/u", "enc/layer0/b", "enc/layer0/reverse/w", "enc/layer0/reverse/u",
                   "enc/layer0/reverse/b", "enc/layer1/w", "enc/layer1/u", "enc/layer1/b", "enc/layer1/reverse/w",
                   "enc/layer1/reverse/u", "enc/layer1/reverse/b"}));
  EXPECT_EQ(net.outputs, (Names{"enc/h", "enc/h_last", "enc/layer0/h_last"}));
  EXPECT_EQ(net.output_items[0], Shape({32}));
  ASSERT_EQ(net.inputs.size(), 1u);
  EXPECT_EQ(net.inputs[0].blob, "embedded");
  EXPECT_EQ(net.inputs[0].dims, (std::vector<std::int64_t>{CellNetInput::kSteps, CellNetInput::kBatch, 8}));
}

// Unless something stands between them that is no part of a step.
TEST(ExpandCell, LayersThatRunForwardShareAStepNet) {
  const auto loops = [](void (*change)(CellOptions*), bool training = false) {
    CellSource cell = ReadExampleCell("gru");
    cell.def.mutable_options()->set_layers(3);
    change(cell.def.mutable_options());
    return std::ranges::count(Types(ExpandCell(cell, {.sizes = SmallSizes(cell.def), .training = training}).net),
                              "RecurrentNetwork");
  };
  EXPECT_EQ(loops([](CellOptions*) {}), 1);
  EXPECT_EQ(loops([](CellOptions* options) { options->set_lengths("lengths"); }), 1);
  EXPECT_EQ(loops([](CellOptions* options) { options->set_zoneout(0.5F); }, /*training=*/true), 1);
  EXPECT_EQ(loops([](CellOptions* options) { options->set_dropout(0.5F); }), 1);
  EXPECT_EQ(loops([](CellOptions* options) { options->set_dropout(0.5F); }, /*training=*/true), 1);
  EXPECT_EQ(loops([](CellOptions* options) { options->set_residual(true); }), 1);
  EXPECT_EQ(loops([](CellOptions* options) { options->set_direction(CellOptions::REVERSE); }), 3);
  EXPECT_EQ(loops([](CellOptions* options) { options->set_direction(CellOptions::BIDIRECTIONAL); }), 3)
      << "both directions of a layer are in one";
}

TEST(ExpandCell, NamesLayersOfOneStepNet) {
  CellSource cell = ReadExampleCell("elman");
  cell.def.mutable_options()->set_layers(2);
  cell.def.mutable_options()->set_lengths("lengths");
  const CellNet net = ExpandCell(cell, {.scope = "enc/"});
  EXPECT_EQ(net.outputs, (Names{"enc/h", "enc/h_last", "enc/layer0/h_last"}));
  const OperatorDef& op = *std::ranges::find(net.net.op(), "RecurrentNetwork", [](const auto& o) { return o.type(); });
  EXPECT_EQ(Names(op.output().begin(), op.output().end()),
            (Names{"enc/layer0/h_last", "enc/h", "enc/h_last", "enc/record"}));
  const NetDef& step =
      std::ranges::find(op.arg(), "step_net", [](const auto& argument) { return argument.name(); })->n();
  EXPECT_EQ(Names(step.external_input().begin(), step.external_input().end()),
            (Names{"enc/layer0/b", "enc/layer0/u", "enc/layer0/w", "enc/layer1/b", "enc/layer1/u", "enc/layer1/w",
                   "layer0/h_prev", "layer0/x_t", "layer1/h_prev", "mask_t"}));
  EXPECT_EQ(Names(step.external_output().begin(), step.external_output().end()),
            (Names{"layer0/h_t", "layer1/h_t", "layer1/h_t_masked"}));
}

// Shapes say so, and without it a product that repeats matrices has no gradient.
TEST(ExpandCell, SaysWhereProductsMultiplyNoVectors) {
  const auto product = [](const std::string& parameter, const std::string& call, const std::string& output) {
    CellNet net = ExpandCell(Cell(StrCat("cell c(x[2, 3]; h[2, 3]) {\n  param r", parameter, "\n  y = ", call,
                                         "\n  h = ", output, "\n  output h\n}\n")));
    const NetDef step = FindArgument(net.net.op(0), "step_net")->n();
    const auto op = std::ranges::find(step.op(), "BatchMatMul", [](const OperatorDef& op) { return op.type(); });
    const bool is_said = FindArgument(*op, "matrices") != nullptr;
    if (is_said) AddBackwardStepNets(&net.net);  // throws where there is no gradient
    return is_said;
  };
  const std::string sum = "Squeeze(y, dims=[4]) + x";
  EXPECT_TRUE(product("[2, 3, 3]", "BatchMatMul(r, ExpandDims(h, dims=[4]), broadcast=1)", sum));
  EXPECT_FALSE(product("[3]", "BatchMatMul(h, r, broadcast=1)", "ExpandDims(y, dims=[3]) + x")) << "r is a vector";
  EXPECT_FALSE(product("[3, 2]", "BatchMatMul(h, h, trans_b=1)", "y @ r + x")) << "nothing is repeated";
}

TEST(ExpandCell, ParametersAreFilledAsTheySay) {
  const CellNet net = ExpandCell(
      Cell("cell c(x[2]; h[2]) {\n  param w[2, 2]\n  param b[2]\n  param g[2] = 3\n"
           "  param u[2, 2] = UniformFill(min=4, max=5)\n  state h initial=learned\n  h = x @ w + b + g * (h @ u)\n"
           "  output h\n}\n"));
  EXPECT_EQ(Types(net.init_net), (Names{"XavierFill", "ConstantFill", "ConstantFill", "UniformFill", "ConstantFill"}));
  EXPECT_EQ(net.parameters, (Names{"w", "b", "g", "u", "h_init"}));
  Workspace workspace;
  RunNetOnce(net.init_net, workspace);
  EXPECT_EQ(workspace.GetTensor("b").data<float>()[1], 0);
  EXPECT_EQ(workspace.GetTensor("g").data<float>()[1], 3);
  EXPECT_GE(workspace.GetTensor("u").data<float>()[3], 4);
  EXPECT_EQ(workspace.GetTensor("h_init").shape(), Shape({1, 1, 2}));
}

// Whatever the cell calls its blobs.
TEST(ExpandCell, NamesDoNotCollide) {
  const CellNet net = ExpandCell(
      Cell("cell c(x[2]; h[2]) {\n  param mask_t[2]\n  h_states = x * mask_t\n  h_t = h_states + h\n  h_new = h_t + 1\n"
           "  x_t = h_new - x\n  record = x_t * 1\n  h = record\n  h_init = h + 1\n  output h\n  output h_init\n"
           "  output record\n  output x_t as mask\n  option lengths = length\n}\n"));
  const Tensor x = RandomSteps(2, 1, 2);
  const Tensor lengths = Tensor::Of<std::int32_t>({1}, {2});
  Tensors given = {{"x", x}, {"length", lengths}, {"mask_t", Tensor::Of<double>({2}, {1, 2})}};
  for (const OperatorDef& fill : net.init_net.op()) {
    if (!given.contains(fill.output(0))) given[fill.output(0)] = Tensor::Zeros(DType::kDouble, Shape({1, 1, 2}));
  }
  const Tensors outputs = RunCell(net, given);
  // h = x g + h + 1 - x
  double h = 0;
  for (int t = 0; t < 2; ++t) {
    const double in = x.data<double>()[t * 2 + 1];
    h += 2 * in + 1 - in;
    EXPECT_NEAR(outputs.at("h").data<double>()[t * 2 + 1], h, 1e-12);
    EXPECT_NEAR(outputs.at("h_init").data<double>()[t * 2 + 1], h + 1, 1e-12);
    EXPECT_NEAR(outputs.at("mask").data<double>()[t * 2 + 1], h, 1e-12);
  }
}

TEST(ExpandCell, SizesAreNumbersOfArguments) {
  const CellNet net = ExpandCell(
      Cell("cell c(x[1]; ) {\n  size K = 3\n  y = x + ConstantFill(x, value=2*K - 1, dtype=1) + Scale(x, scale=K)\n"
           "  output y\n}\n"));
  EXPECT_EQ(RunCell(net, {{"x", Tensor::Of<double>({1, 1, 1}, {10})}}).at("y").data<double>()[0], 10 + 5 + 30);
}

TEST(ExpandCell, NumbersOfSizesNeedBeNoIntegers) {
  const CellNet net = ExpandCell(
      Cell("cell c(x[1]; ) {\n  size K = 4\n  param p[K] = UniformFill(min=-1/sqrt(K), max=1/K)\n"
           "  q = GivenTensorFill(shape=[K], values=[1, 2, 3, 4])\n"
           "  y = Scale(x, scale=-1/K) + ConstantFill(x, value=1.0/K) + Slice(p * q, starts=[0], ends=[K/2 - 1])\n"
           "  output y\n}\n"),
      {.sizes = {{"K", 4}}});
  EXPECT_EQ(net.init_net.op(0).arg(0).f(), -0.5F);
  EXPECT_EQ(net.init_net.op(0).arg(1).f(), 0.25F);
  const Tensors given = {{"x", Tensor::Of<double>({1, 1, 1}, {10})}, {"p", Tensor::Of<double>({4}, {5, 0, 0, 0})}};
  EXPECT_EQ(RunCell(net, given).at("y").data<double>()[0], -2.5 + 0.25 + 5);
}

TEST(ExpandCell, ParametersStartAsExpressions) {
  const CellNet net = ExpandCell(
      Cell("cell c(x[4]; ) {\n  size K = 4\n  param p[K] = 1/sqrt(K)\n  param q[K] = K\n  param r[K] = -3/8\n"
           "  y = x * p + q * r + ConstantFill(x, value=1/K, dtype=1)\n  output y\n}\n"));
  Workspace filled;
  RunNetOnce(net.init_net, filled);
  EXPECT_EQ(filled.GetTensor("p").data<float>()[3], 0.5F);
  EXPECT_EQ(filled.GetTensor("q").data<float>()[3], 4);
  EXPECT_EQ(filled.GetTensor("r").data<float>()[3], -0.375F);
}

// A float in a net for float is as ever; in double the numbers are those that were written.
TEST(ExpandCell, HasTheNumbersOfACellExactInDouble) {
  const CellSource cell = Cell(
      "cell c(x[1]; h[1]) {\n  size K = 3\n  param p[1] = 1/K\n  state h initial=0.123456789012\n"
      "  h = 0.1 * x + x / 3 + 0.123456789012 * h + Scale(x, scale=1/K) * p\n  output h\n}\n");
  const auto numbers = [](const NetDef& net) {
    std::vector<std::string> texts;
    for (const OperatorDef& op : net.op()) {
      for (const Argument& argument : op.arg()) {
        if (argument.name() == "scale" || argument.name() == "value") texts.push_back(ArgumentText(argument));
      }
    }
    return texts;
  };
  using Texts = std::vector<std::string>;
  const auto step = [](const CellNet& net) {
    for (const OperatorDef& op : net.net.op()) {
      if (const Argument* step = FindArgument(op, "step_net")) return step->n();
    }
    return NetDef();
  };
  const CellNet rounded = ExpandCell(cell);
  EXPECT_EQ(numbers(step(rounded)), (Texts{"0.1", "0.33333334", "0.12345679", "0.33333334"}));
  EXPECT_EQ(numbers(rounded.init_net), (Texts{"0.33333334", "0.12345679"}));
  EXPECT_EQ(PrintMessageText(rounded.net).find("double_data"), std::string::npos);
  const CellNet exact = ExpandCell(cell, {.in_double = true});
  EXPECT_EQ(numbers(step(exact)), (Texts{"0.1", "0.3333333333333333", "0.123456789012", "0.3333333333333333"}));
  EXPECT_EQ(numbers(exact.init_net), (Texts{"0.3333333333333333", "0.123456789012"}));
  EXPECT_EQ(rounded.inputs.at(0).dtype, DType::kFloat);
  EXPECT_EQ(exact.inputs.at(0).dtype, DType::kDouble);
  EXPECT_EQ(exact.starts.at(0).dtype, DType::kDouble);
  EXPECT_EQ(exact.output_dtypes, std::vector<DType>{DType::kDouble});
}

// Integers are shown too, 0 where the mask is false; they have no gradient.
TEST(ExpandCell, ShowsIntegers) {
  for (const std::string option : {"", "  option mask = m\n"}) {
    const CellNet net = ExpandCell(
        Cell("cell c(x[3]; ) {\n  best = ArgMax(x, axis=2)\n  output best\n  output best last\n" + option + "}\n"));
    Tensors given = {{"x", Tensor::Of<double>({2, 1, 3}, {1, 3, 2, 1, 2, 3})}};
    given["m"] = Tensor::Of<bool>({2, 1}, {true, false});
    const Tensors outputs = RunCell(net, given);
    EXPECT_EQ(outputs.at("best").data<std::int64_t>()[0], 1);
    EXPECT_EQ(outputs.at("best").data<std::int64_t>()[1], option.empty() ? 2 : 0);
    EXPECT_EQ(outputs.at("best_last").size(), 1);
  }
}

// For a blob that is no state, `last` is each sequence's own last value; where there is none, zeros.
TEST(ExpandCell, ShowsTheLastValueOfAnyBlob) {
  for (const std::string option : {"", "  option lengths = n\n"}) {
    for (const std::int64_t num_steps : {2, 0}) {
      const CellNet net = ExpandCell(Cell(
          "cell c(x[1]; ) {\n  y = x * 2\n  output y\n  output y last\n  output y last as end\n" + option + "}\n"));
      Tensors given = {{"x", Tensor(DType::kDouble, Shape({num_steps, 3, 1}))}};
      for (int i = 0; i < 3 * num_steps; ++i) given.at("x").data<double>()[i] = i + 1;
      given["n"] = Tensor::Of<std::int32_t>({3}, {0, num_steps > 0 ? 1 : 0, static_cast<int>(num_steps)});
      const Tensors outputs = RunCell(net, given);
      std::vector<double> wanted = {0, 0, 0};
      if (num_steps > 0) wanted = option.empty() ? std::vector<double>{8, 10, 12} : std::vector<double>{0, 4, 12};
      for (const std::string name : {"y_last", "end"}) {
        ASSERT_EQ(outputs.at(name).shape(), Shape({1, 3, 1}));
        for (int b = 0; b < 3; ++b) EXPECT_EQ(outputs.at(name).data<double>()[b], wanted[b]) << name << " " << option;
      }
      EXPECT_EQ(outputs.at("y").shape(), Shape({num_steps, 3, 1}));
    }
  }
}

// Whichever of the two is a parameter.
TEST(ExpandCell, OperandsAreRepeatedOverEachOther) {
  const CellNet net = ExpandCell(Cell(
      "cell c(x[1]; ) {\n  param p[3]\n  y = x * p - p\n  z = p + SumReduceLike(y, y)\n  output y\n  output z\n}\n"));
  const Tensors outputs =
      RunCell(net, {{"x", Tensor::Of<double>({1, 2, 1}, {5, 7})}, {"p", Tensor::Of<double>({3}, {1, 2, 3})}});
  const Tensor &y = outputs.at("y"), &z = outputs.at("z");
  ASSERT_EQ(y.shape(), Shape({1, 2, 3}));
  ASSERT_EQ(z.shape(), Shape({1, 2, 3}));
  for (int b = 0; b < 2; ++b) {
    for (int i = 0; i < 3; ++i) {
      EXPECT_EQ(y.data<double>()[3 * b + i], (5 + 2 * b - 1) * (i + 1));
      EXPECT_EQ(z.data<double>()[3 * b + i], (5 + 2 * b) * (i + 1));
    }
  }
}

TEST(ExpandCell, TellsTheStepItsNumber) {
  const CellNet net =
      ExpandCell(Cell("cell c(x[1]; ) {\n  t = Cast(timestep, to=\"float\")\n  y = Add(x, t, broadcast=1)\n"
                      "  output y\n}\n"));
  const Tensors outputs = RunCell(net, {{"x", Tensor::Of<double>({3, 1, 1}, {5, 5, 5})}});
  for (int t = 0; t < 3; ++t) EXPECT_EQ(outputs.at("y").data<double>()[t], 5 + t);
}

// With nothing but dropout between them, the states of a sequence show its masks: 0, or twice the one before.
TEST(ExpandCell, RecurrentDropoutDrawsOneMaskForAllSteps) {
  const CellSource cell = Cell(
      "cell c(x[64]; h[64]) {\n  state h initial=1\n  h = h + 0 * x\n  output h\n  option recurrent_dropout = "
      "0.5\n}\n");
  const CellNet net = ExpandCell(cell, {.training = true});
  const Tensors given = {{"x", RandomSteps(4, 2, 64)},
                         {"h_init", Tensor::Of<double>({1, 1, 64}, std::vector<double>(64, 1))}};
  const Tensor h = RunCell(net, given).at("h");
  int kept = 0;
  for (int i = 0; i < 128; ++i) {
    const bool is_kept = h.data<double>()[i] != 0;
    kept += is_kept ? 1 : 0;
    for (int t = 0; t < 4; ++t) EXPECT_EQ(h.data<double>()[t * 128 + i], is_kept ? std::pow(2.0, t + 1) : 0);
  }
  EXPECT_GT(kept, 30);
  EXPECT_LT(kept, 98);
  const Tensor whole = RunCell(ExpandCell(cell), given).at("h");
  for (std::int64_t i = 0; i < whole.size(); ++i) EXPECT_EQ(whole.data<double>()[i], 1);
}

TEST(ExpandCell, DropoutIsBetweenLayersWhileTraining) {
  const CellSource cell =
      Cell("cell c(x[64]; ) {\n  y = x * 1\n  output y\n  option layers = 3\n  option dropout = 0.5\n}\n");
  for (const bool training : {true, false}) {
    const CellNet net = ExpandCell(cell, {.training = training});
    const Tensors given = {{"x", RandomSteps(2, 2, 64)}};
    const Tensor y = RunCell(net, given).at("y");
    int kept = 0;
    for (std::int64_t i = 0; i < y.size(); ++i) {
      const double factor = y.data<double>()[i] / given.at("x").data<double>()[i];
      EXPECT_TRUE(training ? factor == 0 || factor == 4 : factor == 1) << factor;
      kept += factor == 0 ? 0 : 1;
    }
    EXPECT_NEAR(kept, training ? y.size() / 4 : y.size(), 30);
  }
}

// They are drawn before the loop, as those of the operators that would drop between two of them.
TEST(ExpandCell, MasksBetweenLayersAreThoseOfSequences) {
  const CellSource cell =
      Cell("cell c(x[8]; ) {\n  y = x * 1\n  output y\n  option layers = 3\n  option dropout = 0.3\n}\n");
  const Tensor x = Random({5, 2, 8}, 1, DType::kFloat);
  const Tensor y = RunCell(ExpandCell(cell, {.training = true}), {{"x", x}}).at("y");
  NetDef net;
  std::string below = "x";
  for (const std::string layer : {"layer0/y", "layer1/y"}) {
    AddOp(&net, "Dropout", {below}, {layer, layer + "_mask"}).Float("ratio", 0.3F);
    below = layer;
  }
  Workspace workspace;
  workspace.SetTensor("x", x);
  RunNetOnce(net, workspace);
  ExpectSame(y, workspace.GetTensor(below), "y");
}

// With lengths, whatever outputs hold beyond them.
TEST(ExpandCell, ResidualLayersAddWhatTheyRead) {
  for (const auto beyond : {CellOptions::ZERO, CellOptions::HELD}) {
    CellCase whole{.cell = ReadExampleCell("lstm"), .use = {.sizes = {{"D", 5}, {"H", 5}}}, .num_steps = 6, .batch = 3};
    CellOptions& options = *whole.cell.def.mutable_options();
    options.set_lengths("lengths");
    options.set_beyond_length(beyond);
    const CellCase one = whole;
    options.set_layers(3);
    options.set_residual(true);
    const CellNet net = whole.Expand(), net_of_one = one.Expand();
    const Tensors given = whole.RandomValues(net);
    Tensor sum = given.at("x");
    for (int layer = 0; layer < 3; ++layer) {
      Tensors of_layer;
      for (const auto& [name, tensor] : one.RandomValues(net_of_one)) {
        const auto found = given.find(StrCat("layer", layer, "/", name));
        of_layer[name] = found == given.end() ? given.at(name) : found->second;
      }
      of_layer["x"] = sum;
      Tensor h = RunCell(net_of_one, of_layer).at("h").Clone();
      for (std::int64_t i = 0; layer > 0 && i < h.size(); ++i) h.data<double>()[i] += sum.data<double>()[i];
      sum = h;
    }
    ExpectTensorsNear(RunCell(net, given), {{"h", sum}});
  }
}

// An operator Dropout of the cell drops while training alone; it need not name its mask to have a gradient.
TEST(ExpandCell, DropoutWithinACellIsForTraining) {
  const CellSource cell = Cell("cell c(x[64]; h[64]) {\n  h = Dropout(x, ratio=0.5) * 2 + h\n  output h\n}\n");
  const Tensors given = {{"x", RandomSteps(1, 2, 64)}, {"h_init", Tensor::Zeros(DType::kDouble, Shape({1, 1, 64}))}};
  const Tensor ones = Tensor::Of<double>({1, 2, 64}, std::vector<double>(128, 1));
  for (const bool training : {true, false}) {
    const CellNet net = ExpandCell(cell, {.training = training});
    const Tensor h = RunCell(net, given).at("h");
    const Tensor gradient = CellGradients(net, given, {{"h", ones}}).at("x");
    int kept = 0;
    for (std::int64_t i = 0; i < h.size(); ++i) {
      const double factor = h.data<double>()[i] / given.at("x").data<double>()[i];
      EXPECT_TRUE(training ? factor == 0 || factor == 4 : factor == 2) << factor;
      EXPECT_EQ(gradient.data<double>()[i], factor);
      kept += factor == 0 ? 0 : 1;
    }
    EXPECT_NEAR(kept, training ? 64 : 128, 20);
  }
}

// Each element is its new value, or the one before, to the last bit.
TEST(ExpandCell, ZoneoutKeepsElementsWhileTraining) {
  const CellSource cell = Cell("cell c(x[64]; h[64]) {\n  h = x\n  output h\n  option zoneout = 0.25\n}\n");
  const Tensors given = {{"x", RandomSteps(4, 2, 64)}, {"h_init", Tensor::Zeros(DType::kDouble, Shape({1, 1, 64}))}};
  const Tensor h = RunCell(ExpandCell(cell, {.training = true}), given).at("h");
  int kept = 0;
  for (std::int64_t i = 0; i < h.size(); ++i) {
    const double before = i < 128 ? 0 : h.data<double>()[i - 128];
    const double value = h.data<double>()[i];
    const double computed = given.at("x").data<double>()[i];
    EXPECT_TRUE(value == before || value == computed) << value;
    kept += value == before ? 1 : 0;
  }
  EXPECT_NEAR(kept, h.size() / 4, 40);
}

// The same masks forward and backward: gradients are the differences of the net itself.
TEST(ExpandCell, GradientsGoThroughChance) {
  CellCase test{.cell = ReadExampleCell("lstm")};
  test.cell.def.mutable_options()->set_layers(2);
  test.cell.def.mutable_options()->set_residual(true);
  test.cell.def.mutable_options()->set_dropout(0.4F);
  test.cell.def.mutable_options()->set_recurrent_dropout(0.4F);
  test.cell.def.mutable_options()->set_zoneout(0.3F);
  test.cell.def.mutable_options()->set_lengths("lengths");
  test.use = {.sizes = SmallSizes(test.cell.def), .training = true};
  test.num_steps = 3;
  test.batch = 2;
  const CellNet net = test.Expand();
  const Tensors given = test.RandomValues(net);
  const auto loss = [&] {
    const Tensor h = RunCell(net, given).at("h");
    double sum = 0;
    for (std::int64_t i = 0; i < h.size(); ++i) sum += h.data<double>()[i] * std::cos(static_cast<double>(i));
    return sum;
  };
  Tensor weights(DType::kDouble, RunCell(net, given).at("h").shape());
  for (std::int64_t i = 0; i < weights.size(); ++i) weights.data<double>()[i] = std::cos(static_cast<double>(i));
  for (const auto& [name, gradient] : CellGradients(net, given, {{"h", weights}})) {
    ASSERT_EQ(gradient.size(), given.at(name).size()) << name;
    for (const auto& [i, numeric] : Differences(given.at(name), loss)) {
      ASSERT_NEAR(gradient.data<double>()[i], numeric, 1e-7) << name << ", element " << i;
    }
  }
}

}  // namespace
}  // namespace stepnet

// RNN against its equations in double, its gradients against differences, and what it refuses. What MXNet itself
// computed is in tests/golden_mxnet.
#include <algorithm>
#include <cmath>
#include <limits>

#include "op_test.h"
#include "rnn_case.h"
#include "stepnet/nets/backward.h"
#include "stepnet/nets/backward_step.h"
#include "stepnet/nets/net.h"
#include "stepnet/nets/op_builder.h"
#include "stepnet/tests/executor/recurrent_case.h"

namespace stepnet {
namespace {

using Feeds = std::vector<std::pair<std::string, Tensor>>;
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

void Feed(const Feeds& feeds, Workspace& workspace) {
  for (const auto& [name, tensor] : feeds) workspace.SetTensor(name, tensor.Clone());
}

Tensor& Find(Feeds& feeds, const std::string& name) {
  for (auto& [key, tensor] : feeds) {
    if (key == name) return tensor;
  }
  throw std::runtime_error("no feed " + name);
}

void ExpectFollows(const RnnCase& rnn, const Feeds& feeds) {
  Workspace workspace;
  Feed(feeds, workspace);
  RunNetOnce(rnn.Net(), workspace);
  const std::vector<std::vector<double>> expected = ExpectedOutputs(rnn, feeds);
  for (size_t o = 0; o < expected.size(); ++o) {
    const std::vector<double> found = Values(workspace.GetTensor(rnn.Outputs()[o]));
    ASSERT_EQ(found.size(), expected[o].size());
    for (size_t i = 0; i < found.size(); ++i) {
      if (std::isnan(expected[o][i])) {
        EXPECT_TRUE(std::isnan(found[i])) << rnn.Outputs()[o] << " element " << i;
      } else {
        EXPECT_NEAR(found[i], expected[o][i], 1e-12) << rnn.Outputs()[o] << " element " << i;
      }
    }
  }
}

std::string SeedOf(const std::string& output) { return output + "_seed"; }

// The net with gradients by all inputs, of outputs whose gradients are their seeds.
NetWithGradients Training(const NetDef& forward, const Feeds& feeds, const std::vector<std::string>& outputs) {
  std::vector<std::string> inputs;
  for (const auto& [name, tensor] : feeds) {
    if (tensor.dtype() == DType::kDouble) inputs.push_back(name);
  }
  NetDef net = forward;
  AddBackwardStepNets(&net, inputs);
  std::map<std::string, std::string> seeds;
  for (const std::string& output : outputs) seeds[output] = SeedOf(output);
  return AddGradientsFrom(net, seeds, inputs);
}

// Gradients of a weighted sum of the outputs, against central differences.
void ExpectGradientsMatch(const NetDef& forward, const Feeds& feeds, const std::vector<std::string>& outputs) {
  Workspace workspace;
  for (const auto& [name, tensor] : feeds) workspace.SetTensor(name, tensor);  // which Differences changes
  const std::unique_ptr<Net> net = Net::Create(forward, workspace);
  net->Run();
  Workspace training(&workspace);
  for (const std::string& output : outputs) {
    training.SetTensor(SeedOf(output), Random(workspace.GetTensor(output).shape(), 71));
  }
  const NetWithGradients made = Training(forward, feeds, outputs);
  RunNetOnce(made.net, training);
  const auto loss = [&] {
    net->Run();
    double sum = 0;
    for (const std::string& output : outputs) {
      const std::vector<double> values = Values(workspace.GetTensor(output)),
                                weights = Values(training.GetTensor(SeedOf(output)));
      for (size_t i = 0; i < values.size(); ++i) sum += weights[i] * values[i];
    }
    return sum;
  };
  for (const auto& [name, tensor] : feeds) {
    if (tensor.dtype() != DType::kDouble) continue;
    const std::vector<double> gradient = Values(training.GetTensor(made.gradients.at(name).dense));
    const std::vector<double> numeric = Differences(tensor, loss);
    ASSERT_EQ(gradient.size(), numeric.size()) << name;
    for (size_t i = 0; i < numeric.size(); ++i) {
      EXPECT_NEAR(gradient[i], numeric[i], 2e-7 * (1 + std::abs(numeric[i]))) << name << " element " << i;
    }
  }
}

void ExpectGradientsMatch(const RnnCase& rnn, unsigned seed) {
  ExpectGradientsMatch(rnn.Net(), rnn.Feeds(seed), rnn.Outputs());
}

const char* const kModes[] = {"rnn_relu", "rnn_tanh", "lstm", "gru"};

class RnnOfMode : public testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(, RnnOfMode, testing::ValuesIn(kModes),
                         [](const auto& info) { return std::string(info.param); });

TEST_P(RnnOfMode, FollowsItsEquations) {
  for (const std::int64_t directions : {1, 2}) {
    for (const std::int64_t layers : {1, 2, 3}) {
      RnnCase rnn{.mode = GetParam(), .layers = layers, .directions = directions};
      ExpectFollows(rnn, rnn.Feeds(1));
      rnn.lengths = {3, 4, 1};
      ExpectFollows(rnn, rnn.Feeds(2));
    }
  }
}

TEST_P(RnnOfMode, PassesTheStatesThroughWhereThereIsNoStep) {
  for (const std::int64_t directions : {1, 2}) {
    RnnCase rnn{.mode = GetParam(), .layers = 2, .directions = directions, .lengths = {0, 4, 0}};
    ExpectFollows(rnn, rnn.Feeds(1));
    rnn = {.mode = GetParam(), .steps = 0, .layers = 2, .directions = directions};
    ExpectFollows(rnn, rnn.Feeds(2));
    rnn.lengths = {0, 0, 0};
    ExpectFollows(rnn, rnn.Feeds(3));
  }
}

TEST_P(RnnOfMode, AcceptsNoSequencesAndNoInputs) {
  RnnCase rnn{.mode = GetParam(), .batch = 0, .layers = 2, .directions = 2};
  ExpectFollows(rnn, rnn.Feeds(1));
  ExpectGradientsMatch(rnn, 1);
  rnn = {.mode = GetParam(), .inputs = 0, .layers = 2};
  ExpectFollows(rnn, rnn.Feeds(2));
  ExpectGradientsMatch(rnn, 2);
}

TEST_P(RnnOfMode, HasTheGradientsThatDifferencesGive) {
  RnnCase rnn{.mode = GetParam(), .layers = 2};
  ExpectGradientsMatch(rnn, 11);
  rnn.directions = 2;
  ExpectGradientsMatch(rnn, 12);
  rnn.lengths = {3, 0, 4};
  ExpectGradientsMatch(rnn, 13);
  rnn.layers = 1;
  rnn.directions = 1;
  ExpectGradientsMatch(rnn.Net(), rnn.Feeds(14), {"h_last"});
  rnn = {.mode = GetParam(), .steps = 0};
  ExpectGradientsMatch(rnn, 15);
}

TEST(Rnn, ProjectsAndClips) {
  for (const std::int64_t directions : {1, 2}) {
    for (const std::int64_t projection : {0, 2, 5}) {
      RnnCase rnn{.layers = 2, .directions = directions, .projection = projection};
      ExpectFollows(rnn, rnn.Feeds(1));
      ExpectGradientsMatch(rnn, 2);
      rnn.has_clip = true;
      rnn.clip_min = -0.25f;
      rnn.clip_max = 0.375f;  // most initial values lie outside
      ExpectFollows(rnn, rnn.Feeds(3));
      ExpectGradientsMatch(rnn, 4);
      rnn.lengths = {4, 0, 2};
      ExpectFollows(rnn, rnn.Feeds(5));
      ExpectGradientsMatch(rnn, 6);
    }
  }
}

TEST(Rnn, MakesACellStateThatIsNanTheMinimumWhereItIsAskedTo) {
  for (const bool clips_nan : {false, true}) {
    const RnnCase rnn{.has_clip = true, .clips_nan = clips_nan, .clip_min = -0.5f, .clip_max = 0.5f};
    Feeds feeds = rnn.Feeds(1);
    Find(feeds, "c").data<double>()[1] = kNan;
    Find(feeds, "c").data<double>()[4] = std::numeric_limits<double>::infinity();
    ExpectFollows(rnn, feeds);
  }
}

TEST(Rnn, LetsGradientsThroughAtTheBoundsOfAClip) {
  const double inf = std::numeric_limits<double>::infinity();
  for (const int nan : {0, 1}) {
    OpTest clip("LSTMStateClip");
    clip.Arg("min", -0.5f).Arg("max", 0.25f).Arg("nan", nan).Input("x", {6}, {-0.75, -0.5, 0, 0.25, 0.5, inf});
    clip.Gives({6}, {-0.5, -0.5, 0, 0.25, 0.25, 0.25});
    OpTest("LSTMStateClipGradient")
        .Arg("min", -0.5f)
        .Arg("max", 0.25f)
        .Arg("nan", nan)
        .Input("x", {7}, {-0.75, -0.5, 0, 0.25, 0.5, -inf, kNan})
        .Input("dy", {7}, {1, 2, 3, 4, 5, 6, 7})
        .Gives({7}, {0, 2, 3, 4, 0, 0, 7});
  }
}

// All outputs and gradients of a run in which the gradient of y is `beyond` behind the lengths.
std::vector<std::vector<double>> TrainingRun(const RnnCase& rnn, const Feeds& feeds, double beyond) {
  const NetWithGradients made = Training(rnn.Net(), feeds, rnn.Outputs());
  Workspace workspace;
  Feed(feeds, workspace);
  Tensor dy = Random({rnn.steps, rnn.batch, rnn.directions * rnn.output()}, 31);
  const std::int64_t width = dy.dim(2);
  for (std::int64_t i = 0; i < dy.size(); ++i) {
    if (i / width / rnn.batch >= rnn.lengths[i / width % rnn.batch]) dy.data<double>()[i] = beyond;
  }
  workspace.SetTensor(SeedOf("y"), dy);
  for (const char* state : {"h", "c"}) {
    workspace.SetTensor(SeedOf(StrCat(state, "_last")), Random(workspace.GetTensor(state).shape(), 32));
  }
  RunNetOnce(made.net, workspace);
  std::vector<std::vector<double>> values;
  for (const std::string& output : rnn.Outputs()) values.push_back(Values(workspace.GetTensor(output)));
  for (const char* input : {"x", "w", "h", "c"}) {
    values.push_back(Values(workspace.GetTensor(made.gradients.at(input).dense)));
  }
  return values;
}

TEST(Rnn, ReadsNothingBeyondTheLengths) {
  for (const std::int64_t projection : {0, 2}) {
    const RnnCase rnn{.layers = 2, .directions = 2, .projection = projection, .lengths = {3, 0, 4}};
    Feeds feeds = rnn.Feeds(1);
    const std::vector<std::vector<double>> expected = TrainingRun(rnn, feeds, 0);
    Tensor& x = Find(feeds, "x");
    const auto is_beyond = [&](std::int64_t i) { return i / 2 / rnn.batch >= rnn.lengths[i / 2 % rnn.batch]; };
    for (std::int64_t i = 0; i < x.size(); ++i) {
      if (is_beyond(i)) x.data<double>()[i] = kNan;
    }
    const std::vector<std::vector<double>> found = TrainingRun(rnn, feeds, kNan);
    EXPECT_EQ(found, expected);  // bit for bit, so no NaN
    const std::vector<double>& dx = found[3];
    for (size_t i = 0; i < dx.size(); ++i) {
      if (!is_beyond(static_cast<std::int64_t>(i))) continue;
      EXPECT_EQ(dx[i], 0) << i;
    }
  }
}

template <typename T>
Tensor LengthsOf(const std::vector<double>& values) {
  Tensor lengths(kDTypeOf<T>, Shape({std::ssize(values)}));
  for (size_t i = 0; i < values.size(); ++i) lengths.data<T>()[i] = static_cast<T>(values[i]);
  return lengths;
}

TEST(Rnn, TakesLengthsOfAnyType) {
  const RnnCase rnn{.mode = "gru", .directions = 2, .lengths = {3, 0, 4}};
  const std::vector<double> lengths = {3, 0, 4};
  for (const Tensor& given : {LengthsOf<float>(lengths), LengthsOf<double>(lengths), LengthsOf<std::int8_t>(lengths),
                              LengthsOf<std::int16_t>(lengths), LengthsOf<std::int32_t>(lengths),
                              LengthsOf<std::uint8_t>(lengths), LengthsOf<std::uint16_t>(lengths)}) {
    Feeds feeds = rnn.Feeds(1);
    Find(feeds, "n") = given;
    ExpectFollows(rnn, feeds);
  }
}

void RunFed(const NetDef& net, const Feeds& feeds) {
  Workspace workspace;
  Feed(feeds, workspace);
  RunNetOnce(net, workspace);
}

TEST(Rnn, RefusesLengthsThatAreNone) {
  const RnnCase rnn{.mode = "rnn_relu", .lengths = {1, 2, 3}};
  const auto run = [&](const Tensor& lengths) {
    Feeds feeds = rnn.Feeds(1);
    Find(feeds, "n") = lengths;
    RunFed(rnn.Net(), feeds);
  };
  ExpectError(
      [&] {
        run(LengthsOf<std::int32_t>({4, 5, -1}));
      },
      "invalid argument: element 1 of n is 5; lengths here are whole numbers from 0 to 4\n"
      "  at op 0 `y, h_last = RNN(x, w, h, n)` with x double [4, 3, 2], y/lengths_double double [3]\n"
      "  in net \"test\"");
  ExpectError([&] { run(LengthsOf<std::int64_t>({0, 0, -1})); }, "…element 2 of n is -1; lengths");
  ExpectError([&] { run(LengthsOf<float>({2.5, 0, 0})); }, "…element 0 of n is 2.5; lengths");
  ExpectError([&] { run(LengthsOf<double>({0, kNan, 0})); }, "…element 1 of n is nan; lengths");
  ExpectError(
      [&] {
        run(LengthsOf<std::int32_t>({1, 2}));
      },
      "…n is int32 [2]; with x is double [4, 3, 2], RNN needs sequence_length [B], which is [3]");
  ExpectError(
      [&] {
        run(Tensor::Of<bool>({3}, {true, true, false}));
      },
      "…RNN needs lengths that are numbers; n is bool [3]");
}

TEST(Rnn, RefusesOtherShapesAndTypes) {
  const RnnCase rnn{.layers = 2, .directions = 2, .projection = 2};
  const auto run = [&](const std::string& blob, const Tensor& value) {
    Feeds feeds = rnn.Feeds(1);
    Find(feeds, blob) = value;
    RunFed(rnn.Net(), feeds);
  };
  ExpectError(
      [&] {
        run("x", Random({4, 2}, 1));
      },
      "shape mismatch: x is double [4, 2]; RNN needs data [T, B, I]\n"
      "  at op 0 `y, h_last, c_last = RNN(x, w, h, c)` with x double [4, 2], w double [360], "
      "h double [4, 3, 2], c double [4, 3, 3]\n"
      "  in net \"test\"");
  ExpectError(
      [&] { run("w", Random({359}, 1)); },
      "…w is double [359]; with x is double [4, 3, 2], RNN needs all weights and biases in one vector, which is "
      "[360]");
  ExpectError([&] { run("w", Random({360, 1}, 1)); }, "…w is double [360, 1]; with");
  ExpectError(
      [&] {
        run("h", Random({4, 3, 3}, 1));
      },
      "…h is double [4, 3, 3]; with x is double [4, 3, 2], RNN needs state [layers * directions, B, R], which is "
      "[4, 3, 2]");
  ExpectError([&] { run("h", Random({4, 1, 2}, 1)); }, "…h is double [4, 1, 2]; with");  // is not repeated
  ExpectError(
      [&] {
        run("c", Random({4, 3, 2}, 1));
      },
      "…c is double [4, 3, 2]; with x is double [4, 3, 2], RNN needs state_cell [layers * directions, B, H], "
      "which is [4, 3, 3]");
  ExpectError(
      [&] {
        run("c", Random({4, 3, 3}, 1, DType::kFloat));
      },
      "…RNN needs data, parameters and states of one type; x is double [4, 3, 2] and c is float [4, 3, 3]");
  ExpectError(
      [&] {
        run("x", Tensor::Zeros(DType::kInt32, {4, 3, 2}));
      },
      "…type mismatch: RNN works on float and double; x is int32 [4, 3, 2]");
  ExpectError([&] { run("w", Tensor::Zeros(DType::kFloat16, {360})); },
              "…RNN works on float and double; w is float16 [360]");
}

// What is wrong with the operator whose argument `name` is changed by `change`.
void ExpectRefused(const std::string& message, const std::function<void(OperatorDef*)>& change,
                   const RnnCase& rnn = {}) {
  NetDef net = rnn.Net();
  change(net.mutable_op(0));
  ExpectError([&] { RunFed(net, rnn.Feeds(1)); }, "…" + message);
}

void ExpectRefused(const std::string& message, const RnnCase& rnn) {
  ExpectRefused(
      message, [](OperatorDef*) {}, rnn);
}

void Remove(const std::string& name, OperatorDef* op) {
  auto& args = *op->mutable_arg();
  args.erase(std::remove_if(args.begin(), args.end(), [&](const Argument& arg) { return arg.name() == name; }),
             args.end());
}

TEST(Rnn, RefusesOtherNumbersOfInputsAndOutputs) {
  ExpectRefused(
      "RNN with mode lstm takes 4 inputs (data, parameters, state, state_cell), has 3\n"
      "  at op 0 `y, h_last, c_last = RNN(x, w, h)`\n"
      "  in net \"test\"",
      [](OperatorDef* op) { op->mutable_input()->RemoveLast(); });
  ExpectRefused("RNN with mode gru takes 3 inputs (data, parameters, state), has 4",
                [](OperatorDef* op) { op->add_input("c"); }, {.mode = "gru"});
  ExpectRefused(
      "RNN with mode gru and use_sequence_length takes 4 inputs (data, parameters, state, sequence_length), has 3",
      [](OperatorDef* op) { OpBuilder(op).Int("use_sequence_length", 1); }, {.mode = "gru"});
  ExpectRefused("RNN with mode lstm and state_outputs gives 3 outputs, has 2",
                [](OperatorDef* op) { op->mutable_output()->RemoveLast(); });
  ExpectRefused("RNN with mode lstm without state_outputs gives 1 output, has 3",
                [](OperatorDef* op) { Remove("state_outputs", op); });
  ExpectRefused("RNN cannot work in place: \"h\" is an input and output 1",
                [](OperatorDef* op) { op->set_output(1, "h"); });
}

TEST(Rnn, RefusesOtherArguments) {
  ExpectRefused("mode is \"nothing\", must be one of rnn_relu, rnn_tanh, lstm, gru",
                [](OperatorDef* op) { op->mutable_arg(0)->set_s("nothing"); });
  for (const char* name : {"mode", "state_size", "num_layers"}) {
    ExpectRefused(StrCat("RNN needs the argument \"", name, "\": "), [&](OperatorDef* op) { Remove(name, op); });
  }
  ExpectRefused("state_size is 0, must be between 1", {.state = 0});
  ExpectRefused("num_layers is 0, must be between 1 and 1000", {.layers = 0});
  ExpectRefused("num_layers is 1001, must be between 1 and 1000",
                [](OperatorDef* op) { op->mutable_arg(2)->set_i(1001); });
  ExpectRefused("no argument \"bogus\"", [](OperatorDef* op) { OpBuilder(op).Int("bogus", 1); });
  ExpectRefused("p is 1.5, must be between 0 and 1", {.p = 1.5f});
  ExpectRefused("RNN: p is 1, must be less: nothing would be kept", {.p = 1});
  ExpectRefused("p is NaN", [](OperatorDef* op) { OpBuilder(op).Float("p", NAN); });
  ExpectRefused("RNN: projection_size is of mode lstm, the mode is gru", {.mode = "gru", .projection = 2});
  ExpectRefused("RNN: lstm_state_clip_min is of mode lstm, the mode is gru",
                {.mode = "gru", .has_clip = true, .clip_min = -1, .clip_max = 1});
  ExpectRefused("RNN: lstm_state_clip_nan is of mode lstm, the mode is rnn_tanh",
                {.mode = "rnn_tanh", .clips_nan = true});
  ExpectRefused("RNN: lstm_state_clip_min is 2, must not exceed lstm_state_clip_max, which is 1",
                {.has_clip = true, .clip_min = 2, .clip_max = 1});
  ExpectRefused("RNN: lstm_state_clip_min is NaN", {.has_clip = true, .clip_min = NAN, .clip_max = 1});
  const char* together =
      "RNN: lstm_state_clip_min and lstm_state_clip_max are given together, and lstm_state_clip_nan with them";
  ExpectRefused(together, [](OperatorDef* op) { OpBuilder(op).Float("lstm_state_clip_max", 1); });
  ExpectRefused(together, {.clips_nan = true});
}

TEST(Rnn, RefusesSizesWhoseParametersCannotBeCounted) {
  NetDef net = RnnCase{.mode = "gru"}.Net();
  net.mutable_op(0)->mutable_arg(1)->set_i(1LL << 31);
  ExpectError([&] { RunFed(net, RnnCase{.mode = "gru"}.Feeds(1)); }, "…2147483648");
}

// A net from anywhere may hold the private operators, too.
TEST(PartsOfRnn, RefuseWhatRnnGivesThemNever) {
  ExpectError([] { OpTest("RNNPadding").Random("x", {5}, 1).Random("n", {}, 2).Run(); },
              "…x is float [5] and n is float []; RNNPadding needs [T, B, C] and lengths int64 [B]");
  ExpectError([] { OpTest("RNNLengths").Arg("blob", "n").Random("x", {}, 1).Random("n", {2}, 2).Run(); },
              "…x is float [] and n is float [2]; RNNLengths needs [T, B, C] and lengths double [B]");
  const auto weights = [](int num_outputs, const char* mode) {
    OpTest("RNNWeights", num_outputs)
        .Arg("mode", mode)
        .Arg("state_size", 2)
        .Arg("num_layers", 1)
        .Random("x", {3, 1, 1}, 1)
        .Random("w", {10}, 2)
        .Random("h", {1, 1, 2}, 3)
        .Run();
  };
  weights(4, "rnn_relu");
  ExpectError([&] { weights(5, "rnn_relu"); }, "…RNNWeights gives 4 parts, has 5 outputs");
  ExpectError([&] { weights(4, "lstm"); },
              "…RNN with mode lstm takes 4 inputs (data, parameters, state, state_cell), has 3");
  ExpectError(
      [] {
        OpTest("RNNWeightsGradient")
            .Arg("mode", "rnn_relu")
            .Arg("state_size", 2)
            .Arg("num_layers", 1)
            .Random("dw", {2, 1}, 1)
            .Run();
      },
      "…RNNWeightsGradient needs the gradients of what RNNWeights gives");
}

TEST(Rnn, HasNoGradientOperatorOfItsOwn) {
  const RnnCase rnn;
  ExpectError([&] { AddGradients(rnn.Net(), {"y"}, {"w"}); },
              "…RNN has no gradient operator: call AddBackwardStepNets (nets/backward_step.h) first, which puts those "
              "that it stands for in its place\n"
              "  at op 0 `y, h_last, c_last = RNN(x, w, h, c)`");
}

// Twice in a net, one on the other, with one blob of parameters.
TEST(Rnn, MayStandInANetSeveralTimes) {
  const RnnCase rnn{.mode = "gru", .inputs = 3};
  NetDef net = rnn.Net();
  net.mutable_op(0)->set_output(0, "middle");
  *net.add_op() = net.op(0);
  net.mutable_op(1)->set_input(0, "middle");
  net.mutable_op(1)->set_output(0, "y");
  net.mutable_op(1)->set_output(1, "h_last_2");
  const Feeds feeds = rnn.Feeds(1);
  Workspace workspace;
  Feed(feeds, workspace);
  RunNetOnce(net, workspace);
  Feeds second = feeds;
  second[0].second = workspace.GetTensor("middle");
  const std::vector<double> found = Values(workspace.GetTensor("y")), expected = ExpectedOutputs(rnn, second)[0];
  for (size_t i = 0; i < found.size(); ++i) EXPECT_NEAR(found[i], expected[i], 1e-12) << i;
  for (const char* type : {"simple", "dag"}) {
    net.set_type(type);
    ExpectGradientsMatch(net, feeds, {"y", "h_last", "h_last_2"});
  }
}

// Cells whose output is their input, so that output shows what is dropped between the layers.
TEST(Rnn, DropsBetweenLayersInTraining) {
  const RnnCase rnn{.mode = "rnn_relu", .steps = 20, .batch = 5, .inputs = 4, .state = 4, .layers = 2, .p = 0.25f};
  Feeds feeds = rnn.Feeds(1);
  Tensor& w = Find(feeds, "w");
  w = Tensor::Zeros(DType::kDouble, w.shape());
  for (std::int64_t layer = 0; layer < 2; ++layer) {
    for (std::int64_t i = 0; i < 4; ++i) w.data<double>()[layer * 32 + i * 5] = 1;
  }
  Tensor& x = Find(feeds, "x");
  for (std::int64_t i = 0; i < x.size(); ++i) x.data<double>()[i] = 1 + std::abs(x.data<double>()[i]);
  ExpectFollows(rnn, feeds);  // nothing is dropped

  NetDef net = rnn.Net();
  AddBackwardStepNets(&net);
  const NetWithGradients made = AddGradients(net, {"y"}, {"x"});
  Workspace workspace;
  Feed(feeds, workspace);
  RunNetOnce(made.net, workspace);
  const std::vector<double> y = Values(workspace.GetTensor("y")),
                            dx = Values(workspace.GetTensor(made.gradients.at("x").dense));
  int dropped = 0;
  for (size_t i = 0; i < y.size(); ++i) {
    const double factor = y[i] == 0 ? 0 : 1 / 0.75;
    EXPECT_NEAR(y[i], factor * x.data<double>()[i], 1e-12) << i;
    EXPECT_NEAR(dx[i], factor, 1e-12) << i;
    dropped += factor == 0 ? 1 : 0;
  }
  EXPECT_NEAR(dropped, 100, 40) << "of 400 elements";
}

TEST(Rnn, CopiesNoConstantParameters) {
  const RnnCase rnn;
  const Feeds feeds = rnn.Feeds(1);
  for (const bool constant : {false, true}) {
    Workspace workspace;
    Feed(feeds, workspace);
    const Tensor& parameters = workspace.GetTensor("w");
    if (constant) parameters.SetConstant();
    RunNetOnce(rnn.Net(), workspace);
    EXPECT_EQ(workspace.GetTensor("y/h2h").SharesStorageWith(parameters), constant);
    const std::vector<double> found = Values(workspace.GetTensor("y")), expected = ExpectedOutputs(rnn, feeds)[0];
    for (size_t i = 0; i < found.size(); ++i) EXPECT_NEAR(found[i], expected[i], 1e-12) << i;
  }
}

}  // namespace
}  // namespace stepnet

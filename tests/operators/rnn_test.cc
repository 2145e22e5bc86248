// RNN against its equations in double, and its gradients against differences. What MXNet itself
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

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

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
    ASSERT_EQ(static_cast<std::int64_t>(gradient.size()), tensor.size()) << name;
    for (const auto& [i, numeric] : Differences(tensor, loss)) {
      EXPECT_NEAR(gradient[i], numeric, 2e-7 * (1 + std::abs(numeric))) << name << " element " << i;
    }
  }
}

void ExpectGradientsMatch(const RnnCase& rnn, unsigned seed) {
  ExpectGradientsMatch(rnn.Net(), rnn.RandomFeeds(seed), rnn.Outputs());
}

const char* const kModes[] = {"rnn_relu", "rnn_tanh", "lstm", "gru"};

class RnnOfMode : public testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(, RnnOfMode, testing::ValuesIn(kModes),
                         [](const auto& info) { return std::string(info.param); });

TEST_P(RnnOfMode, FollowsItsEquations) {
  for (const std::int64_t directions : {1, 2}) {
    for (const std::int64_t layers : {1, 2, 3}) {
      RnnCase rnn{.mode = GetParam(), .layers = layers, .directions = directions};
      ExpectFollows(rnn, rnn.RandomFeeds(1));
      rnn.lengths = {3, 4, 1};
      ExpectFollows(rnn, rnn.RandomFeeds(2));
    }
  }
}

TEST_P(RnnOfMode, PassesTheStatesThroughWhereThereIsNoStep) {
  for (const std::int64_t directions : {1, 2}) {
    RnnCase rnn{.mode = GetParam(), .layers = 2, .directions = directions, .lengths = {0, 4, 0}};
    ExpectFollows(rnn, rnn.RandomFeeds(1));
    rnn = {.mode = GetParam(), .steps = 0, .layers = 2, .directions = directions};
    ExpectFollows(rnn, rnn.RandomFeeds(2));
    rnn.lengths = {0, 0, 0};
    ExpectFollows(rnn, rnn.RandomFeeds(3));
  }
}

TEST_P(RnnOfMode, AcceptsNoUnits) {
  RnnCase rnn{.mode = GetParam(), .state = 0, .layers = 2, .directions = 2};
  ExpectFollows(rnn, rnn.RandomFeeds(1));
  ExpectGradientsMatch(rnn, 1);  // that of data is zeros
  rnn.lengths = {3, 0, 4};
  ExpectFollows(rnn, rnn.RandomFeeds(2));
  ExpectGradientsMatch(rnn, 2);
  rnn = {.mode = GetParam(), .steps = 0, .batch = 0, .inputs = 0, .state = 0};
  ExpectFollows(rnn, rnn.RandomFeeds(3));
}

TEST_P(RnnOfMode, AcceptsNoSequencesAndNoInputs) {
  RnnCase rnn{.mode = GetParam(), .batch = 0, .layers = 2, .directions = 2};
  ExpectFollows(rnn, rnn.RandomFeeds(1));
  ExpectGradientsMatch(rnn, 1);
  rnn = {.mode = GetParam(), .inputs = 0, .layers = 2};
  ExpectFollows(rnn, rnn.RandomFeeds(2));
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
  ExpectGradientsMatch(rnn.Net(), rnn.RandomFeeds(14), {"h_last"});
  rnn = {.mode = GetParam(), .steps = 0};
  ExpectGradientsMatch(rnn, 15);
}

TEST(Rnn, ProjectsAndClips) {
  for (const std::int64_t directions : {1, 2}) {
    for (const std::int64_t projection : {0, 2, 5}) {
      RnnCase rnn{.layers = 2, .directions = directions, .projection = projection};
      ExpectFollows(rnn, rnn.RandomFeeds(1));
      ExpectGradientsMatch(rnn, 2);
      rnn.has_clip = true;
      rnn.clip_min = -0.25f;
      rnn.clip_max = 0.375f;  // most initial values lie outside
      ExpectFollows(rnn, rnn.RandomFeeds(3));
      ExpectGradientsMatch(rnn, 4);
      rnn.lengths = {4, 0, 2};
      ExpectFollows(rnn, rnn.RandomFeeds(5));
      ExpectGradientsMatch(rnn, 6);
    }
  }
}

TEST(Rnn, ProjectsNoUnitsToZeros) {
  const RnnCase rnn{.state = 0, .layers = 2, .projection = 2, .has_clip = true, .clip_min = -1, .clip_max = 1};
  ExpectFollows(rnn, rnn.RandomFeeds(1));
  ExpectGradientsMatch(rnn, 1);
}

TEST(Rnn, MakesACellStateThatIsNanTheMinimumWhereItIsAskedTo) {
  for (const bool clips_nan : {false, true}) {
    const RnnCase rnn{.has_clip = true, .clips_nan = clips_nan, .clip_min = -0.5f, .clip_max = 0.5f};
    Feeds feeds = rnn.RandomFeeds(1);
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
    Feeds feeds = rnn.RandomFeeds(1);
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

TEST(Rnn, TakesLengthsOfAnyType) {
  const RnnCase rnn{.mode = "gru", .directions = 2, .lengths = {3, 0, 4}};
  const std::vector<double> lengths = {3, 0, 4};
  for (const Tensor& given : {LengthsOf<float>(lengths), LengthsOf<double>(lengths), LengthsOf<std::int8_t>(lengths),
                              LengthsOf<std::int16_t>(lengths), LengthsOf<std::int32_t>(lengths),
                              LengthsOf<std::uint8_t>(lengths), LengthsOf<std::uint16_t>(lengths)}) {
    Feeds feeds = rnn.RandomFeeds(1);
    Find(feeds, "n") = given;
    ExpectFollows(rnn, feeds);
  }
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
  const Feeds feeds = rnn.RandomFeeds(1);
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
  Feeds feeds = rnn.RandomFeeds(1);
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
  const Feeds feeds = rnn.RandomFeeds(1);
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

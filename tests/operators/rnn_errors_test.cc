// What RNN refuses, and how.
#include <algorithm>
#include <cmath>
#include <limits>

#include "op_test.h"
#include "rnn_case.h"
#include "stepnet/nets/backward.h"
#include "stepnet/nets/op_builder.h"
#include "stepnet/tests/executor/recurrent_case.h"

namespace stepnet {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

TEST(RnnErrors, RefusesLengthsThatAreNone) {
  const RnnCase rnn{.mode = "rnn_relu", .lengths = {1, 2, 3}};
  const auto run = [&](const Tensor& lengths) {
    Feeds feeds = rnn.RandomFeeds(1);
    Find(feeds, "n") = lengths;
    RunFed(rnn.Net(), feeds);
  };
  ExpectError(
      [&] {
        run(LengthsOf<std::int32_t>({4, 5, -1}));
      },
      "invalid argument: element 1 of n is 5; lengths here are whole numbers from 0 to 4\n"
      "  at op 0 `y, h_last = RNN(x, w, h, n)` with x double [4, 3, 2], w double [21], h double [1, 3, 3], n int32 "
      "[3]\n"
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

TEST(RnnErrors, RefusesOtherShapesAndTypes) {
  const RnnCase rnn{.layers = 2, .directions = 2, .projection = 2};
  const auto run = [&](const std::string& blob, const Tensor& value) {
    Feeds feeds = rnn.RandomFeeds(1);
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
  ExpectError([&] { RunFed(net, rnn.RandomFeeds(1)); }, "…" + message);
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

TEST(RnnErrors, RefusesOtherNumbersOfInputsAndOutputs) {
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

TEST(RnnErrors, RefusesOtherArguments) {
  ExpectRefused("mode is \"nothing\", must be one of rnn_relu, rnn_tanh, lstm, gru",
                [](OperatorDef* op) { op->mutable_arg(0)->set_s("nothing"); });
  for (const char* name : {"mode", "state_size", "num_layers"}) {
    ExpectRefused(StrCat("RNN needs the argument \"", name, "\": "), [&](OperatorDef* op) { Remove(name, op); });
  }
  ExpectRefused("state_size is -1, must be between 0 and 2147483648",
                [](OperatorDef* op) { op->mutable_arg(1)->set_i(-1); });
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

TEST(RnnErrors, RefusesSizesWhoseParametersCannotBeCounted) {
  NetDef net = RnnCase{.mode = "gru"}.Net();
  net.mutable_op(0)->mutable_arg(1)->set_i(1LL << 31);
  ExpectError([&] { RunFed(net, RnnCase{.mode = "gru"}.RandomFeeds(1)); }, "…2147483648");
}

// A net from anywhere may hold the private operators, too.
TEST(PartsOfRnn, RefuseWhatRnnGivesThemNever) {
  ExpectError([] { OpTest("RNNLengths").Arg("blob", "n").Random("x", {}, 1).Random("n", {2}, 2).Run(); },
              "…RNNLengths needs [T, B, C] and lengths double [B]; x is float [] and n is float [2]");
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

TEST(RnnErrors, HasNoGradientOperatorOfItsOwn) {
  const RnnCase rnn;
  ExpectError([&] { AddGradients(rnn.Net(), {"y"}, {"w"}); },
              "…RNN has no gradient operator: call AddBackwardStepNets (nets/backward_step.h) first, which puts those "
              "that it stands for in its place\n"
              "  at op 0 `y, h_last, c_last = RNN(x, w, h, c)`");
}

}  // namespace
}  // namespace stepnet

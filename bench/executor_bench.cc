// The executors beside each other: layers of LSTM in one step net, forward and forward + backward; and what gradients
// cost that nobody asks for.
//
//   build/release/bench/stepnet_bench --benchmark_filter=Layered
//   build/release/bench/stepnet_bench --benchmark_filter=Requested --benchmark_repetitions=5
#include <benchmark/benchmark.h>

#include "random_tensor.h"
#include "stepnet/nets/backward.h"
#include "stepnet/nets/backward_step.h"
#include "stepnet/nets/net.h"
#include "stepnet/nets/op_builder.h"

namespace stepnet {
namespace {

struct Layers {
  std::vector<std::string> inputs = {"x"};
  std::vector<std::string> states, internal, external, aliases;
  std::vector<std::int64_t> initial, offsets;
  NetDef step;

  void Link(const std::string& inside, const std::string& outside, std::int64_t offset) {
    internal.push_back(inside);
    external.push_back(outside);
    offsets.push_back(offset);
  }
};

// One layer of a step: gates of the layer below and of its own last hidden state, then LSTMUnit.
void AddLayer(int layer, std::int64_t batch, std::int64_t hidden, Workspace& workspace, Layers* net) {
  const auto name = [&](const char* blob) { return StrCat("l", layer, "/", blob); };
  const unsigned seed = static_cast<unsigned>(layer) * 10;
  const Shape weights({4 * hidden, hidden});
  workspace.SetTensor(name("w"), Random(weights, seed + 1));
  workspace.SetTensor(name("u"), Random(weights, seed + 2));
  workspace.SetTensor(name("b"), Random({4 * hidden}, seed + 3));
  workspace.SetTensor(name("h0"), Random({1, batch, hidden}, seed + 4));
  workspace.SetTensor(name("c0"), Random({1, batch, hidden}, seed + 5));
  for (const char* state : {"h", "c"}) {
    net->initial.push_back(static_cast<std::int64_t>(net->inputs.size()));
    net->inputs.push_back(name(state) + "0");
    net->states.push_back(name(state) + "_states");
    net->aliases.push_back(name(state) + "_all");
    net->Link(name(state) + "_prev", name(state) + "_states", 0);
    net->Link(name(state), name(state) + "_states", 1);
  }
  const std::string below = layer == 0 ? "x_t" : StrCat("l", layer - 1, "/h");
  AddOp(&net->step, "FC", {below, name("w"), name("b")}, {name("from_below")}).Int("axis", 2);
  AddOp(&net->step, "FC", {name("h_prev"), name("u"), name("b")}, {name("from_past")}).Int("axis", 2);
  AddOp(&net->step, "Sum", {name("from_below"), name("from_past")}, {name("gates")});
  AddOp(&net->step, "LSTMUnit", {name("h_prev"), name("c_prev"), name("gates"), "lengths", "timestep"},
        {name("h"), name("c")});
}

// gradient_requests for the gradients of the sequence, of the weights and of the initial states.
struct Requests {
  const char* sequence = "write";
  const char* weights = "write";
  const char* initial = "write";
};

// Adds the gradients of the last layer by everything that is requested.
NetDef WithGradients(NetDef net, const std::string& loss, std::vector<std::string> inputs,
                     const Requests& requests = {}) {
  AddBackwardStepNets(&net, [](const std::string& blob) { return blob != "lengths"; });
  OperatorDef* op = net.mutable_op(0);
  int num_weights = 0, num_states = 0;
  for (const Argument& argument : op->arg()) {
    if (argument.name() == "param") num_weights = argument.ints_size();
    if (argument.name() == "recurrent_states") num_states = argument.strings_size();
  }
  Argument* list = op->add_arg();
  list->set_name("gradient_requests");
  list->add_strings(requests.sequence);
  for (int i = 0; i < num_weights; ++i) list->add_strings(requests.weights);
  for (int i = 0; i < num_states; ++i) list->add_strings(requests.initial);
  inputs.insert(inputs.end(), {"x", "l0/h0"});
  return AddGradients(net, {loss}, inputs).net;
}

NetDef LayeredLstm(int layers, std::int64_t steps, std::int64_t batch, std::int64_t hidden, bool with_gradient,
                   Workspace& workspace, const Requests& requests = {}) {
  workspace.SetTensor("x", Random({steps, batch, hidden}, 100));
  workspace.SetTensor(
      "lengths", Tensor::Of<std::int32_t>(Shape({batch}), std::vector<std::int32_t>(batch, static_cast<int>(steps))));
  Layers all;
  all.Link("x_t", "x", 0);
  for (int layer = 0; layer < layers; ++layer) AddLayer(layer, batch, hidden, workspace, &all);
  std::vector<std::string> parameters;
  for (int layer = 0; layer < layers; ++layer) {
    for (const char* blob : {"w", "u", "b"}) parameters.push_back(StrCat("l", layer, "/", blob));
  }
  all.inputs.insert(all.inputs.end(), parameters.begin(), parameters.end());
  all.inputs.emplace_back("lengths");
  std::vector<std::string> outputs = all.aliases;
  outputs.emplace_back("record");
  NetDef net;
  AddOp(&net, "RecurrentNetwork", all.inputs, outputs)
      .Net("step_net", all.step)
      .Strings("recurrent_states", all.states)
      .Ints("initial_recurrent_state_ids", all.initial)
      .Strings("link_internal", all.internal)
      .Strings("link_external", all.external)
      .Ints("link_offset", all.offsets)
      .Strings("alias_src", all.states)
      .Strings("alias_dst", all.aliases)
      .Ints("alias_offset", std::vector<std::int64_t>(all.states.size(), 1));
  if (!with_gradient) return net;
  return WithGradients(net, StrCat("l", layers - 1, "/h_all"), parameters, requests);
}

void Run(benchmark::State& state, const char* executor, bool with_gradient) {
  const auto layers = static_cast<int>(state.range(0));
  Workspace workspace;
  const NetDef def = LayeredLstm(layers, state.range(1), state.range(2), state.range(3), with_gradient, workspace);
  const std::unique_ptr<Net> net = Net::Create(def, workspace, {.executor = executor});
  net->Run();
  for (auto _ : state) net->Run();
}
void LayeredSerial(benchmark::State& state) { Run(state, "serial", false); }
void LayeredParallel(benchmark::State& state) { Run(state, "parallel", false); }
void LayeredSerialTraining(benchmark::State& state) { Run(state, "serial", true); }
void LayeredParallelTraining(benchmark::State& state) { Run(state, "parallel", true); }

// Forward and backward, with the most memory that tensors take.
void RunRequested(benchmark::State& state, const Requests& requests) {
  Workspace workspace;
  const NetDef def = LayeredLstm(2, state.range(0), state.range(1), state.range(2), true, workspace, requests);
  ResetPeakTensorMemory();
  const std::unique_ptr<Net> net = Net::Create(def, workspace);
  net->Run();
  for (auto _ : state) net->Run();
  state.counters["MB"] = static_cast<double>(TensorMemory().peak) / 1e6;
}
void RequestedAll(benchmark::State& state) { RunRequested(state, {}); }
void RequestedSequence(benchmark::State& state) { RunRequested(state, {.weights = "none", .initial = "none"}); }
void RequestedWeights(benchmark::State& state) { RunRequested(state, {.sequence = "none", .initial = "none"}); }
void RequestedInitial(benchmark::State& state) { RunRequested(state, {.sequence = "none", .weights = "none"}); }

void SizesRequested(benchmark::internal::Benchmark* bench) {
  bench->ArgNames({"T", "B", "H"})->Unit(benchmark::kMillisecond)->UseRealTime();
  bench->Args({100, 1, 256})->Args({100, 16, 256});
}
BENCHMARK(RequestedAll)->Apply(SizesRequested);
BENCHMARK(RequestedSequence)->Apply(SizesRequested);
BENCHMARK(RequestedWeights)->Apply(SizesRequested);
BENCHMARK(RequestedInitial)->Apply(SizesRequested);

void Sizes(benchmark::internal::Benchmark* bench) {
  bench->ArgNames({"layers", "T", "B", "H"})->Unit(benchmark::kMillisecond)->UseRealTime();
  bench->Args({4, 100, 8, 256})->Args({1, 100, 1, 256})->Args({1, 100, 32, 256});
  for (const std::int64_t layers : {1, 2, 4, 8}) {
    for (const std::int64_t hidden : {16, 64, 256, 1024}) {
      for (const std::int64_t batch : {1, 8, 64}) bench->Args({layers, hidden == 1024 ? 8 : 40, batch, hidden});
    }
  }
}
BENCHMARK(LayeredSerial)->Apply(Sizes);
BENCHMARK(LayeredParallel)->Apply(Sizes);
BENCHMARK(LayeredSerialTraining)->Apply(Sizes);
BENCHMARK(LayeredParallelTraining)->Apply(Sizes);

}  // namespace
}  // namespace stepnet

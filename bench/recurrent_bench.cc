// A layer of LSTM that Caffe2's Python library built (tests/golden/lstm), scaled to sizes of practice, beside the LSTM
// primitive of oneDNN on the same sizes in the same run. One thread each.
//
//   build/release/bench/stepnet_bench --benchmark_filter=Lstm
#include <benchmark/benchmark.h>

#include "random_tensor.h"
#include "stepnet/core/net.h"
#include "stepnet/core/proto_io.h"
#include "stepnet/proto/net.pb.h"

#ifdef STEPNET_HAS_ONEDNN
#include <dnnl.hpp>
#endif

namespace stepnet {
namespace {

void FeedLstm(Workspace& workspace, std::int64_t steps, std::int64_t batch, std::int64_t hidden) {
  const Shape weights({4 * hidden, hidden});
  workspace.SetTensor("input", Random({steps, batch, hidden}, 1));
  workspace.SetTensor("rnn/i2h_w", Random(weights, 2));
  workspace.SetTensor("rnn/i2h_b", Random({4 * hidden}, 3));
  workspace.SetTensor("rnn/gates_t_w", Random(weights, 4));
  workspace.SetTensor("rnn/gates_t_b", Random({4 * hidden}, 5));
  workspace.SetTensor("state_0_layer_0", Random({1, batch, hidden}, 6));
  workspace.SetTensor("state_1_layer_0", Random({1, batch, hidden}, 7));
  workspace.SetTensor("target_0", Random({steps, batch, hidden}, 8));
  workspace.SetTensor("seq_lengths", Tensor::Of<std::int32_t>(
                                         Shape({batch}), std::vector<std::int32_t>(batch, static_cast<int>(steps))));
}

NetDef LstmNet(bool with_gradient) {
  NetDef net;
  const std::string name = with_gradient ? "lstm" : "lstm_forward_only";
  ReadMessage(std::string(STEPNET_SOURCE_DIR "/tests/golden/") + name + "/net.pb", &net);
  return net;
}

void RunLstm(benchmark::State& state, bool with_gradient) {
  Workspace workspace;
  FeedLstm(workspace, state.range(0), state.range(1), state.range(2));
  const std::unique_ptr<Net> net = Net::Create(LstmNet(with_gradient), workspace, {.executor = "serial"});
  net->Run();
  for (auto _ : state) net->Run();
}
void LstmForward(benchmark::State& state) { RunLstm(state, false); }
void LstmForwardBackward(benchmark::State& state) { RunLstm(state, true); }

void Sizes(benchmark::internal::Benchmark* bench) {
  bench->ArgNames({"T", "B", "H"})->Unit(benchmark::kMillisecond)->UseRealTime();
  bench->Args({100, 1, 256})->Args({100, 32, 256})->Args({50, 64, 512});
}
BENCHMARK(LstmForward)->Apply(Sizes);
BENCHMARK(LstmForwardBackward)->Apply(Sizes);

}  // namespace
}  // namespace stepnet

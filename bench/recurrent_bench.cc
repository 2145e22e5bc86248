// A layer of LSTM that Caffe2's Python library built (tests/golden/lstm), scaled to sizes of practice, beside the LSTM
// primitive of oneDNN on the same sizes in the same run. One thread each.
//
//   build/release/bench/stepnet_bench --benchmark_filter=Lstm
#include <benchmark/benchmark.h>

#include "random_tensor.h"
#include "stepnet/io/proto_io.h"
#include "stepnet/nets/net.h"
#include "stepnet/proto/net.pb.h"

#ifdef STEPNET_HAS_ONEDNN
#include <dnnl.hpp>
#endif

namespace stepnet {
namespace {

NetDef Golden(const std::string& name) {
  NetDef net;
  ReadMessage(std::string(STEPNET_SOURCE_DIR "/tests/golden/") + name + "/net.pb", &net);
  return net;
}

void FeedLstm(const NetDef& net, std::int64_t steps, std::int64_t batch, std::int64_t hidden, Workspace& workspace) {
  for (int i = 0; i < net.external_input_size(); ++i) {
    const std::string& name = net.external_input(i);
    const auto seed = static_cast<unsigned>(i);
    if (name.ends_with("_w")) {
      workspace.SetTensor(name, Random({4 * hidden, hidden}, seed));
    } else if (name.ends_with("_b")) {
      workspace.SetTensor(name, Random({4 * hidden}, seed));
    } else if (name.starts_with("state_")) {
      workspace.SetTensor(name, Random({1, batch, hidden}, seed));
    } else if (name == "seq_lengths") {
      const std::vector<std::int32_t> lengths(static_cast<size_t>(batch), static_cast<std::int32_t>(steps));
      workspace.SetTensor(name, Tensor::Of<std::int32_t>({batch}, lengths));
    } else {
      workspace.SetTensor(name, Random({steps, batch, hidden}, seed));
    }
  }
}

void RunLstm(benchmark::State& state, const char* golden, RunOptions options) {
  const NetDef def = Golden(golden);
  Workspace workspace;
  FeedLstm(def, state.range(0), state.range(1), state.range(2), workspace);
  const std::unique_ptr<Net> net = Net::Create(def, workspace, std::move(options));
  net->Run();
  for (auto _ : state) net->Run();
}
void LstmForward(benchmark::State& state) { RunLstm(state, "lstm_forward_only", {.executor = "serial"}); }
void LstmForwardBackward(benchmark::State& state) { RunLstm(state, "lstm", {.executor = "serial"}); }
// Three layers in one operator, on two threads.
void Lstm3Forward(benchmark::State& state) {
  RunLstm(state, "lstm_multi3_forward_only_exec_on_threads2", {.threads = 2});
}
void Lstm3ForwardBackward(benchmark::State& state) { RunLstm(state, "lstm_multi3_exec_on_threads2", {.threads = 2}); }

void Sizes(benchmark::internal::Benchmark* bench) {
  bench->ArgNames({"T", "B", "H"})->Unit(benchmark::kMillisecond)->UseRealTime();
  bench->Args({100, 1, 256})->Args({100, 32, 256})->Args({50, 64, 512});
}
BENCHMARK(LstmForward)->Apply(Sizes);
BENCHMARK(LstmForwardBackward)->Apply(Sizes);
BENCHMARK(Lstm3Forward)->Apply(Sizes);
BENCHMARK(Lstm3ForwardBackward)->Apply(Sizes);

}  // namespace
}  // namespace stepnet

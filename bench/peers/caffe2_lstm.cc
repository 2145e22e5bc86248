// Caffe2's own time for the nets that bench/recurrent_bench.cc runs: golden LSTMs, scaled.
//
// Built by scripts/bench_caffe2 against the Caffe2 inside a PyTorch 1.7.1 wheel; no part of StepNet.
//
//   caffe2_lstm NET.pb LAYERS T B H THREADS REPETITIONS
// with the executor and that many threads, or without the executor where THREADS is 1,
// prints the minimum and the median milliseconds of a run.
#include <caffe2/core/init.h>
#include <caffe2/core/tensor.h>
#include <caffe2/core/workspace.h>
#include <caffe2/nets/net.h>
#include <caffe2/utils/proto_utils.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <random>

namespace {

void Feed(caffe2::Workspace& workspace, const std::string& name, const std::vector<int64_t>& dims, unsigned seed) {
  auto* tensor = caffe2::BlobGetMutableTensor(workspace.CreateBlob(name), caffe2::CPU);
  tensor->Resize(dims);
  float* data = tensor->mutable_data<float>();
  std::mt19937 rng(seed);
  std::uniform_real_distribution<float> uniform(-0.1f, 0.1f);
  for (int64_t i = 0; i < tensor->numel(); ++i) data[i] = uniform(rng);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 8) return 2;
  const int layers = std::atoi(argv[2]);
  const int64_t steps = std::atoll(argv[3]), batch = std::atoll(argv[4]), hidden = std::atoll(argv[5]);
  const int threads = std::atoi(argv[6]);
  const int repetitions = std::atoi(argv[7]);
  int init_argc = 3;
  const char* init_args[] = {"caffe2_lstm", "--caffe2_omp_num_threads=1", "--caffe2_mkl_num_threads=1"};
  char** init_argv = const_cast<char**>(init_args);
  caffe2::GlobalInit(&init_argc, &init_argv);

  caffe2::NetDef net;
  if (!caffe2::ReadProtoFromFile(argv[1], &net)) return 1;
  for (auto& op : *net.mutable_op()) {
    for (auto& arg : *op.mutable_arg()) {
      if (arg.name() == "enable_rnn_executor") arg.set_i(threads > 1 ? 1 : 0);
      if (arg.name() == "rnn_executor.num_threads") arg.set_i(threads);
    }
  }
  caffe2::Workspace workspace;
  Feed(workspace, "input", {steps, batch, hidden}, 1);
  Feed(workspace, "target_0", {steps, batch, hidden}, 2);
  for (int layer = 0; layer < layers; ++layer) {
    const std::string number = std::to_string(layer);
    const std::string prefix = layers == 1 ? "rnn/" : "rnn/layer_" + number + "/";
    const std::string input_prefix = layer == 0 ? "rnn/" : prefix;
    for (const auto& name : {input_prefix + "i2h", prefix + "gates_t"}) {
      Feed(workspace, name + "_w", {4 * hidden, hidden}, 3);
      Feed(workspace, name + "_b", {4 * hidden}, 4);
    }
    for (const char* state : {"0", "1"}) {
      Feed(workspace, std::string("state_") + state + "_layer_" + number, {1, batch, hidden}, 5);
    }
  }
  auto* lengths = caffe2::BlobGetMutableTensor(workspace.CreateBlob("seq_lengths"), caffe2::CPU);
  lengths->Resize(std::vector<int64_t>{batch});
  std::fill_n(lengths->mutable_data<int>(), batch, static_cast<int>(steps));
  auto* made = workspace.CreateNet(net, true);
  if (made == nullptr || !made->Run() || !made->Run()) return 1;
  std::vector<double> times;
  for (int i = 0; i < repetitions; ++i) {
    const auto begin = std::chrono::steady_clock::now();
    made->Run();
    times.push_back(std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin).count());
  }
  std::sort(times.begin(), times.end());
  std::printf("%.3f %.3f\n", times.front(), times[times.size() / 2]);
  return 0;
}

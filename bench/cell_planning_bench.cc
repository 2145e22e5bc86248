// What it takes to compile the example cells with their gradients: to make such a net and run it once, for two steps,
// and to run it once more with another number of steps or another batch.
//
//   build/release/bench/stepnet_bench --benchmark_filter=Compile
#include <benchmark/benchmark.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "stepnet/cells/cell_expand.h"
#include "stepnet/core/strings.h"
#include "stepnet/nets/backward.h"
#include "stepnet/nets/backward_step.h"
#include "stepnet/nets/net.h"

namespace stepnet {
namespace {

struct CellWithGradient {
  CellNet cell;
  NetDef net;  // with the gradients of its parameters
};

CellWithGradient MakeCell(const std::string& file) {
  CellNet cell = ExpandCell(ReadCell(file));
  NetDef net = cell.net;
  AddBackwardStepNets(&net);
  std::vector<std::string> losses;
  for (size_t o = 0; o < cell.outputs.size(); ++o) {
    if (cell.output_dtypes[o] == DType::kFloat) losses.push_back(cell.outputs[o]);
  }
  NetDef with_gradient = AddGradients(net, losses, cell.parameters).net;
  return {std::move(cell), std::move(with_gradient)};
}

// Zeros; lengths are those of whole sequences.
void FeedInputs(const CellWithGradient& of, std::int64_t steps, std::int64_t batch, Workspace* workspace) {
  std::vector<CellNetInput> inputs = of.cell.inputs;
  inputs.insert(inputs.end(), of.cell.starts.begin(), of.cell.starts.end());
  for (const CellNetInput& input : inputs) {
    std::vector<std::int64_t> dims = input.dims;
    std::ranges::replace(dims, CellNetInput::kSteps, steps);
    std::ranges::replace(dims, CellNetInput::kBatch, batch);
    Tensor tensor = Tensor::Zeros(input.dtype, Shape(dims));
    if (input.dtype == DType::kInt32) std::fill_n(tensor.data<std::int32_t>(), tensor.size(), steps);
    workspace->SetTensor(input.blob, tensor);
  }
}

void FeedParameters(const CellWithGradient& of, Workspace* workspace) {
  Net::Create(of.cell.init_net, *workspace)->Run();
}

constexpr std::int64_t kSteps = 2, kBatch = 2;

void CompileCell(benchmark::State& state, const std::string& file) {
  const CellWithGradient of = MakeCell(file);
  Workspace filled;
  FeedParameters(of, &filled);
  FeedInputs(of, kSteps, kBatch, &filled);
  for (auto _ : state) {
    Workspace workspace(&filled);
    Net::Create(of.net, workspace)->Run();
  }
}

// Runs the cell again, each time with another number of steps, of sixteen, or with a batch that it did not have yet.
void RunWithOthers(benchmark::State& state, const std::string& file, bool of_steps) {
  const CellWithGradient of = MakeCell(file);
  Workspace workspace;
  FeedParameters(of, &workspace);
  FeedInputs(of, kSteps, kBatch, &workspace);
  const std::unique_ptr<Net> net = Net::Create(of.net, workspace);
  net->Run();
  std::int64_t more = 0;
  for (auto _ : state) {
    state.PauseTiming();
    ++more;
    FeedInputs(of, kSteps + (of_steps ? more % 16 : 0), kBatch + (of_steps ? 0 : more), &workspace);
    state.ResumeTiming();
    net->Run();
  }
}

const bool registered = [] {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(STEPNET_SOURCE_DIR "/examples/cells")) {
    if (entry.path().extension() == ".cell") names.push_back(entry.path().stem());
  }
  std::ranges::sort(names);
  for (const std::string& name : names) {
    const std::string file = StrCat(STEPNET_SOURCE_DIR "/examples/cells/", name, ".cell");
    const auto add = [&](const std::string& what, auto run) {
      benchmark::RegisterBenchmark(StrCat("Compile/", name, what).c_str(), run)->Unit(benchmark::kMillisecond);
    };
    add("", [file](benchmark::State& state) { CompileCell(state, file); });
    add("/other_T", [file](benchmark::State& state) { RunWithOthers(state, file, /*of_steps=*/true); });
    add("/other_B", [file](benchmark::State& state) { RunWithOthers(state, file, /*of_steps=*/false); });
  }
  return true;
}();

}  // namespace
}  // namespace stepnet

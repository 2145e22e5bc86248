// What it takes to make a golden net with its gradient and to run it once; those with a step net and its gradient.
//
//   build/release/bench/stepnet_bench --benchmark_filter=Golden
#include <benchmark/benchmark.h>

#include <algorithm>
#include <filesystem>
#include <string>
#include <vector>

#include "stepnet/core/strings.h"
#include "stepnet/io/proto_io.h"
#include "stepnet/io/tensor_io.h"
#include "stepnet/nets/net.h"
#include "stepnet/proto/net.pb.h"

namespace stepnet {
namespace {

namespace fs = std::filesystem;

void CompileGolden(benchmark::State& state, const fs::path& folder) {
  NetDef net;
  ReadMessage(folder / "net.pb", &net);
  Workspace filled;
  for (const auto& [name, tensor] : ReadTensors(folder / "inputs.pb")) filled.SetTensor(name, tensor);
  for (auto _ : state) {
    Workspace workspace(&filled);
    Net::Create(net, workspace)->Run();
  }
}

bool HasGradientOfSteps(const fs::path& file) {
  NetDef net;
  ReadMessage(file, &net);
  return std::ranges::any_of(net.op(), [](const auto& op) { return op.type() == "RecurrentNetworkGradient"; });
}

const bool registered = [] {
  std::vector<fs::path> folders;
  for (const auto& entry : fs::directory_iterator(STEPNET_SOURCE_DIR "/tests/golden")) {
    const bool is_whole = fs::exists(entry.path() / "net.pb") && fs::exists(entry.path() / "inputs.pb");
    if (is_whole && HasGradientOfSteps(entry.path() / "net.pb")) folders.push_back(entry.path());
  }
  std::ranges::sort(folders);
  for (const fs::path& folder : folders) {
    benchmark::RegisterBenchmark(StrCat("Golden/", folder.filename().string()).c_str(), [folder](
                                                                                            benchmark::State& state) {
      CompileGolden(state, folder);
    })->Unit(benchmark::kMillisecond);
  }
  return true;
}();

}  // namespace
}  // namespace stepnet

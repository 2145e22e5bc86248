#include "golden_case.h"

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "stepnet/io/file.h"
#include "stepnet/io/proto_io.h"
#include "stepnet/tests/core/sanitized.h"
#include "stepnet/tests/core/source_path.h"

namespace stepnet {
namespace {

namespace fs = std::filesystem;

GoldenCase ReadCase(const fs::path& folder) {
  const nlohmann::json manifest = nlohmann::json::parse(ReadFile((folder / "manifest.json").string()));
  GoldenCase golden{.name = folder.filename().string(), .net = {}, .runs = {}};
  ReadMessage((folder / manifest.at("net").get<std::string>()).string(), &golden.net);
  for (const nlohmann::json& run : manifest.at("runs")) {
    golden.runs.push_back(ReadTensors((folder / run.at("inputs").get<std::string>()).string()));
  }
  return golden;
}

}  // namespace

const std::vector<GoldenCase>& GoldenCases() {
  static const std::vector<GoldenCase> cases = [] {
    std::vector<GoldenCase> all;
    for (const char* folder : {"tests/golden", "tests/golden_mxnet"}) {
      for (const auto& entry : fs::directory_iterator(SourcePath(folder))) {
        if (fs::exists(entry.path() / "manifest.json")) all.push_back(ReadCase(entry.path()));
      }
    }
    std::ranges::sort(all, {}, &GoldenCase::name);
    return all;
  }();
  return cases;
}

std::vector<const GoldenCase*> GoldenCasesInTurn(size_t turn) {
  constexpr size_t kTurns = kIsSanitized ? 3 : 1;
  std::vector<const GoldenCase*> cases;
  for (size_t k = turn % kTurns; k < GoldenCases().size(); k += kTurns) cases.push_back(&GoldenCases()[k]);
  return cases;
}

const Workspace& CaseRun::Run(size_t r) {
  for (const auto& [name, tensor] : golden_.runs[r]) workspace_.SetTensor(name, tensor);
  if (net_ == nullptr) net_ = Net::Create(golden_.net, workspace_, options_);
  net_->Run();
  return workspace_;
}

}  // namespace stepnet

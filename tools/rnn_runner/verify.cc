// rnn_runner verify: golden folders, nets with inputs and the outputs that they must give.
#include <algorithm>
#include <cmath>
#include <filesystem>
#include <iostream>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "stepnet/core/allowed_files.h"
#include "stepnet/core/floating.h"
#include "stepnet/io/file.h"
#include "stepnet/io/proto_io.h"
#include "stepnet/io/tensor_io.h"
#include "stepnet/nets/backward.h"
#include "stepnet/nets/backward_step.h"
#include "stepnet/nets/net.h"
#include "stepnet/proto/net.pb.h"
#include "stepnet/report/text.h"
#include "stepnet/tools/rnn_runner/common_flags.h"
#include "stepnet/tools/rnn_runner/directions.h"
#include "stepnet/tools/rnn_runner/inputs.h"
#include "stepnet/tools/rnn_runner/losses.h"
#include "stepnet/tools/rnn_runner/progress.h"
#include "stepnet/tools/rnn_runner/tensor_text.h"

DEFINE_bool(details, false, "a line for every blob, not for the worst of a case alone");
DECLARE_bool(rebuild);

namespace stepnet::runner {
namespace {

namespace fs = std::filesystem;

constexpr double kAbsolute = 1e-5;
constexpr double kRelative = 1e-4;

struct ManifestRun {
  std::string inputs;
  std::string expected;
  std::vector<std::string> outputs;
  std::vector<std::string> gradients;
};

struct Manifest {
  std::string net;
  std::string init_net;                       // "" when there is none
  std::map<std::string, std::string> losses;  // blob → its gradient, where the names in the net do not show it
  std::vector<ManifestRun> runs;
  // In the one run of such a case: what becomes of gradients, and what their blobs hold before and after it.
  GradientRequests requests;
  std::string before, after;
};

// How one blob of one run compares.
struct Comparison {
  std::string blob;
  std::string problem;  // "" when it can be compared element by element
  double error = 0;     // largest |a - b|
  double excess = 0;    // largest |a - b| / (1e-5 + 1e-4 |b|); above 1 fails
  bool ok() const { return problem.empty() && excess <= 1; }
};

// COLLECTION/NAME for a case COLLECTION/gradients/NAME: another case of the same values. The case itself where there is
// none.
fs::path CaseOfSameValues(const fs::path& folder) {
  const fs::path other = folder.parent_path().parent_path() / folder.filename();
  std::error_code fault;
  const bool is_case = folder.parent_path().filename() == "gradients" && fs::exists(other / "manifest.json", fault);
  const fs::path real = is_case ? fs::canonical(other, fault) : fs::path();
  return real.empty() ? folder : real;
}

// The file that a manifest names. Manifests come from anywhere, and make nobody read files of other folders.
std::string FileInside(const fs::path& folder, const std::string& name) {
  std::error_code fault;
  const fs::path real_folder = fs::canonical(folder, fault);
  const fs::path file = fault ? fs::path() : fs::weakly_canonical(real_folder / name, fault);
  const auto is_inside = [&](const fs::path& allowed) { return IsInside(file, allowed); };
  if (!fault && (is_inside(real_folder) || is_inside(CaseOfSameValues(real_folder)))) return (folder / name).string();
  throw Error(ErrorCode::kInputOutput,
              StrCat((folder / "manifest.json").string(), " names ", Quoted(name), ", which ",
                     fault ? StrCat("cannot be found: ", fault.message()) : "lies outside of the manifest's folder"));
}

Manifest ReadManifest(const fs::path& folder) {
  const fs::path path = folder / "manifest.json";
  try {
    const nlohmann::json json = nlohmann::json::parse(ReadFile(path.string()));
    const auto in_folder = [&](const nlohmann::json& name) { return FileInside(folder, name.get<std::string>()); };
    Manifest manifest{.net = in_folder(json.at("net")), .init_net = {}, .losses = {}, .runs = {}};
    if (json.contains("init_net")) manifest.init_net = in_folder(json.at("init_net"));
    if (json.contains("losses")) manifest.losses = json.at("losses").get<std::map<std::string, std::string>>();
    for (const nlohmann::json& item : json.at("runs")) {
      ManifestRun& run = manifest.runs.emplace_back();
      run.inputs = in_folder(item.at("inputs"));
      run.expected = in_folder(item.at("expected"));
      if (item.contains("outputs")) run.outputs = item.at("outputs").get<std::vector<std::string>>();
      if (item.contains("gradients")) run.gradients = item.at("gradients").get<std::vector<std::string>>();
    }
    if (manifest.runs.empty()) throw Error(ErrorCode::kInputOutput, StrCat(path.string(), " lists no runs"));
    if (!json.contains("grad_req")) return manifest;
    if (manifest.runs.size() > 1) {
      throw Error(ErrorCode::kInputOutput, StrCat(path.string(), " has grad_req and several runs, must have one"));
    }
    for (const auto& [name, request] : json.at("grad_req").get<std::map<std::string, std::string>>()) {
      // MXNet's name for it.
      const std::string own = request == "null" ? GradientRequestName(GradientRequest::kNone) : request;
      manifest.requests[name] = ParseGradientRequest(own, StrCat(path.string(), ": grad_req says for \"", name, "\""));
    }
    manifest.before = in_folder(json.at("before"));
    manifest.after = in_folder(json.at("after"));
    return manifest;
  } catch (const nlohmann::json::exception& error) {
    throw Error(ErrorCode::kInputOutput, StrCat(path.string(), " is no manifest: ", error.what()));
  }
}

// NaN equals NaN, infinity itself, and neither equals anything else.
void CompareNumbers(const Tensor& found, const Tensor& expected, Comparison* comparison) {
  std::vector<double> wanted;
  ForEachNumber(expected, [&](std::int64_t, double value) { wanted.push_back(value); });
  ForEachNumber(found, [&](std::int64_t i, double a) {
    const double b = wanted[i];
    if (a == b || (std::isnan(a) && std::isnan(b))) return;
    if (!std::isfinite(a) || !std::isfinite(b)) {
      if (comparison->problem.empty()) comparison->problem = StrCat("element ", i, " is ", a, ", must be ", b);
      return;
    }
    const double error = std::abs(a - b);
    comparison->error = std::max(comparison->error, error);
    comparison->excess = std::max(comparison->excess, error / (kAbsolute + kRelative * std::abs(b)));
  });
}

// What a run gives as `blob` against what is expected under `name`.
Comparison Compare(const std::string& name, const std::string& blob, const Workspace& workspace,
                   const NamedTensors& expected, bool is_gradient) {
  Comparison comparison{.blob = name, .problem = {}};
  const auto wanted = std::ranges::find(expected, name, [](const auto& item) { return item.first; });
  const Blob* found = workspace.FindBlob(blob);
  if (wanted == expected.end()) {
    comparison.problem = "the case gives no expected value";
  } else if (found == nullptr || !found->HasTensor()) {
    const bool may_be_made = is_gradient && !FLAGS_rebuild;
    comparison.problem = StrCat("the net gives no such tensor", may_be_made ? "; --rebuild makes gradients" : "");
  } else if (found->GetTensor().dtype() != wanted->second.dtype() ||
             found->GetTensor().shape() != wanted->second.shape()) {
    comparison.problem = StrCat("is ", found->Description(), ", must be ", wanted->second.Description());
  } else if (wanted->second.dtype() == DType::kString) {
    const std::string* a = found->GetTensor().data<std::string>();
    if (!std::equal(a, a + wanted->second.size(), wanted->second.data<std::string>())) comparison.problem = "differs";
  } else {
    CompareNumbers(found->GetTensor(), wanted->second, &comparison);
  }
  return comparison;
}

// A net to run, and the blobs that the runs of a case compare: expected name → name in the net.
struct Subject {
  NetDef net;
  std::vector<std::map<std::string, std::string>> blobs;
};

Subject AsItIs(NetDef net, const Manifest& manifest) {
  Subject subject{.net = std::move(net), .blobs = {}};
  for (const ManifestRun& run : manifest.runs) {
    auto& blobs = subject.blobs.emplace_back();
    for (const std::string& blob : run.outputs) blobs[blob] = blob;
    for (const std::string& blob : run.gradients) blobs[blob] = blob;
  }
  return subject;
}

// The net with gradient operators made here, from the same losses. Compares the gradients of what the net reads or, of
// those that are requested otherwise, what their blobs hold.
Subject WithNewGradients(const NetDef& net, const Manifest& manifest, const Workspace& workspace,
                         const GradientRequests& requests = {}) {
  std::map<std::string, std::string> seeds = manifest.losses;
  if (seeds.empty()) {
    for (const Loss& loss : SeededLosses(net)) seeds[loss.blob] = loss.gradient;
  }
  NetDef forward = WithoutGradients(net);
  AddBackwardStepNets(&forward, [&](const std::string& name) {
    const Blob* blob = workspace.FindBlob(name);
    return blob == nullptr || !blob->HasTensor() || IsFloatOrDouble(blob->GetTensor().dtype());
  });
  const std::vector<std::string> inputs = ReadFirst(forward);
  NetWithGradients made = AddGradientsFrom(forward, seeds, inputs, requests);
  Subject subject{.net = std::move(made.net), .blobs = {}};
  for (const ManifestRun& run : manifest.runs) {
    auto& blobs = subject.blobs.emplace_back();
    for (const std::string& input : inputs) {
      const std::string name = input + "_grad";
      if (std::ranges::find(run.gradients, name) != run.gradients.end()) blobs[name] = made.gradients[input].dense;
    }
    for (const auto& [input, request] : requests) {
      if (request == GradientRequest::kNone) blobs[input + "_grad"] = input + "_grad";  // which nothing writes
    }
  }
  return subject;
}

// Where Caffe2 has recorded no gradients: those made here against differences.
std::vector<Comparison> CompareWithDifferences(const NetDef& net, const Workspace& workspace,
                                               const RunOptions& options) {
  std::vector<Comparison> comparisons;
  for (const Direction& direction : CompareDirections(net, workspace, options)) {
    const double error = std::abs(direction.gradient - direction.difference);
    comparisons.push_back({.blob = direction.input + "_grad",
                           .problem = std::isfinite(error) ? "" : "is not finite",
                           .error = error,
                           .excess = error / direction.allowed});
  }
  return comparisons;
}

void FillFromInitNet(const Manifest& manifest, const RunOptions& options, Workspace& workspace) {
  if (manifest.init_net.empty()) return;
  NetDef init_net;
  ReadMessage(manifest.init_net, &init_net);
  RunNetOnce(init_net, workspace, options);
}

// The case's one run once more, with the gradients as its grad_req asks for them.
std::vector<Comparison> CompareRequested(const NetDef& net, const Manifest& manifest, const RunOptions& options) {
  Workspace workspace;
  FillFromInitNet(manifest, options, workspace);
  for (const std::string& file : {manifest.runs.front().inputs, manifest.before}) {
    for (auto& [name, tensor] : ReadTensors(file)) workspace.SetTensor(name, std::move(tensor));
  }
  const Subject subject = WithNewGradients(net, manifest, workspace, manifest.requests);
  RunNetOnce(subject.net, workspace, options);
  const NamedTensors after = ReadTensors(manifest.after);
  std::vector<Comparison> comparisons;
  for (const auto& [input, request] : manifest.requests) {
    const std::string name = input + "_grad";
    comparisons.push_back(Compare(name, subject.blobs.front().at(name), workspace, after, /*is_gradient=*/true));
    comparisons.back().blob += StrCat(":", GradientRequestName(request));
  }
  return comparisons;
}

// Runs a case: one net in one workspace, its runs in order. The worst comparison of each blob over the runs.
std::vector<Comparison> VerifyCase(const fs::path& folder, const RunOptions& options) {
  const Manifest manifest = ReadManifest(folder);
  Workspace workspace;
  FillFromInitNet(manifest, options, workspace);
  NetDef def;
  ReadMessage(manifest.net, &def);
  Subject subject;
  std::unique_ptr<Net> net;
  std::vector<Comparison> comparisons;
  for (size_t r = 0; r < manifest.runs.size(); ++r) {
    const ManifestRun& run = manifest.runs[r];
    for (auto& [name, tensor] : ReadTensors(run.inputs)) workspace.SetTensor(name, std::move(tensor));
    if (net == nullptr) {
      const auto has_gradients = [](const ManifestRun& listed) { return !listed.gradients.empty(); };
      if (FLAGS_rebuild && std::ranges::none_of(manifest.runs, has_gradients)) {
        return CompareWithDifferences(def, workspace, options);
      }
      subject = FLAGS_rebuild ? WithNewGradients(def, manifest, workspace) : AsItIs(def, manifest);
      net = Net::Create(subject.net, workspace, options);
    }
    net->Run();
    const NamedTensors expected = ReadTensors(run.expected);
    for (const auto& [name, blob] : subject.blobs[r]) {
      const bool is_gradient = std::ranges::count(run.gradients, name) > 0;
      Comparison now = Compare(name, blob, workspace, expected, is_gradient);
      if (!now.problem.empty() && manifest.runs.size() > 1) now.problem = StrCat("run ", r, ": ", now.problem);
      const auto before = std::ranges::find(comparisons, name, &Comparison::blob);
      if (before == comparisons.end()) {
        comparisons.push_back(std::move(now));
      } else if (before->problem.empty() && (!now.problem.empty() || now.excess > before->excess)) {
        *before = std::move(now);
      }
    }
  }
  if (FLAGS_rebuild && !manifest.requests.empty()) {
    std::ranges::copy(CompareRequested(def, manifest, options), std::back_inserter(comparisons));
  }
  return comparisons;
}

// The folders with a manifest: each operand itself, or the folders within it.
std::vector<fs::path> FindCases(const std::vector<std::string>& operands) {
  std::vector<fs::path> cases;
  for (const std::string& operand : operands) {
    const fs::path folder(operand);
    std::error_code fault;
    if (fs::exists(folder / "manifest.json", fault)) {
      cases.push_back(folder);
      continue;
    }
    std::vector<fs::path> within;
    for (fs::directory_iterator it(folder, fault), end; !fault && it != end; it.increment(fault)) {
      std::error_code ignored;
      if (fs::exists(it->path() / "manifest.json", ignored)) within.push_back(it->path());
    }
    if (fault) throw Error(ErrorCode::kInputOutput, StrCat("cannot read the folder ", operand, ": ", fault.message()));
    if (within.empty()) {
      throw Error(ErrorCode::kInputOutput, StrCat(operand, " has no manifest.json, nor has any folder in it"));
    }
    std::ranges::sort(within);
    cases.insert(cases.end(), within.begin(), within.end());
  }
  return cases;
}

// The folder's own name, also of "." and "case/".
std::string CaseName(const fs::path& folder) {
  const fs::path path = fs::absolute(folder).lexically_normal();
  return (path.filename().empty() ? path.parent_path() : path).filename().string();
}

std::vector<std::string> Row(const std::string& name, size_t blobs, const Comparison& comparison) {
  std::vector<std::string> row = {name, StrCat(blobs), NameText(comparison.blob)};
  if (comparison.problem.empty()) {
    row.insert(row.end(),
               {Number(comparison.error, 2), Number(comparison.excess, 2), comparison.ok() ? "ok" : "DIFFERS"});
  } else {
    row.insert(row.end(), {"", "", "DIFFERS: " + comparison.problem});
  }
  return row;
}

bool IsWorse(const Comparison& a, const Comparison& b) {
  return std::pair(!a.problem.empty(), a.excess) > std::pair(!b.problem.empty(), b.excess);
}

int Verify(const std::vector<std::string>& operands) {
  const RunOptions options = RunOptionsFromFlags();
  const std::vector<fs::path> cases = FindCases(operands);
  Table table({"case", "blobs", FLAGS_details ? "blob" : "worst blob", "error", "of allowed", ""});
  std::vector<std::string> faults;
  size_t failed = 0;
  size_t without_gradients = 0;
  {
    Progress progress("verify");
    for (size_t i = 0; i < cases.size(); ++i) {
      const std::string name = CaseName(cases[i]);
      progress.Show(static_cast<std::int64_t>(i), static_cast<std::int64_t>(cases.size()), name);
      try {
        const std::vector<Comparison> comparisons = VerifyCase(cases[i], options);
        if (comparisons.empty() && FLAGS_rebuild) {
          ++without_gradients;
          continue;
        }
        if (comparisons.empty()) throw Error(ErrorCode::kInputOutput, "the case lists nothing to compare");
        failed += std::ranges::all_of(comparisons, &Comparison::ok) ? 0 : 1;
        const auto worst = std::ranges::min_element(comparisons, IsWorse);
        for (auto it = comparisons.begin(); it != comparisons.end(); ++it) {
          if (FLAGS_details || it == worst) table.Add(Row(name, comparisons.size(), *it));
        }
      } catch (...) {
        ++failed;
        table.Add({name, "", "", "", "", "FAILED"});
        faults.push_back(StrCat(name, ": ", CurrentError().what()));
      }
    }
  }
  std::cout << Printable(table.Text());
  for (const std::string& fault : faults) std::cout << "\n" << Printable(fault) << "\n";
  std::cout << (faults.empty() ? "" : "\n") << Count(static_cast<std::int64_t>(cases.size()), "case") << ": "
            << cases.size() - failed - without_gradients << " verified, " << failed << " failed"
            << (FLAGS_rebuild ? StrCat(", ", without_gradients, " without gradients") : "") << "\n";
  return failed == 0 ? kOk : kFault;
}

std::vector<FlagUse> VerifyFlags() {
  std::vector<FlagUse> flags = {
      {.name = "details"},
      {.name = "rebuild",
       .doc =
           "make new gradient operators in place of those that the nets have, and compare the gradients of what\n"
           "the nets read with those expected or, where a case lists none, with differences along a random direction"}};
  for (FlagUse& flag : ExecutorFlags()) flags.push_back(std::move(flag));
  return WithCommonFlags(std::move(flags));
}

}  // namespace

const Command kVerify = {
    .name = "verify",
    .operands = "DIR…",
    .doc = "runs golden folders and compares every output and gradient",
    .details =
        "DIR is a case, a folder with manifest.json, or a folder of cases. The files that a manifest names lie in its\n"
        "folder, also after links and .. have been followed; of a case COLLECTION/gradients/NAME they may also lie in\n"
        "the case COLLECTION/NAME. A blob is right when every element a is\n"
        "within 1e-5 + 1e-4 |b| of the expected b, with the same dtype and shape; \"of allowed\" is the part of that\n"
        "which the worst element uses up. Where a manifest has grad_req, --rebuild also runs the net with gradients "
        "that\n"
        "are written, added to those in `before`, or not computed, and compares all with `after`. The exit status is "
        "1\n"
        "when a case differs or cannot be run.",
    .example = "rnn_runner verify tests/golden --details",
    .flags = VerifyFlags(),
    .min_operands = 1,
    .max_operands = 1 << 20,
    .operand_kind = ValueKind::kFolder,
    .run = Verify,
};

}  // namespace stepnet::runner

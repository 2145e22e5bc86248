// rnn_runner check: what can be known to be wrong with a net without running it.
#include <iostream>
#include <map>
#include <optional>
#include <set>

#include "stepnet/compiler/shape_check.h"
#include "stepnet/io/minidb.h"
#include "stepnet/nets/completion.h"
#include "stepnet/nets/decomposition.h"
#include "stepnet/nets/execution_plan.h"
#include "stepnet/nets/net_blobs.h"
#include "stepnet/nets/net_check.h"
#include "stepnet/nets/placement.h"
#include "stepnet/report/text.h"
#include "stepnet/tools/rnn_runner/cell_file.h"
#include "stepnet/tools/rnn_runner/common_flags.h"
#include "stepnet/tools/rnn_runner/inputs.h"
#include "stepnet/tools/rnn_runner/model_file.h"

namespace stepnet::runner {
namespace {

// What a net of the file finds in the workspace when it runs: what other nets of the file write, and what a minidb
// holds beside its nets.
std::set<std::string> GivenBlobs(const std::vector<NamedNet>& nets, const std::string& path) {
  std::set<std::string> given;
  for (size_t i = 0; nets.size() > 1 && i < nets.size(); ++i) {
    for (const OperatorDef& op : nets[i].net->op()) given.insert(op.output().begin(), op.output().end());
  }
  if (LooksLikeMiniDb(path)) {
    MiniDbReader reader(path);
    for (std::string key, value; reader.Next(&key, &value);) given.insert(BlobOfKey(key));
  }
  return given;
}

// What --init_net fills, and what the flags of inputs give, as they give it to `run`. Throws as running the one, and as
// CheckRead does.
std::map<std::string, TensorInfo> GivenTensors(const std::vector<NamedNet>& nets, const NamedTensors& fed,
                                               const std::string& path) {
  std::map<std::string, TensorInfo> given;
  const auto add = [&](const std::string& name, const Tensor& tensor, bool is_held) {
    // Runs compute with the floats that weights in bfloat16 are, and make float of what a file holds in 16 bits.
    const bool is_float = tensor.dtype() == DType::kBFloat16 || (is_held && tensor.dtype() == DType::kFloat16);
    given[name] = {.dtype = is_float ? DType::kFloat : tensor.dtype(), .shape = tensor.shape()};
  };
  if (!FLAGS_init_net.empty()) {
    const Model parameters = ReadParameters(FLAGS_init_net);
    Workspace workspace;
    try {
      parameters.Initialize(workspace, RunOptionsFromFlags());
    } catch (...) {
      throw CurrentError().At({.file = FLAGS_init_net});
    }
    for (const std::string& name : NamesGivenBy(parameters)) {
      const Blob& blob = workspace.GetBlob(name);
      if (blob.HasTensor()) add(name, blob.GetTensor(), parameters.parameters.contains(name));
    }
  }
  std::vector<const NetDef*> fed_nets;
  for (const NamedNet& named : nets) fed_nets.push_back(named.net);
  CheckRead(path, fed_nets, fed);
  for (const auto& [name, tensor] : fed) add(name, tensor, /*is_held=*/false);
  return given;
}

// Throws as TakeCellParameters does.
void CheckCellParameters(const CellNet& cell) {
  const RunOptions options = RunOptionsFromFlags();
  Workspace workspace;
  CellModel(cell).Initialize(workspace, options);
  try {
    TakeCellParameters(cell, FLAGS_init_net, workspace, options);
  } catch (...) {
    throw CurrentError().At({.file = FLAGS_init_net});
  }
}

// What `run` gives the net of a cell: `fed`, and for what is missing what it makes up. Throws as `run` does where that
// is not as the cell declares it.
std::map<std::string, TensorInfo> GivenToCell(const CellNet& cell, const NamedTensors& fed) {
  Workspace workspace;
  CellModel(cell).Initialize(workspace);
  for (const auto& [name, tensor] : fed) {
    CheckParameter(cell, name, tensor, workspace);
    workspace.SetTensor(name, tensor);
  }
  const SequenceSizes sizes = CheckCellInputs(cell, workspace);
  std::map<std::string, TensorInfo> given;
  for (const CellNetInput& input : cell.inputs) given[input.blob] = MadeUpInfo(input, sizes);
  for (const std::string& name : workspace.LocalBlobs()) {
    const Blob& blob = workspace.GetBlob(name);
    if (blob.HasTensor()) given[name] = {.dtype = blob.GetTensor().dtype(), .shape = blob.GetTensor().shape()};
  }
  return given;
}

// Operators, or parts of them, that are meant for another device and run on the CPU.
void PrintFallbacks(const NetDef& net, const std::string& where, const RunOptions& options) {
  const DecomposedNet parts = Decomposed(std::make_shared<NetDef>(net), NetUse::kInference);
  for (int i = 0; i < parts.net->op_size(); ++i) {
    const OperatorDef& part = parts.net->op(i);
    const Device meant = DeviceAskedFor(part, *parts.net).value_or(options.device());
    if (meant.IsHost() || !PlaceOf(part, *parts.net, options).IsHost()) continue;
    const OperatorDef& whole = net.op(parts.origins[i]);
    const std::string of_part = HasDecomposition(whole.type()) ? StrCat("its ", OperatorText(part), " ") : "";
    const NetProblem problem{
        .net = net.name(),
        .op_index = parts.origins[i],
        .op_text = OperatorText(whole),
        .message = StrCat(of_part, "runs on the CPU, without a kernel for ", DeviceKindName(meant.kind))};
    std::cerr << Printable(StrCat("warning: ", where, problem.Text())) << "\n";
  }
}

int Check(const std::vector<std::string>& operands) {
  const std::string& path = operands.front();
  const NamedTensors fed = ReadInputs(ValuesUse::kUnread);
  const std::optional<CellNet> cell = ExpandCellFile(path, {}, fed);
  if (cell) {
    if (!FLAGS_init_net.empty()) CheckCellParameters(*cell);
    PrintCellWarnings(path);
  }
  const AnyMessage file = ReadNetFile(path);
  std::int64_t problems = 0;
  int operators = 0;
  int step_nets = 0;
  size_t num_missing = 0;
  if (file.kind == MessageKind::kPlanDef) {
    const auto& plan = static_cast<const PlanDef&>(*file.message);
    for (const std::string& problem : CheckExecutionPlan(plan)) {
      std::cout << Printable(StrCat("plan \"", plan.name(), "\", ", problem)) << "\n";
      ++problems;
    }
  }
  const std::vector<NamedNet> nets = NetsOf(file, path);
  std::set<std::string> given = GivenBlobs(nets, path);
  std::map<std::string, TensorInfo> tensors = GivenTensors(nets, fed, path);
  for (const auto& [name, tensor] : tensors) given.insert(name);
  if (cell && !fed.empty()) tensors.merge(GivenToCell(*cell, fed));
  for (const NamedNet& named : nets) {
    const std::string where = named.name.empty() || named.name == named.net->name() ? "" : named.name + ", ";
    const RunOptions options = OnDevice({}, DeviceNamedByFlags());
    const NetDef net = *Completed(*named.net);
    std::vector<NetProblem> found =
        CheckNet(net, {.run = options, .blob_exists = [&](const std::string& blob) { return given.contains(blob); }});
    for (const NetProblem& warning : WarningsOfNet(net)) {
      std::cerr << Printable(StrCat("warning: ", where, warning.Text())) << "\n";
    }
    if (found.empty() && (!cell || !fed.empty())) found = CheckShapes(net, tensors);
    for (const NetProblem& problem : found) std::cout << Printable(where + problem.Text()) << "\n";
    num_missing += BlobsOfNobody(net, found, given).size();
    problems += static_cast<std::int64_t>(found.size());
    operators += named.net->op_size();
    if (!found.empty()) continue;
    step_nets += CountStepNets(*named.net);
    PrintFallbacks(net, where, options);
  }
  if (problems > 0) {
    if (FLAGS_init_net.empty()) {
      const std::string advice = AdviceOnParameters(num_missing, "--init_net=F names the file that does");
      if (!advice.empty()) std::cout << advice << "\n";
    }
    std::cout << Count(problems, "problem") << "\n";
    return kFault;
  }
  std::cout << "no problems: " << Count(operators, "operator") << ", " << Count(step_nets, "step net") << "\n";
  return kOk;
}

std::vector<FlagUse> CheckFlags() {
  std::vector<FlagUse> flags = InputFlags();
  std::erase_if(flags, [](const FlagUse& flag) { return flag.name == "seed"; });  // values are not looked at
  flags.push_back({.name = "init_net",
                   .value = "F",
                   .doc = "what gives parameters that the net need not list as inputs",
                   .kind = ValueKind::kInputFile});
  flags.push_back(CellSizeFlag());
  flags.push_back(CellOptionFlag());
  flags.push_back(CellDTypeFlag());
  flags.push_back(DeviceFlag());
  return WithCommonFlags(std::move(flags));
}

}  // namespace

const Command kCheck = {
    .name = "check",
    .operands = "F",
    .doc = "lists everything that is wrong with a net and its step nets",
    .details =
        "F is a NetDef, a MetaNetDef, a PlanDef or a minidb model, binary or text, or a cell. The net is not run:\n"
        "unknown operators and arguments, wrong numbers of inputs, blobs that nothing writes, links that do not fit;\n"
        "with --init_net, which is run, parameters that a cell does not have, lacks, or has in another shape. A net\n"
        "need not list the blobs that --init_net, --input, --input_pb and --shape give, as for run; their sizes and\n"
        "types are looked at where they alone say what an operator is given, in step nets too. With --device=cuda "
        "what\n"
        "has no kernel there is a problem of a step net and a warning elsewhere, since it runs on the CPU; no GPU is\n"
        "needed. Each problem is printed with its net, operator and blob; the exit status is 1 when there are any.\n"
        "Operators of a cell of which nothing is read are a warning, and those that go over the whole batch because "
        "no\n"
        "axis is given or as they cannot do otherwise, and those of one input that do nothing, as Sum(x); so are blobs "
        "of a\n"
        "net that are written again before anything has read them, as those of two cells without --prefix of expand.",
    .example = "rnn_runner check net.pbtxt",
    .flags = CheckFlags(),
    .min_operands = 1,
    .max_operands = 1,
    .unknown_flag = AdviceOnOptions,
    .run = Check,
};

}  // namespace stepnet::runner

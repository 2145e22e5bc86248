// rnn_runner show: nets as text, as a picture, as JSON.
#include <iostream>

#include "stepnet/core/error.h"
#include "stepnet/core/strings.h"
#include "stepnet/io/minidb.h"
#include "stepnet/io/tensor_io.h"
#include "stepnet/nets/completion.h"
#include "stepnet/nets/decomposition.h"
#include "stepnet/nets/model.h"
#include "stepnet/nets/net.h"
#include "stepnet/nets/net_check.h"
#include "stepnet/nets/placement.h"
#include "stepnet/report/net_text.h"
#include "stepnet/report/text.h"
#include "stepnet/tools/rnn_runner/cell_file.h"
#include "stepnet/tools/rnn_runner/common_flags.h"
#include "stepnet/tools/rnn_runner/json_text.h"
#include "stepnet/tools/rnn_runner/model_file.h"
#include "stepnet/tools/rnn_runner/show_graph.h"
#include "stepnet/tools/rnn_runner/show_schedule.h"

DECLARE_bool(schedule);
DEFINE_string(
    graph, "",
    "instead of the net, what its step nets do, value by value, as the compiler knows it after PASS\n"
    "(docs/step_graph.md); without a name, after the last one; with the name plan, where values lie and what runs");

namespace stepnet::runner {
namespace {

const std::vector<std::string> kFormats = {"text", "dot", "json"};

// What a bundle says of its nets' blobs.
void PrintBlobLists(const MetaNetDef& bundle) {
  for (const BlobsMap& list : bundle.blobs()) {
    std::vector<std::string> names;
    for (const std::string& name : list.value()) names.push_back(NameText(name));
    std::cout << NameText(list.key()) << ": " << Join(names, ", ") << "\n";
  }
}

void PrintStep(const ExecutionStep& step, const std::string& indent) {
  std::vector<std::string> nets;
  for (const std::string& net : step.network()) nets.push_back(NameText(net));
  std::cout << indent << "step " << NameText(step.name()) << ": " << Join(nets, ", ");
  if (step.has_num_iter()) std::cout << " " << Count(step.num_iter(), "time");
  if (!step.should_stop_blob().empty()) std::cout << " until " << NameText(step.should_stop_blob());
  std::cout << "\n";
  for (const ExecutionStep& inner : step.substep()) PrintStep(inner, indent + "  ");
}

std::string DataTypeText(TensorProto::DataType type) {
  try {
    return DTypeName(DTypeFromNumber(type));
  } catch (const Error&) {
    return TensorProto::DataType_Name(type);  // one that no tensor here can have
  }
}

void PrintTensor(const TensorProto& tensor, const std::string& name) {
  std::cout << NameText(name) << " " << DataTypeText(tensor.data_type()) << " [" << Join(tensor.dims(), ", ") << "]\n";
}

// True when the message is one that holds tensors, which then are listed.
bool PrintTensors(const AnyMessage& file) {
  if (file.kind == MessageKind::kTensorProtos) {
    for (const TensorProto& tensor : static_cast<const TensorProtos&>(*file.message).protos()) {
      PrintTensor(tensor, tensor.name());
    }
    return true;
  }
  if (file.kind == MessageKind::kTensorProto) {
    const auto& tensor = static_cast<const TensorProto&>(*file.message);
    PrintTensor(tensor, tensor.name());
    return true;
  }
  if (file.kind == MessageKind::kBlobProto) {
    const auto& blob = static_cast<const BlobProto&>(*file.message);
    PrintTensor(blob.tensor(), blob.name());
    return true;
  }
  return false;
}

// Each operator where --device runs it, with the copies between devices; in place of one that stands for several these.
// Throws kInvalidNet where it cannot be placed.
NetDef AsPlaced(const NetDef& net) {
  const RunOptions options = RunOptionsOn(DeviceNamedByFlags());
  const std::shared_ptr<const NetDef> completed = Completed(net);
  // Blobs that nothing writes may be given when the net runs.
  ThrowIfProblems(CheckNet(*completed, {.run = options, .blob_exists = [](const std::string&) { return true; }}));
  return *Place(Decomposed(completed, NetUse::kInference).net, options).net;
}

NetDef AsAsked(const NetDef& net, const std::string& path) {
  if (!IsGiven("device")) return net;
  try {
    return AsPlaced(net);
  } catch (...) {
    throw CurrentError().At({.file = path});
  }
}

// How much of a run on a GPU is played as a graph.
void PrintRecordable(const NetDef& net, const std::string& path) {
  Workspace workspace;
  try {
    const auto made = Net::Create(net, workspace, RunOptionsOn(DeviceNamedByFlags()));
    const std::string why_no_more = made->Recordable().why_no_more;
    std::cout << Printable(why_no_more.empty() ? "a run is played as graphs, all of it"
                                               : StrCat("a run is played as graphs up to here: ", why_no_more))
              << "\n";
  } catch (...) {
    throw CurrentError().At({.file = path});
  }
}

void PrintText(const AnyMessage& file, const std::string& path) {
  if (PrintTensors(file)) return;
  if (file.kind == MessageKind::kMetaNetDef) PrintBlobLists(static_cast<const MetaNetDef&>(*file.message));
  for (const NamedNet& named : NetsOf(file, path)) {
    if (!named.name.empty() && named.name != named.net->name()) std::cout << NameText(named.name) << ": ";
    std::cout << NetAsText(AsAsked(*named.net, path));
    if (IsGiven("device") && !DeviceNamedByFlags().IsHost()) PrintRecordable(*named.net, path);
  }
  if (file.kind == MessageKind::kPlanDef) {
    for (const ExecutionStep& step : static_cast<const PlanDef&>(*file.message).execution_step()) PrintStep(step, "");
  }
}

// Without --schedule and --graph no net is run, and flags that say how to run one would be lost.
void RefuseRunFlags() {
  for (const FlagUse& flag : ScheduleFlags()) {
    const bool has_other_use = flag.name == CellSizeFlag().name || flag.name == CellOptionFlag().name ||
                               flag.name == CellDTypeFlag().name || flag.name == DeviceFlag().name;
    if (has_other_use || !IsGiven(flag.name.c_str())) continue;
    if (flag.name == "simulate") throw UsageError("--simulate is of schedules; give --schedule too");
    throw UsageError(StrCat("--", flag.name, " says how to run the net; give --schedule or --graph too"));
  }
}

int Show(const std::vector<std::string>& operands) {
  const std::string& path = operands.front();
  if (FLAGS_schedule && !FLAGS_graph.empty()) throw UsageError("--schedule and --graph show two things; give one");
  if (FLAGS_schedule) return ShowSchedules(path);
  if (!FLAGS_graph.empty()) {
    if (IsGiven("simulate")) throw UsageError("--simulate is of schedules; give --schedule in place of --graph");
    return ShowGraphs(path, FLAGS_graph);
  }
  RefuseRunFlags();
  CheckFormat(kFormats);
  const bool holds_tensors = HoldsOnlyTensors(path) || (LooksLikeMiniDb(path) && !HoldsBundle(path));
  if (holds_tensors && FLAGS_format == "text") {
    RefuseCellFlags(path);
    for (const auto& [name, info] : DescribeTensors(path))
      std::cout << NameText(name) << " " << info.Description() << "\n";
    return kOk;
  }
  const AnyMessage file = ReadNetFile(path);
  if (FLAGS_format == "json") {
    if (IsGiven("device")) throw UsageError("--device is of text and pictures; JSON is of the file as it is");
    SayWhatIsLeftOut(*file.message, path, "the JSON");
    std::cout << JsonText(file.message.get(), path);
  } else if (FLAGS_format == "dot") {
    for (const NamedNet& named : NetsOf(file, path)) std::cout << NetAsDot(AsAsked(*named.net, path));
  } else {
    PrintText(file, path);
  }
  return kOk;
}

std::vector<FlagUse> ShowFlags() {
  std::vector<FlagUse> flags = {FormatFlag(kFormats)};
  flags.push_back({.name = "graph", .value = "PASS", .alone = "last", .choices = GraphNames});
  for (FlagUse& flag : ScheduleFlags()) flags.push_back(std::move(flag));
  return WithCommonFlags(std::move(flags));
}

}  // namespace

const Command kShow = {
    .name = "show",
    .operands = "F",
    .doc = "prints a net for people, for Graphviz or as JSON",
    .details =
        "F is a NetDef, a MetaNetDef, a PlanDef, a minidb model or a cell, binary or text; of files of tensors\n"
        "(safetensors, .npz, TensorProtos, minidb) names, types and shapes are listed. The net need not be right: "
        "`check` tells what is wrong with it. As text, hints for\n"
        "back ends of Caffe2 (order, use_cudnn, cudnn_exhaustive_search) are left out. With --device=cuda it says of\n"
        "each operator where it runs, with the copies between GPU and CPU that a run adds, and how much of a run is\n"
        "played as graphs; no GPU is needed, and the net has to\n"
        "be right. --schedule and --graph run the net once, so they take the inputs that `run` takes.",
    .example =
        "rnn_runner show net.pb\nrnn_runner show net.pb --format=dot | dot -Tsvg > net.svg\n"
        "rnn_runner show net.pb --device=cuda\n"
        "rnn_runner show net.pb --schedule --input_pb=inputs.pb --simulate=16\n"
        "rnn_runner show lstm.cell --size=H=8,D=4 --graph=fold_sums",
    .flags = ShowFlags(),
    .min_operands = 1,
    .max_operands = 1,
    .unknown_flag = AdviceOnOptions,
    .run = Show,
};

}  // namespace stepnet::runner

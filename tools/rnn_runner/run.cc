// rnn_runner run: a net on given inputs, its outputs on the screen and in files.
#include <glog/logging.h>

#include <algorithm>
#include <filesystem>
#include <functional>
#include <iostream>
#include <optional>

#include "stepnet/io/proto_io.h"
#include "stepnet/nets/bfloat16_weights.h"
#include "stepnet/nets/execution_plan.h"
#include "stepnet/nets/model.h"
#include "stepnet/nets/op_arguments.h"
#include "stepnet/nets/side_effects.h"
#include "stepnet/report/text.h"
#include "stepnet/tools/rnn_runner/cell_file.h"
#include "stepnet/tools/rnn_runner/common_flags.h"
#include "stepnet/tools/rnn_runner/inputs.h"
#include "stepnet/tools/rnn_runner/output_folder.h"
#include "stepnet/tools/rnn_runner/progress.h"
#include "stepnet/tools/rnn_runner/session.h"
#include "stepnet/tools/rnn_runner/tensor_text.h"
#include "stepnet/tools/rnn_runner/watch.h"
#include "stepnet/tools/rnn_runner/weights_flag.h"

DECLARE_string(output_dir);
DEFINE_string(allow_files, "",
              "folder in which the net's operators may open files (Load, Save, DBExists, Print with to_file);\n"
              "without the flag they open none. It is a permission: nets that open none may have it, too");

namespace stepnet::runner {
namespace {

std::string Names(const std::vector<std::string>& blobs) {
  std::vector<std::string> names;
  for (const std::string& blob : blobs) names.push_back(NameText(blob));
  return Join(names, ", ");
}

std::vector<std::string> BlobsWritten(const NetDef& net) {
  std::vector<std::string> blobs;
  for (const OperatorDef& op : net.op()) blobs.insert(blobs.end(), op.output().begin(), op.output().end());
  return blobs;
}

// The name of the step net of `net` that has a blob; "" where none has.
std::string StepNetWith(const std::string& blob, const NetDef& net) {
  for (const OperatorDef& op : net.op()) {
    for (const Argument& argument : op.arg()) {
      if (!argument.has_n()) continue;
      for (const std::string& written : BlobsWritten(argument.n())) {
        if (written == blob || written.ends_with("/" + blob)) return argument.n().name();  // of a layer: layer0/g
      }
    }
  }
  return "";
}

[[noreturn]] void ThrowNoBlob(const std::string& blob, const std::vector<std::string>& outputs, const NetDef& net) {
  std::vector<std::string> names = BlobsWritten(net);
  names.insert(names.end(), outputs.begin(), outputs.end());
  std::string advice = DidYouMean(blob, names);
  if (const std::string step = StepNetWith(blob, net); !step.empty()) {
    advice = StrCat("; it is one of the step net ", Quoted(step),
                    ", and of those only outputs are there behind a run: a ", "cell says output ", blob);
  }
  throw Error(ErrorCode::kInvalidArgument, StrCat("no blob ", Quoted(blob), advice));
}

// Whether the operator may leave the blob: as an output, as a state, or under a name that it alone knows (gradients of
// states; what Load finds with load_all).
bool MayWrite(const OperatorDef& op, const std::string& blob) {
  if (std::ranges::count(op.output(), blob) > 0 || op.type() == "RecurrentNetworkGradient") return true;
  const Argument* const states = FindArgument(op, "recurrent_states");
  const Argument* const are_private = FindArgument(op, "private_states");
  const bool may_be_state = are_private == nullptr || are_private->i() == 0;
  if (may_be_state && states != nullptr && std::ranges::count(states->strings(), blob) > 0) return true;
  const OperatorSchema* const schema = FindOperator(op.type());
  if (schema == nullptr) return true;  // the run says what is wrong
  return schema->TakesBlobs(DeviceKind::kCpu) && HasSideEffects(op);
}

void PrintSummaries(const Workspace& workspace, const std::vector<std::string>& blobs) {
  Table table(kSummaryHeader);
  for (const std::string& name : blobs) {
    const Blob& blob = workspace.GetBlob(name);
    table.Add(blob.HasTensor() ? SummaryRow(name, blob.GetTensor())
                               : std::vector<std::string>{NameText(name), blob.HasObject() ? "no tensor" : "nothing"});
  }
  std::cout << Printable(table.Text());
}

// Runs --net, the operators of `net`, by `run` and shows and writes what it leaves in the workspace: what --output asks
// for, otherwise `outputs`.
void RunAndReport(const NetDef& net, const Workspace& workspace, const std::vector<std::string>& outputs,
                  const std::function<void()>& run) {
  const std::vector<std::string> asked = SplitNames("output", FLAGS_output);
  for (const std::string& blob : asked) {
    const auto may_write = [&](const OperatorDef& op) { return MayWrite(op, blob); };
    if (!workspace.HasBlob(blob) && std::ranges::none_of(net.op(), may_write)) ThrowNoBlob(blob, outputs, net);
  }
  const std::vector<std::string>& blobs = asked.empty() ? outputs : asked;
  std::optional<OutputFolder> folder;
  if (!FLAGS_output_dir.empty()) folder.emplace(FLAGS_output_dir, blobs);
  const double start = Now();
  run();
  for (const std::string& blob : asked) {
    if (!workspace.HasBlob(blob)) ThrowNoBlob(blob, outputs, net);
  }
  LOG(INFO) << "ran in " << Milliseconds(Now() - start) << " ms";
  PrintSummaries(workspace, blobs);
  if (folder) folder->Write(workspace, /*must_be_tensors=*/!asked.empty());
}

int RunPlanFile(const RunOptions& options) {
  RefuseToWatch(FLAGS_net);
  RefuseCellFlags(FLAGS_net);
  if (WantsBFloat16Weights()) throw UsageError(StrCat("--weights=bf16 is for nets, and ", FLAGS_net, " is a plan"));
  PlanDef plan;
  ReadMessage(FLAGS_net, &plan);
  Workspace workspace;
  std::vector<const NetDef*> nets;
  for (const NetDef& net : plan.network()) nets.push_back(&net);
  Model parameters;
  if (!FLAGS_init_net.empty()) {
    parameters = ReadParameters(FLAGS_init_net);
    RemarkOnUnread(nets, NamesGivenBy(parameters));
    parameters.Initialize(workspace, options);
    WidenParameters(HeldBy(parameters), /*net=*/nullptr, workspace);
  }
  const NamedTensors fed = ReadInputs();
  std::vector<const NetDef*> that_may_draw = nets;
  that_may_draw.push_back(&parameters.init_net);
  RefuseIdleSeed(that_may_draw);
  for (const auto& [name, tensor] : fed) workspace.SetTensor(name, tensor);
  NetDef all;  // the nets of the plan as one, to see what goes in and out
  for (const NetDef& net : plan.network()) {
    all.mutable_op()->MergeFrom(net.op());
    all.mutable_external_output()->MergeFrom(net.external_output());
  }
  CheckRead(FLAGS_net, nets, fed);
  const std::vector<std::string> listed(all.external_output().begin(), all.external_output().end());
  RunAndReport(all, workspace, listed.empty() ? UnreadBlobs(all) : listed, [&] {
    try {
      CheckInputs(all, workspace);
      RunExecutionPlan(plan, workspace, {.run = options});
    } catch (...) {
      throw CurrentError().At({.file = FLAGS_net});
    }
  });
  return kOk;
}

int Run(const std::vector<std::string>&) {
  RunOptions options = RunOptionsFromFlags();
  options.allow_files = FLAGS_allow_files;
  std::error_code fault;
  if (IsGiven("allow_files") && !std::filesystem::is_directory(FLAGS_allow_files, fault)) {
    throw UsageError(StrCat("--allow_files is ", FLAGS_allow_files, ", which is no folder"));
  }
  if (DetectKind(FLAGS_net) == MessageKind::kPlanDef) return RunPlanFile(options);
  Session session = OpenSession(options);
  const std::unique_ptr<Net> net = CreateNet(session.def, *session.workspace, options);
  std::optional<TraceOfRuns> trace;  // of a run: what is refused before it leaves none
  const StatsOfRuns stats(*net);
  RunAndReport(session.def, *session.workspace, session.outputs, [&] {
    trace.emplace(*net);
    RunNet(*net);
  });
  if (!session.made_up.empty()) {
    std::cout << PrintableLine(StrCat("not given, so made up or as the cell fills it: ", Names(session.made_up)))
              << "\n";
  }
  stats.Print();
  trace->Write();
  return kOk;
}

std::vector<FlagUse> RunFlags() {
  std::vector<FlagUse> flags = SessionFlags();
  flags.push_back({.name = "output",
                   .value = "BLOB,…",
                   .doc = "blobs to print and write; without the flag the outputs that the net lists or, when it\n"
                          "lists none, what no operator reads",
                   .is_list = true});
  flags.push_back(OutputDirFlag());
  flags.push_back({.name = "allow_files", .value = "DIR", .kind = ValueKind::kFolder});
  flags.push_back(TraceFlag());
  flags.push_back(StatsFlag());
  return WithCommonFlags(std::move(flags));
}

}  // namespace

const Command kRun = {
    .name = "run",
    .operands = "F",
    .doc = "runs a net once, or a plan, and prints what comes out",
    .details =
        "F is a NetDef, a MetaNetDef, a PlanDef, a minidb model or a cell, binary or text.\n"
        "Runs the net that fills parameters (--init_net), feeds the inputs, runs the net, and prints dtype, shape\n"
        "and a summary of each output: minimum, maximum, mean and standard deviation of the finite elements, and\n"
        "how many are NaN or infinite. Inputs that are missing are all listed.",
    .example = "rnn_runner run net.pb --init_net=init_net.pb --input=x=x.npy --output=h_all,h_last --output_dir=out",
    .flags = RunFlags(),
    .min_operands = 0,
    .max_operands = 0,
    .unknown_flag = AdviceOnOptions,
    .run = Run,
};

}  // namespace stepnet::runner

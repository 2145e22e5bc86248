#include "stepnet/tools/rnn_runner/session.h"

#include <glog/logging.h>

#include <algorithm>

#include "stepnet/nets/bfloat16_weights.h"
#include "stepnet/nets/model.h"
#include "stepnet/nets/net_blobs.h"
#include "stepnet/nets/side_effects.h"
#include "stepnet/report/text.h"
#include "stepnet/tools/rnn_runner/cell_file.h"
#include "stepnet/tools/rnn_runner/common_flags.h"
#include "stepnet/tools/rnn_runner/gradients.h"
#include "stepnet/tools/rnn_runner/inputs.h"
#include "stepnet/tools/rnn_runner/losses.h"
#include "stepnet/tools/rnn_runner/progress.h"
#include "stepnet/tools/rnn_runner/weights_flag.h"

DECLARE_int64(batch);
DECLARE_string(loss);

namespace stepnet::runner {

std::vector<FlagUse> SessionFlags() {
  std::vector<FlagUse> flags = {{.name = "net", .value = "F", .is_operand = true, .kind = ValueKind::kInputFile},
                                {.name = "init_net", .value = "F", .kind = ValueKind::kInputFile}};
  for (FlagUse& flag : CellFlags()) flags.push_back(std::move(flag));
  for (FlagUse& flag : InputFlags()) flags.push_back(std::move(flag));
  for (FlagUse& flag : ExecutorFlags()) flags.push_back(std::move(flag));
  flags.push_back(WeightsFlag());
  return flags;
}

namespace {

// Whether a run of the net draws random numbers; of one that is wrong the run says so.
bool MayDraw(const NetDef& net) {
  try {
    return DrawsRandomNumbers(net);
  } catch (const Error&) {
    return true;
  }
}

// The operators of a net that fill others than these.
NetDef FillingOthers(const NetDef& net, const std::vector<std::string>& given) {
  NetDef others;
  const auto is_given = [&](const std::string& name) { return std::ranges::find(given, name) != given.end(); };
  for (const OperatorDef& op : net.op()) {
    if (!std::ranges::all_of(op.output(), is_given)) *others.add_op() = op;
  }
  return others;
}

// Adds the gradients that --loss asks for.
void AddGradientsOfLoss(NetDef* net) {
  if (!IsGiven("loss")) return;
  const std::vector<std::string> losses = SplitNames("loss", FLAGS_loss);
  try {
    if (HasGradients(*net)) {
      throw Error(ErrorCode::kInvalidArgument, "the net has gradients, and --loss asks for others; leave it out");
    }
    CheckLosses(*net, losses);
    *net = WithGradients(*net, losses, ReadFirst(*net)).net;
  } catch (...) {
    throw CurrentError().At({.file = FLAGS_net});
  }
}

Session Open(const RunOptions& options, const SessionUse& use, bool fills_on_host) {
  static_cast<void>(WantsBFloat16Weights());  // wrong use is said before files are read
  const NamedTensors fed = ReadInputs();
  const std::optional<CellNet> cell = ExpandCellFile(FLAGS_net, {.batch = FLAGS_batch}, fed);
  Model parameters;
  if (!cell && !FLAGS_init_net.empty()) parameters = ReadParameters(FLAGS_init_net);
  const std::vector<std::string> given_by_file = NamesGivenBy(parameters);
  std::vector<std::string> held = HeldBy(parameters);  // of a cell, all that it is given
  Model model = cell ? CellModel(*cell) : LoadModel(FLAGS_net, std::move(parameters));
  if (use.with_gradients) AddGradientsOfLoss(&model.net);
  if (fills_on_host) PlaceOnHost(&model.init_net);
  Session session{.def = model.net,
                  .workspace = std::make_unique<Workspace>(),
                  .outputs = model.outputs,
                  .parameters = FilledBy(model),
                  .made_up = {}};
  CheckRead(FLAGS_net, {&session.def}, fed, use.also_read);
  RemarkOnUnread({&session.def}, given_by_file);
  if (session.outputs.empty()) session.outputs = UnreadBlobs(model.net);
  if (model.init_net.op_size() > 0) LOG(INFO) << "runs " << model.init_net.op_size() << " operators that initialise";
  std::vector<std::string> given;
  try {
    model.Initialize(*session.workspace, options);
    if (cell && !FLAGS_init_net.empty()) {
      held = given = TakeCellParameters(*cell, FLAGS_init_net, *session.workspace, options);
    }
    WidenParameters(held, use.becomes_double ? nullptr : &session.def, *session.workspace, options);
  } catch (...) {
    throw CurrentError().At({.file = FLAGS_init_net.empty() ? FLAGS_net : FLAGS_init_net});
  }
  for (const auto& [name, tensor] : fed) {
    if (cell) CheckParameter(*cell, name, tensor, *session.workspace);
    session.workspace->SetTensor(name, tensor);
    given.push_back(name);
  }
  try {
    StoreWeights(session.def, cell ? cell->parameters : NamesGivenBy(model), *session.workspace, options);
  } catch (const Error&) {
    throw CurrentError().At({.file = FLAGS_net});
  }
  if (!cell) {
    if (!use.draws) RefuseIdleSeed({&model.init_net, &session.def});
    return session;
  }
  CheckCellTypes(*cell, *session.workspace, use.becomes_double);
  session.made_up = FeedCellInputs(*cell, use.lengths, *session.workspace);
  const NetDef filling = FillingOthers(cell->init_net, given);
  if (!use.draws && session.made_up.empty()) RefuseIdleSeed({&filling, &session.def});
  for (const OperatorDef& op : filling.op()) {
    session.made_up.insert(session.made_up.end(), op.output().begin(), op.output().end());
  }
  return session;
}

}  // namespace

void RefuseIdleSeed(const std::vector<const NetDef*>& nets) {
  const auto may_draw = [](const NetDef* net) { return MayDraw(*net); };
  if (!IsGiven("seed") || FillsAtRandom() || std::ranges::any_of(nets, may_draw)) return;
  throw UsageError(
      StrCat("--seed has no meaning: nothing is drawn by ", FLAGS_net, ", nor for its parameters and inputs"));
}

Session OpenSession(const RunOptions& options, const SessionUse& use) {
  return Open(options, use, /*fills_on_host=*/false);
}

Session OpenSessionOnHost(const RunOptions& options) {
  return Open(options, {.with_gradients = true}, /*fills_on_host=*/true);
}

void PlaceOnHost(NetDef* net) {
  const auto clear = [](DeviceOption* option) {
    option->clear_device_type();
    option->clear_cuda_gpu_id();
  };
  if (net->has_device_option()) clear(net->mutable_device_option());
  for (OperatorDef& op : *net->mutable_op()) {
    if (op.has_device_option()) clear(op.mutable_device_option());
    for (Argument& argument : *op.mutable_arg()) {
      if (argument.has_n()) PlaceOnHost(argument.mutable_n());
    }
  }
}

std::unique_ptr<Net> CreateNet(const NetDef& def, Workspace& workspace, const RunOptions& options) {
  try {
    CheckInputs(def, workspace);
    return Net::Create(def, workspace, options);
  } catch (...) {
    throw CurrentError().At({.file = FLAGS_net});
  }
}

double RunNet(Net& net, const std::function<void()>& is_given) {
  try {
    const double start = Now();
    net.Run();
    const double seconds = Now() - start;
    if (is_given) is_given();
    net.Wait();
    return seconds;
  } catch (...) {
    throw CurrentError().At({.file = FLAGS_net});
  }
}

}  // namespace stepnet::runner

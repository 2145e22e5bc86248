#include "stepnet/tools/rnn_runner/session.h"

#include <glog/logging.h>

#include "stepnet/core/model.h"
#include "stepnet/tools/rnn_runner/cell_file.h"
#include "stepnet/tools/rnn_runner/common_flags.h"
#include "stepnet/tools/rnn_runner/inputs.h"

DEFINE_double(time_limit, 0, "seconds after which a run is given up; 0: never");

namespace stepnet::runner {

std::vector<FlagUse> SessionFlags() {
  std::vector<FlagUse> flags = {{.name = "net", .value = "F", .required = true}, {.name = "init_net", .value = "F"}};
  for (FlagUse& flag : CellFlags()) flags.push_back(std::move(flag));
  for (FlagUse& flag : InputFlags()) flags.push_back(std::move(flag));
  for (FlagUse& flag : ExecutorFlags()) flags.push_back(std::move(flag));
  flags.push_back({.name = "time_limit", .value = "SECONDS"});
  return flags;
}

Session OpenSession(const RunOptions& options) {
  if (!(FLAGS_time_limit >= 0)) throw UsageError(StrCat("--time_limit is ", FLAGS_time_limit, ", must be at least 0"));
  const std::optional<CellNet> cell = ExpandCellFile(FLAGS_net);
  const Model model = cell ? CellModel(*cell) : LoadModel(FLAGS_net, FLAGS_init_net);
  Session session{.def = model.net, .workspace = std::make_unique<Workspace>(), .fed = {}, .outputs = model.outputs};
  if (session.outputs.empty()) session.outputs = UnreadBlobs(model.net);
  if (model.init_net.op_size() > 0) LOG(INFO) << "runs " << model.init_net.op_size() << " operators that initialise";
  try {
    model.Initialize(*session.workspace, options);
  } catch (...) {
    throw CurrentError().At({.file = FLAGS_init_net.empty() ? FLAGS_net : FLAGS_init_net});
  }
  session.fed = FeedInputs(*session.workspace);
  if (cell) FeedCellInputs(*cell, *session.workspace);
  return session;
}

std::unique_ptr<Net> CreateNet(const NetDef& def, Workspace& workspace, const RunOptions& options) {
  try {
    CheckInputs(def, workspace);
    return Net::Create(def, workspace, options);
  } catch (...) {
    throw CurrentError().At({.file = FLAGS_net});
  }
}

void RunNet(Net& net) {
  try {
    if (FLAGS_time_limit > 0) {
      const Cancellation limit{std::chrono::duration<double>(FLAGS_time_limit)};
      net.Run(&limit);
    } else {
      net.Run();
    }
  } catch (...) {
    throw CurrentError().At({.file = FLAGS_net});
  }
}

}  // namespace stepnet::runner

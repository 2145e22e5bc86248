#include "stepnet/tools/rnn_runner/session.h"

#include <glog/logging.h>

#include <map>

#include "stepnet/core/error.h"
#include "stepnet/core/strings.h"
#include "stepnet/core/tensor_io.h"
#include "stepnet/tools/rnn_runner/common_flags.h"
#include "stepnet/tools/rnn_runner/inputs.h"
#include "stepnet/tools/rnn_runner/model_file.h"
#include "stepnet/tools/rnn_runner/text.h"

namespace stepnet::runner {
namespace {

void RunInitNet(const NetDef& net, const std::string& path, Workspace& workspace, const RunOptions& options) {
  LOG(INFO) << "runs " << path << ", " << net.op_size() << " operators";
  try {
    RunNetOnce(net, workspace, options);
  } catch (...) {
    throw CurrentError().At({.file = path});
  }
}

// The net of a file. A bundle's own init nets are run and, where the file is a minidb, its tensors loaded.
NetDef ReadNet(const std::string& path, Workspace& workspace, const RunOptions& options) {
  const AnyMessage file = ReadAnyMessage(path);
  const std::vector<NamedNet> nets = NetsOf(file, path);
  if (file.kind == MessageKind::kNetDef) return *nets.front().net;
  const PredictorConsts& keys = PredictorConsts::default_instance();
  std::map<std::string, const NetDef*> by_key;
  std::vector<std::string> names;
  for (const NamedNet& named : nets) {
    by_key[named.name] = named.net;
    names.push_back(NameText(named.name));
  }
  if (DetectKind(path) == MessageKind::kMiniDb) {
    const auto is_blob = [&](const std::string& name) { return name != keys.meta_net_def(); };
    for (auto& [name, tensor] : ReadTensors(path, is_blob)) workspace.SetTensor(name, std::move(tensor));
  }
  for (const std::string& key : {keys.global_init_net_type(), keys.predict_init_net_type()}) {
    if (by_key.contains(key)) RunInitNet(*by_key[key], path, workspace, options);
  }
  const auto found = by_key.find(keys.predict_net_type());
  if (found != by_key.end()) return *found->second;
  throw Error(ErrorCode::kInputOutput, StrCat(path, " holds no net \"", keys.predict_net_type(), "\"; it holds ",
                                              names.empty() ? "none" : Join(names, ", ")));
}

}  // namespace

std::vector<FlagUse> SessionFlags() {
  std::vector<FlagUse> flags = {{.name = "net", .value = "F", .required = true}, {.name = "init_net", .value = "F"}};
  for (FlagUse& flag : InputFlags()) flags.push_back(std::move(flag));
  for (FlagUse& flag : ExecutorFlags()) flags.push_back(std::move(flag));
  return flags;
}

Session OpenSession(const RunOptions& options) {
  Session session{.def = {}, .workspace = std::make_unique<Workspace>(), .fed = {}};
  session.def = ReadNet(FLAGS_net, *session.workspace, options);
  if (!FLAGS_init_net.empty()) {
    NetDef init_net;
    ReadMessage(FLAGS_init_net, &init_net);
    RunInitNet(init_net, FLAGS_init_net, *session.workspace, options);
  }
  session.fed = FeedInputs(*session.workspace);
  return session;
}

std::unique_ptr<Net> CreateNet(const NetDef& def, Workspace& workspace, const RunOptions& options) {
  CheckInputs(def, workspace);
  try {
    return Net::Create(def, workspace, options);
  } catch (...) {
    throw CurrentError().At({.file = FLAGS_net});
  }
}

}  // namespace stepnet::runner

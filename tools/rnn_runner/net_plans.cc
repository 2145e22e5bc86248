#include "stepnet/tools/rnn_runner/net_plans.h"

#include <algorithm>
#include <memory>

#include "stepnet/nets/placement.h"
#include "stepnet/proto/net.pb.h"
#include "stepnet/tools/rnn_runner/common_flags.h"
#include "stepnet/tools/rnn_runner/placed_plans.h"

namespace stepnet::runner {
namespace {

bool IsOnHost(const NetDef& net, const RunOptions& options) {
  return std::ranges::all_of(
      net.op(), [&](const OperatorDef& op) { return DeviceAskedFor(op, net).value_or(options.device()).IsHost(); });
}

void RunObserved(const NetDef& def, Workspace& workspace, const RunOptions& options, Observer* observer) {
  const std::unique_ptr<Net> net = CreateNet(def, workspace, options);
  if (IsGiven("max_memory")) RunNet(*net);  // which finds out what later runs have to do without
  if (observer != nullptr) net->AttachObserver(observer);
  RunNet(*net);
}

}  // namespace

Session MakePlans(const RunOptions& options, Observer* observer) {
  RunOptions on_host = OnDevice(options, {});
  on_host.quiet = true;
  on_host.on_pass = nullptr;
  on_host.on_plan = nullptr;
  Session session = OpenSessionOnHost(on_host);
  if (IsOnHost(session.def, options)) {
    on_host.on_pass = options.on_pass;
    on_host.on_plan = options.on_plan;
    RunObserved(session.def, *session.workspace, on_host, observer);
    return session;
  }
  NetDef host_net = session.def;
  PlaceOnHost(&host_net);
  RunObserved(host_net, *session.workspace, on_host, observer);
  MakePlacedPlans(*session.workspace, session.def, options);
  return session;
}

}  // namespace stepnet::runner

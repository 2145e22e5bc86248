#include "stepnet/tools/rnn_runner/net_plans.h"

#include <algorithm>

#include "stepnet/nets/placement.h"
#include "stepnet/proto/net.pb.h"
#include "stepnet/tools/rnn_runner/placed_plans.h"

namespace stepnet::runner {
namespace {

bool IsOnHost(const NetDef& net, const RunOptions& options) {
  return std::ranges::all_of(
      net.op(), [&](const OperatorDef& op) { return DeviceAskedFor(op, net).value_or(options.device()).IsHost(); });
}

}  // namespace

Session MakePlans(const RunOptions& options) {
  RunOptions on_host = OnDevice(options, {});
  on_host.quiet = true;
  on_host.on_pass = nullptr;
  on_host.on_plan = nullptr;
  Session session = OpenSessionOnHost(on_host);
  if (IsOnHost(session.def, options)) {
    on_host.on_pass = options.on_pass;
    on_host.on_plan = options.on_plan;
    RunNet(*CreateNet(session.def, *session.workspace, on_host));
    return session;
  }
  NetDef host_net = session.def;
  PlaceOnHost(&host_net);
  RunNet(*CreateNet(host_net, *session.workspace, on_host));
  MakePlacedPlans(*session.workspace, session.def, options);
  return session;
}

}  // namespace stepnet::runner

// Plans of step nets for a device that need not be there.
#pragma once

#include "stepnet/core/run_options.h"
#include "stepnet/core/workspace.h"
#include "stepnet/proto/net.pb.h"

namespace stepnet::runner {

// Makes the plans of the net's recurrent operators, where `options` and the net place them, by what a run on the host
// has left in the workspace. options.on_pass and on_plan are told of them.
void MakePlacedPlans(const Workspace& workspace, const NetDef& net, const RunOptions& options);

}  // namespace stepnet::runner

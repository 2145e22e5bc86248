// Why a gradient and differences can disagree although the net is as its author wants it.
#pragma once

#include <string>

#include "stepnet/core/workspace.h"
#include "stepnet/proto/net.pb.h"

namespace stepnet::runner {

// Throws kInvalidArgument where the loss is NaN or infinite, which tells nothing of gradients; says which blob of
// `net`, which has run in `workspace`, is the first to hold such a number, and where.
void CheckLossIsFinite(double loss, const NetDef& net, const Workspace& workspace);

// The name of the net, or of its step net, that has a StopGradient; "" where none has. Differences go through one.
std::string NetWithStopGradient(const NetDef& net);

}  // namespace stepnet::runner

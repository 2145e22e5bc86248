// What fuzzers and mutation tests do with a net from an unknown hand.
#pragma once

#include "stepnet/core/workspace.h"
#include "stepnet/proto/net.pb.h"

namespace stepnet {

// False when the net, or one within it, has an operator that touches files or prints.
bool IsHarmless(const NetDef& net);

// Checks the net and, when it is harmless, creates and runs it in `workspace`. An Error is a fine end, and so is
// success; everything else is the fault that is looked for.
void CheckAndRun(const NetDef& net, Workspace& workspace);

}  // namespace stepnet

// Static verification of nets: everything that can be known to be wrong without running them.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "stepnet/core/operator.h"

namespace stepnet {

struct NetCheckOptions {
  RunOptions run = {};
  Device device = Device::kCpu;
  // Blobs that exist before the net runs although it does not list them in external_input.
  std::function<bool(const std::string&)> blob_exists = {};
};

// All problems of a net and of the step nets within it, in program order: unknown operator types, operators without a
// kernel for the device, arity, arguments, in-place rules, blobs that are read before anything writes them, outputs
// that nothing produces, and what each operator's own check finds.
std::vector<NetProblem> CheckNet(const NetDef& net, const NetCheckOptions& options = {});

// Throws kInvalidNet with all problems in its message when there are any.
void ThrowIfProblems(const std::vector<NetProblem>& problems);

// "y = FC(x, w, b)", for messages about operators that need not be registered.
std::string OperatorText(const OperatorDef& op);

}  // namespace stepnet

// The shapes and dtypes of a net, as far as they are known before it runs.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "stepnet/core/net_problem.h"
#include "stepnet/core/tensor.h"

namespace stepnet {

class NetDef;

// What operators, those of step nets too, refuse of `known`, the blobs that are there before the net runs, and of what
// follows from them. Those of which an input is not known are not asked, nor are the gradients of loops. REQUIRES a net
// without problems (CheckNet).
std::vector<NetProblem> CheckShapes(const NetDef& net, std::map<std::string, TensorInfo> known);

}  // namespace stepnet

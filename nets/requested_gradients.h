// Gradients that nobody asks for are not computed: gradient_requests of RecurrentNetwork and its gradient.
#pragma once

#include <memory>
#include <set>
#include <string>
#include <vector>

#include "stepnet/nets/recurrent_spec.h"

namespace stepnet {

// `spec`, the arguments of `op`, with only those backward links, and those operators in the backward step net, that
// serve gradients of states and those that are requested: `spec` itself where that is all. Forward, that tells what the
// backward run will read.
std::shared_ptr<const RecurrentSpec> WithRequestedGradients(const OperatorCall& op,
                                                            std::shared_ptr<const RecurrentSpec> spec);

// Whether this output of the gradient operator is requested, as itself or as another output of the same name; `op` may
// be either operator.
bool IsRequested(const OperatorCall& op, const RecurrentSpec& spec, int output);

// `inputs`, and the blobs of the net that are computed from them by operators that pass gradients.
std::set<std::string> BlobsDependingOn(const std::vector<std::string>& inputs, const NetDef& net);

// Where gradients of the net by `inputs` alone are asked for: RecurrentNetwork operators get gradient_requests `none`
// for what does not depend on them, so that nothing is kept for it, nor computed. What the operators' own requests add
// to stays, as do operators whose gradient operator is in the net.
void LeaveOutGradients(const std::vector<std::string>& inputs, NetDef* net);

}  // namespace stepnet

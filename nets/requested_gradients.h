// Gradients that nobody asks for are not computed: gradient_requests of RecurrentNetwork and its gradient.
#pragma once

#include "stepnet/nets/recurrent_spec.h"

namespace stepnet {

// `spec`, the arguments of `op`, with only those backward links, and those operators in the backward step net, that
// serve gradients of states and those that are requested. Forward, that tells what the backward run will read.
RecurrentSpec WithRequestedGradients(const OperatorCall& op, RecurrentSpec spec);

// Whether this output of the gradient operator is requested, as itself or as another output of the same name; `op` may
// be either operator.
bool IsRequested(const OperatorCall& op, const RecurrentSpec& spec, int output);

}  // namespace stepnet

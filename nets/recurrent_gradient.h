// The gradient of RecurrentNetwork, as an operator of the net: its inputs and outputs in Caffe2's order.
//
// Nets that Caffe2 wrote may list fewer gradients of outputs than they compute; a completion (nets/completion.h) adds
// the others.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "stepnet/core/operator.h"
#include "stepnet/nets/recurrent_spec.h"

namespace stepnet {

// The params that are listed, and every other captured input whose gradient the backward step net writes: a tensor
// that is left out of the list by accident would silently not be trained. Each with its gradient's name there.
std::vector<std::pair<int, std::string>> ParamsWithGradients(const OperatorCall& op, const RecurrentSpec& spec);

// Adds RecurrentNetworkGradient: [gradients of outputs_with_grads…, inputs…, outputs…] → [gradient of input 0, of each
// param, of each initial state]. Throws kInvalidNet for an operator without a backward step net, and for gradients of
// outputs that nothing takes; kInvalidArgument for gradient_requests of another length.
void MakeRecurrentGradient(GradientBuilder& g);

}  // namespace stepnet

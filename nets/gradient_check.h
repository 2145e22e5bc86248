// What RecurrentNetworkGradient has to agree on with its forward operator. The check of a net asks where it has both;
// the run of a gradient asks where its forward operator ran in another net.
#pragma once

#include <vector>

#include "stepnet/nets/backward_roles.h"

namespace stepnet {

// Appends what is wrong with the gradient operator `op`, whose arguments are right by themselves: where it says
// otherwise than `forward` (numbers of inputs, states, links, outputs with gradients), backward links that name no
// gradient, blobs that its backward step reads and nobody gives or keeps, params whose gradients nothing computes.
// `forward` may be null: then what depends on it is taken to be right. Returns what a plan needs to know, where nothing
// is wrong.
BackwardRoles CheckGradient(const OperatorCall& op, const RecurrentSpec& spec, const ForwardOperator* forward,
                            std::vector<NetProblem>* problems);

}  // namespace stepnet

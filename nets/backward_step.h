// Backward step nets for RecurrentNetwork operators that have none: what makes a cell that was written by hand
// trainable.
#pragma once

#include <functional>
#include <string>
#include <vector>

namespace stepnet {

class NetDef;

// Gives every RecurrentNetwork operator of `net`, and of step nets in it, without one a backward step net, made from
// the gradients of the operators of its step net, with the links and params that go with it. The gradient of blob x of
// the step net is called x_grad in it. What recompute_blobs_on_backward names it computes again. `is_floating` tells of
// an input of the operators whether it can have a gradient; all can where it is not given. Operators that stand for
// several (nets/decomposition.h) become these first, as training has them. Throws kInvalidNet, with the operator, for
// step nets that cannot be differentiated.
void AddBackwardStepNets(NetDef* net, const std::function<bool(const std::string&)>& is_floating = {});

// Does the same for gradients of the net by `inputs` alone: what does not depend on them has no gradient, and the
// operators get gradient_requests that say so.
void AddBackwardStepNets(NetDef* net, const std::vector<std::string>& inputs);

}  // namespace stepnet

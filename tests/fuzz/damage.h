// Damage that leaves a net well formed, so that it reaches checks and kernels more often than damaged bytes do.
#pragma once

#include <random>

#include "stepnet/proto/net.pb.h"

namespace stepnet {

// Changes one thing in the net or in a net within it: a name becomes another that the net uses, a number another one,
// an operator one of another type, or they are lost, repeated or put in another order.
void Damage(NetDef* net, std::mt19937& random);

}  // namespace stepnet

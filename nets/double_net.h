// A net written for float as a net that computes in double, for gradient checks.
#pragma once

#include "stepnet/proto/net.pb.h"

namespace stepnet {

// Fills that give float give double, casts to float cast to double, in step nets too; given double inputs, every
// operator of the result then works on double. So do fills and casts of 16 bits, whose rounding no difference sees
// through. Step nets that were given as text become nets.
NetDef InDouble(const NetDef& net);

}  // namespace stepnet

// A net written for float as a net that computes in double: of a cell in float64, and for gradient checks.
#pragma once

#include "stepnet/proto/net.pb.h"

namespace stepnet {

// Fills that give float give double, casts to float cast to double, in step nets too; given double inputs, every
// operator of the result then works on double. So do fills and casts of 16 bits, whose rounding no difference sees
// through. Learning rates are double, too. Numbers are the decimals that were written: 0.1 of 0.1f, which as a double
// is 0.100000001490116…; so are those that operators have by default, and the values of GivenTensorFill. Step nets that
// were given as text become nets.
NetDef InDouble(const NetDef& net);
// The same of one operator of a net.
void MakeDouble(OperatorDef* op);

}  // namespace stepnet

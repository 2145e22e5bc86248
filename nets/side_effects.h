// Whether an operator does something that lasts beyond its outputs: writes a file, prints, counts.
#pragma once

#include "stepnet/core/operator.h"

namespace stepnet {

class OperatorDef;

// True also where an operator of a net among its arguments does, as in the step net of a RecurrentNetwork.
// REQUIRES: the type is registered.
bool HasSideEffects(const OperatorDef& op);
bool HasSideEffects(const OperatorCall& op);

}  // namespace stepnet

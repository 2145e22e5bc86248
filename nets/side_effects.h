// What operators do beyond computing outputs from inputs: what lasts (a file, a print, a count, what the next run
// finds), and random numbers that they draw.
#pragma once

#include <vector>

#include "stepnet/core/operator.h"

namespace stepnet {

class NetDef;
class OperatorDef;

// True also where an operator of a net among its arguments does, as in the step net of a RecurrentNetwork.
// REQUIRES: the type is registered.
bool HasSideEffects(const OperatorDef& op);
bool HasSideEffects(const OperatorCall& op);

// Whether what the output holds before the operator runs never matters: it has no side effects, and neither adds to
// that nor leaves it as it is (gradient_requests).
bool OnlyWrites(const OperatorCall& op, int output);

// Whether it draws random numbers, or an operator of a net among its arguments does.
// REQUIRES: the type is registered, and so are those in nets among its arguments.
bool DrawsRandomNumbers(const OperatorDef& op);
bool DrawsRandomNumbers(const NetDef& net);  // whether one of its operators does

// Whether the operator on the device may fail for the values of its inputs, and not only for their shapes. Shapes and
// dtypes are not known here; plans, which know them, ask MayFindBadValues (core/formulas/formula_cache.h).
bool MayFindFaults(const OperatorCall& op, DeviceKind device);

// Says of each operator whether it changes what the next run of the net finds, or whoever looks after one that has
// failed: it has side effects, writes what an operator at or before it reads, or adds to a gradient
// (gradient_requests). REQUIRES: all types are registered.
std::vector<bool> ChangesWhatLasts(const NetDef& net);

}  // namespace stepnet

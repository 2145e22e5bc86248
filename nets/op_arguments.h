// Arguments of an operator in a net, by name.
#pragma once

#include <string_view>

namespace stepnet {

class Argument;
class OperatorDef;

// Null where the operator has no argument of that name.
const Argument* FindArgument(const OperatorDef& op, std::string_view name);

// The argument of that name without a value, in the place of the one that the operator had, or behind the others.
Argument* NewArgument(OperatorDef* op, std::string_view name);

}  // namespace stepnet

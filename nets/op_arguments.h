// Arguments of an operator in a net, by name.
#pragma once

#include <string_view>

namespace stepnet {

class Argument;
class NetDef;
class OperatorDef;

// Behind the name of a blob, that of an argument which says what the blob is called otherwise.
inline constexpr std::string_view kRenameSuffix = ".rename";

// Null where the operator has no argument of that name.
const Argument* FindArgument(const OperatorDef& op, std::string_view name);

// The argument of that name without a value, in the place of the one that the operator had, or behind the others.
Argument* NewArgument(OperatorDef* op, std::string_view name);

// The net within an argument, given as a net or, in old files, as its text. False when there is none; throws
// kInputOutput when there is a text that is no net.
bool NetOfArgument(const Argument& argument, NetDef* net);

}  // namespace stepnet

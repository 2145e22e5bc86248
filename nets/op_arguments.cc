#include "stepnet/nets/op_arguments.h"

#include <algorithm>
#include <string>

#include "stepnet/io/proto_io.h"
#include "stepnet/proto/net.pb.h"

namespace stepnet {

const Argument* FindArgument(const OperatorDef& op, std::string_view name) {
  const auto found = std::ranges::find(op.arg(), name, &Argument::name);
  return found == op.arg().end() ? nullptr : &*found;
}

Argument* NewArgument(OperatorDef* op, std::string_view name) {
  const auto found = std::ranges::find(*op->mutable_arg(), name, &Argument::name);
  Argument* argument = found == op->mutable_arg()->end() ? op->add_arg() : &*found;
  argument->Clear();
  argument->set_name(std::string(name));
  return argument;
}

bool NetOfArgument(const Argument& argument, NetDef* net) {
  if (argument.has_n()) {
    *net = argument.n();
    return true;
  }
  const bool is_net = argument.name() == "step_net" || argument.name() == "backward_step_net";
  if (!is_net || argument.s().empty()) return false;
  ParseMessageText(argument.s(), argument.name(), net);
  return true;
}

}  // namespace stepnet

#include "stepnet/nets/side_effects.h"

#include <algorithm>

#include "stepnet/proto/net.pb.h"

namespace stepnet {
namespace {

bool HasSideEffects(const NetDef& net) {
  return std::ranges::any_of(net.op(), [](const OperatorDef& op) { return HasSideEffects(op); });
}

}  // namespace

bool HasSideEffects(const OperatorDef& op) {
  return GetOperator(op.type()).has_side_effects ||
         std::ranges::any_of(op.arg(), [](const Argument& arg) { return arg.has_n() && HasSideEffects(arg.n()); });
}

bool HasSideEffects(const OperatorCall& op) {
  return op.schema().has_side_effects || std::ranges::any_of(op.arguments(), [](const auto& argument) {
           const std::shared_ptr<const NetDef>& net = argument.second.net;
           return net != nullptr && HasSideEffects(*net);
         });
}

}  // namespace stepnet

#include "stepnet/nets/side_effects.h"

#include <algorithm>
#include <string>
#include <string_view>
#include <unordered_set>

#include "stepnet/core/formulas/formula_sample.h"
#include "stepnet/nets/gradient_request.h"
#include "stepnet/nets/op_arguments.h"
#include "stepnet/proto/net.pb.h"

namespace stepnet {
namespace {

bool HasSideEffects(const NetDef& net) {
  return std::ranges::any_of(net.op(), [](const OperatorDef& op) { return HasSideEffects(op); });
}

constexpr std::string_view kGradient = "RecurrentNetworkGradient";

bool AddsToGradient(const OperatorDef& op) {
  const std::string add = GradientRequestName(GradientRequest::kAdd);
  return op.type() == kGradient && std::ranges::any_of(op.arg(), [&](const Argument& arg) {
           return arg.name() == "gradient_requests" && std::ranges::find(arg.strings(), add) != arg.strings().end();
         });
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

bool OnlyWrites(const OperatorCall& op, int output) {
  if (HasSideEffects(op)) return false;
  if (op.type() != kGradient) return true;
  const std::vector<std::string>& requests = op.Strings("gradient_requests");
  return requests.empty() || requests.at(output) == GradientRequestName(GradientRequest::kWrite);
}

bool DrawsRandomNumbers(const OperatorDef& op) {
  const DrawsRule& draws = GetOperator(op.type()).draws;
  return (draws && draws(OperatorCall(op))) || std::ranges::any_of(op.arg(), [](const Argument& arg) {
           NetDef net;  // a step net may be a text
           return NetOfArgument(arg, &net) && DrawsRandomNumbers(net);
         });
}

bool DrawsRandomNumbers(const NetDef& net) {
  return std::ranges::any_of(net.op(), [](const OperatorDef& op) { return DrawsRandomNumbers(op); });
}

bool MayFindFaults(const OperatorCall& op, DeviceKind device) {
  const OperatorSchema& schema = op.schema();
  const Kernel* kernel = schema.FindKernel(device);
  const bool checks_values = kernel != nullptr && kernel->checks_values;
  return checks_values || schema.TakesBlobs(device) || !schema.shape_value_inputs.empty() || MayDivideByZero(op);
}

std::vector<bool> ChangesWhatLasts(const NetDef& net) {
  std::unordered_set<std::string_view> read_first, written;
  std::vector<bool> changes;
  for (const OperatorDef& op : net.op()) {
    for (const std::string& input : op.input()) {
      if (!written.contains(input)) read_first.insert(input);
    }
    written.insert(op.output().begin(), op.output().end());
    const bool writes = std::ranges::any_of(op.output(), [&](const auto& blob) { return read_first.contains(blob); });
    changes.push_back(writes || HasSideEffects(op) || AddsToGradient(op));
  }
  return changes;
}

}  // namespace stepnet

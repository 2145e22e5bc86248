#include "stepnet/tools/rnn_runner/gradients.h"

#include <algorithm>

#include "stepnet/core/error.h"
#include "stepnet/core/strings.h"
#include "stepnet/nets/backward_step.h"
#include "stepnet/nets/completion.h"
#include "stepnet/nets/net_check.h"
#include "stepnet/nets/op_builder.h"

namespace stepnet::runner {
namespace {

// A gradient may be another blob's, as that of a term is that of the sum: it gets the name that it is looked for by.
std::string Named(const std::string& input, const std::string& gradient, NetDef* net) {
  const std::string name = input + "_grad";
  const auto gives = [&](const OperatorDef& op) { return std::ranges::count(op.output(), name) > 0; };
  if (gradient == name || std::ranges::any_of(net->op(), gives)) return gradient;
  AddOp(net, "Copy", {gradient}, {name});
  return name;
}

}  // namespace

FlagUse LossFlag() {
  return {.name = "loss",
          .value = "BLOB,…",
          .doc =
              "the net with its gradients, as `grad --loss` prints it: of the sum of the elements of these blobs, by\n"
              "all that the net reads",
          .is_list = true};
}

void CheckLosses(const NetDef& net, const std::vector<std::string>& losses) {
  for (const OperatorDef& op : net.op()) {
    if (op.type() != "RecurrentNetwork" || op.output().empty()) continue;
    const std::string& record = *op.output().rbegin();
    if (std::ranges::find(losses, record) == losses.end()) continue;
    throw Error(ErrorCode::kInvalidArgument,
                StrCat("--loss names \"", record, "\", the record of a run of RecurrentNetwork, which is no tensor",
                       " and has no gradient; its outputs before it have"));
  }
}

NetWithGradients WithGradients(NetDef net, const std::vector<std::string>& losses,
                               const std::vector<std::string>& inputs, const GradientRequests& requests) {
  // As it is written: arguments that AddBackwardStepNets writes anew are not looked at later.
  ThrowIfProblems(CheckNet(*Completed(net), {.blob_exists = [](const std::string&) { return true; }}));
  AddBackwardStepNets(&net, AskedFor(inputs, requests));
  NetWithGradients made = AddGradients(net, losses, inputs, requests);
  for (auto& [input, gradient] : made.gradients) {
    if (!gradient.dense.empty()) gradient.dense = Named(input, gradient.dense, &made.net);
    for (const std::string& blob : {gradient.dense, gradient.indices, gradient.values}) {
      if (!blob.empty()) made.net.add_external_output(blob);
    }
  }
  return made;
}

}  // namespace stepnet::runner

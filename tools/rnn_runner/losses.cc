#include "stepnet/tools/rnn_runner/losses.h"

#include <algorithm>
#include <set>

#include "stepnet/core/error.h"
#include "stepnet/core/strings.h"
#include "stepnet/nets/op_arguments.h"
#include "stepnet/tools/rnn_runner/common_flags.h"

namespace stepnet::runner {
namespace {

constexpr std::string_view kGradient = "_grad";

Tensor Doubles(const std::string& blob, const Workspace& workspace) {
  Tensor tensor = workspace.GetTensor(blob).To({});
  if (tensor.dtype() != DType::kDouble) {
    throw Error(ErrorCode::kTypeMismatch, StrCat("\"", blob, "\" is ", tensor.Description(),
                                                 "; a loss must be double when the net runs in double"));
  }
  return tensor;
}

// The blob whose gradient is called `name`: x for "x_grad" and "x_autogen_grad". "" for other names.
std::string BlobOfGradient(const std::string& name) {
  for (const std::string_view ending : {std::string_view("_autogen_grad"), kGradient}) {
    if (name.size() > ending.size() && name.ends_with(ending)) return name.substr(0, name.size() - ending.size());
  }
  return "";
}

}  // namespace

bool HasGradients(const NetDef& net) { return std::ranges::any_of(net.op(), &OperatorDef::is_gradient_op); }

std::vector<Loss> SeededLosses(const NetDef& net) {
  std::vector<Loss> losses;
  std::set<std::string> written;
  for (const OperatorDef& op : net.op()) {
    for (const std::string& input : op.input()) {
      const std::string blob = BlobOfGradient(input);
      const bool is_new = std::ranges::none_of(losses, [&](const Loss& loss) { return loss.weights == input; });
      if (op.is_gradient_op() && !written.contains(input) && written.contains(blob) && is_new) {
        losses.push_back({.blob = blob, .factor = 1, .weights = input, .gradient = input});
      }
    }
    written.insert(op.output().begin(), op.output().end());
    const bool fills = op.type() == "ConstantFill" && op.input_size() == 1 && op.output_size() == 1;
    if (!fills || op.is_gradient_op() || !op.output(0).ends_with(kGradient)) continue;
    double factor = 0;
    if (const Argument* value = FindArgument(op, "value")) {
      factor = value->has_f() ? value->f() : static_cast<double>(value->i());
    }
    losses.push_back({.blob = op.input(0), .factor = factor, .weights = {}, .gradient = op.output(0)});
  }
  return losses;
}

NetDef WithoutGradients(const NetDef& net) {
  // Arguments that RecurrentNetwork has for its backward step net alone.
  static const std::set<std::string> backward_arguments = {
      "backward_step_net",    "backward_link_internal", "backward_link_external",
      "backward_link_offset", "backward_link_window",   "param",
      "param_grads",          "outputs_with_grads",     "recompute_blobs_on_backward"};
  NetDef result = net;
  result.clear_op();
  std::set<std::string> gone;  // blobs that nothing writes any more
  for (const OperatorDef& op : net.op()) {
    const bool reads_gone = std::ranges::any_of(op.input(), [&](const auto& blob) { return gone.contains(blob); });
    if (op.is_gradient_op() || reads_gone) {
      gone.insert(op.output().begin(), op.output().end());
      continue;
    }
    OperatorDef& kept = *result.add_op();
    kept = op;
    kept.clear_arg();
    for (const Argument& argument : op.arg()) {
      const bool is_backward = backward_arguments.contains(argument.name()) || argument.name().ends_with(".rename");
      if (op.type() != "RecurrentNetwork" || !is_backward) *kept.add_arg() = argument;
    }
  }
  return result;
}

std::vector<Loss> ParseLosses(const std::string& text) {
  std::vector<Loss> losses;
  for (const std::string& item : SplitList(text)) {
    const size_t colon = item.rfind(':');
    if (colon == std::string::npos) {
      losses.push_back({.blob = item});
    } else {
      losses.push_back({.blob = item.substr(0, colon), .factor = 1, .weights = item.substr(colon + 1)});
    }
  }
  return losses;
}

NetDef Needed(const NetDef& net, const std::vector<Loss>& losses) {
  std::set<std::string> wanted;
  for (const Loss& loss : losses) wanted.insert(loss.blob);
  std::vector<const OperatorDef*> kept;
  for (int k = net.op_size() - 1; k >= 0; --k) {
    const OperatorDef& op = net.op(k);
    if (op.is_gradient_op()) continue;
    if (std::ranges::none_of(op.output(), [&](const std::string& blob) { return wanted.contains(blob); })) continue;
    kept.push_back(&op);
    wanted.insert(op.input().begin(), op.input().end());
  }
  NetDef result = net;
  result.clear_op();
  result.clear_external_output();
  for (auto op = kept.rbegin(); op != kept.rend(); ++op) *result.add_op() = **op;
  return result;
}

double LossValue(const std::vector<Loss>& losses, const Workspace& workspace) {
  double sum = 0;
  for (const Loss& loss : losses) {
    const Tensor values = Doubles(loss.blob, workspace);
    Tensor weights;
    if (!loss.weights.empty()) {
      weights = Doubles(loss.weights, workspace);
      if (weights.size() != values.size()) {
        throw Error(ErrorCode::kShapeMismatch,
                    StrCat("\"", loss.weights, "\" is ", weights.shape(), ", which cannot be the gradient of \"",
                           loss.blob, "\", ", values.shape()));
      }
    }
    for (std::int64_t i = 0; i < values.size(); ++i) {
      sum += values.data<double>()[i] * (weights.defined() ? weights.data<double>()[i] : loss.factor);
    }
  }
  return sum;
}

}  // namespace stepnet::runner

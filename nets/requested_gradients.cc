#include "stepnet/nets/requested_gradients.h"

#include <algorithm>
#include <set>

#include "stepnet/nets/needed_operators.h"
#include "stepnet/proto/net.pb.h"

namespace stepnet {
namespace {

class RequestedGradients {
 public:
  RequestedGradients(const OperatorCall& op, const RecurrentSpec& spec)
      : op_(op), spec_(spec), is_gradient_(op.type() == "RecurrentNetworkGradient"), inputs_({0}) {
    inputs_.insert(inputs_.end(), spec.params.begin(), spec.params.end());
    for (const RecurrentState& state : spec.states) inputs_.push_back(state.initial);
  }

  // Whether some are not requested, by a list that fits.
  bool LeaveOut() const {
    return spec_.requests.size() == inputs_.size() &&
           std::ranges::any_of(spec_.requests, [](GradientRequest r) { return r == GradientRequest::kNone; });
  }

  // The blobs that a backward step gives.
  std::set<std::string> Blobs() const {
    std::set<std::string> blobs;
    for (const Link& link : spec_.backward_links) {
      if (IsLinkRequested(spec_.Renamed(link.external))) blobs.insert(spec_.Renamed(link.internal));
    }
    for (size_t k = 0; k < spec_.params.size(); ++k) {
      const int output = static_cast<int>(k) + 1;
      if (!IsRequested(output)) continue;
      blobs.insert(spec_.Renamed(!spec_.param_grads.empty() ? spec_.param_grads[k]
                                 : is_gradient_             ? op_.outputs()[output]
                                                            : ForwardInput(output) + "_grad"));
    }
    return blobs;
  }

 private:
  // The forward operator's input whose gradient this output of the gradient operator is.
  std::string ForwardInput(int output) const {
    const size_t index = inputs_[output] + (is_gradient_ ? spec_.outputs_with_grads.size() : 0);
    return index < op_.inputs().size() ? op_.inputs()[index] : "";
  }

  // Outputs of one name are one blob.
  bool IsRequested(int output) const {
    for (size_t k = 0; k < inputs_.size(); ++k) {
      const bool is_same = is_gradient_ ? op_.outputs()[k] == op_.outputs()[output] : inputs_[k] == inputs_[output];
      if (is_same && spec_.requests[k] != GradientRequest::kNone) return true;
    }
    return false;
  }

  // What the link may name, in the order in which plans look for it: gradients of states and step outputs first.
  bool IsLinkRequested(const std::string& external) const {
    const auto is_gradient_of = [&](const std::string& blob) { return spec_.Renamed(blob + "_grad") == external; };
    if (std::ranges::any_of(spec_.states, is_gradient_of, &RecurrentState::name)) return true;
    if (std::ranges::any_of(spec_.step_outputs, is_gradient_of, &StepOutput::destination)) return true;
    const int num_outputs = 1 + static_cast<int>(spec_.params.size());
    for (int k = 0; k < num_outputs; ++k) {
      if (is_gradient_of(ForwardInput(k))) return IsRequested(k);
    }
    for (int k = 0; k < num_outputs; ++k) {
      if (is_gradient_ && op_.outputs()[k] == external) return IsRequested(k);
    }
    return true;
  }

  const OperatorCall& op_;
  const RecurrentSpec& spec_;
  const bool is_gradient_;
  std::vector<int> inputs_;  // of the forward operator, by outputs of the gradient operator
};

}  // namespace

RecurrentSpec WithRequestedGradients(const OperatorCall& op, RecurrentSpec spec) {
  const RequestedGradients requested(op, spec);
  if (spec.backward_step_net == nullptr || !requested.LeaveOut()) return spec;
  spec.backward_step_net =
      std::make_shared<const NetDef>(WithNeededOperators(*spec.backward_step_net, requested.Blobs()));
  return spec;
}

}  // namespace stepnet

#include "stepnet/nets/requested_gradients.h"

#include <algorithm>
#include <set>

#include "stepnet/nets/backward_roles.h"
#include "stepnet/nets/needed_operators.h"
#include "stepnet/proto/net.pb.h"

namespace stepnet {
namespace {

// Whether some are not requested, by a list that fits.
bool LeavesOut(const RecurrentSpec& spec) {
  return spec.requests.size() == InputsOfGradients(spec).size() &&
         std::ranges::any_of(spec.requests, [](GradientRequest r) { return r == GradientRequest::kNone; });
}

// The links that show what is requested, states and step outputs.
std::vector<Link> RequestedLinks(const OperatorCall& op, const RecurrentSpec& spec) {
  const std::vector<BackwardLinkRole> roles = FindBackwardLinkRoles(op, spec);
  std::vector<Link> links;
  for (size_t i = 0; i < roles.size(); ++i) {
    const bool is_output = roles[i].kind == BackwardLinkRole::Kind::kOutput;
    if (!is_output || IsRequested(op, spec, roles[i].index)) links.push_back(spec.backward_links[i]);
  }
  return links;
}

// The blobs that a backward step gives.
std::set<std::string> RequestedBlobs(const OperatorCall& op, const RecurrentSpec& spec) {
  std::set<std::string> blobs;
  for (const Link& link : spec.backward_links) blobs.insert(spec.Renamed(link.internal));
  for (size_t k = 0; k < spec.params.size(); ++k) {
    if (IsRequested(op, spec, static_cast<int>(k) + 1)) blobs.insert(NameOfParamGradient(op, spec, k));
  }
  return blobs;
}

}  // namespace

// Outputs of one name are one blob.
bool IsRequested(const OperatorCall& op, const RecurrentSpec& spec, int output) {
  if (spec.requests.empty()) return true;
  const std::vector<int> inputs = InputsOfGradients(spec);
  for (size_t k = 0; k < inputs.size(); ++k) {
    const bool is_same = IsGradientOperator(op) ? op.outputs()[k] == op.outputs()[output] : inputs[k] == inputs[output];
    if (is_same && spec.requests[k] != GradientRequest::kNone) return true;
  }
  return false;
}

RecurrentSpec WithRequestedGradients(const OperatorCall& op, RecurrentSpec spec) {
  if (!LeavesOut(spec)) return spec;
  spec.backward_links = RequestedLinks(op, spec);
  if (spec.backward_step_net != nullptr) {
    spec.backward_step_net =
        std::make_shared<const NetDef>(WithNeededOperators(*spec.backward_step_net, RequestedBlobs(op, spec)));
  }
  return spec;
}

}  // namespace stepnet

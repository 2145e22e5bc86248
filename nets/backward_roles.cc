#include "stepnet/nets/backward_roles.h"

#include <algorithm>
#include <functional>
#include <set>
#include <string_view>
#include <unordered_map>
#include <unordered_set>

#include "stepnet/core/strings.h"
#include "stepnet/nets/net_blobs.h"
#include "stepnet/nets/net_check.h"
#include "stepnet/proto/net.pb.h"

namespace stepnet {
namespace {

using Kind = BackwardLinkRole::Kind;

std::string Suggestion(const std::string& name, const std::vector<NetProblem>* problems,
                       const std::function<std::vector<std::string>()>& names) {
  return problems != nullptr && problems->size() < kMaxSuggestions ? DidYouMean(name, names()) : "";
}

// What links may name.
class GradientNames {
 public:
  GradientNames(const OperatorCall& op, const RecurrentSpec& spec) : spec_(spec) {
    // The first one of a name counts.
    for (size_t i = 0; i < spec.states.size(); ++i) Add(spec.states[i].name, Kind::kState, i);
    for (size_t i = 0; i < spec.step_outputs.size(); ++i) Add(spec.step_outputs[i].destination, Kind::kStepOutput, i);
    std::vector<int> inputs = InputsOfGradients(spec);
    inputs.resize(1 + spec.params.size());  // gradients of initial states come by way of the states'
    for (size_t k = 0; k < inputs.size(); ++k) Add(ForwardInputName(op, spec, inputs[k]), Kind::kOutput, k);
    for (size_t k = 0; k < inputs.size() && IsGradientOperator(op); ++k) {
      roles_.try_emplace(op.outputs()[k], Kind::kOutput, static_cast<int>(k));
    }
  }

  BackwardLinkRole RoleOf(const Link& link) const {
    const auto found = roles_.find(spec_.Renamed(link.external));
    return found == roles_.end() ? BackwardLinkRole{} : found->second;
  }

  std::vector<std::string> Names() const {
    std::vector<std::string> names;
    for (const auto& [name, role] : roles_) names.push_back(name);
    return names;
  }

 private:
  void Add(const std::string& blob, Kind kind, size_t index) {
    roles_.try_emplace(spec_.Renamed(blob + "_grad"), kind, static_cast<int>(index));
  }

  const RecurrentSpec& spec_;
  std::map<std::string, BackwardLinkRole> roles_;
};

// What is wrong with the link; "" where nothing is.
std::string ProblemOf(const Link& link, const BackwardLinkRole& role, const RecurrentSpec& spec,
                      const GradientNames& names, const std::vector<NetProblem>* problems) {
  if (role.kind == Kind::kNothing) {
    return StrCat("the backward link of \"", link.internal, "\" names \"", link.external,
                  "\", which is the gradient of no state, of no step output, of no param and not of the first input",
                  Suggestion(link.external, problems, [&] { return names.Names(); }));
  }
  if (role.kind == Kind::kStepOutput && (link.offset != 0 || link.window != 1)) {
    return StrCat("the backward link of \"", link.internal, "\" has offset ", link.offset, " and window ", link.window,
                  "; \"", spec.step_outputs[role.index].destination,
                  "\" is a step output, whose row t belongs to step t: offset 0 and window 1");
  }
  const bool is_first_input = role.kind == Kind::kOutput && InputsOfGradients(spec)[role.index] == 0;
  if (is_first_input) return ProblemOfFirstInputLink(link);
  return "";
}

class SourceFinder {
 public:
  SourceFinder(const OperatorCall& op, const RecurrentSpec& spec, const std::vector<BackwardLinkRole>& roles,
               const ForwardOperator* forward, std::vector<NetProblem>* problems)
      : spec_(spec), forward_(forward), problems_(problems) {
    for (const Link& link : spec.links) linked_[link.internal] = true;
    for (size_t i = 0; i < roles.size(); ++i) {
      const Link& link = spec.backward_links[i];
      bool& gives = linked_[spec.Renamed(link.internal)];
      gives = gives || roles[i].MayGive(link);
    }
    if (forward == nullptr) return;
    for (const OperatorDef& step : forward->spec->step_net->op()) {
      written_.insert(step.output().begin(), step.output().end());
    }
    for (const auto& [blob, wants_shape] : ReadFirstForShape(*forward->spec->step_net)) {
      const bool is_linked = std::ranges::count(forward->spec->links, blob, &Link::internal) > 0;
      if (!is_linked && blob != forward->spec->timestep) captured_.insert(blob);
    }
    kept_for_shape_ = ReadFirstForShape(*forward->spec->BackwardStep());
    for (int i = 0; i < forward->op.num_inputs(); ++i) inputs_.insert(ForwardInputName(op, spec, i));
  }

  std::map<std::string, BackwardSource> Find() {
    std::map<std::string, BackwardSource> sources;
    const std::unordered_map<std::string_view, bool> reads = ReadFirstForShape(*spec_.BackwardStep());
    for (const auto& [blob, wants_shape] : reads) sources.emplace(blob, BackwardSource::kNowhere);
    for (auto& [blob, source] : sources) source = SourceOf(blob, reads.at(blob));
    return sources;
  }

 private:
  // Elements of a blob of which the forward operator's backward step reads the shape alone are not kept.
  bool IsKept(const std::string& blob, bool wants_shape) const {
    const auto kept = kept_for_shape_.find(blob);
    return forward_->keeps_all || (kept != kept_for_shape_.end() && (wants_shape || !kept->second));
  }

  BackwardSource SourceOf(const std::string& blob, bool wants_shape) {
    if (const auto linked = linked_.find(blob); linked != linked_.end()) {
      if (linked->second) return BackwardSource::kLink;
      return ReportNowhere(blob, ": its links only take what the step adds to gradients");
    }
    if (blob == spec_.timestep) return BackwardSource::kTimestep;
    if (forward_ == nullptr) return BackwardSource::kNowhere;
    if (written_.contains(blob) && !captured_.contains(blob)) {
      if (IsKept(blob, wants_shape)) return BackwardSource::kForwardStep;
      Report(blob, StrCat("the backward step net reads \"", blob,
                          "\", which the forward run did not keep: RecurrentNetwork needs the argument "
                          "backward_step_net, the same as its gradient has, to train"));
      return BackwardSource::kNowhere;
    }
    if (inputs_.contains(blob)) return BackwardSource::kForwardInput;
    return ReportNowhere(blob, Suggestion(blob, problems_, [this] {
                           std::vector<std::string> names(written_.begin(), written_.end());
                           names.insert(names.end(), inputs_.begin(), inputs_.end());
                           std::ranges::sort(names);
                           return names;
                         }));
  }

  BackwardSource ReportNowhere(const std::string& blob, const std::string& more) {
    Report(blob, StrCat("\"", blob, "\" is read before anything writes it", more));
    return BackwardSource::kNowhere;
  }

  void Report(const std::string& blob, std::string message) {
    const NetDef& net = *spec_.BackwardStep();
    const auto reads = [&](const OperatorDef& op) { return std::ranges::count(op.input(), blob) > 0; };
    const auto reader = std::ranges::find_if(net.op(), reads);
    problems_->push_back({.net = net.name().empty() ? "backward_step_net" : net.name(),
                          .op_index = static_cast<int>(reader - net.op().begin()),
                          .op_text = OperatorText(*reader),
                          .message = std::move(message)});
  }

  const RecurrentSpec& spec_;
  const ForwardOperator* const forward_;
  std::vector<NetProblem>* const problems_;
  std::map<std::string, bool> linked_;  // whether a link shows what is there before the step
  // The forward operator has these:
  std::unordered_set<std::string_view> written_;   // by its step
  std::unordered_set<std::string_view> captured_;  // inputs that its step net sees whole
  std::unordered_map<std::string_view, bool> kept_for_shape_;
  std::set<std::string> inputs_;  // as the gradient operator lists them
};

}  // namespace

bool IsGradientOperator(const OperatorCall& op) { return op.type() == "RecurrentNetworkGradient"; }

std::string ForwardInputName(const OperatorCall& op, const RecurrentSpec& spec, int input) {
  const size_t first = IsGradientOperator(op) ? spec.outputs_with_grads.size() : 0;
  const size_t index = first + static_cast<size_t>(input);
  return input >= 0 && index < op.inputs().size() ? op.inputs()[index] : "";
}

std::vector<int> InputsOfGradients(const RecurrentSpec& spec) {
  std::vector<int> inputs = {0};
  inputs.insert(inputs.end(), spec.params.begin(), spec.params.end());
  for (const RecurrentState& state : spec.states) inputs.push_back(state.initial);
  return inputs;
}

std::string NameOfParamGradient(const OperatorCall& op, const RecurrentSpec& spec, size_t k) {
  if (!spec.param_grads.empty()) return spec.Renamed(spec.param_grads[k]);
  if (IsGradientOperator(op)) return spec.Renamed(op.outputs()[k + 1]);
  return spec.Renamed(ForwardInputName(op, spec, spec.params[k]) + "_grad");
}

OutputRole FindOutputRole(const RecurrentSpec& spec, const std::string& output) {
  if (const int i = spec.StepOutputIndex(output); i >= 0) return {.step_output = i};
  // Where aliases share a name, the last one stays.
  for (auto alias = spec.aliases.rbegin(); alias != spec.aliases.rend(); ++alias) {
    if (alias->destination != output) continue;
    return {.state = spec.StateIndex(alias->source), .offset = alias->offset};
  }
  return {.state = spec.StateIndex(output)};
}

std::vector<BackwardLinkRole> FindBackwardLinkRoles(const OperatorCall& op, const RecurrentSpec& spec,
                                                    std::vector<NetProblem>* problems) {
  const GradientNames names(op, spec);
  std::vector<BackwardLinkRole> roles;
  for (const Link& link : spec.backward_links) {
    roles.push_back(names.RoleOf(link));
    if (problems == nullptr) continue;
    std::string problem = ProblemOf(link, roles.back(), spec, names, problems);
    if (!problem.empty()) problems->push_back({.message = std::move(problem)});
  }
  return roles;
}

std::map<std::string, BackwardSource> FindBackwardSources(const OperatorCall& op, const RecurrentSpec& spec,
                                                          const std::vector<BackwardLinkRole>& links,
                                                          const ForwardOperator* forward,
                                                          std::vector<NetProblem>* problems) {
  return SourceFinder(op, spec, links, forward, problems).Find();
}

}  // namespace stepnet

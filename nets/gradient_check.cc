#include "stepnet/nets/gradient_check.h"

#include <map>
#include <memory>
#include <set>
#include <string_view>
#include <unordered_set>

#include "stepnet/nets/backward_roles.h"
#include "stepnet/nets/net_rule.h"
#include "stepnet/nets/requested_gradients.h"
#include "stepnet/proto/net.pb.h"

namespace stepnet {
namespace {

// A link of either operator by what it shows, whatever that is called.
struct LinkMeaning {
  int state = -1;
  int input = -1;

  friend bool operator==(const LinkMeaning&, const LinkMeaning&) = default;
};

class Agreement {
 public:
  Agreement(const OperatorCall& op, const RecurrentSpec& spec, const ForwardOperator& forward,
            std::vector<NetProblem>* problems)
      : op_(op), spec_(spec), forward_(forward), problems_(problems) {}

  void Check() {
    const size_t before = problems_->size();
    CheckCounts();
    if (problems_->size() > before) return;  // what follows goes through the lists of both operators together
    CheckInputs();
    CheckLinks();
    CheckOutputs();
  }

 private:
  void Report(std::string message) { problems_->push_back({.message = std::move(message)}); }

  void CheckCounts() {
    const RecurrentSpec& forward = *forward_.spec;
    if (spec_.states.size() != forward.states.size() || spec_.step_outputs.size() != forward.step_outputs.size()) {
      Report(StrCat("RecurrentNetworkGradient has ", spec_.states.size(), " states and ", spec_.step_outputs.size(),
                    " step outputs; its forward operator has ", forward.states.size(), " and ",
                    forward.step_outputs.size()));
    }
    const auto num_gradients = static_cast<int>(spec_.outputs_with_grads.size());
    const int expected = num_gradients + forward_.op.num_inputs() + forward_.op.num_outputs();
    if (op_.num_inputs() != expected) {
      Report(StrCat("RecurrentNetworkGradient has ", op_.num_inputs(), " inputs; with ", num_gradients,
                    " outputs_with_grads, the ", forward_.op.num_inputs(), " inputs and the ",
                    forward_.op.num_outputs(), " outputs of the forward operator they should be ", expected));
    }
  }

  void CheckInputs() {
    for (const int param : spec_.params) {
      if (param < forward_.op.num_inputs()) continue;
      Report(StrCat("param names input ", param, "; the forward operator has ", forward_.op.num_inputs()));
    }
    for (size_t i = 0; i < spec_.states.size(); ++i) {
      const int initial = forward_.spec->states[i].initial;
      if (spec_.states[i].initial == initial) continue;
      Report(StrCat("initial_recurrent_state_ids names input ", spec_.states[i].initial, " for state ", i,
                    " of RecurrentNetworkGradient, and ", initial, " for that of its forward operator"));
    }
  }

  // What the operator's links may name: states first.
  std::map<std::string, LinkMeaning> Meanings(const OperatorCall& op, const RecurrentSpec& spec) const {
    std::map<std::string, LinkMeaning> meanings;
    for (size_t i = 0; i < spec.states.size(); ++i) meanings[spec.states[i].name] = {.state = static_cast<int>(i)};
    for (int i = 0; i < forward_.op.num_inputs(); ++i) {
      meanings.emplace(ForwardInputName(op, spec, i), LinkMeaning{.input = i});
    }
    return meanings;
  }

  static std::string TextOf(const Link& link) {
    return StrCat("\"", link.internal, "\" is linked to \"", link.external, "\" with offset ", link.offset,
                  " and window ", link.window);
  }

  void CheckLinks() {
    const std::vector<Link>& forward = forward_.spec->links;
    if (spec_.links.size() != forward.size()) {
      return Report(StrCat("RecurrentNetworkGradient has ", spec_.links.size(), " links; its forward operator has ",
                           forward.size()));
    }
    const std::map<std::string, LinkMeaning> of_own = Meanings(op_, spec_),
                                             of_other = Meanings(forward_.op, *forward_.spec);
    for (size_t i = 0; i < forward.size(); ++i) {
      const Link &own = spec_.links[i], &other = forward[i];
      const auto meaning = of_own.find(own.external);
      const bool agrees = own.internal == other.internal && own.offset == other.offset && own.window == other.window &&
                          meaning != of_own.end() && meaning->second == of_other.at(other.external);
      if (agrees) continue;
      Report(StrCat("link ", i, " of RecurrentNetworkGradient is another one than that of its forward operator: ",
                    TextOf(own), ", and there ", TextOf(other)));
    }
  }

  void CheckOutputs() {
    for (size_t i = 0; i < spec_.step_outputs.size(); ++i) {
      const std::string &own = spec_.step_outputs[i].blob, &other = forward_.spec->step_outputs[i].blob;
      if (own == other) continue;
      Report(StrCat("step_output_src names \"", own, "\" as step output ", i, " of RecurrentNetworkGradient, and \"",
                    other, "\" as that of its forward operator"));
    }
    for (const int output : spec_.outputs_with_grads) CheckOutput(output);
  }

  // An output that has a gradient. The two operators may call it otherwise.
  void CheckOutput(int output) {
    const int made = forward_.op.num_outputs() - 1;
    if (output >= made) {
      return Report(StrCat("outputs_with_grads names output ", output, "; the forward operator has ", made,
                           " before the record of the run"));
    }
    const int first = static_cast<int>(spec_.outputs_with_grads.size()) + forward_.op.num_inputs();
    const std::string& own_name = op_.inputs()[first + output];
    const OutputRole own = FindOutputRole(spec_, own_name);
    if (own.state < 0 && own.step_output < 0) {
      return Report(StrCat("output ", output, " \"", own_name,
                           "\" of the forward operator is no alias of a state; its gradient cannot be computed"));
    }
    if (own != FindOutputRole(*forward_.spec, forward_.op.outputs()[output])) {
      return Report(
          StrCat("output ", output, " \"", own_name,
                 "\" shows other rows by the aliases of RecurrentNetworkGradient than by those of its forward "
                 "operator"));
    }
    try {
      ExpectGradientTaken(spec_, own_name);
    } catch (const Error& error) {
      Report(error.message());
    }
  }

  const OperatorCall& op_;
  const RecurrentSpec& spec_;
  const ForwardOperator& forward_;
  std::vector<NetProblem>* const problems_;
};

// The links, what the step reads, and what it gives.
BackwardRoles CheckBackwardStep(const OperatorCall& op, const RecurrentSpec& spec, const ForwardOperator* forward,
                                std::vector<NetProblem>* problems) {
  const size_t before = problems->size();
  BackwardRoles roles{.links = FindBackwardLinkRoles(op, spec, problems), .sources = {}};
  if (problems->size() > before) return roles;
  roles.sources = FindBackwardSources(op, spec, roles.links, forward, problems);
  std::unordered_set<std::string_view> blobs;  // what has a value in a step
  for (const OperatorDef& step : spec.BackwardStep()->op()) {
    blobs.insert(step.input().begin(), step.input().end());
    blobs.insert(step.output().begin(), step.output().end());
  }
  std::set<int> linked;            // outputs of the operator that links give
  std::vector<std::string> given;  // by links
  for (size_t i = 0; i < roles.links.size(); ++i) {
    const BackwardLinkRole& role = roles.links[i];
    const Link& link = spec.backward_links[i];
    if (role.MayGive(link)) given.push_back(spec.Renamed(link.internal));
    if (role.kind == BackwardLinkRole::Kind::kOutput) linked.insert(role.index);
  }
  blobs.insert(given.begin(), given.end());
  for (size_t k = 0; k < spec.params.size(); ++k) {
    const int output = static_cast<int>(k) + 1;
    const std::string name = NameOfParamGradient(op, spec, k);
    if (!IsRequested(op, spec, output) || linked.contains(output) || blobs.contains(name)) continue;
    problems->push_back({.message = StrCat("nothing in the backward step net writes \"", name, "\", the gradient of \"",
                                           ForwardInputName(op, spec, spec.params[k]), "\"",
                                           DidYouMean(name, {blobs.begin(), blobs.end()}))});
  }
  return roles;
}

// The gradient operators of a net and their forward operators.
class GradientsOfNet {
 public:
  GradientsOfNet(const CheckedNet& checked, std::vector<NetProblem>* problems)
      : checked_(checked), problems_(problems) {}

  void Check() {
    for (int i = 0; i < checked_.net.op_size(); ++i) {
      const OperatorDef& op = checked_.net.op(i);
      if (op.type() == "RecurrentNetworkGradient" && !checked_.faulty.contains(i)) CheckOperator(i);
      for (const std::string& output : op.output()) writers_[output] = i;
    }
  }

 private:
  static bool IsRecordOf(const OperatorDef& op, const std::string& blob) {
    return op.type() == "RecurrentNetwork" && op.output(op.output_size() - 1) == blob;
  }

  void CheckOperator(int i) {
    const OperatorDef& op = checked_.net.op(i);
    const std::string& record = op.input(op.input_size() - 1);
    const OperatorPlace writer = WriterOf(record);
    const OperatorDef* const forward = writer.net == nullptr ? nullptr : &writer.net->op(writer.index);
    std::vector<NetProblem> found;
    if (forward != nullptr && !IsRecordOf(*forward, record)) {
      found.push_back({.message = StrCat("the last input, \"", record, "\", is what `", OperatorText(*forward),
                                         "` gives; it must be the last output of the RecurrentNetwork whose gradient "
                                         "this is")});
    } else {
      const OperatorCall& call = checked_.calls.at(i);
      CheckGradient(call, *WithRequestedGradients(call, RecurrentSpecOf(call)),
                    forward == nullptr ? nullptr : &ForwardAt(writer), &found);
    }
    for (NetProblem& problem : found) {
      if (problem.net.empty()) {
        problem.net = checked_.net.name();
        problem.op_index = i;
        problem.op_text = OperatorText(op);
      }
      problems_->push_back(std::move(problem));
    }
  }

  // The place names no net where the writer is not known, or wrong by itself.
  OperatorPlace WriterOf(const std::string& blob) const {
    const auto found = writers_.find(blob);
    if (found == writers_.end()) {
      return checked_.options.writer_outside ? checked_.options.writer_outside(blob) : OperatorPlace{};
    }
    if (checked_.faulty.contains(found->second)) return {};
    return {.net = &checked_.net, .index = found->second};
  }

  const ForwardOperator& ForwardAt(const OperatorPlace& place) {
    std::unique_ptr<ForwardOperator>& forward = forwards_[{place.net, place.index}];
    if (forward == nullptr) {
      std::vector<OperatorCall::Readers>& readers = readers_[place.net];
      if (readers.empty()) readers = ReadersOfOutputs(*place.net);
      forward = std::make_unique<ForwardOperator>(CallAt(place).ReadBy(readers[place.index]));
    }
    return *forward;
  }

  OperatorCall CallAt(const OperatorPlace& place) const {
    if (place.net == &checked_.net) return checked_.calls.at(place.index);
    return OperatorCall(place.net->op(place.index), checked_.options.run);
  }

  const CheckedNet& checked_;
  std::vector<NetProblem>* const problems_;
  std::map<std::string, int> writers_;  // blob → the operator that wrote it last
  std::map<std::pair<const NetDef*, int>, std::unique_ptr<ForwardOperator>> forwards_;
  std::map<const NetDef*, std::vector<OperatorCall::Readers>> readers_;
};

const NetRuleRegistration gradients_agree([](const CheckedNet& checked, std::vector<NetProblem>* problems) {
  GradientsOfNet(checked, problems).Check();
});

}  // namespace

BackwardRoles CheckGradient(const OperatorCall& op, const RecurrentSpec& spec, const ForwardOperator* forward,
                            std::vector<NetProblem>* problems) {
  const size_t before = problems->size();
  if (forward != nullptr) Agreement(op, spec, *forward, problems).Check();
  return problems->size() == before ? CheckBackwardStep(op, spec, forward, problems) : BackwardRoles();
}

}  // namespace stepnet

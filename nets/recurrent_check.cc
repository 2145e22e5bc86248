// What can be known to be wrong with a recurrent operator before it is given tensors.
#include <algorithm>
#include <iterator>
#include <map>
#include <set>
#include <unordered_set>

#include "stepnet/nets/backward_roles.h"
#include "stepnet/nets/link_roles.h"
#include "stepnet/nets/net_blobs.h"
#include "stepnet/nets/net_check.h"
#include "stepnet/nets/recurrent_spec.h"
#include "stepnet/proto/net.pb.h"

namespace stepnet {
namespace {

class RecurrentChecker {
 public:
  RecurrentChecker(const OperatorCall& op, bool gradient, std::vector<NetProblem>* problems)
      : op_(op),
        inputs_(op.inputs().begin(), op.inputs().end()),
        owner_(RecurrentSpecOf(op, &faults_)),
        spec_(*owner_),
        gradient_(gradient),
        problems_(problems) {}

  void Run() {
    for (const Error& fault : faults_) Report(fault.message());
    CheckIndices();
    CheckNames();
    CheckLinks();
    if (spec_.step_net == nullptr) return;
    CheckTimestep();
    CheckStepNet(*spec_.step_net, /*backward=*/false);
    if (spec_.backward_step_net != nullptr) CheckStepNet(*spec_.backward_step_net, /*backward=*/true);
    CheckAliases();
    // The rest compares lists with each other, which must be whole.
    if (!faults_.empty()) return;
    if (gradient_) {
      CheckGradientOutputs();
      if (problems_->empty()) CheckBackwardLinks();
      return;
    }
    FindLinkRoles(spec_, problems_);
    CheckRecomputed();
    CheckStepOutputs();
    CheckOutputs();
  }

 private:
  void Report(std::string message) { problems_->push_back({.message = std::move(message)}); }

  bool IsInput(const std::string& name) const { return inputs_.contains(name); }

  // Position of forward input 0 among the operator's inputs.
  int FirstInput() const { return gradient_ ? static_cast<int>(spec_.outputs_with_grads.size()) : 0; }

  void CheckIndices() {
    const int available = op_.num_inputs() - FirstInput();
    const auto check = [&](int index, const char* what) {
      if (index < 0 || index >= available) Report(StrCat(what, " names input ", index, "; there are ", available));
    };
    for (const RecurrentState& state : spec_.states) check(state.initial, "initial_recurrent_state_ids");
    for (const int param : spec_.params) check(param, "param");
    // How many outputs the forward operator has only both operators together tell.
    for (const int output : spec_.outputs_with_grads) {
      if (gradient_ && output >= 0) continue;
      if (output >= 0 && output < op_.num_outputs() - 1) continue;
      const std::string there_are =
          gradient_ ? "" : StrCat("; there are ", op_.num_outputs() - 1, " before the record of the run");
      Report(StrCat("outputs_with_grads names output ", output, there_are));
    }
  }

  // What the operator writes it writes before it has read all its inputs.
  void CheckNames() {
    for (int o = 0; o < op_.num_outputs(); ++o) {
      const std::string& output = op_.outputs()[o];
      if (!IsInput(output)) continue;
      Report(StrCat(op_.type(), " cannot work in place: \"", output, "\" is an input and output ", o));
    }
    if (gradient_) return;
    for (const RecurrentState& state : spec_.states) {
      if (IsInput(state.name)) Report(StrCat("recurrent_states names \"", state.name, "\", which is an input"));
    }
  }

  // What the step net reads under this name is the number of the step, whatever else would have it.
  void CheckTimestep() {
    const std::string& name = spec_.timestep;
    const auto fix = [&] { return StrCat("; the argument timestep can name it otherwise, as \"", name, "_number\""); };
    for (const Link& link : spec_.links) {
      if (link.internal != name) continue;
      Report(StrCat("\"", name, "\" is the number of the step, and linked to \"", link.external, "\"", fix()));
    }
    const std::vector<std::string> read = BlobsReadFirst(*spec_.step_net);
    if (IsInput(name) && std::ranges::count(read, name) > 0) {
      Report(StrCat("\"", name, "\" is the number of the step, and an input that the step net reads", fix()));
    }
  }

  void CheckRecomputed() {
    std::set<std::string> given;
    for (const OperatorDef& op : spec_.step_net->op()) given.insert(op.output().begin(), op.output().end());
    for (const std::string& blob : spec_.recompute) {
      if (given.contains(blob)) continue;
      Report(StrCat("recompute_blobs_on_backward names \"", blob, "\", which no operator of the step net gives",
                    DidYouMean(blob, {given.begin(), given.end()})));
    }
  }

  void CheckLinks() {
    for (const Link& link : spec_.links) {
      if (spec_.IsState(link.external)) continue;
      if (!gradient_ && link.external == op_.inputs()[0]) {
        std::string problem = ProblemOfFirstInputLink(link);
        if (!problem.empty()) Report(std::move(problem));
      }
      if (IsInput(link.external)) continue;
      std::vector<std::string> names = op_.inputs();
      for (const RecurrentState& state : spec_.states) names.push_back(state.name);
      Report(StrCat("\"", link.internal, "\" is linked to \"", link.external,
                    "\", which is neither a state nor an input", DidYouMean(link.external, names)));
    }
  }

  void CheckStepNet(const NetDef& net, bool backward) {
    std::unordered_set<std::string> known = {spec_.timestep};
    known.insert(op_.inputs().begin(), op_.inputs().end());
    for (const std::string& name : op_.Strings("link_internal")) known.insert(name);
    if (backward) {
      for (const std::string& name : op_.Strings("backward_link_internal")) known.insert(spec_.Renamed(name));
      for (const OperatorDef& op : spec_.step_net->op()) known.insert(op.output().begin(), op.output().end());
    }
    NetCheckOptions options{.run = op_.options(),
                            .blob_exists = [&](const std::string& blob) { return known.contains(blob); }};
    options.ignores_external_input = true;  // what a step net is given `known` lists
    options.all_inputs_known = true;
    options.is_step_net = true;
    // Gradients in the backward step net find their recurrent operators in the step net by these.
    std::map<std::string, int> writers;
    for (int k = 0; backward && problems_->empty() && k < spec_.step_net->op_size(); ++k) {
      for (const std::string& output : spec_.step_net->op(k).output()) writers[output] = k;
    }
    options.writer_outside = [&](const std::string& blob) {
      const auto found = writers.find(blob);
      return found == writers.end() ? OperatorPlace{} : OperatorPlace{spec_.step_net.get(), found->second};
    };
    for (NetProblem& problem : CheckNet(net, options)) {
      if (problem.net.empty()) problem.net = backward ? "backward_step_net" : "step_net";
      problems_->push_back(std::move(problem));
    }
    for (const OperatorDef& op : net.op()) {
      if (std::ranges::find(op.output(), spec_.timestep) == op.output().end()) continue;
      Report(
          StrCat("operator ", op.type(), " of the step net writes \"", spec_.timestep, "\", the number of the step"));
    }
  }

  void CheckAliases() {
    for (const OffsetAlias& alias : spec_.aliases) {
      if (spec_.IsState(alias.source)) continue;
      std::vector<std::string> names;
      for (const RecurrentState& state : spec_.states) names.push_back(state.name);
      Report(StrCat("alias_src names \"", alias.source, "\", which is no state", DidYouMean(alias.source, names)));
    }
  }

  void CheckStepOutputs() {
    std::set<std::string> blobs;
    for (const Link& link : spec_.links) blobs.insert(link.internal);
    for (const OperatorDef& op : spec_.step_net->op()) {
      blobs.insert(op.input().begin(), op.input().end());
      blobs.insert(op.output().begin(), op.output().end());
    }
    for (const StepOutput& output : spec_.step_outputs) {
      if (blobs.contains(output.blob)) continue;
      Report(StrCat("step_output_src names \"", output.blob, "\", ", WhyNoBlobOfStep(output.blob, blobs)));
    }
  }

  std::string WhyNoBlobOfStep(const std::string& blob, const std::set<std::string>& blobs) const {
    const auto link = std::ranges::find(spec_.links, blob, &Link::external);
    if (link != spec_.links.end()) return StrCat("of which the step net sees rows as \"", link->internal, "\"");
    if (IsInput(blob) || blob == spec_.timestep) {
      return "which no operator of the step net reads; let a Copy in it read it, and name what that gives";
    }
    return StrCat("which the step net does not have", DidYouMean(blob, {blobs.begin(), blobs.end()}));
  }

  // The blobs of the net that a run gives. One that would hold two things is reported.
  std::set<std::string> MadeBlobs() {
    std::map<std::string, std::string> contents;
    const auto add = [&](const std::string& blob, const std::string& content) {
      const auto [known, is_new] = contents.emplace(blob, content);
      if (!is_new && known->second != content) {
        Report(StrCat("\"", blob, "\" would hold both ", known->second, " and ", content));
      }
    };
    const auto rows = [](const std::string& state, std::int64_t first) {
      return StrCat("the rows of the state \"", state, "\" from ", first, " on");
    };
    for (const RecurrentState& state : spec_.states) add(state.name, rows(state.name, 0));
    for (const OffsetAlias& alias : spec_.aliases) add(alias.destination, rows(alias.source, alias.offset));
    for (const StepOutput& output : spec_.step_outputs) {
      add(output.destination, StrCat("what steps leave in \"", output.blob, "\""));
    }
    std::set<std::string> made;
    for (const auto& [blob, content] : contents) made.insert(blob);
    return made;
  }

  void CheckOutputs() {
    const std::set<std::string> made = MadeBlobs();
    for (int i = 0; i + 1 < op_.num_outputs(); ++i) {
      const std::string& output = op_.outputs()[i];
      if (made.contains(output)) continue;
      Report(StrCat("output ", i, " \"", output, "\" is neither an alias nor a state nor a step output",
                    DidYouMean(output, {made.begin(), made.end()})));
    }
    for (const StepOutput& output : spec_.step_outputs) {
      if (std::ranges::find(op_.outputs(), output.destination) != op_.outputs().end()) continue;
      Report(StrCat("step_output_dst names \"", output.destination, "\", which is no output of the operator",
                    DidYouMean(output.destination, op_.outputs())));
    }
    const std::string& record = op_.outputs().back();
    if (made.contains(record)) {
      Report(StrCat("the last output, \"", record, "\", is the record of the run and cannot be an alias too"));
    }
  }

  // What adds to rows is given by an operator or by another link of the blob.
  void CheckBackwardLinks() {
    std::set<std::string> used;
    for (const OperatorDef& op : spec_.BackwardStep()->op()) {
      used.insert(op.input().begin(), op.input().end());
      used.insert(op.output().begin(), op.output().end());
    }
    for (const std::string& gradient : spec_.param_grads) used.insert(spec_.Renamed(gradient));
    std::set<std::string> linked;
    for (const Link& link : spec_.backward_links) {
      if (!linked.insert(spec_.Renamed(link.internal)).second) used.insert(spec_.Renamed(link.internal));
    }
    for (const Link& link : spec_.links) linked.insert(link.internal);
    const std::vector<BackwardLinkRole> roles = FindBackwardLinkRoles(op_, spec_);
    for (size_t i = 0; i < roles.size(); ++i) {
      const Link& link = spec_.backward_links[i];
      const std::string blob = spec_.Renamed(link.internal);
      if (used.contains(blob) || roles[i].MayGive(link)) continue;
      std::vector<std::string> names;
      std::ranges::set_difference(used, linked, std::back_inserter(names));
      Report(StrCat("\"", blob, "\" is linked to \"", link.external,
                    "\", and no operator of the backward step net reads or writes it", DidYouMean(blob, names)));
    }
  }

  void CheckGradientOutputs() {
    const int expected = 1 + static_cast<int>(spec_.params.size() + spec_.states.size());
    if (op_.num_outputs() != expected) {
      Report(StrCat("RecurrentNetworkGradient has ", op_.num_outputs(), " outputs; it gives ", expected,
                    ": the gradient of input 0, of ", spec_.params.size(), " params and of ", spec_.states.size(),
                    " initial states"));
    }
    if (!spec_.requests.empty() && static_cast<int>(spec_.requests.size()) != op_.num_outputs()) {
      Report(StrCat("gradient_requests has ", spec_.requests.size(), " entries for ", op_.num_outputs(), " outputs"));
    }
  }

  const OperatorCall& op_;
  const std::set<std::string> inputs_;
  std::vector<Error> faults_;  // in the arguments themselves
  const std::shared_ptr<const RecurrentSpec> owner_;
  const RecurrentSpec& spec_;
  const bool gradient_;
  std::vector<NetProblem>* problems_;
};

}  // namespace

void CheckRecurrent(const OperatorCall& op, bool gradient, std::vector<NetProblem>* problems) {
  RecurrentChecker(op, gradient, problems).Run();
}

}  // namespace stepnet

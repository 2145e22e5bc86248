#include "stepnet/nets/backward_step.h"

#include <algorithm>
#include <functional>
#include <iterator>
#include <map>
#include <ranges>
#include <set>

#include "stepnet/core/index_of.h"
#include "stepnet/nets/backward.h"
#include "stepnet/nets/decomposition.h"
#include "stepnet/nets/net_blobs.h"
#include "stepnet/nets/net_check.h"
#include "stepnet/nets/op_arguments.h"
#include "stepnet/nets/recomputed_operators.h"
#include "stepnet/nets/recurrent_spec.h"
#include "stepnet/nets/rename.h"
#include "stepnet/nets/requested_gradients.h"
#include "stepnet/nets/step_rows.h"
#include "stepnet/proto/net.pb.h"

namespace stepnet {
namespace {

class BackwardStepMaker {
 public:
  BackwardStepMaker(OperatorDef* op, const RecurrentSpec& spec,
                    const std::function<bool(const std::string&)>& is_floating)
      : op_(op),
        spec_(spec),
        step_(*spec.step_net),
        rows_(spec),
        is_floating_(is_floating),
        taken_(BlobNames(*spec.step_net)) {}

  void Make() {
    rows_.RefuseLostValues();
    for (const OperatorDef& op : step_.op()) used_.insert(op.input().begin(), op.input().end());
    used_.insert(rows_.written().begin(), rows_.written().end());
    const NetDef step = StepToDifferentiate();
    const std::map<std::string, std::string> seeds = Seeds();
    made_ = AddGradientsFrom(step, seeds, Wanted(), {}, rows_.changing());
    for (const StepOutput& output : spec_.step_outputs) {
      // What goes from a link to an output, past all operators, has the gradient of the output.
      if (!used_.contains(output.blob)) made_.gradients[output.blob] = {.dense = GradientOf(output.blob)};
    }
    backward_.set_name(step_.name() + "_backward");
    NetDef gradients;
    for (int k = made_.num_forward; k < made_.net.op_size(); ++k) *gradients.add_op() = WithWindows(made_.net.op(k));
    *backward_.mutable_op() = WithRecomputed(spec_, ComputedAgain(), gradients).op();
    for (const OperatorDef& op : made_.net.op()) {
      names_.insert(op.input().begin(), op.input().end());
      names_.insert(op.output().begin(), op.output().end());
    }
    for (const auto& [blob, gradient] : seeds) names_.insert(gradient);
    AddLinks();
    AddParams();
    RenameUnaskedGradients();
    ListExternals();
    *NewArgument(op_, "backward_step_net")->mutable_n() = std::move(backward_);
    ReplaceStepNet();
  }

 private:
  bool IsFloating(const std::string& blob) const { return spec_.IsState(blob) || !is_floating_ || is_floating_(blob); }

  // The step net with operators of one blob, at which the reverse pass brings gradients together. Before the first
  // reader of a blob that shows a row which the step has written by another name: what it gives to the gradient of that
  // row must be there when that is read. And for each blob that the step hands on: the state's gradient is a part of
  // its own.
  NetDef StepToDifferentiate() {
    NetDef step = step_;
    step.clear_op();
    const std::set<std::string> other_names = rows_.OtherNames();
    const auto read = [&](const std::string& blob) {
      if (!other_names.contains(blob)) return blob;
      if (!read_as_.contains(blob)) {
        read_as_[blob] = AddOperator("Copy", blob, blob + "_read", &step);
        windows_[read_as_[blob]] = blob;
      }
      return read_as_.at(blob);
    };
    for (const OperatorDef& op : step_.op()) {
      for (const std::string& input : op.input()) read(input);
      *step.add_op() = WithInputsNamed(op, read_as_);
    }
    for (const StepOutput& output : spec_.step_outputs) read(output.blob);
    for (const Link& link : spec_.links) {
      if (!rows_.Passes(link) || passed_.contains(link.internal)) continue;
      passed_[link.internal] = AddOperator("Sum", read(link.internal), link.internal + "_passed", &step);
    }
    return step;
  }

  // What the backward step net calls the whole gradient of a blob of the step: no blob of the step is called so, and no
  // other gradient.
  std::string GradientOf(const std::string& blob) const {
    std::string name = blob + "_grad";
    while (taken_.contains(name)) name += "_";
    return name;
  }

  // The name of its output, like `name`.
  std::string AddOperator(const std::string& type, const std::string& blob, const std::string& name, NetDef* step) {
    std::string output = name;
    while (taken_.contains(output)) output += "_";
    taken_.insert(output);
    used_.insert({blob, output});
    OperatorDef& op = *step->add_op();
    op.set_type(type);
    op.add_input(blob);
    op.add_output(output);
    return output;
  }

  // Operators read the windows themselves.
  OperatorDef WithWindows(const OperatorDef& op) const { return WithInputsNamed(op, windows_); }

  static bool HasSameBlobs(const OperatorDef& a, const OperatorDef& b) {
    return std::ranges::equal(a.input(), b.input()) && std::ranges::equal(a.output(), b.output());
  }

  // Gives names of their own to the values that gradients read after they are overwritten.
  void ReplaceStepNet() {
    NetDef step = step_;
    step.clear_op();
    bool is_changed = false;
    for (int k = 0; k < made_.num_forward; ++k) {
      const OperatorDef& op = made_.net.op(k);
      const auto is_sum = [&](const auto& sum) { return op.output_size() == 1 && sum == op.output(0); };
      if (std::ranges::any_of(windows_ | std::views::keys, is_sum)) continue;
      if (std::ranges::any_of(passed_ | std::views::values, is_sum)) continue;
      *step.add_op() = WithWindows(op);
      is_changed = is_changed || step.op_size() > step_.op_size() ||
                   !HasSameBlobs(*step.op().rbegin(), step_.op(step.op_size() - 1));
    }
    if (is_changed) *NewArgument(op_, "step_net")->mutable_n() = std::move(step);
  }

  // What the step gives to states and outputs has a gradient before the backward step runs.
  std::map<std::string, std::string> Seeds() {
    std::map<std::string, std::string> seeds;
    for (const StepOutput& output : spec_.step_outputs) {
      const auto read = read_as_.find(output.blob);
      const std::string& blob = read == read_as_.end() ? output.blob : read->second;
      if (used_.contains(blob)) seeds[blob] = GradientOf(output.blob);
    }
    for (const Link& link : spec_.links) {
      if (rows_.Gives(link)) seeds[link.internal] = GradientOf(link.internal);
    }
    for (const auto& [blob, passed] : passed_) seeds[passed] = GradientOf(passed);
    return seeds;
  }

  // What the step reads of states and sequences, and the inputs that it captures.
  std::vector<std::string> Wanted() {
    std::set<std::string> linked;
    std::vector<std::string> wanted;
    for (const Link& link : spec_.links) {
      linked.insert(link.internal);
      if (!rows_.Writes(link) && IsFloating(link.external)) wanted.push_back(link.internal);
    }
    for (const std::string& blob : BlobsReadFirst(step_)) {
      if (IndexOf(op_->input(), blob) >= 0 && !linked.contains(blob) && IsFloating(blob)) captured_.push_back(blob);
    }
    wanted.insert(wanted.end(), captured_.begin(), captured_.end());
    return wanted;
  }

  // What recompute_blobs_on_backward names.
  std::set<std::string> ComputedAgain() const {
    const std::set<std::string> named(spec_.recompute.begin(), spec_.recompute.end());
    for (int k = 0; k < step_.op_size(); ++k) {
      const auto is_named = [&](const std::string& blob) { return named.contains(blob); };
      if (std::ranges::any_of(step_.op(k).output(), is_named)) ExpectComputable(k, named);
    }
    return named;
  }

  // Throws kInvalidNet where operator k needs what is not there after the step, or gives more than is named.
  void ExpectComputable(int k, const std::set<std::string>& named) const {
    const OperatorDef& op = step_.op(k);
    const auto is_kept = [&](const std::string& blob) { return !named.contains(blob); };
    const auto kept = std::ranges::find_if(op.output(), is_kept);
    if (kept != op.output().end()) RefuseToComputeAgain(k, StrCat("\"", *kept, "\", another of its outputs, is not"));
    for (const std::string& input : op.input()) {
      for (int later = k + 1; is_kept(input) && later < step_.op_size(); ++later) {
        const auto& outputs = step_.op(later).output();
        if (std::ranges::find(outputs, input) == outputs.end()) continue;
        RefuseToComputeAgain(k, StrCat("its input \"", input, "\" is overwritten by op ", later));
      }
    }
  }

  [[noreturn]] void RefuseToComputeAgain(int k, const std::string& why) const {
    throw Error(ErrorCode::kInvalidNet, StrCat("recompute_blobs_on_backward names an output of op ", k, " `",
                                               OperatorText(step_.op(k)), "`, which cannot be computed again: ", why));
  }

  // The blob of the backward step net that holds the gradient of `blob`, whole, and of nothing else; "" when there is
  // none.
  std::string OwnGradient(const std::string& blob) {
    const auto found = made_.gradients.find(blob);
    if (found == made_.gradients.end()) return "";
    const auto [own, is_new] = own_.emplace(blob, GradientOf(blob));
    std::string& name = own->second;
    const GradientBlobs& gradient = found->second;
    if (!is_new || gradient.dense == name) return name;
    while (!names_.insert(name).second) name += "_";
    OperatorDef& op = *backward_.add_op();
    if (gradient.dense.empty()) {
      // What each step adds to a table is summed over the steps as a tensor.
      op.set_type("SparseToDense");
      op.add_input(gradient.indices);
      op.add_input(gradient.values);
      op.add_input(blob);
    } else {
      // A sum passes one gradient on to all that it adds; each of them is linked to another place.
      op.set_type("Copy");
      op.add_input(gradient.dense);
    }
    op.add_output(name);
    op.set_is_gradient_op(true);
    return name;
  }

  void AddLinks() {
    std::vector<Link> links;
    for (const Link& link : spec_.links) {
      const std::string gradient = rows_.Gives(link)                  ? GradientOf(link.internal)
                                   : rows_.Passes(link)               ? GradientOf(passed_.at(link.internal))
                                   : read_as_.contains(link.internal) ? made_.gradients[link.internal].dense
                                                                      : OwnGradient(link.internal);
      if (gradient.empty()) continue;
      links.push_back({gradient, link.external + "_grad", link.offset, link.window});
    }
    for (const StepOutput& output : spec_.step_outputs) {
      links.push_back({.internal = GradientOf(output.blob), .external = output.destination + "_grad"});
    }
    Argument* internal = NewArgument(op_, "backward_link_internal");
    for (const Link& link : links) internal->add_strings(link.internal);
    Argument* external = NewArgument(op_, "backward_link_external");
    for (const Link& link : links) external->add_strings(link.external);
    Argument* offset = NewArgument(op_, "backward_link_offset");
    for (const Link& link : links) offset->add_ints(link.offset);
    Argument* window = NewArgument(op_, "backward_link_window");
    for (const Link& link : links) window->add_ints(link.window);
  }

  // Captured inputs, whose gradients are summed over the steps, and sequences beside the first one.
  void AddParams() {
    std::vector<std::pair<int, std::string>> params;
    for (const Link& link : spec_.links) {
      const int input = IndexOf(op_->input(), link.external);
      const bool is_known = std::ranges::any_of(params, [&](const auto& param) { return param.first == input; });
      if (spec_.IsState(link.external) || input <= 0 || is_known) continue;
      if (const std::string gradient = OwnGradient(link.internal); !gradient.empty()) {
        params.emplace_back(input, gradient);
      }
    }
    for (const std::string& blob : captured_) {
      const std::string gradient = OwnGradient(blob);
      if (gradient.empty()) continue;
      if (rows_.changing().contains(blob)) {
        throw Error(ErrorCode::kInvalidNet, StrCat("the step net overwrites its input \"", blob,
                                                   "\", which the next step reads; no gradient can be made"));
      }
      if (std::ranges::any_of(spec_.links, [&](const Link& link) { return link.external == blob; })) {
        throw Error(ErrorCode::kInvalidNet, StrCat("the step net reads \"", blob,
                                                   "\" whole and, through a link, by rows; no gradient can be made"));
      }
      params.emplace_back(IndexOf(op_->input(), blob), gradient);
    }
    Argument* param = NewArgument(op_, "param");
    for (const auto& [input, gradient] : params) param->add_ints(input);
    Argument* gradients = NewArgument(op_, "param_grads");
    for (const auto& [input, gradient] : params) gradients->add_strings(gradient);
  }

  // An operator may give gradients of captured inputs that are not wanted; under their names they would be.
  void RenameUnaskedGradients() {
    std::vector<std::string> not_wanted = BlobsReadFirst(step_);
    std::erase_if(not_wanted,
                  [&](const std::string& blob) { return IndexOf(op_->input(), blob) < 0 || IsFloating(blob); });
    if (not_wanted.empty()) return;
    std::map<std::string, std::string> names;
    std::set<std::string> taken = BlobNames(backward_);  // those of nets in the operators, too
    const std::map<std::string, BlobUse> uses = UsesOf(backward_);
    for (const std::string& blob : not_wanted) {
      const auto use = uses.find(blob + "_grad");
      if (use == uses.end() || !use->second.IsWritten()) continue;  // a blob of the step, which it may read, is none
      std::string unasked = blob + "_grad_unasked";
      while (!taken.insert(unasked).second) unasked += "_";
      names[blob + "_grad"] = unasked;
    }
    RenameBlobs(names, &backward_);
  }

  void ListExternals() {
    for (const std::string& blob : BlobsReadFirst(backward_)) backward_.add_external_input(blob);
  }

  OperatorDef* op_;
  const RecurrentSpec& spec_;
  const NetDef& step_;
  const StepRows rows_;
  const std::function<bool(const std::string&)>& is_floating_;
  std::set<std::string> taken_;                 // names in the step net, in nets in it, and of what is added to it
  std::set<std::string> used_;                  // read or written by it
  std::vector<std::string> captured_;           // inputs that the step net reads as they are
  std::map<std::string, std::string> read_as_;  // other names of rows that the step has written → their copies
  std::map<std::string, std::string> windows_;  // the copies → what they stand for
  std::map<std::string, std::string> passed_;   // blobs that are handed on, and their sums
  std::set<std::string> names_;                 // of blobs of either step net
  NetWithGradients made_;
  std::map<std::string, std::string> own_;  // OwnGradient of blobs that were asked for
  NetDef backward_;
};

// Calls `make` for the operators that need a backward step net, after `descend` for the step nets of all.
void ForEachWithoutBackwardStep(NetDef* net, const std::function<void(OperatorDef*, const RecurrentSpec&)>& make,
                                const std::function<void(OperatorDef*, NetDef*)>& descend) {
  for (int k = 0; k < net->op_size(); ++k) {
    OperatorDef* op = net->mutable_op(k);
    if (op->type() != "RecurrentNetwork") continue;
    try {
      for (Argument& argument : *op->mutable_arg()) {
        if (argument.name() == "step_net" && argument.has_n()) descend(op, argument.mutable_n());
      }
      const std::shared_ptr<const RecurrentSpec> spec = RecurrentSpecOf(OperatorCall(*op));
      if (!spec->HasBackwardStep()) make(op, *spec);
    } catch (...) {
      throw CurrentError().At({.net = net->name(), .op_index = k, .op_text = OperatorText(*op)});
    }
  }
}

// The blobs that a step net reads of what has a gradient outside: of states, too.
std::vector<std::string> InputsOfStep(const OperatorDef& op, const RecurrentSpec& spec,
                                      const std::function<bool(const std::string&)>& depends) {
  std::vector<std::string> inputs;
  std::ranges::copy_if(op.input(), std::back_inserter(inputs), depends);
  for (const Link& link : spec.links) {
    const bool is_state = std::ranges::find(spec.states, link.external, &RecurrentState::name) != spec.states.end();
    if (is_state || depends(link.external)) inputs.push_back(link.internal);
  }
  return inputs;
}

void Decompose(NetDef* net) {
  const auto whole = std::make_shared<const NetDef>(std::move(*net));
  *net = *Decomposed(whole, NetUse::kTraining).net;
}

}  // namespace

void AddBackwardStepNets(NetDef* net, const std::function<bool(const std::string&)>& is_floating) {
  Decompose(net);
  ForEachWithoutBackwardStep(
      net, [&](OperatorDef* op, const RecurrentSpec& spec) { BackwardStepMaker(op, spec, is_floating).Make(); },
      [&](OperatorDef*, NetDef* step) { AddBackwardStepNets(step, is_floating); });
}

void AddBackwardStepNets(NetDef* net, const std::vector<std::string>& inputs) {
  Decompose(net);
  const std::set<std::string> depending = BlobsDependingOn(inputs, *net);
  const auto depends = [&](const std::string& blob) { return depending.contains(blob); };
  ForEachWithoutBackwardStep(
      net, [&](OperatorDef* op, const RecurrentSpec& spec) { BackwardStepMaker(op, spec, depends).Make(); },
      [&](OperatorDef* op, NetDef* step) {
        const std::shared_ptr<const RecurrentSpec> spec = RecurrentSpecOf(OperatorCall(*op));
        if (!spec->HasBackwardStep()) AddBackwardStepNets(step, InputsOfStep(*op, *spec, depends));
      });
  LeaveOutGradients(inputs, net);
}

}  // namespace stepnet

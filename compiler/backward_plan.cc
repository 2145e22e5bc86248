#include "stepnet/compiler/backward_plan.h"

#include <algorithm>
#include <set>

#include "stepnet/nets/link_roles.h"
#include "stepnet/nets/net_blobs.h"
#include "stepnet/proto/net.pb.h"

namespace stepnet {
namespace {

class BackwardPlanMaker {
 public:
  BackwardPlanMaker(const OperatorCall& op, const RecurrentSpec& spec, const GradientInputs& layout,
                    const std::shared_ptr<const ForwardPlan>& forward, const std::vector<TensorInfo>& inputs)
      : op_(op), spec_(spec), layout_(layout), forward_(*forward), inputs_(inputs) {
    plan_->forward = forward;
  }

  std::shared_ptr<const BackwardPlan> Make() {
    request_.net = &spec_.BackwardStep();
    request_.backward = true;
    request_.options = StepPlanOptions(spec_);
    request_.ring_rows = RingRows(spec_);
    request_.max_steps = spec_.num_workspaces;
    request_.num_bases = 2 * NumStates();
    for (const std::string& blob : BlobsReadFirst(*request_.net)) reads_first_.insert(blob);
    for (const OperatorDef& op : request_.net->op()) written_.insert(op.output().begin(), op.output().end());
    MakeTargets();
    CollectLinks();
    BindLinks();
    AddParamGradients();
    BindWhatIsRead();
    plan_->steps = std::make_shared<StepPlan>(MakeStepPlan(request_));
    for (GradientTarget& target : plan_->targets) {
      if (plan_->steps->unzeroed_bases.contains(target.base)) target.needs_zeros = false;
    }
    return plan_;
  }

 private:
  // A link, resolved: what step t sees, and whether that is there before the step runs.
  struct ResolvedLink {
    BoundBlob view;
    std::string external;
    bool is_source = false;
    GradientTarget* target = nullptr;  // when it is an output of the operator
    std::int64_t offset = 0;
    std::int64_t window = 1;
  };

  int NumStates() const { return static_cast<int>(forward_.states.size()); }
  const std::string& ForwardInput(int i) const { return op_.inputs()[layout_.num_output_gradients + i]; }
  int ForwardInputIndex(const std::string& name) const {
    for (int i = 0; i < layout_.num_inputs; ++i) {
      if (ForwardInput(i) == name) return i;
    }
    return -1;
  }
  int StateIndex(const std::string& name) const {
    const auto found = std::ranges::find(spec_.states, name, &RecurrentState::name);
    return found == spec_.states.end() ? -1 : static_cast<int>(found - spec_.states.begin());
  }
  GradientRequest RequestOf(int output) const {
    return spec_.requests.empty() ? GradientRequest::kWrite : spec_.requests[output];
  }

  // One target for each output blob that is asked for; outputs of one name are summed.
  void MakeTargets() {
    std::vector<int> inputs = {0};
    inputs.insert(inputs.end(), spec_.params.begin(), spec_.params.end());
    for (size_t k = 0; k < inputs.size() + spec_.states.size(); ++k) {
      const int output = static_cast<int>(k);
      const int input = k < inputs.size() ? inputs[k] : spec_.states[k - inputs.size()].initial;
      const bool is_known = std::ranges::any_of(plan_->targets, [&](const GradientTarget& target) {
        return op_.outputs()[target.output] == op_.outputs()[output];
      });
      if (RequestOf(output) == GradientRequest::kNone || is_known) continue;
      plan_->targets.push_back({.output = output, .input = input});
    }
  }

  GradientTarget* TargetOf(int output) {
    for (GradientTarget& target : plan_->targets) {
      if (op_.outputs()[target.output] != op_.outputs()[output]) continue;
      if (target.base < 0) target.base = request_.num_bases++;
      return &target;
    }
    return nullptr;  // nobody asked for it
  }

  // The output that is the gradient of this link's external, by the name of the input or by the output's own.
  int OutputOfExternal(const std::string& external) const {
    std::vector<int> inputs = {0};
    inputs.insert(inputs.end(), spec_.params.begin(), spec_.params.end());
    for (size_t k = 0; k < inputs.size(); ++k) {
      if (spec_.Renamed(ForwardInput(inputs[k]) + "_grad") == spec_.Renamed(external)) return static_cast<int>(k);
    }
    for (size_t k = 0; k < inputs.size(); ++k) {
      if (op_.outputs()[k] == spec_.Renamed(external)) return static_cast<int>(k);
    }
    return -1;
  }

  ResolvedLink Resolve(const Link& link, int base, DType dtype, const Shape& row) const {
    return {.view = BindLink(link, base, dtype, row),
            .external = link.external,
            .offset = link.offset,
            .window = link.window};
  }

  void CollectLinks() {
    // Rows show what the step left in a blob, also where it has several links.
    const std::vector<LinkRole> roles = FindLinkRoles(spec_);
    for (const bool is_destination : {true, false}) {
      for (size_t i = 0; i < roles.size(); ++i) {
        if (roles[i].is_destination == is_destination) AddForwardLink(spec_.links[i]);
      }
    }
    for (const Link& written : spec_.backward_links) {
      Link link = written;
      link.internal = spec_.Renamed(link.internal);
      AddBackwardLink(link);
    }
  }

  void AddForwardLink(const Link& link) {
    if (!reads_first_.contains(link.internal) || links_.contains(link.internal)) return;
    if (const int state = StateIndex(link.external); state >= 0) {
      const StateLayout& layout = forward_.states[state];
      CheckLinkInBounds(link, layout.num_initial + 1, 1);
      ResolvedLink resolved = Resolve(link, NumStates() + state, layout.dtype, layout.row);
      resolved.is_source = true;
      links_[link.internal].push_back(std::move(resolved));
      return;
    }
    const int input = ForwardInputIndex(link.external);
    if (input < 0) {
      throw Error(ErrorCode::kInvalidNet,
                  StrCat("\"", link.external, "\" is linked and is neither a state nor an input"));
    }
    ResolvedLink resolved = Resolve(link, BaseOfInput(input, &plan_->inputs, &request_.num_bases), inputs_[input].dtype,
                                    inputs_[input].shape.Tail());
    resolved.is_source = true;
    links_[link.internal].push_back(std::move(resolved));
  }

  void AddBackwardLink(const Link& link) {
    for (int state = 0; state < NumStates(); ++state) {
      if (spec_.Renamed(spec_.states[state].name + "_grad") != spec_.Renamed(link.external)) continue;
      const StateLayout& layout = forward_.states[state];
      CheckLinkInBounds(link, layout.num_initial + 1, 1);
      ResolvedLink resolved = Resolve(link, state, layout.dtype, layout.row);
      resolved.is_source = link.offset >= layout.num_initial;
      links_[link.internal].push_back(std::move(resolved));
      return;
    }
    if (AddStepOutputLink(link)) return;
    const int output = OutputOfExternal(link.external);
    if (output < 0) {
      throw Error(
          ErrorCode::kInvalidNet,
          StrCat("the backward link of \"", link.internal, "\" names \"", link.external,
                 "\", which is the gradient of no state, of no step output, of no param and not of the first input"));
    }
    GradientTarget* target = TargetOf(output);
    if (target == nullptr) return;
    const TensorInfo& info = inputs_[target->input];
    if (info.shape.rank() == 0) {
      throw Error(ErrorCode::kShapeMismatch,
                  StrCat("\"", ForwardInput(target->input), "\" is linked as a sequence and is ", info.Description()));
    }
    ResolvedLink resolved = Resolve(link, target->base, info.dtype, info.shape.Tail());
    resolved.target = target;
    target->links.push_back(link);
    links_[link.internal].push_back(std::move(resolved));
  }

  // The gradient of a step output, from outside: row t is what step t reads.
  bool AddStepOutputLink(const Link& link) {
    for (size_t i = 0; i < spec_.step_outputs.size(); ++i) {
      const std::string& output = spec_.step_outputs[i].destination;
      if (spec_.Renamed(output + "_grad") != spec_.Renamed(link.external)) continue;
      if (link.offset != 0 || link.window != 1) {
        throw Error(ErrorCode::kInvalidNet,
                    StrCat("the backward link of \"", link.internal, "\" has offset ", link.offset, " and window ",
                           link.window, "; \"", output, "\" is a step output, whose row t belongs to step t"));
      }
      const TensorInfo& info = forward_.step_outputs[i].second;
      ResolvedLink resolved = Resolve(link, request_.num_bases++, info.dtype, info.shape);
      resolved.view.info = info;
      resolved.is_source = true;
      plan_->step_output_gradients.emplace_back(static_cast<int>(i), resolved.view.slot.base);
      links_[link.internal].push_back(std::move(resolved));
      return true;
    }
    return false;
  }

  void BindLinks() {
    std::map<const GradientTarget*, int> contributions;
    for (const auto& [blob, links] : links_) {
      for (const ResolvedLink& link : links) {
        if (link.target != nullptr) ++contributions[link.target];
      }
    }
    for (auto& [blob, links] : links_) {
      const auto num_sources = std::ranges::count_if(links, &ResolvedLink::is_source);
      // Writes each row of an output of the operator, and nobody else does: straight into it, without zeros first.
      ResolvedLink& only = links.front();
      const bool writes_all = links.size() == 1 && only.target != nullptr && contributions[only.target] == 1 &&
                              only.offset == 0 && only.window == 1 && written_.contains(blob) &&
                              !reads_first_.contains(blob) && !IsParamGradient(blob) &&
                              RequestOf(only.target->output) == GradientRequest::kWrite && IsSoleOutput(*only.target);
      if (writes_all) {
        only.target->needs_zeros = false;
        only.view.readable = false;
        request_.bound.push_back(only.view);
        continue;
      }
      bool placed = false;
      for (const ResolvedLink& link : links) {
        if (!link.is_source) continue;
        if (num_sources == 1) {
          request_.bound.push_back(link.view);
        } else {
          AddTransfer(placed ? Transfer::Kind::kAddIn : Transfer::Kind::kCopyIn, blob, link);
        }
        placed = true;
      }
      for (const ResolvedLink& link : links) {
        if (!link.is_source) AddTransfer(Transfer::Kind::kAddOut, blob, link);
      }
    }
  }

  void AddTransfer(Transfer::Kind kind, const std::string& blob, const ResolvedLink& link) {
    Slot outside = link.view.slot;
    outside.blob = link.external;
    request_.transfers.push_back({.kind = kind, .blob = blob, .outside = outside, .info = link.view.info});
  }

  bool IsParamGradient(const std::string& blob) const {
    for (size_t k = 0; k < spec_.params.size(); ++k) {
      if (NameOfParamGradient(k) == blob) return true;
    }
    return false;
  }
  bool IsSoleOutput(const GradientTarget& target) const {
    return std::ranges::count(op_.outputs(), op_.outputs()[target.output]) == 1;
  }
  std::string NameOfParamGradient(size_t k) const {
    return spec_.Renamed(spec_.param_grads.empty() ? op_.outputs()[k + 1] : spec_.param_grads[k]);
  }

  // What the backward step gives as the gradient of a captured input is summed over the steps.
  void AddParamGradients() {
    for (size_t k = 0; k < spec_.params.size(); ++k) {
      const int output = static_cast<int>(k) + 1;
      const bool is_sequence = std::ranges::any_of(
          spec_.backward_links, [&](const Link& link) { return OutputOfExternal(link.external) == output; });
      GradientTarget* target = TargetOf(output);
      if (target == nullptr || is_sequence) continue;
      const TensorInfo& info = inputs_[spec_.params[k]];
      request_.transfers.push_back(
          {.kind = Transfer::Kind::kAddOut,
           .blob = NameOfParamGradient(k),
           .outside = BindWhole(op_.outputs()[output], target->base, info).slot,
           .info = info,
           .required = true,
           .starts_at_zero = RequestOf(output) == GradientRequest::kWrite && IsSoleOutput(*target)});
    }
  }

  void BindWhatIsRead() {
    for (const std::string& blob : reads_first_) {
      if (links_.contains(blob)) continue;
      const auto final = forward_.steps->finals.find(blob);
      const int input = ForwardInputIndex(blob);
      if (blob == spec_.timestep) {
        plan_->timestep_base = request_.num_bases++;
        request_.bound.push_back(
            BindLink({.internal = blob, .external = blob}, plan_->timestep_base, DType::kInt32, Shape()));
      } else if (final != forward_.steps->finals.end() && !IsCaptured(final->second)) {
        BindForwardBlob(blob, final->second);
      } else if (input >= 0) {
        const int base = BaseOfInput(input, &plan_->inputs, &request_.num_bases);
        request_.bound.push_back(BindWhole(blob, base, inputs_[input]));
      }  // otherwise the import reports that it is read before anything writes it
    }
  }

  bool IsCaptured(const StepPlan::Final& final) const {
    return forward_.steps->slots[final.slot].storage_class == StorageClass::kShared;
  }

  void BindForwardBlob(const std::string& blob, const StepPlan::Final& final) {
    const Slot& slot = forward_.steps->slots[final.slot];
    if (slot.storage_class == StorageClass::kDynamic && forward_.steps->dynamic_lists[slot.base]) {
      plan_->dynamic.emplace_back(slot.base, request_.num_dynamic_lists);
      request_.bound_dynamic[blob] = request_.num_dynamic_lists++;
      return;
    }
    if (slot.storage_class != StorageClass::kStacked) {
      throw Error(ErrorCode::kInvalidNet,
                  StrCat("the backward step net reads \"", blob,
                         "\", which the forward run did not keep: RecurrentNetwork "
                         "needs the argument backward_step_net, the same as its gradient has, to train"));
    }
    const int base = request_.num_bases++;
    plan_->stacked.emplace_back(slot.base, base);
    Slot outside = slot;
    outside.storage_class = StorageClass::kLinked;
    outside.base = base;
    request_.bound.push_back({.slot = outside, .info = final.info});
  }

  const OperatorCall& op_;
  const RecurrentSpec& spec_;
  const GradientInputs& layout_;
  const ForwardPlan& forward_;
  const std::vector<TensorInfo>& inputs_;
  StepPlanRequest request_;
  std::set<std::string> reads_first_;
  std::set<std::string> written_;
  std::map<std::string, std::vector<ResolvedLink>> links_;
  std::shared_ptr<BackwardPlan> plan_ = std::make_shared<BackwardPlan>();
};

}  // namespace

std::shared_ptr<const BackwardPlan> MakeBackwardPlan(const OperatorCall& op, const RecurrentSpec& spec,
                                                     const GradientInputs& layout,
                                                     const std::shared_ptr<const ForwardPlan>& forward,
                                                     const std::vector<TensorInfo>& inputs) {
  return BackwardPlanMaker(op, spec, layout, forward, inputs).Make();
}

}  // namespace stepnet

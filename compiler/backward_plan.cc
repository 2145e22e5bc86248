#include "stepnet/compiler/backward_plan.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>

#include "stepnet/compiler/import_step.h"
#include "stepnet/compiler/make_step_plan.h"
#include "stepnet/compiler/recomputation.h"
#include "stepnet/compiler/uses.h"
#include "stepnet/nets/link_roles.h"
#include "stepnet/nets/net_blobs.h"
#include "stepnet/proto/net.pb.h"

namespace stepnet {
namespace {

class BackwardPlanMaker {
 public:
  BackwardPlanMaker(const OperatorCall& op, const RecurrentSpec& spec, const BackwardRoles& roles,
                    const GradientInputs& layout, const ForwardRun& forward)
      : op_(op),
        spec_(spec),
        roles_(roles),
        layout_(layout),
        forward_operator_(*forward.op),
        forward_roles_(FindLinkRoles(*forward_operator_.spec)),
        forward_(*forward.plan),
        inputs_(forward.inputs) {
    plan_->forward = forward.plan;
    if (!forward.recomputed.empty()) again_.emplace(forward, plan_.get(), &graph_);
  }

  std::shared_ptr<const BackwardPlan> Make() {
    const std::shared_ptr<const NetDef>& net = spec_.BackwardStep();
    graph_.backward = true;
    for (int i = 0; i < 2 * NumStates(); ++i) graph_.AddBase(/*is_lent=*/i >= NumStates());
    for (const std::string& blob : BlobsReadFirst(*net)) reads_first_.insert(blob);
    for (const OperatorDef& op : net->op()) written_.insert(op.output().begin(), op.output().end());
    MakeTargets();
    SeedStateGradients();
    CountKeptRows();
    CollectLinks();
    BindLinks();
    BeginTargets();
    AddParamGradients();
    BindWhatIsRead();
    AddInitialStateGradients();
    GiveSums();
    PlanSettings settings = PlanSettingsOf(spec_);
    if (again_) settings.recomputed = again_->values();
    ImportStep(net, settings.options, bindings_, &graph_);
    if (again_) again_->Finish();
    plan_->steps = std::make_shared<StepPlan>(MakeStepPlan(std::move(graph_), settings));
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
  const std::string& ForwardInput(int i) const { return op_.inputs()[layout_.OfInput(i)]; }
  const std::string& ForwardOutput(int i) const { return op_.inputs()[layout_.OfOutput(i)]; }
  int ForwardInputIndex(const std::string& name) const {
    for (int i = 0; i < layout_.num_inputs; ++i) {
      if (ForwardInput(i) == name) return i;
    }
    return -1;
  }
  GradientRequest RequestOf(int output) const {
    return spec_.requests.empty() ? GradientRequest::kWrite : spec_.requests[output];
  }

  // One target for each output blob that is asked for; outputs of one name are summed.
  void MakeTargets() {
    const std::vector<int> inputs = InputsOfGradients(spec_);
    for (size_t k = 0; k < inputs.size(); ++k) {
      const int output = static_cast<int>(k);
      const bool is_known = std::ranges::any_of(plan_->targets, [&](const GradientTarget& target) {
        return op_.outputs()[target.output] == op_.outputs()[output];
      });
      if (RequestOf(output) == GradientRequest::kNone || is_known) continue;
      GradientTarget target{.output = output, .input = inputs[k], .base = graph_.AddBase(/*is_lent=*/false)};
      if (RequestOf(output) == GradientRequest::kAdd) {
        target.base_of_caller = graph_.AddBase(/*is_lent=*/true);
        target.base_given = graph_.AddBase(/*is_lent=*/true);
      }
      plan_->targets.push_back(std::move(target));
    }
  }

  // Rows of a state's gradient start with the gradients of the outputs that show them.
  void SeedStateGradients() {
    std::vector<bool> seeded(NumStates(), false);
    for (int k = 0; k < layout_.num_output_gradients; ++k) {
      const OutputRole role = FindOutputRole(spec_, ForwardOutput(spec_.outputs_with_grads[k]));
      if (role.step_output >= 0) continue;
      const int base = graph_.AddBase(/*is_lent=*/true);
      plan_->output_gradients.emplace_back(k, base);
      BaseRows others = StateGradient(role.state), rows = others;
      others.end = rows.begin = role.offset;
      if (!seeded[role.state] && role.offset != 0) {
        graph_.before.push_back({.kind = RowMove::Kind::kZero, .to = others});
      }
      graph_.before.push_back({.kind = seeded[role.state] ? RowMove::Kind::kAdd : RowMove::Kind::kCopy,
                               .to = rows,
                               .from = {.name = op_.inputs()[k], .base = base}});
      seeded[role.state] = true;
    }
    for (int i = 0; i < NumStates(); ++i) {
      if (!seeded[i]) graph_.before.push_back({.kind = RowMove::Kind::kZero, .to = StateGradient(i)});
    }
  }

  BaseRows StateGradient(int state) const { return {.name = spec_.states[state].name + "_grad", .base = state}; }

  BaseRows RowsOf(const GradientTarget& target) const {
    return {.name = op_.outputs()[target.output], .base = target.base};
  }

  // Gradients are summed from zero, or from what the caller has. Steps that write every row of their own do not reach
  // those that the sequence has beyond.
  void BeginTargets() {
    for (const GradientTarget& target : plan_->targets) {
      BaseRows rows = RowsOf(target);
      if (target.base_of_caller >= 0) {
        const BaseRows of_caller{.name = rows.name, .base = target.base_of_caller};
        graph_.before.push_back({.kind = RowMove::Kind::kCopy, .to = rows, .from = of_caller});
        continue;
      }
      rows.begins_at_steps = written_by_rows_.contains(&target);
      graph_.before.push_back({.kind = RowMove::Kind::kZero, .to = rows});
    }
  }

  // Sums are the plan's own until the run has ended well: one that fails leaves what the caller has as it was.
  void GiveSums() {
    for (const GradientTarget& target : plan_->targets) {
      if (target.base_given < 0) continue;
      const BaseRows sum = RowsOf(target), given{.name = sum.name, .base = target.base_given};
      graph_.after.push_back({.kind = RowMove::Kind::kGive, .to = given, .from = sum});
    }
  }

  // The first rows of a state's gradient belong to its initial value, but for those that steps have overwritten.
  void AddInitialStateGradients() {
    for (int i = 0; i < NumStates(); ++i) {
      const GradientTarget* target = TargetOf(1 + static_cast<int>(spec_.params.size()) + i);
      if (target == nullptr) continue;
      const std::int64_t num_initial = forward_.states[i].num_initial, num_kept = num_kept_[i];
      RowMove add{.kind = RowMove::Kind::kAdd, .to = RowsOf(*target), .from = StateGradient(i)};
      add.from.end = num_kept;
      if (num_kept < num_initial) add.to.end = num_kept;
      if (num_kept > 0) graph_.after.push_back(add);
      if (num_kept == num_initial) continue;
      // This is for runs of fewer steps than there are such rows. The target of one row may lack the dimension.
      add.from.end = num_initial;
      add.only_without_steps = num_initial == 1;
      if (add.only_without_steps) {
        add.to.end = BaseRows::kEnd;
      } else {
        add.to.end = num_initial;
        for (BaseRows* rows : {&add.to, &add.from}) {
          rows->begin = num_kept;
          rows->begins_at_steps = true;
        }
      }
      graph_.after.push_back(add);
    }
  }

  // How many of a state's first rows no step writes: step t writes the next one, t rows further on. The gradient of a
  // row that is written belongs to what is written, unless steps see the initial value, too.
  void CountKeptRows() {
    const RecurrentSpec& spec = *forward_operator_.spec;
    const std::vector<LinkRole>& roles = forward_roles_;
    for (int i = 0; i < NumStates(); ++i) {
      std::int64_t num_kept = forward_.states[i].num_initial;
      for (size_t k = 0; k < roles.size(); ++k) {
        const Link& link = spec.links[k];
        if (link.external != spec.states[i].name || !roles[k].is_destination || link.offset >= num_kept) continue;
        num_kept = link.offset;
        const auto sees_others = [&](const Link& other) {
          const bool is_behind = other.offset + other.window > link.offset + 1 || link.offset == 0;
          return &other != &link && other.external == link.external && is_behind;
        };
        if (roles[k].is_source || link.window > 1 || std::ranges::any_of(spec.links, sees_others)) {
          RefuseOverwrittenRows(link, forward_.states[i].num_initial);
        }
      }
      num_kept_.push_back(num_kept);
    }
  }

  [[noreturn]] static void RefuseOverwrittenRows(const Link& link, std::int64_t num_initial) {
    throw Error(ErrorCode::kShapeMismatch,
                StrCat("no gradient can be computed: the step net overwrites initial rows of \"", link.external,
                       "\" as \"", link.internal, "\" (link offset ", link.offset,
                       "), which it also sees as they were; "
                       "write behind the ",
                       num_initial, " initial rows, with link_offset ", num_initial));
  }

  GradientTarget* TargetOf(int output) {
    for (GradientTarget& target : plan_->targets) {
      if (op_.outputs()[target.output] == op_.outputs()[output]) return &target;
    }
    return nullptr;  // nobody asked for it
  }

  static ResolvedLink Resolve(const Link& link, int base, DType dtype, const Shape& row) {
    return {.view = BindLink(link, base, dtype, row),
            .external = link.external,
            .offset = link.offset,
            .window = link.window};
  }

  void CollectLinks() {
    // Rows show what the forward step left in a blob, also where it has several links.
    for (const bool is_destination : {true, false}) {
      for (size_t i = 0; i < forward_roles_.size(); ++i) {
        if (forward_roles_[i].is_destination == is_destination) AddForwardLink(spec_.links[i]);
      }
    }
    for (size_t i = 0; i < roles_.links.size(); ++i) {
      Link link = spec_.backward_links[i];
      link.internal = spec_.Renamed(link.internal);
      links_[link.internal].push_back(BackwardLink(link, roles_.links[i]));
    }
  }

  void AddForwardLink(const Link& link) {
    if (!reads_first_.contains(link.internal) || links_.contains(link.internal)) return;
    ResolvedLink resolved;
    if (const int state = spec_.StateIndex(link.external); state >= 0) {
      const StateLayout& layout = forward_.states[state];
      resolved = Resolve(link, NumStates() + state, layout.dtype, layout.row);
    } else {
      const int input = ForwardInputIndex(link.external);
      const int base = BaseOfInput(input, &plan_->inputs, &graph_);
      resolved = Resolve(link, base, inputs_[input].dtype, inputs_[input].shape.Tail());
    }
    resolved.is_source = true;
    ShowAsWritten(link.internal, &resolved);
    links_[link.internal].push_back(std::move(resolved));
  }

  // A forward step may write a row with more or fewer dimensions of 1 than the row has: its gradient operators see it
  // as the operator did that wrote it.
  void ShowAsWritten(const std::string& blob, ResolvedLink* link) const {
    const auto written = forward_.steps->finals.find(blob);
    if (written == forward_.steps->finals.end()) return;
    const TensorInfo& info = written->second.info;
    if (info.dtype == link->view.info.dtype && EqualButForOnes(info.shape, link->view.info.shape))
      link->view.info = info;
  }

  // The blob of the forward step whose rows these are; "" where there is none.
  std::string WriterOf(const Link& link, int state) const {
    const RecurrentSpec& spec = *forward_operator_.spec;
    for (size_t i = 0; i < forward_roles_.size(); ++i) {
      const Link& other = spec.links[i];
      if (forward_roles_[i].is_destination && other.external == spec.states[state].name &&
          other.offset == link.offset && other.window == link.window) {
        return other.internal;
      }
    }
    return "";
  }

  ResolvedLink BackwardLink(const Link& link, const BackwardLinkRole& role) {
    switch (role.kind) {
      case BackwardLinkRole::Kind::kState: return StateLink(link, role.index);
      case BackwardLinkRole::Kind::kStepOutput: return StepOutputLink(link, role.index);
      default: return OutputLink(link, role.index);
    }
  }

  ResolvedLink StateLink(const Link& link, int state) {
    const StateLayout& layout = forward_.states[state];
    CheckLinkInState(link, layout.num_initial);
    ResolvedLink resolved = Resolve(link, state, layout.dtype, layout.row);
    ShowAsWritten(WriterOf(link, state), &resolved);
    // What the step only writes is a part of the row's gradient: another name of a new row gives one, too.
    const bool is_part = written_.contains(link.internal) && !reads_first_.contains(link.internal);
    resolved.is_source = link.offset >= num_kept_[state] && !is_part;
    return resolved;
  }

  // The gradient of a step output, from outside: row t is what step t reads.
  ResolvedLink StepOutputLink(const Link& link, int step_output) {
    const TensorInfo& info = forward_.step_outputs[step_output].second;
    const bool is_given = std::ranges::any_of(spec_.outputs_with_grads, [&](int output) {
      return spec_.StepOutputIndex(ForwardOutput(output)) == step_output;
    });
    const int base = graph_.AddBase(is_given);
    ResolvedLink resolved = Resolve(link, base, info.dtype, info.shape);
    resolved.view.info = info;
    resolved.is_source = true;
    if (is_given) {
      plan_->step_output_gradients.emplace_back(step_output, base);
    } else {
      plan_->zero_gradients.emplace_back(step_output, base);
      graph_.before.push_back({.kind = RowMove::Kind::kZero, .to = {.name = link.external, .base = base}});
    }
    return resolved;
  }

  ResolvedLink OutputLink(const Link& link, int output) {
    GradientTarget* target = TargetOf(output);
    has_link_.insert(output);
    const TensorInfo& info = inputs_[target->input];
    if (info.shape.rank() == 0) {
      throw Error(ErrorCode::kShapeMismatch,
                  StrCat("\"", ForwardInput(target->input), "\" is linked as a sequence and is ", info.Description()));
    }
    ResolvedLink resolved = Resolve(link, target->base, info.dtype, info.shape.Tail());
    resolved.target = target;
    target->links.push_back(link);
    return resolved;
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
      if (num_sources == 0 && reads_first_.contains(blob)) RefuseInitialRows(blob, links.front());
      // Writes each row of an output of the operator, and nobody else does: straight into it, without zeros first.
      ResolvedLink& only = links.front();
      const bool writes_all = links.size() == 1 && only.target != nullptr && contributions[only.target] == 1 &&
                              only.offset == 0 && only.window == 1 && written_.contains(blob) &&
                              !reads_first_.contains(blob) && !IsParamGradient(blob) &&
                              RequestOf(only.target->output) == GradientRequest::kWrite && IsSoleOutput(*only.target);
      if (writes_all) {
        written_by_rows_.insert(only.target);
        only.view.readable = false;
        bindings_.blobs.push_back(only.view);
        continue;
      }
      bool placed = false;
      for (const ResolvedLink& link : links) {
        if (!link.is_source) continue;
        if (num_sources == 1) {
          bindings_.blobs.push_back(link.view);
        } else {
          AddMove(placed ? BoundMove::Kind::kAddIn : BoundMove::Kind::kCopyIn, blob, link);
        }
        placed = true;
      }
      for (const ResolvedLink& link : links) {
        if (!link.is_source) AddMove(BoundMove::Kind::kAddOut, blob, link);
      }
    }
  }

  // The net is right with fewer initial rows.
  [[noreturn]] static void RefuseInitialRows(const std::string& blob, const ResolvedLink& link) {
    throw Error(ErrorCode::kShapeMismatch,
                StrCat("\"", blob, "\" is read before anything writes it: it is linked to \"", link.external,
                       "\" with offset ", link.offset, ", which is the gradient of an initial row"));
  }

  void AddMove(BoundMove::Kind kind, const std::string& blob, const ResolvedLink& link) {
    Home outside = link.view.home;
    outside.slot.blob = link.external;
    bindings_.moves.push_back({.kind = kind, .blob = blob, .outside = outside, .info = link.view.info});
  }

  bool IsParamGradient(const std::string& blob) const {
    for (size_t k = 0; k < spec_.params.size(); ++k) {
      if (NameOfParamGradient(op_, spec_, k) == blob) return true;
    }
    return false;
  }
  bool IsSoleOutput(const GradientTarget& target) const {
    return std::ranges::count(op_.outputs(), op_.outputs()[target.output]) == 1;
  }
  // What the backward step gives as the gradient of a captured input is summed over the steps.
  void AddParamGradients() {
    for (size_t k = 0; k < spec_.params.size(); ++k) {
      const int output = static_cast<int>(k) + 1;
      GradientTarget* target = TargetOf(output);
      if (target == nullptr || has_link_.contains(output)) continue;
      const TensorInfo& info = inputs_[spec_.params[k]];
      Home sum = BindWhole(op_.outputs()[output], target->base, info).home;
      sum.starts_at_zero = RequestOf(output) == GradientRequest::kWrite && IsSoleOutput(*target);
      bindings_.moves.push_back({.kind = BoundMove::Kind::kAddOut,
                                 .blob = NameOfParamGradient(op_, spec_, k),
                                 .outside = sum,
                                 .info = info,
                                 .required = true});
    }
  }

  void BindWhatIsRead() {
    for (const auto& [blob, source] : roles_.sources) {
      switch (source) {
        case BackwardSource::kTimestep: plan_->timestep_base = BindTimestep(blob, &bindings_, &graph_); break;
        case BackwardSource::kForwardStep: BindForwardBlob(blob); break;
        case BackwardSource::kForwardInput: BindInput(blob); break;
        case BackwardSource::kLink:
        case BackwardSource::kNowhere: break;  // the import reports that it is read before anything writes it
      }
    }
  }

  void BindInput(const std::string& blob) {
    const int input = ForwardInputIndex(blob);
    const int base = BaseOfInput(input, &plan_->inputs, &graph_);
    bindings_.blobs.push_back(BindWhole(blob, base, inputs_[input]));
  }

  // Binds a blob that the forward run has kept. Where nothing but its shape is read, any memory will do, as that of the
  // first state.
  void BindForwardBlob(const std::string& blob) {
    if (const auto shape = forward_.shapes.find(blob); shape != forward_.shapes.end()) {
      bindings_.blobs.push_back(BindWhole(blob, NumStates(), shape->second));
      return;
    }
    if (again_ && again_->Gives(blob)) {
      bindings_.blobs.push_back(again_->Bind(blob));
      return;
    }
    const StepPlan::Final& final = forward_.steps->finals.at(blob);
    const Slot& slot = forward_.steps->slots[final.slot];
    if (slot.storage_class == StorageClass::kDynamic) {
      const int list = graph_.num_lists++;
      plan_->dynamic.emplace_back(slot.base, list);
      bindings_.blobs.push_back({.home = {.kind = Home::Kind::kDynamic, .slot = {.blob = blob}, .list = list}});
      return;
    }
    const int base = BaseOfKept(slot.base, plan_.get(), &graph_);
    Home home{.kind = Home::Kind::kOutside, .slot = slot};
    home.slot.blob = blob;  // a home may have the name of another value
    // What was computed once for all steps is shared as it was there.
    if (slot.storage_class != StorageClass::kShared) home.slot.storage_class = StorageClass::kLinked;
    home.slot.base = base;
    bindings_.blobs.push_back({.home = home, .info = final.info});
  }

  const OperatorCall& op_;
  const RecurrentSpec& spec_;
  const BackwardRoles& roles_;
  const GradientInputs& layout_;
  const ForwardOperator& forward_operator_;
  const std::vector<LinkRole> forward_roles_;  // by link of the forward step
  const ForwardPlan& forward_;
  const std::vector<TensorInfo>& inputs_;
  StepBindings bindings_;
  StepGraph graph_;
  std::set<std::string> reads_first_;
  std::set<std::string> written_;
  std::map<std::string, std::vector<ResolvedLink>> links_;
  std::vector<std::int64_t> num_kept_;               // by state: initial rows before those that steps overwrite
  std::set<int> has_link_;                           // outputs of the operator
  std::set<const GradientTarget*> written_by_rows_;  // whose every row some step writes
  std::shared_ptr<BackwardPlan> plan_ = std::make_shared<BackwardPlan>();
  std::optional<RecomputationMaker> again_;  // where something is computed again
};

}  // namespace

std::shared_ptr<const BackwardPlan> MakeBackwardPlan(const OperatorCall& op, const RecurrentSpec& spec,
                                                     const BackwardRoles& roles, const GradientInputs& layout,
                                                     const ForwardRun& forward) {
  return BackwardPlanMaker(op, spec, roles, layout, forward).Make();
}

}  // namespace stepnet

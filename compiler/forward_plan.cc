#include "stepnet/compiler/forward_plan.h"

#include <algorithm>
#include <set>

#include "stepnet/compiler/import_step.h"
#include "stepnet/compiler/make_step_plan.h"
#include "stepnet/compiler/recomputable.h"
#include "stepnet/core/index_of.h"
#include "stepnet/nets/link_roles.h"
#include "stepnet/nets/net_blobs.h"
#include "stepnet/nets/size_values.h"
#include "stepnet/proto/net.pb.h"

namespace stepnet {
namespace {

class ForwardPlanMaker {
 public:
  ForwardPlanMaker(const ForwardOperator& forward, const std::vector<TensorInfo>& inputs)
      : forward_(forward), op_(forward.op), spec_(*forward.spec), inputs_(inputs) {
    plan_->keeps_all = forward.keeps_all;
    for (size_t i = 0; i < inputs.size(); ++i) {
      if (inputs[i].value.defined()) plan_->values.emplace_back(static_cast<int>(i), inputs[i].value);
    }
  }

  std::shared_ptr<const ForwardPlan> Make(const LessMemory& less) {
    Import();
    PlanSettings settings = PlanSettingsOf(spec_);
    settings.choose_recomputed = [&](const StepGraph& step) { return NoteRecomputable(step, less.num_recomputed); };
    settings.max_block_steps = less.max_block_steps;
    NoteShapes();
    NoteStepOutputs();
    plan_->steps = std::make_shared<StepPlan>(MakeStepPlan(std::move(graph_), settings));
    NoteRings();
    return plan_;
  }

  StepToRecompute MakeStepToRecompute() {
    Import();
    return {WithRoundingDecided(std::move(graph_), PlanSettingsOf(spec_).options), LentBack()};
  }

 private:
  // The bases of memory that a run of the gradient is lent, too.
  std::set<int> LentBack() const {
    std::set<int> bases;
    for (size_t i = 0; i < plan_->states.size(); ++i) bases.insert(static_cast<int>(i));
    for (const auto& [input, base] : plan_->inputs) bases.insert(base);
    if (plan_->timestep_base >= 0) bases.insert(plan_->timestep_base);
    return bases;
  }

  // What there is to compute again, and the first ones of it, which are.
  const std::vector<RecomputedValue>& NoteRecomputable(const StepGraph& step, std::int64_t num_recomputed) {
    const bool is_possible = spec_.backward_step_net != nullptr && !forward_.keeps_all && !forward_.sources_change &&
                             op_.options().device().IsHost();
    if (is_possible) plan_->recomputable = FindRecomputable(step, spec_, LentBack());
    plan_->recomputed = plan_->recomputable;
    plan_->recomputed.resize(std::min(plan_->recomputed.size(), static_cast<size_t>(num_recomputed)));
    return plan_->recomputed;
  }

  void Import() {
    for (const RecurrentState& state : spec_.states) plan_->states.push_back(LayoutOf(state, op_, inputs_));
    graph_.num_bases = static_cast<int>(spec_.states.size());
    all_rows_written_.assign(spec_.states.size(), false);
    BindLinks();
    StartStates();
    LetStatesTakeTurns();
    ProvideTimestep();
    BindCaptured();
    BindKept();
    BindStepOutputs();
    ImportStep(spec_.step_net, spec_.options, bindings_, &graph_);
  }

  struct External {
    int base = -1;
    DType dtype = DType::kFloat;
    Shape row;
    const StateLayout* state = nullptr;
  };

  External FindExternal(const std::string& name) {
    for (size_t i = 0; i < spec_.states.size(); ++i) {
      if (spec_.states[i].name != name) continue;
      const StateLayout& layout = plan_->states[i];
      return {.base = static_cast<int>(i), .dtype = layout.dtype, .row = layout.row, .state = &layout};
    }
    const int input = IndexOf(op_.inputs(), name);
    if (input < 0) {
      throw Error(ErrorCode::kInvalidNet, StrCat("\"", name, "\" is linked and is neither a state nor an input"));
    }
    const TensorInfo& info = inputs_[input];
    if (info.shape.rank() == 0) {
      throw Error(ErrorCode::kShapeMismatch,
                  StrCat("\"", name, "\" is linked as a sequence and is ", info.Description()));
    }
    return {.base = BaseOfInput(input, &plan_->inputs, &graph_), .dtype = info.dtype, .row = info.shape.Tail()};
  }

  void BindLinks() {
    const std::vector<LinkRole> roles = FindLinkRoles(spec_);
    std::map<std::string, std::vector<size_t>> by_blob;
    for (size_t i = 0; i < spec_.links.size(); ++i) by_blob[spec_.links[i].internal].push_back(i);
    for (const auto& [blob, links] : by_blob) {
      for (const size_t i : links) BindLinkOf(blob, spec_.links[i], roles[i], /*is_alone=*/links.size() == 1);
    }
    // What a step may see of a new row before it is written: where a state has no initial rows only shapes tell.
    for (size_t i = 0; i < roles.size(); ++i) {
      const int state = spec_.StateIndex(spec_.links[i].external);
      if (!roles[i].is_source || state < 0) continue;
      if (spec_.links[i].offset + spec_.links[i].window > plan_->states[state].num_initial) {
        all_rows_written_[state] = false;
      }
    }
  }

  // Initial rows are what the caller gave. Rows that nobody has written are zeros.
  void StartStates() {
    for (size_t i = 0; i < plan_->states.size(); ++i) {
      const StateLayout& layout = plan_->states[i];
      const BaseRows state{.name = spec_.states[i].name, .base = static_cast<int>(i)};
      BaseRows first = state, others = state;
      first.end = others.begin = layout.num_initial;
      graph_.before.push_back({.to = first,
                               .from = {.name = op_.inputs()[layout.initial],
                                        .base = BaseOfInput(layout.initial, &plan_->inputs, &graph_)}});
      if (!all_rows_written_[i]) graph_.before.push_back({.kind = RowMove::Kind::kZero, .to = others});
    }
  }

  // Where nobody but who is given the last row sees a state behind the loop, steps may use a few rows in turn.
  void LetStatesTakeTurns() {
    const bool are_read =
        !spec_.private_states || spec_.HasBackwardStep() || !op_.ReadersOf(op_.num_outputs() - 1).empty();
    if (are_read) return;
    for (size_t i = 0; i < spec_.states.size(); ++i) {
      const std::string& name = spec_.states[i].name;
      const bool is_shown =
          IndexOf(op_.outputs(), name) >= 0 || std::ranges::any_of(spec_.aliases, [&](const OffsetAlias& alias) {
            return alias.source == name && alias.offset != -1;
          });
      if (!is_shown && all_rows_written_[i]) graph_.in_turns.insert(static_cast<int>(i));
    }
  }

  // A blob with several links comes from its source, and goes to the others.
  void BindLinkOf(const std::string& blob, const Link& link, const LinkRole& role, bool is_alone) {
    const External external = FindExternal(link.external);
    if (external.state != nullptr) {
      CheckLinkInState(link, external.state->num_initial);
      const bool gives_row = role.is_destination && link.offset + link.window > external.state->num_initial;
      if (gives_row) all_rows_written_[external.base] = true;
    }
    BoundBlob bound = BindLink(link, external.base, external.dtype, external.row);
    if (is_alone) {
      bound.readable = role.is_source;
      if (external.state != nullptr) bound.sized_by = op_.inputs()[external.state->initial];
      bindings_.blobs.push_back(std::move(bound));
      return;
    }
    Home outside = bound.home;
    outside.slot.blob = link.external;
    const BoundMove move{.kind = role.is_source ? BoundMove::Kind::kCopyIn : BoundMove::Kind::kCopyOut,
                         .blob = blob,
                         .outside = outside,
                         .info = bound.info};
    // Sources first: a blob that no operator writes is copied on at once.
    bindings_.moves.insert(role.is_source ? bindings_.moves.begin() : bindings_.moves.end(), move);
  }

  void ProvideTimestep() {
    const std::vector<std::string> reads = BlobsReadFirst(*spec_.step_net);
    const bool is_read = std::ranges::find(reads, spec_.timestep) != reads.end();
    if (is_read) plan_->timestep_base = BindTimestep(spec_.timestep, &bindings_, &graph_);
  }

  void BindCaptured() {
    std::set<std::string> known;
    for (const BoundBlob& bound : bindings_.blobs) known.insert(bound.home.slot.blob);
    for (const BoundMove& move : bindings_.moves) known.insert(move.blob);
    for (const std::string& blob : BlobsReadFirst(*spec_.step_net)) {
      const int input = IndexOf(op_.inputs(), blob);
      if (known.contains(blob) || input < 0) continue;  // the import reports what is read before it is written
      const int base = BaseOfInput(input, &plan_->inputs, &graph_);
      bindings_.blobs.push_back(BindWhole(blob, base, inputs_[input]));
    }
  }

  void BindKept() {
    bindings_.keeps_all = plan_->keeps_all;
    if (spec_.backward_step_net == nullptr) return;
    const NetDef& backward = *spec_.backward_step_net;
    for (const std::string& blob : BlobsReadFirst(backward)) bindings_.kept[blob] = KeptPart::kValue;
    // In place of a blob of which the backward step reads the shape alone it is shown the first state.
    if (spec_.states.empty() || plan_->keeps_all) return;
    for (const std::string& blob : BlobsReadForShape(backward)) {
      bindings_.kept[blob] = KeptPart::kShape;
    }
  }

  void NoteShapes() {
    for (const auto& [blob, part] : bindings_.kept) {
      const auto last = graph_.last.find(blob);
      if (part != KeptPart::kShape || last == graph_.last.end()) continue;  // an input, or missing: others report it
      const StepValue& value = graph_.values[last->second];
      if (graph_.homes[value.home].kind != Home::Kind::kDynamic) plan_->shapes[blob] = value.info;
    }
  }

  // Blobs that become outputs get a base of their own.
  void BindStepOutputs() {
    for (const StepOutput& output : spec_.step_outputs) {
      bindings_.outputs.push_back(
          {.blob = output.blob, .name = output.destination, .base = graph_.AddBase(/*is_lent=*/false)});
    }
  }

  void NoteRings() {
    for (const Slot& slot : plan_->steps->slots) {
      if (slot.storage_class != StorageClass::kLinked || slot.ring_rows == 0) continue;
      plan_->states[slot.base].ring_rows = slot.ring_rows;
    }
  }

  void NoteStepOutputs() {
    for (const BoundOutput& output : bindings_.outputs) {
      plan_->step_outputs.emplace_back(output.base, graph_.values[graph_.last.at(output.blob)].info);
    }
  }

  const ForwardOperator& forward_;
  const OperatorCall& op_;
  const RecurrentSpec& spec_;
  const std::vector<TensorInfo>& inputs_;
  StepBindings bindings_;
  StepGraph graph_;
  std::vector<bool> all_rows_written_;  // by state: some operator writes every row behind the initial ones
  std::shared_ptr<ForwardPlan> plan_ = std::make_shared<ForwardPlan>();
};

}  // namespace

std::int64_t NumInitialRows(const Shape& initial) { return initial.rank() >= 3 ? initial[0] : 1; }

StateLayout LayoutOf(const RecurrentState& state, const OperatorCall& op, const std::vector<TensorInfo>& inputs) {
  const TensorInfo& initial = inputs.at(state.initial);
  const Shape& shape = initial.shape;
  const std::string& name = op.inputs()[state.initial];
  if (shape.rank() == 0) {
    throw Error(ErrorCode::kShapeMismatch, StrCat("the initial state \"", name, "\" is ", initial.Description(),
                                                  "; it must be [D], [B, D] or [L, B, …]"));
  }
  StateLayout layout{
      .initial = state.initial, .dtype = initial.dtype, .row = shape, .num_initial = NumInitialRows(shape)};
  if (shape.rank() >= 3) layout.row = shape.Tail();
  const TensorInfo& sequence = inputs.at(0);
  const std::int64_t batch = sequence.shape.rank() >= 2 ? sequence.shape[1] : -1;
  if (shape.rank() == 1) {
    if (batch < 0) {
      throw Error(ErrorCode::kShapeMismatch,
                  StrCat("the initial state \"", name, "\" is ", initial.Description(),
                         ", the same for every row of the batch, but the first input \"", op.inputs()[0], "\" is ",
                         sequence.Description(), " and has no batch"));
    }
    layout.row = shape.Inserted(0, batch);
  } else if (batch >= 0 && layout.row[0] != batch) {
    if (layout.row[0] != 1) {
      throw Error(
          ErrorCode::kShapeMismatch,
          StrCat("the initial state \"", name, "\" is ", initial.Description(), " with a batch of ", layout.row[0],
                 "; the first input \"", op.inputs()[0], "\" is ", sequence.Description(), " with a batch of ", batch));
    }
    layout.row = layout.row.With(0, batch);
  }
  return layout;
}

std::vector<int> CapturedSizes(const ForwardOperator& forward) {
  std::set<std::string> sizes;
  for (const NetDef* net : {forward.spec->step_net.get(), forward.spec->backward_step_net.get()}) {
    if (net == nullptr) continue;
    const std::set<std::string> of_sizes = BlobsOfSizes(*net);
    for (const std::string& blob : BlobsReadFirst(*net)) {
      if (of_sizes.contains(blob)) sizes.insert(blob);
    }
  }
  std::vector<int> inputs;
  for (int i = 0; i < forward.op.num_inputs(); ++i) {
    if (sizes.contains(forward.op.inputs()[i])) inputs.push_back(i);
  }
  return inputs;
}

std::int64_t NumBetterRecomputed(const ForwardPlan& plan, std::int64_t num_steps) {
  const Target& target = *plan.steps->target;
  std::int64_t count = 0, num_fast = 0, bytes = 0, bytes_of_fast = 0;
  for (const RecomputedValue& value : plan.recomputable) {
    if (!value.follows_from_less) break;  // they are the first ones, those that are computed fast before others
    ++count;
    bytes += value.bytes;
    if (value.BytesForTime() < target.fast_bytes_per_microsecond) continue;
    num_fast = count;
    bytes_of_fast = bytes;
  }
  if (count > 0 && num_steps >= target.min_bytes_to_recompute / bytes) return count;
  return num_fast > 0 && num_steps >= target.min_bytes_to_recompute_fast / bytes_of_fast ? num_fast : 0;
}

std::shared_ptr<const ForwardPlan> MakeForwardPlan(const ForwardOperator& forward,
                                                   const std::vector<TensorInfo>& inputs, const LessMemory& less) {
  return ForwardPlanMaker(forward, inputs).Make(less);
}

StepToRecompute MakeStepToRecompute(const ForwardOperator& forward, const std::vector<TensorInfo>& inputs) {
  return ForwardPlanMaker(forward, inputs).MakeStepToRecompute();
}

}  // namespace stepnet

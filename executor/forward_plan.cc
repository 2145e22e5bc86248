#include "stepnet/executor/forward_plan.h"

#include <algorithm>
#include <set>

#include "stepnet/proto/net.pb.h"

namespace stepnet {
namespace {

int InputIndex(const OpInit& op, const std::string& name) {
  const auto found = std::ranges::find(op.inputs(), name);
  return found == op.inputs().end() ? -1 : static_cast<int>(found - op.inputs().begin());
}

class ForwardPlanMaker {
 public:
  ForwardPlanMaker(const OpInit& op, const RecurrentSpec& spec, const std::vector<TensorInfo>& inputs)
      : op_(op), spec_(spec), inputs_(inputs) {}

  std::shared_ptr<const ForwardPlan> Make() {
    request_.net = spec_.step_net.get();
    request_.options = spec_.options;
    request_.ring_rows = RingRows(spec_);
    request_.most_steps = spec_.num_workspaces;
    plan_->keeps_all = FetchesBlobs();
    for (const RecurrentState& state : spec_.states) plan_->states.push_back(LayoutOf(state, op_, inputs_));
    request_.num_bases = static_cast<int>(spec_.states.size());
    BindLinks();
    BindTimestep();
    BindCaptured();
    KeepWhatIsReadLater();
    auto steps = std::make_shared<StepPlan>(MakeStepPlan(request_));
    if (!spec_.step_outputs.empty()) steps = WithStepOutputs(*steps);
    plan_->steps = std::move(steps);
    return plan_;
  }

 private:
  struct External {
    int base = -1;
    DType dtype = DType::kFloat;
    Shape row;
    bool is_state = false;
    std::int64_t num_initial = 0;  // of a state
  };

  External FindExternal(const std::string& name) {
    for (size_t i = 0; i < spec_.states.size(); ++i) {
      if (spec_.states[i].name != name) continue;
      const StateLayout& layout = plan_->states[i];
      return {.base = static_cast<int>(i),
              .dtype = layout.dtype,
              .row = layout.row,
              .is_state = true,
              .num_initial = layout.num_initial};
    }
    const int input = InputIndex(op_, name);
    if (input < 0) {
      throw Error(ErrorCode::kInvalidNet, StrCat("\"", name, "\" is linked and is neither a state nor an input"));
    }
    const TensorInfo& info = inputs_[input];
    if (info.shape.rank() == 0) {
      throw Error(ErrorCode::kShapeMismatch,
                  StrCat("\"", name, "\" is linked as a sequence and is ", info.Description()));
    }
    return {
        .base = BaseOfInput(input, &plan_->inputs, &request_.num_bases), .dtype = info.dtype, .row = info.shape.Tail()};
  }

  void BindLinks() {
    std::map<std::string, std::vector<std::pair<Link, External>>> by_blob;
    for (const Link& link : spec_.links) by_blob[link.internal].emplace_back(link, FindExternal(link.external));
    for (const auto& [blob, links] : by_blob) {
      for (const auto& [link, external] : links) {
        if (external.is_state) CheckLinkInBounds(link, external.num_initial + 1, 1);
      }
      if (links.size() == 1) {
        const auto& [link, external] = links.front();
        BoundBlob bound = BindLink(link, external.base, external.dtype, external.row);
        // The row that this step adds to a state has no value yet. A window that ends with it is there to be read after
        // another blob has written it.
        bound.readable = !external.is_state || link.offset < external.num_initial;
        request_.bound.push_back(std::move(bound));
      } else {
        BindSharedBlob(blob, links);
      }
    }
  }

  // A blob with several links comes from the one whose rows are there before the step, and goes to the others.
  void BindSharedBlob(const std::string& blob, const std::vector<std::pair<Link, External>>& links) {
    int sources = 0;
    for (const auto& [link, external] : links) {
      const BoundBlob view = BindLink(link, external.base, external.dtype, external.row);
      const bool is_source = !external.is_state || link.offset < external.num_initial;
      if (is_source) ++sources;
      Slot outside = view.slot;
      outside.blob = link.external;
      const Transfer transfer{.kind = is_source ? Transfer::Kind::kCopyIn : Transfer::Kind::kCopyOut,
                              .blob = blob,
                              .outside = outside,
                              .info = view.info};
      // Sources first: a blob that no operator writes is copied on at once.
      request_.transfers.insert(is_source ? request_.transfers.begin() : request_.transfers.end(), transfer);
    }
    if (sources > 1) {
      throw Error(ErrorCode::kInvalidNet, StrCat("\"", blob, "\" is linked to ", sources,
                                                 " blobs that all have a value before the step; it can have one"));
    }
  }

  void BindTimestep() {
    const std::vector<std::string> reads = BlobsReadFirst(*spec_.step_net);
    if (std::ranges::find(reads, spec_.timestep) == reads.end()) return;
    plan_->timestep_base = request_.num_bases++;
    const Link link{.internal = spec_.timestep, .external = spec_.timestep};
    request_.bound.push_back(BindLink(link, plan_->timestep_base, DType::kInt32, Shape()));
  }

  void BindCaptured() {
    std::set<std::string> known;
    for (const BoundBlob& bound : request_.bound) known.insert(bound.slot.blob);
    for (const Transfer& transfer : request_.transfers) known.insert(transfer.blob);
    for (const std::string& blob : BlobsReadFirst(*spec_.step_net)) {
      const int input = InputIndex(op_, blob);
      if (known.contains(blob) || input < 0) continue;  // the import reports what is read before it is written
      const int base = BaseOfInput(input, &plan_->inputs, &request_.num_bases);
      request_.bound.push_back(BindWhole(blob, base, inputs_[input]));
    }
  }

  bool FetchesBlobs() const {
    const std::vector<std::string>& readers = op_.ReadersOf(op_.num_outputs() - 1);
    return std::ranges::find(readers, "RecurrentNetworkBlobFetcher") != readers.end();
  }

  void KeepWhatIsReadLater() {
    if (plan_->keeps_all) {
      request_.keep = [](const std::string&) { return true; };
      return;
    }
    std::set<std::string> kept;
    if (spec_.backward_step_net != nullptr) {
      const std::vector<std::string> reads = BlobsReadFirst(*spec_.backward_step_net);
      kept.insert(reads.begin(), reads.end());
    }
    request_.keep = [kept](const std::string& blob) { return kept.contains(blob); };
  }

  // Blobs that become outputs get a copy a step in a base of their own; their shapes are known only now.
  std::shared_ptr<StepPlan> WithStepOutputs(const StepPlan& first) {
    for (const StepOutput& output : spec_.step_outputs) {
      const auto final = first.finals.find(output.blob);
      if (final == first.finals.end()) {
        std::vector<std::string> blobs;
        for (const auto& [blob, unused] : first.finals) blobs.push_back(blob);
        throw Error(ErrorCode::kInvalidNet,
                    StrCat("step_output_src names \"", output.blob, "\", which the step net does not have",
                           DidYouMean(output.blob, blobs)));
      }
      if (first.slots[final->second.slot].storage_class == StorageClass::kDynamic) {
        throw Error(ErrorCode::kInvalidNet,
                    StrCat("step_output_src names \"", output.blob,
                           "\", whose shape is known only when a step has run; make it the new row of a state, which "
                           "says what shape it has"));
      }
      const TensorInfo& info = final->second.info;
      const std::int64_t bytes = info.shape.size() * DTypeBytes(info.dtype);
      const int base = request_.num_bases++;
      plan_->step_outputs.emplace_back(base, info);
      request_.transfers.push_back({.kind = Transfer::Kind::kCopyOut,
                                    .blob = output.blob,
                                    .outside = {.blob = output.destination,
                                                .storage_class = StorageClass::kLinked,
                                                .base = base,
                                                .row_bytes = bytes,
                                                .bytes = bytes,
                                                .dtype = info.dtype},
                                    .info = info,
                                    .required = true});
    }
    return std::make_shared<StepPlan>(MakeStepPlan(request_));
  }

  const OpInit& op_;
  const RecurrentSpec& spec_;
  const std::vector<TensorInfo>& inputs_;
  StepPlanRequest request_;
  std::shared_ptr<ForwardPlan> plan_ = std::make_shared<ForwardPlan>();
};

}  // namespace

StateLayout LayoutOf(const RecurrentState& state, const OpInit& op, const std::vector<TensorInfo>& inputs) {
  const TensorInfo& initial = inputs.at(state.initial);
  const Shape& shape = initial.shape;
  const std::string& name = op.inputs()[state.initial];
  if (shape.rank() == 0) {
    throw Error(ErrorCode::kShapeMismatch, StrCat("the initial state \"", name, "\" is ", initial.Description(),
                                                  "; it must be [D], [B, D] or [L, B, …]"));
  }
  StateLayout layout{.initial = state.initial, .dtype = initial.dtype, .row = shape, .num_initial = 1};
  if (shape.rank() >= 3) {
    layout.num_initial = shape[0];
    layout.row = shape.Tail();
  }
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

std::shared_ptr<const ForwardPlan> MakeForwardPlan(const OpInit& op, const RecurrentSpec& spec,
                                                   const std::vector<TensorInfo>& inputs) {
  return ForwardPlanMaker(op, spec, inputs).Make();
}

}  // namespace stepnet

// RecurrentNetwork: runs a net of one step over a sequence.
//
// Inputs, outputs and arguments are those of Caffe2's operator: [sequence, initial states…, captured tensors…] in any
// order after the first; aliases of states and, last, the record of the run.
#include <algorithm>
#include <limits>
#include <optional>

#include "stepnet/executor/executor.h"
#include "stepnet/executor/forward_plans.h"
#include "stepnet/executor/kept_runs.h"
#include "stepnet/executor/recurrent_record.h"
#include "stepnet/nets/recurrent_gradient.h"
#include "stepnet/nets/size_values.h"
#include "stepnet/proto/net.pb.h"

namespace stepnet {
namespace {

// Makes the outputs' tensors the operator's alone again, so that their memory can be used once more; what users still
// hold keeps its values.
void ReleaseOutputs(const OpRun& run) {
  for (int i = 0; i < run.num_outputs(); ++i) run.host().Output(i).Reset();
}

class RecurrentNetwork {
 public:
  explicit RecurrentNetwork(const OperatorCall& op)
      : forward_(std::make_shared<const ForwardOperator>(op)),
        op_(forward_->op),
        spec_(*forward_->spec),
        captured_sizes_(CapturedSizes(*forward_)),
        executor_(MakeExecutor(spec_.options)),
        plans_(forward_) {}

  void Run(const OpRun& run) {
    const std::vector<TensorInfo> inputs = Inputs(run);
    if (inputs[0].shape.rank() == 0) {
      throw Error(ErrorCode::kShapeMismatch, StrCat("the first input \"", op_.inputs()[0], "\" is ",
                                                    inputs[0].Description(), "; it must be the sequence, [T, B, …]"));
    }
    const std::int64_t num_steps = inputs[0].shape[0];
    if (num_steps > std::numeric_limits<std::int32_t>::max()) {
      throw Error(ErrorCode::kShapeMismatch,
                  StrCat("\"", op_.inputs()[0], "\" is ", inputs[0].Description(), "; the number of a step is int32"));
    }
    ForwardPlans::Choice choice(plans_, inputs, SizesGiven(run));
    for (size_t i = 0; i < inputs.size(); ++i) {
      CheckSequence(spec_.links, op_.inputs()[i], run.host().Input(static_cast<int>(i)).GetTensor(), num_steps);
    }
    CheckAliases(*choice.plan(), num_steps);
    ReleaseOutputs(run);
    if (!spec_.private_states) {
      for (const RecurrentState& state : spec_.states) run.host().workspace().CreateBlob(state.name).Reset();
    }
    std::shared_ptr<RecurrentRecord> record;
    std::optional<RecordUse> use;
    while (!TakeRecord(choice, inputs, run, &record, &use)) {
      const std::shared_ptr<const StepPlan> gradient = gradient_->Of(choice.plan());
      choice.TakeLess();
      gradient_->Note(choice.plan(), gradient);
    }
    choice.Keep();
    run.context().KeepRunNumber(&record->run);
    executor_->Run(*record->steps, run.context());
    if (!record->plan->keeps_all) record->steps->ReleaseBases();
    Publish(record, run);
  }

 private:
  // The record of the run that begins, with its memory. Returns false where that is not there, and less may be enough.
  bool TakeRecord(const ForwardPlans::Choice& choice, const std::vector<TensorInfo>& inputs, const OpRun& run,
                  std::shared_ptr<RecurrentRecord>* record, std::optional<RecordUse>* use) {
    const std::shared_ptr<const ForwardPlan>& plan = choice.plan();
    const std::int64_t num_steps = inputs[0].shape[0];
    // On a device, which plays runs, a record says the same for as long as there is one: its run may be played after
    // others.
    const bool is_on_host = op_.options().device().IsHost();
    const auto fits = [&](const RecurrentRecord& kept) {
      return is_on_host || (kept.num_steps == num_steps && kept.inputs == inputs);
    };
    *record = records_.Take(
        plan, BytesOfRun(*plan, num_steps), [&] { return MakeRecord(plan); }, fits);
    use->emplace(**record);
    (*record)->inputs = inputs;
    for (const auto& [input, value] : plan->values) (*record)->inputs[input].value = value;
    (*record)->num_steps = num_steps;
    (*record)->spare.Begin();
    try {
      records_.TakeMemory([&] { Bind(**record, run); });
      return true;
    } catch (const Error& error) {
      if (error.code() != ErrorCode::kOutOfMemory || !choice.HasLess()) throw WithNeeds(error, **record);
    }
    use->reset();
    record->reset();
    records_.DropIdle();
    return false;
  }

  std::vector<TensorInfo> Inputs(const OpRun& run) const {
    std::vector<TensorInfo> infos;
    infos.reserve(run.num_inputs());
    for (int i = 0; i < run.num_inputs(); ++i) {
      const Tensor& tensor = run.host().Input(i).GetTensor();
      infos.push_back({.dtype = tensor.dtype(), .shape = tensor.shape()});
    }
    return infos;
  }

  // Small tensors from which shapes in a step follow, on the host.
  ForwardPlans::Sizes SizesGiven(const OpRun& run) const {
    ForwardPlans::Sizes sizes;
    for (const int input : captured_sizes_) {
      const Tensor& tensor = run.host().Input(input).GetTensor();
      const bool may_be_sizes = tensor.dtype() == DType::kInt32 || tensor.dtype() == DType::kInt64;
      if (!may_be_sizes || tensor.shape().size() > kMaxKnownElements) continue;
      RecordingNotes* const recording = run.context().recording;
      if (recording != nullptr && tensor.ConstantId() == 0) recording->Refuse("shapes in a step follow from values");
      sizes.emplace_back(input, tensor.To({}));
    }
    return sizes;
  }

  // First and past-the-last row of an alias.
  static std::pair<std::int64_t, std::int64_t> RowsOf(const OffsetAlias& alias, const StateLayout& state,
                                                      std::int64_t num_steps) {
    const std::int64_t rows = num_steps + state.num_initial;
    return {alias.offset >= 0 ? alias.offset : rows + alias.offset, rows};
  }

  const StateLayout& StateOf(const ForwardPlan& plan, const std::string& name) const {
    const auto found = std::ranges::find(spec_.states, name, &RecurrentState::name);
    return plan.states[found - spec_.states.begin()];  // CheckRecurrent knows that it is there
  }

  void CheckAliases(const ForwardPlan& plan, std::int64_t num_steps) const {
    for (const OffsetAlias& alias : spec_.aliases) {
      const auto [begin, end] = RowsOf(alias, StateOf(plan, alias.source), num_steps);
      if (begin >= 0 && begin <= end) continue;
      throw Error(ErrorCode::kShapeMismatch,
                  StrCat("alias \"", alias.destination, "\" starts at row ", begin, " of \"", alias.source,
                         "\" (offset ", alias.offset, "), which has ", end, " rows for T = ", num_steps));
    }
  }

  std::shared_ptr<RecurrentRecord> MakeRecord(const std::shared_ptr<const ForwardPlan>& plan) const {
    auto record = std::make_shared<RecurrentRecord>(plans_.num_recomputed());
    record->plan = plan;
    record->forward = forward_;
    record->gradient = gradient_;
    for (const RecurrentState& state : spec_.states) record->states.push_back(std::make_unique<Blob>(state.name));
    for (const StepOutput& output : spec_.step_outputs) {
      record->step_outputs.push_back(std::make_unique<Blob>(output.destination));
    }
    record->steps = std::make_unique<RunState>(plan->steps, op_.options().device());
    return record;
  }

  static double BytesOfRun(const ForwardPlan& plan, std::int64_t num_steps) {
    double bytes = BytesOfStates(plan, num_steps) + static_cast<double>(plan.steps->ArenaBytes(num_steps));
    for (const auto& [base, info] : plan.step_outputs) {
      bytes += static_cast<double>(info.size_bytes()) * static_cast<double>(num_steps);
    }
    return bytes;
  }

  void Bind(RecurrentRecord& record, const OpRun& run) const {
    const ForwardPlan& plan = *record.plan;
    RunState& steps = *record.steps;
    const Device device = steps.device();
    steps.ReleaseBases();
    for (size_t i = 0; i < plan.states.size(); ++i) {
      const StateLayout& layout = plan.states[i];
      const Shape shape = layout.row.Inserted(0, layout.NumRows(record.num_steps));
      steps.SetBase(static_cast<int>(i), record.states[i]->MakeTensor(layout.dtype, shape, device));
    }
    for (const auto& [input, base] : plan.inputs) steps.LendBase(base, run.host().Input(input).GetTensor());
    if (plan.timestep_base >= 0) {
      const Shape shape({record.num_steps});
      steps.SetBase(plan.timestep_base, record.timesteps.MakeTensor(DType::kInt32, shape, device));
    }
    for (size_t i = 0; i < plan.step_outputs.size(); ++i) {
      const auto& [base, info] = plan.step_outputs[i];
      // [1, B, H] a step becomes [T, B, H]; any other shape gets a dimension in front.
      const bool has_step = info.shape.rank() > 0 && info.shape[0] == 1;
      const Shape shape = has_step ? info.shape.With(0, record.num_steps) : info.shape.Inserted(0, record.num_steps);
      steps.SetBase(base, record.step_outputs[i]->MakeTensor(info.dtype, shape, device));
    }
    steps.Prepare(record.num_steps, run.host().workspace());
  }

  void Publish(const std::shared_ptr<RecurrentRecord>& record, const OpRun& run) const {
    const ForwardPlan& plan = *record->plan;
    Workspace& workspace = run.host().workspace();
    const auto output = [&](const std::string& name) -> Blob& {
      const auto found = std::ranges::find(op_.outputs(), name);
      if (found == op_.outputs().end()) return workspace.CreateBlob(name);
      return run.host().Output(static_cast<int>(found - op_.outputs().begin()));
    };
    for (size_t i = 0; i < spec_.states.size(); ++i) {
      const std::string& name = spec_.states[i].name;
      const bool is_read = !spec_.private_states || std::ranges::count(op_.outputs(), name) > 0;
      if (is_read) output(name).SetTensor(record->states[i]->GetTensor());
    }
    for (const OffsetAlias& alias : spec_.aliases) {
      const StateLayout& layout = StateOf(plan, alias.source);
      auto [begin, end] = RowsOf(alias, layout, record->num_steps);
      if (layout.ring_rows > 0) {  // of which an alias shows the last row alone
        begin = layout.LastRow(record->num_steps);
        end = begin + 1;
      }
      const size_t i = static_cast<size_t>(&layout - plan.states.data());
      output(alias.destination).SetTensor(record->states[i]->GetTensor().Slice(begin, end));
    }
    for (size_t i = 0; i < spec_.step_outputs.size(); ++i) {
      output(spec_.step_outputs[i].destination).SetTensor(record->step_outputs[i]->GetTensor());
    }
    run.host().Output(run.num_outputs() - 1).SetObject<RecurrentRecord>(record);
  }

  const std::shared_ptr<const ForwardOperator> forward_;
  const OperatorCall& op_;
  const RecurrentSpec& spec_;
  const std::vector<int> captured_sizes_;
  const std::shared_ptr<const Executor> executor_;
  ForwardPlans plans_;
  KeptRuns<RecurrentRecord> records_{op_.options().device()};
  const std::shared_ptr<RecentGradient> gradient_ = std::make_shared<RecentGradient>();
};

const Registration recurrent_network =
    Operator("RecurrentNetwork")
        .Doc(
            "Runs step_net once for each step of a sequence. Blobs of the step net that links name are rows of states "
            "and sequences; what else the step net reads must be an input. States are readable under their names after "
            "the run. See docs/authoring.md.")
        .Input("sequence", "[T, B, …]: gives the number of steps and the batch")
        .OptionalInputs("inputs", "initial states [D], [B, D] or [L, B, …]; further sequences [T, …]; captured tensors")
        .Outputs("outputs",
                 "aliases of states and step outputs, in any order; last the record of the run, which "
                 "RecurrentNetworkGradient and RecurrentNetworkBlobFetcher read")
        .Args(RecurrentArguments())
        .OutputsMayRepeat()
        .Check([](const OperatorCall& op, std::vector<NetProblem>* problems) { CheckRecurrent(op, false, problems); })
        .Gradient(MakeRecurrentGradient)
        .OnEveryDevice({.make = [](const OperatorCall& op) -> RunFn {
                          auto network = std::make_shared<RecurrentNetwork>(op);
                          return [network](const OpRun& run) { network->Run(run); };
                        },
                        .takes_blobs = true});

}  // namespace
}  // namespace stepnet

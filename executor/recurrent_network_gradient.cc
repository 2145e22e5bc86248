// RecurrentNetworkGradient: runs the backward step net from the last step to the first.
//
// Inputs: [gradients of outputs_with_grads…, the forward operator's inputs…, its outputs…]. Outputs: the gradient of
// input 0, of each param, of each initial state.
#include <algorithm>
#include <mutex>
#include <optional>
#include <tuple>

#include "stepnet/compiler/backward_plan.h"
#include "stepnet/compiler/plan_cache.h"
#include "stepnet/core/floating.h"
#include "stepnet/executor/executor.h"
#include "stepnet/executor/kept_runs.h"
#include "stepnet/executor/recurrent_record.h"
#include "stepnet/nets/backward_roles.h"
#include "stepnet/nets/gradient_check.h"
#include "stepnet/nets/net_check.h"
#include "stepnet/nets/requested_gradients.h"
#include "stepnet/proto/net.pb.h"

namespace stepnet {
namespace {

// Memory of a backward run.
struct BackwardRun {
  std::shared_ptr<const BackwardPlan> plan;
  std::int64_t num_steps = -1;
  std::vector<std::unique_ptr<Blob>> state_gradients;
  std::vector<std::unique_ptr<Blob>> zero_gradients;
  std::vector<std::unique_ptr<Blob>> sums;  // of each target that the caller is given in the end
  Blob timesteps{"timesteps"};
  std::unique_ptr<RunState> steps;

  std::int64_t MemoryBytes() const {
    return BytesOf(state_gradients) + BytesOf(zero_gradients) + BytesOf(sums) + BytesOf(timesteps) +
           steps->MemoryBytes();
  }
};

// The forward operator's plan, what the backward step net sees of the inputs, and how many values it computes again.
using BackwardPlanKey = std::tuple<std::shared_ptr<const ForwardPlan>, std::vector<TensorInfo>, size_t>;

class RecurrentNetworkGradient {
 public:
  explicit RecurrentNetworkGradient(const OperatorCall& op)
      : op_(op),
        requested_(WithRequestedGradients(op, RecurrentSpecOf(op))),
        spec_(*requested_),
        seen_by_rows_(InputsSeenByRows(op, spec_)),
        executor_(MakeExecutor(spec_.options)) {}

  void Run(const OpRun& run) {
    const std::shared_ptr<const RecurrentRecord> record = Record(run);
    const RecordUse use(*record);
    const GradientInputs layout = Layout(*record);
    CheckInputs(run, layout, *record);
    for (const RecurrentState& state : spec_.states) StateGradientBlob(run, state).Reset();
    std::shared_ptr<BackwardRun> backward;
    std::optional<BorrowedTemporaries> borrowed;
    while (!TakeRun(run, layout, record, &backward, &borrowed)) {
    }
    run.context().PrepareLanes(1);
    RunContext& context = run.context().lanes[0];
    context.run = &record->run;  // the masks of the forward run, where operators are computed again
    executor_->Run(*backward->steps, context);
    for (const GradientTarget& target : backward->plan->targets) {
      const int base = target.base_given < 0 ? target.base : target.base_given;
      run.host().Output(target.output).SetTensor(backward->steps->Base(base));
    }
    backward->steps->ReleaseBases();
    for (size_t i = 0; i < spec_.states.size(); ++i) {
      StateGradientBlob(run, spec_.states[i]).SetTensor(backward->state_gradients[i]->GetTensor());
    }
  }

 private:
  std::shared_ptr<const BackwardPlan> PlanFor(const GradientInputs& layout, const RecurrentRecord& record) {
    const std::span<const RecomputedValue> recomputed = record.spare.Recomputed();
    return plans_.Get({record.plan, PlanKey(record.inputs, seen_by_rows_), recomputed.size()}, [&] {
      const std::shared_ptr<const BackwardRoles> roles = Agree(record.forward);
      return MakeBackwardPlan(op_, spec_, *roles, layout, {record.forward, record.plan, record.inputs, recomputed});
    });
  }

  // The run that begins, with its memory. Where that is not there, frees something that the run forward has kept, and
  // returns false.
  bool TakeRun(const OpRun& run, const GradientInputs& layout, const std::shared_ptr<const RecurrentRecord>& record,
               std::shared_ptr<BackwardRun>* backward, std::optional<BorrowedTemporaries>* borrowed) {
    const std::shared_ptr<const BackwardPlan> plan = PlanFor(layout, *record);
    const double bytes =
        BytesOfStates(*record->plan, record->num_steps) + static_cast<double>(BytesOfStepsBack(*record, *plan->steps));
    // What a device plays finds the numbers of its steps where they were.
    const bool is_on_host = op_.options().device().IsHost();
    *backward = runs_.Take(
        plan, bytes, [&] { return MakeRun(plan); },
        [&](const BackwardRun& kept) { return is_on_host || kept.num_steps == record->num_steps; });
    borrowed->emplace(*record, (*backward)->steps.get());
    (*backward)->num_steps = record->num_steps;
    record->gradient->Note(record->plan, plan->steps);
    try {
      runs_.TakeMemory([&] { Bind(run, layout, *record, **backward); });
      return true;
    } catch (const Error& error) {
      const bool may_be_less = error.code() == ErrorCode::kOutOfMemory && record->spare.FreeNextInUse();
      if (!may_be_less) throw WithNeeds(error, *record);
    }
    borrowed->reset();
    backward->reset();
    runs_.DropIdle();
    return false;
  }

  std::shared_ptr<const RecurrentRecord> Record(const OpRun& run) const {
    const Blob& blob = run.host().Input(run.num_inputs() - 1);
    if (auto record = blob.GetObject<RecurrentRecord>()) {
      if (std::ranges::all_of(record->plan->states, [](const StateLayout& s) { return s.ring_rows == 0; }))
        return record;
      throw Error(ErrorCode::kInvalidArgument,
                  StrCat("the run behind \"", blob.name(),
                         "\" kept but a few rows of its states: RecurrentNetworkGradient must be in the same net as "
                         "its RecurrentNetwork, after it"));
    }
    throw Error(
        ErrorCode::kInvalidArgument,
        StrCat("\"", blob.name(), "\" holds ", blob.Description(),
               "; it must be the last output of the RecurrentNetwork whose gradient this is, which must have run "
               "before"));
  }

  GradientInputs Layout(const RecurrentRecord& record) {
    Agree(record.forward);
    return {.num_output_gradients = static_cast<int>(spec_.outputs_with_grads.size()),
            .num_inputs = record.forward->op.num_inputs()};
  }

  // The check of the net has found out the same, where the forward operator is in it.
  std::shared_ptr<const BackwardRoles> Agree(const std::shared_ptr<const ForwardOperator>& forward) {
    const std::lock_guard lock(mutex_);
    if (agreed_ == forward) return roles_;
    std::vector<NetProblem> problems;
    BackwardRoles roles = CheckGradient(op_, spec_, forward.get(), &problems);
    ThrowIfProblems(problems);
    roles_ = std::make_shared<const BackwardRoles>(std::move(roles));
    agreed_ = forward;
    return roles_;
  }

  void CheckInputs(const OpRun& run, const GradientInputs& layout, const RecurrentRecord& record) const {
    for (int i = 0; i < layout.num_inputs; ++i) {
      const Tensor& tensor = ForwardInput(run, layout, i);
      const TensorInfo info{.dtype = tensor.dtype(), .shape = tensor.shape()};
      const std::string& name = op_.inputs()[layout.num_output_gradients + i];
      if (info != record.inputs[i]) {
        throw Error(ErrorCode::kShapeMismatch, StrCat("\"", name, "\" is ", tensor.Description(),
                                                      "; in the forward run it was ", record.inputs[i].Description()));
      }
    }
  }

  // Which of the inputs of the forward operator, and of its outputs, which follow them, rows of the step net show.
  static std::vector<bool> InputsSeenByRows(const OperatorCall& op, const RecurrentSpec& spec) {
    const size_t first = std::min(spec.outputs_with_grads.size(), op.inputs().size());
    return SeenByRows({op.inputs().begin() + static_cast<std::ptrdiff_t>(first), op.inputs().end()}, spec.links,
                      *spec.BackwardStep());
  }

  static const Tensor& ForwardInput(const OpRun& run, const GradientInputs& layout, int i) {
    return run.host().Input(layout.OfInput(i)).GetTensor();
  }

  // The input as the forward steps left it.
  static const Tensor& SeenInput(const OpRun& run, const GradientInputs& layout, const RecurrentRecord& record,
                                 int input) {
    const Tensor& given = ForwardInput(run, layout, input);
    const auto& bases = record.plan->inputs;
    const auto base = std::ranges::find(bases, input, &std::pair<int, int>::first);
    return base == bases.end() ? given : record.steps->SeenOf(base->second, given);
  }

  Blob& StateGradientBlob(const OpRun& run, const RecurrentState& state) const {
    return run.host().workspace().CreateBlob(spec_.Renamed(state.name + "_grad"));
  }

  std::shared_ptr<BackwardRun> MakeRun(const std::shared_ptr<const BackwardPlan>& plan) const {
    auto run = std::make_shared<BackwardRun>();
    run->plan = plan;
    for (const RecurrentState& state : spec_.states) {
      run->state_gradients.push_back(std::make_unique<Blob>(state.name + "_grad"));
    }
    for (size_t k = 0; k < plan->zero_gradients.size(); ++k) {
      run->zero_gradients.push_back(std::make_unique<Blob>("zeros"));
    }
    for (size_t k = 0; k < plan->targets.size(); ++k) run->sums.push_back(std::make_unique<Blob>("sum"));
    run->steps = std::make_unique<RunState>(plan->steps, op_.options().device());
    return run;
  }

  const std::string& ForwardOutput(const GradientInputs& layout, int index) const {
    return op_.inputs()[layout.OfOutput(index)];
  }

  static void ExpectGradient(const std::string& name, const std::string& output, const Tensor& given,
                             const TensorInfo& expected) {
    if (given.dtype() == expected.dtype && given.shape() == expected.shape) return;
    throw Error(ErrorCode::kShapeMismatch, StrCat("\"", name, "\", the gradient of \"", output, "\", is ",
                                                  given.Description(), "; it must be ", expected.Description()));
  }

  void Bind(const OpRun& run, const GradientInputs& layout, const RecurrentRecord& record,
            BackwardRun& backward) const {
    const BackwardPlan& plan = *backward.plan;
    RunState& steps = *backward.steps;
    steps.ReleaseBases();  // of a run that an exception ended
    BindStates(record, backward);
    BindOutputGradients(run, layout, record, backward);
    for (const auto& [input, base] : plan.inputs) steps.LendBase(base, SeenInput(run, layout, record, input));
    for (const auto& [from, base] : plan.stacked) steps.LendBase(base, record.steps->ArenaTensor(from));
    for (const auto& [from, list] : plan.dynamic) steps.SetDynamicList(list, &record.steps->DynamicList(from));
    if (plan.timestep_base >= 0) {
      const Shape shape({record.num_steps});
      steps.SetBase(plan.timestep_base, backward.timesteps.MakeTensor(DType::kInt32, shape, steps.device()));
    }
    // An output may have the name of an input: its memory is that of another tensor while the input is bound.
    for (size_t k = 0; k < plan.targets.size(); ++k) BindTarget(run, record, plan.targets[k], *backward.sums[k], steps);
    steps.Prepare(record.num_steps, run.host().workspace());
  }

  void BindStates(const RecurrentRecord& record, BackwardRun& backward) const {
    const int num_states = static_cast<int>(spec_.states.size());
    const Device device = backward.steps->device();
    for (int i = 0; i < num_states; ++i) {
      const StateLayout& state = record.plan->states[i];
      if (!IsFloatOrDouble(state.dtype)) {
        throw Error(ErrorCode::kTypeMismatch, StrCat("state \"", spec_.states[i].name, "\" is ", state.dtype,
                                                     "; gradients are for float and double"));
      }
      const Shape shape = state.row.Inserted(0, record.num_steps + state.num_initial);
      backward.steps->SetBase(i, backward.state_gradients[i]->MakeTensor(state.dtype, shape, device));
      backward.steps->LendBase(num_states + i, record.states[i]->GetTensor());
    }
  }

  // Throws kShapeMismatch.
  void BindOutputGradients(const OpRun& run, const GradientInputs& layout, const RecurrentRecord& record,
                           BackwardRun& backward) const {
    const BackwardPlan& plan = *backward.plan;
    for (const auto& [k, base] : plan.output_gradients) {
      const std::string& output = ForwardOutput(layout, spec_.outputs_with_grads[k]);
      const OutputRole role = FindOutputRole(spec_, output);
      const Tensor& gradient = backward.state_gradients[role.state]->GetTensor();
      const Tensor& given = run.host().Input(k).GetTensor();
      const std::int64_t rows = role.offset >= 0 ? gradient.dim(0) - role.offset : -role.offset;
      ExpectGradient(op_.inputs()[k], output, given,
                     {.dtype = gradient.dtype(), .shape = gradient.shape().With(0, rows)});
      backward.steps->LendBase(base, given);
    }
    for (int k = 0; k < layout.num_output_gradients; ++k) {
      const std::string& output = ForwardOutput(layout, spec_.outputs_with_grads[k]);
      const int i = spec_.StepOutputIndex(output);
      if (i < 0) continue;
      const Tensor& value = record.step_outputs[i]->GetTensor();
      const Tensor& given = run.host().Input(k).GetTensor();
      if (!IsFloatOrDouble(value.dtype())) {
        throw Error(ErrorCode::kTypeMismatch, StrCat("a gradient of \"", output, "\" is given, which is ",
                                                     value.dtype(), "; gradients are for float and double"));
      }
      ExpectGradient(op_.inputs()[k], output, given, {.dtype = value.dtype(), .shape = value.shape()});
      for (const auto& [step_output, base] : plan.step_output_gradients) {
        if (step_output == i) backward.steps->LendBase(base, given);
      }
    }
    for (size_t k = 0; k < plan.zero_gradients.size(); ++k) {
      const auto& [i, base] = plan.zero_gradients[k];
      const Tensor& value = record.step_outputs[i]->GetTensor();
      Blob& zeros = *backward.zero_gradients[k];
      backward.steps->SetBase(base, zeros.MakeTensor(value.dtype(), value.shape(), backward.steps->device()));
    }
  }

  void BindTarget(const OpRun& run, const RecurrentRecord& record, const GradientTarget& target, Blob& sum,
                  RunState& steps) const {
    const TensorInfo& info = record.inputs[target.input];
    for (const Link& link : target.links) CheckLinkInBounds(link, info.shape[0], record.num_steps);
    Blob& output = run.host().Output(target.output);
    const Device device = op_.options().device();
    if (target.base_of_caller < 0) return steps.SetBase(target.base, output.MakeTensor(info.dtype, info.shape, device));
    if (!output.HasTensor() || output.GetTensor().dtype() != info.dtype || output.GetTensor().shape() != info.shape) {
      throw Error(ErrorCode::kShapeMismatch,
                  StrCat("gradient_requests says add for \"", output.name(), "\", which holds ", output.Description(),
                         " and must hold ", info.Description()));
    }
    // Others that hold that memory, too, keep its values.
    const bool is_ours = output.GetTensor().OwnsStorageAlone();
    const Tensor before = output.GetTensor();
    steps.SetBase(target.base, sum.MakeTensor(info.dtype, info.shape, device));
    steps.LendBase(target.base_of_caller, before);
    steps.LendBase(target.base_given, is_ours ? before : Tensor(info.dtype, info.shape, device));
  }

  const OperatorCall op_;
  const std::shared_ptr<const RecurrentSpec> requested_;
  const RecurrentSpec& spec_;
  const std::vector<bool> seen_by_rows_;
  const std::shared_ptr<const Executor> executor_;
  PlanCache<BackwardPlanKey, BackwardPlan> plans_;
  std::mutex mutex_;
  std::shared_ptr<const ForwardOperator> agreed_;  // the last one
  std::shared_ptr<const BackwardRoles> roles_;     // as they agreed
  KeptRuns<BackwardRun> runs_{op_.options().device()};
};

const Registration recurrent_network_gradient =
    Operator("RecurrentNetworkGradient")
        .Doc(
            "The gradient of RecurrentNetwork: runs backward_step_net from the last step to the first. Gradients of "
            "states, [T + L, B, …], are readable as \"<state>_grad\" after the run.")
        .Inputs("inputs", "gradients of outputs_with_grads; the inputs and the outputs of the forward operator")
        .Outputs("gradients", "of input 0, of each param, of each initial state, shaped like these")
        .Args(RecurrentArguments())
        .OutputsMayRepeat()
        .Check([](const OperatorCall& op, std::vector<NetProblem>* problems) { CheckRecurrent(op, true, problems); })
        .OnEveryDevice({.make = [](const OperatorCall& op) -> RunFn {
                          auto gradient = std::make_shared<RecurrentNetworkGradient>(op);
                          return [gradient](const OpRun& run) { gradient->Run(run); };
                        },
                        .takes_blobs = true});

}  // namespace
}  // namespace stepnet

// RecurrentNetworkGradient: runs the backward step net from the last step to the first.
//
// Inputs: [gradients of outputs_with_grads…, the forward operator's inputs…, its outputs…]. Outputs: the gradient of
// input 0, of each param, of each initial state.
#include <algorithm>
#include <map>
#include <set>

#include "stepnet/compiler/backward_plan.h"
#include "stepnet/compiler/plan_cache.h"
#include "stepnet/core/accumulate.h"
#include "stepnet/executor/executor.h"
#include "stepnet/executor/recurrent_record.h"
#include "stepnet/nets/backward_roles.h"
#include "stepnet/nets/completion.h"
#include "stepnet/nets/gradient_check.h"
#include "stepnet/nets/net_check.h"
#include "stepnet/nets/requested_gradients.h"
#include "stepnet/proto/net.pb.h"

namespace stepnet {
namespace {

// Memory of a backward run, kept for the next one.
struct BackwardRun {
  std::shared_ptr<const BackwardPlan> plan;
  std::vector<std::unique_ptr<Blob>> state_gradients;
  Tensor timesteps;
  std::unique_ptr<RunState> steps;
};

// The forward operator's plan, and what the backward step net sees of the inputs.
using BackwardPlanKey = std::pair<std::shared_ptr<const ForwardPlan>, std::vector<TensorInfo>>;

class RecurrentNetworkGradient {
 public:
  explicit RecurrentNetworkGradient(const OperatorCall& op)
      : op_(op),
        spec_(WithRequestedGradients(op, ParseRecurrentSpec(op))),
        seen_by_rows_(InputsSeenByRows(op, spec_)),
        executor_(MakeExecutor(spec_.options)) {}

  void Run(const OpRun& run) {
    const std::shared_ptr<const RecurrentRecord> record = Record(run);
    const GradientInputs layout = Layout(*record);
    CheckInputs(run, layout, *record);
    const std::shared_ptr<const BackwardPlan> plan =
        plans_.Get({record->plan, PlanKey(record->inputs, seen_by_rows_)}, [&] {
          return MakeBackwardPlan(op_, spec_, layout, {record->forward, record->plan, record->inputs});
        });
    for (const RecurrentState& state : spec_.states) StateGradientBlob(run, state).Reset();
    BackwardRun backward = Acquire(plan);
    const std::vector<Tensor> step_outputs = StepOutputGradients(run, layout, *record, *plan);
    SeedStateGradients(run, layout, *record, backward);
    const std::vector<Tensor> targets = MakeTargets(run, *record, *plan);
    Bind(run, layout, *record, targets, step_outputs, backward);
    run.context().PrepareLanes(1);
    RunContext& context = run.context().lanes[0];
    context.run = &record->run;  // the masks of the forward run, where operators are computed again
    Execute(*executor_, *backward.steps, context);
    backward.steps->ReleaseBases();
    AddInitialStateGradients(*record, backward, *plan, targets);
    for (size_t k = 0; k < targets.size(); ++k) run.host().Output(plan->targets[k].output).SetTensor(targets[k]);
    for (size_t i = 0; i < spec_.states.size(); ++i) {
      StateGradientBlob(run, spec_.states[i]).SetTensor(backward.state_gradients[i]->GetTensor());
    }
    GiveBack(std::move(backward));
  }

 private:
  std::shared_ptr<const RecurrentRecord> Record(const OpRun& run) const {
    const Blob& blob = run.host().Input(run.num_inputs() - 1);
    if (auto record = blob.GetObject<RecurrentRecord>()) return record;
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
  void Agree(const std::shared_ptr<const ForwardOperator>& forward) {
    const std::lock_guard lock(mutex_);
    if (agreed_ == forward) return;
    std::vector<NetProblem> problems;
    CheckGradient(op_, spec_, forward.get(), &problems);
    ThrowIfProblems(problems);
    agreed_ = forward;
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

  // By the inputs of the forward operator, and its outputs, which follow them.
  static std::vector<bool> InputsSeenByRows(const OperatorCall& op, const RecurrentSpec& spec) {
    const size_t first = std::min(spec.outputs_with_grads.size(), op.inputs().size());
    return SeenByRows({op.inputs().begin() + static_cast<std::ptrdiff_t>(first), op.inputs().end()}, spec.links,
                      spec.BackwardStep());
  }

  static const Tensor& ForwardInput(const OpRun& run, const GradientInputs& layout, int i) {
    return run.host().Input(layout.num_output_gradients + i).GetTensor();
  }

  // As the forward steps left it.
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

  BackwardRun Acquire(const std::shared_ptr<const BackwardPlan>& plan) {
    const std::lock_guard lock(mutex_);
    while (!runs_.empty()) {
      BackwardRun run = std::move(runs_.back());
      runs_.pop_back();
      if (run.plan == plan) return run;
    }
    BackwardRun run{.plan = plan};
    for (const RecurrentState& state : spec_.states) {
      run.state_gradients.push_back(std::make_unique<Blob>(state.name + "_grad"));
    }
    run.steps = std::make_unique<RunState>(plan->steps);
    return run;
  }
  void GiveBack(BackwardRun run) {
    const std::lock_guard lock(mutex_);
    runs_.push_back(std::move(run));
  }

  const std::string& ForwardOutput(const GradientInputs& layout, int index) const {
    return op_.inputs()[layout.num_output_gradients + layout.num_inputs + index];
  }

  // For each step output whose gradient the plan takes, the gradient: zeros where the loss does not depend on it.
  // Throws kShapeMismatch.
  std::vector<Tensor> StepOutputGradients(const OpRun& run, const GradientInputs& layout, const RecurrentRecord& record,
                                          const BackwardPlan& plan) const {
    std::vector<Tensor> given(spec_.step_outputs.size());
    for (int k = 0; k < layout.num_output_gradients; ++k) {
      const std::string& output = ForwardOutput(layout, spec_.outputs_with_grads[k]);
      const int i = spec_.StepOutputIndex(output);
      if (i < 0) continue;
      const Tensor& value = record.step_outputs[i]->GetTensor();
      given[i] = run.host().Input(k).GetTensor();
      ExpectGradient(op_.inputs()[k], output, given[i], {.dtype = value.dtype(), .shape = value.shape()});
    }
    std::vector<Tensor> gradients;
    for (const auto& [i, base] : plan.step_output_gradients) {
      const Tensor& value = record.step_outputs[i]->GetTensor();
      gradients.push_back(given[i].defined() ? given[i] : Tensor::Zeros(value.dtype(), value.shape()));
    }
    return gradients;
  }

  static void ExpectGradient(const std::string& name, const std::string& output, const Tensor& given,
                             const TensorInfo& expected) {
    if (given.dtype() == expected.dtype && given.shape() == expected.shape) return;
    throw Error(ErrorCode::kShapeMismatch, StrCat("\"", name, "\", the gradient of \"", output, "\", is ",
                                                  given.Description(), "; it must be ", expected.Description()));
  }

  // Rows of states start with the gradients of the outputs that show them.
  void SeedStateGradients(const OpRun& run, const GradientInputs& layout, const RecurrentRecord& record,
                          BackwardRun& backward) const {
    std::vector<bool> seeded(spec_.states.size(), false);
    for (size_t i = 0; i < spec_.states.size(); ++i) {
      const StateLayout& state = record.plan->states[i];
      if (state.dtype != DType::kFloat && state.dtype != DType::kDouble) {
        throw Error(ErrorCode::kTypeMismatch, StrCat("state \"", spec_.states[i].name, "\" is ", state.dtype,
                                                     "; gradients are for float and double"));
      }
      backward.state_gradients[i]->MakeTensor(state.dtype, state.row.Inserted(0, record.num_steps + state.num_initial));
    }
    for (int k = 0; k < layout.num_output_gradients; ++k) {
      const std::string& output = ForwardOutput(layout, spec_.outputs_with_grads[k]);
      const OutputRole role = FindOutputRole(spec_, output);
      if (role.step_output >= 0) continue;
      const int i = role.state;
      const Tensor& gradient = backward.state_gradients[i]->GetTensor();
      const Tensor& given = run.host().Input(k).GetTensor();
      const std::int64_t rows = role.offset >= 0 ? gradient.dim(0) - role.offset : -role.offset;
      ExpectGradient(op_.inputs()[k], output, given,
                     {.dtype = gradient.dtype(), .shape = gradient.shape().With(0, rows)});
      Seed(given, gradient, seeded[i]);
      seeded[i] = true;
    }
    for (size_t i = 0; i < seeded.size(); ++i) {
      const Tensor& gradient = backward.state_gradients[i]->GetTensor();
      if (!seeded[i]) SetZero(gradient);
    }
  }

  // An output shows its state's last rows.
  static void Seed(const Tensor& given, const Tensor& gradient, bool add) {
    const Tensor rows = gradient.Slice(gradient.dim(0) - given.dim(0), gradient.dim(0));
    if (add) {
      Accumulate(given.View(), rows.View());
    } else {
      SetZero(gradient.Slice(0, gradient.dim(0) - given.dim(0)));
      CopyElements(given.View(), rows.View());
    }
  }

  // The outputs' tensors, with zeros where gradients are summed.
  std::vector<Tensor> MakeTargets(const OpRun& run, const RecurrentRecord& record, const BackwardPlan& plan) const {
    std::vector<Tensor> targets;
    for (const GradientTarget& target : plan.targets) {
      const TensorInfo& info = record.inputs[target.input];
      for (const Link& link : target.links) CheckLinkInBounds(link, info.shape[0], record.num_steps);
      Blob& output = run.host().Output(target.output);
      const bool adds = !spec_.requests.empty() && spec_.requests[target.output] == GradientRequest::kAdd;
      if (adds) {
        if (!output.HasTensor() || output.GetTensor().dtype() != info.dtype ||
            output.GetTensor().shape() != info.shape) {
          throw Error(ErrorCode::kShapeMismatch,
                      StrCat("gradient_requests says add for \"", output.name(), "\", which holds ",
                             output.Description(), " and must hold ", info.Description()));
        }
        // What others hold keeps its values.
        if (!output.GetTensor().OwnsStorageAlone()) output.SetTensor(output.GetTensor().Clone());
        targets.push_back(output.GetTensor());
        continue;
      }
      const Tensor& tensor = output.MakeTensor(info.dtype, info.shape);
      // Steps that write every row of their own do not reach those that the sequence has beyond.
      const bool has_more_rows = !target.links.empty() && info.shape[0] != record.num_steps;
      if (target.needs_zeros || has_more_rows || record.num_steps == 0) SetZero(tensor);
      targets.push_back(tensor);
    }
    return targets;
  }

  void Bind(const OpRun& run, const GradientInputs& layout, const RecurrentRecord& record,
            const std::vector<Tensor>& targets, const std::vector<Tensor>& step_outputs, BackwardRun& backward) const {
    const BackwardPlan& plan = *backward.plan;
    RunState& steps = *backward.steps;
    const int num_states = static_cast<int>(spec_.states.size());
    for (int i = 0; i < num_states; ++i) {
      steps.SetBase(i, backward.state_gradients[i]->GetTensor());
      steps.LendBase(num_states + i, record.states[i]->GetTensor());
    }
    for (const auto& [input, base] : plan.inputs) steps.LendBase(base, SeenInput(run, layout, record, input));
    if (plan.timestep_base >= 0) {
      backward.timesteps = TimestepNumbers(record.num_steps, backward.timesteps);
      steps.SetBase(plan.timestep_base, backward.timesteps);
    }
    for (size_t k = 0; k < targets.size(); ++k) {
      if (plan.targets[k].base >= 0) steps.SetBase(plan.targets[k].base, targets[k]);
    }
    for (size_t k = 0; k < step_outputs.size(); ++k) {
      steps.LendBase(plan.step_output_gradients[k].second, step_outputs[k]);
    }
    for (const auto& [from, base] : plan.stacked) steps.LendBase(base, record.steps->ArenaTensor(from));
    for (const auto& [from, list] : plan.dynamic) steps.SetDynamicList(list, &record.steps->DynamicList(from));
    steps.Prepare(record.num_steps, run.host().workspace());
  }

  // The first rows of a state's gradient belong to its initial value.
  void AddInitialStateGradients(const RecurrentRecord& record, const BackwardRun& backward, const BackwardPlan& plan,
                                const std::vector<Tensor>& targets) const {
    for (size_t i = 0; i < spec_.states.size(); ++i) {
      const int output = 1 + static_cast<int>(spec_.params.size() + i);
      const auto target = std::ranges::find_if(plan.targets, [&](const GradientTarget& candidate) {
        return op_.outputs()[candidate.output] == op_.outputs()[output];
      });
      if (target == plan.targets.end()) continue;
      const StateLayout& layout = record.plan->states[i];
      const Tensor rows = backward.state_gradients[i]->GetTensor().Slice(0, layout.num_initial);
      AddInitialGradient(layout, rows, targets[target - plan.targets.begin()]);
    }
  }

  // An initial state that was repeated over the batch gets the sum over the batch.
  static void AddInitialGradient(const StateLayout& layout, const Tensor& rows, const Tensor& target) {
    if (rows.size() == target.size()) {
      Accumulate(rows.View(), target.View());
      return;
    }
    const Tensor items = rows.Reshaped(Shape({layout.num_initial * layout.row[0], layout.row.SizeFrom(1)}));
    const Tensor sums = target.Reshaped(Shape({layout.num_initial, layout.row.SizeFrom(1)}));
    for (std::int64_t i = 0; i < items.dim(0); ++i) {
      const std::int64_t step = i / layout.row[0];
      Accumulate(items.Slice(i, i + 1).View(), sums.Slice(step, step + 1).View());
    }
  }

  const OperatorCall op_;
  const RecurrentSpec spec_;
  const std::vector<bool> seen_by_rows_;
  const std::shared_ptr<const Executor> executor_;
  PlanCache<BackwardPlanKey, BackwardPlan> plans_;
  std::mutex mutex_;
  std::shared_ptr<const ForwardOperator> agreed_;  // the last one
  std::vector<BackwardRun> runs_;
};

// Caffe2 gives the operator only the gradients of the outputs that its author listed, and drops those of others without
// a word: of the last state that starts another layer, for one. When the net has computed one since the forward
// operator ran, it is added.
void AddOutputGradients(const NetDef& net, const std::map<std::string, int>& writers, OperatorDef* op) {
  const auto writer = [&](const std::string& blob) {
    const auto found = writers.find(blob);
    return found == writers.end() ? -1 : found->second;
  };
  const int forward = op->input_size() == 0 ? -1 : writer(op->input(op->input_size() - 1));
  if (forward < 0 || net.op(forward).type() != "RecurrentNetwork") return;
  Argument* listed = nullptr;
  for (Argument& argument : *op->mutable_arg()) {
    if (argument.name() == "outputs_with_grads") listed = &argument;
  }
  // Without its list the operator's inputs cannot be told apart.
  if (listed == nullptr || listed->ints_size() == 0) return;
  const std::set<std::int64_t> known(listed->ints().begin(), listed->ints().end());
  for (int o = 0; o + 1 < net.op(forward).output_size(); ++o) {
    const std::string gradient = net.op(forward).output(o) + "_grad";
    if (known.contains(o) || writer(gradient) <= forward) continue;
    const int position = listed->ints_size();
    op->add_input(gradient);
    for (int i = op->input_size() - 1; i > position; --i) op->mutable_input()->SwapElements(i, i - 1);
    listed->add_ints(o);
  }
}

const CompletionRegistration complete_gradients([](NetDef* net) {
  std::map<std::string, int> writers;  // blob → the operator that wrote it last
  for (int i = 0; i < net->op_size(); ++i) {
    OperatorDef* op = net->mutable_op(i);
    if (op->type() == "RecurrentNetworkGradient") AddOutputGradients(*net, writers, op);
    for (const std::string& output : op->output()) writers[output] = i;
  }
});

const Registration recurrent_network_gradient =
    Operator("RecurrentNetworkGradient")
        .Doc(
            "The gradient of RecurrentNetwork: runs backward_step_net from the last step to the first. Gradients of "
            "states, [T + L, B, …], are readable as \"<state>_grad\" after the run.")
        .Inputs("inputs", "gradients of outputs_with_grads; the inputs and the outputs of the forward operator")
        .Outputs("gradients", "of input 0, of each param, of each initial state, shaped like these")
        .Args(RecurrentArguments())
        .ManagesOutputs()
        .Check([](const OperatorCall& op, std::vector<NetProblem>* problems) { CheckRecurrent(op, true, problems); })
        .Cpu([](const OperatorCall& op) -> RunFn {
          auto gradient = std::make_shared<RecurrentNetworkGradient>(op);
          return [gradient](const OpRun& run) { gradient->Run(run); };
        });

}  // namespace
}  // namespace stepnet

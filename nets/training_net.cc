#include "stepnet/nets/training_net.h"

#include <cmath>
#include <set>

#include "stepnet/core/error.h"
#include "stepnet/core/exact_number.h"
#include "stepnet/core/strings.h"
#include "stepnet/nets/backward.h"
#include "stepnet/nets/backward_step.h"
#include "stepnet/nets/double_net.h"
#include "stepnet/nets/op_builder.h"

namespace stepnet {
namespace {

constexpr const char* kScope = "optimizer/";
constexpr const char* kIteration = "optimizer/iteration";
constexpr const char* kLearningRate = "optimizer/learning_rate";
constexpr const char* kGradientNorm = "optimizer/gradient_norm";

void CheckNames(const NetDef& net) {
  const auto check = [&](const std::string& blob) {
    if (!blob.starts_with(kScope)) return;
    throw Error(ErrorCode::kInvalidNet,
                StrCat("the net has a blob \"", blob, "\"; names that start with ", kScope, " are the optimizer's"));
  };
  for (const OperatorDef& op : net.op()) {
    for (const std::string& blob : op.input()) check(blob);
    for (const std::string& blob : op.output()) check(blob);
  }
}

class TrainingNetWriter {
 public:
  TrainingNetWriter(const OptimizerDef& optimizer, bool in_double, const ExactNumbers& exact)
      : optimizer_(optimizer), in_double_(in_double), exact_(exact) {}

  TrainingNet Write(const NetDef& forward, const std::string& loss, const std::vector<std::string>& parameters) {
    NetDef net = forward;
    AddBackwardStepNets(&net, parameters);
    NetWithGradients made = AddGradients(net, {loss}, parameters);
    result_.net = std::move(made.net);
    const int first_of_optimizer = result_.net.op_size();
    result_.init_net.set_name(forward.name() + "_optimizer_init");
    for (const std::string& parameter : parameters) gradients_.push_back(GradientOf(parameter, made));
    if (optimizer_.clip_norm() > 0) WriteClipping();
    WriteLearningRate();
    for (size_t i = 0; i < parameters.size(); ++i) WriteUpdate(parameters[i], gradients_[i]);
    // Last, so that the iterations done are counted, from 0 in the first.
    AddOp(&result_.net, "Iter", {kIteration}, {kIteration});
    AddOp(&result_.init_net, "ConstantFill", {}, {kIteration}).Ints("shape", {1}).Int("dtype", TensorProto::INT64);
    result_.state.push_back(kIteration);
    result_.iteration = kIteration;
    for (int i = first_of_optimizer; in_double_ && i < result_.net.op_size(); ++i) {
      MakeDouble(result_.net.mutable_op(i));
      WriteExactNumbers(result_.net.mutable_op(i));
    }
    ListExternals(parameters);
    return std::move(result_);
  }

 private:
  bool IsAdam() const { return optimizer_.method() == OptimizerDef::ADAM; }

  // A blob with the whole gradient, which is the parameter's alone: what follows works in place on it.
  std::string GradientOf(const std::string& parameter, const NetWithGradients& made) {
    const auto found = made.gradients.find(parameter);
    if (found == made.gradients.end()) {
      throw Error(ErrorCode::kInvalidNet, StrCat("the loss does not depend on the parameter \"", parameter, "\""));
    }
    const GradientBlobs& gradient = found->second;
    const std::string own = StrCat(kScope, parameter, "/gradient");
    if (gradient.dense.empty()) {
      AddOp(&result_.net, "SparseToDense", {gradient.indices, gradient.values, parameter}, {own});
      return own;
    }
    if (taken_.insert(gradient.dense).second) return gradient.dense;
    AddOp(&result_.net, "Copy", {gradient.dense}, {own});
    return own;
  }

  void WriteClipping() {
    std::vector<std::string> outputs = gradients_;
    outputs.push_back(kGradientNorm);
    AddOp(&result_.net, "ClipByGlobalNorm", gradients_, outputs).Float("max_norm", optimizer_.clip_norm());
    result_.gradient_norm = kGradientNorm;
  }

  void WriteLearningRate() {
    OpBuilder op = AddOp(&result_.net, "LearningRate", {kIteration}, {kLearningRate});
    // Adam adds what it is given.
    op.Float("base_lr", IsAdam() ? -optimizer_.learning_rate() : optimizer_.learning_rate());
    if (optimizer_.warmup() > 0) {
      op.Int("linear_warmup_num_iter", optimizer_.warmup()).Float("start_warmup_multiplier", 0);
    }
    switch (optimizer_.schedule()) {
      case OptimizerDef::FIXED: op.String("policy", "fixed"); break;
      case OptimizerDef::STEP:
        op.String("policy", "step").Float("gamma", optimizer_.gamma()).Int("stepsize", optimizer_.decay_every());
        break;
      case OptimizerDef::EXP: op.String("policy", "exp").Float("gamma", optimizer_.gamma()); break;
      case OptimizerDef::INV:
        op.String("policy", "inv").Float("gamma", optimizer_.gamma()).Float("power", optimizer_.power());
        break;
      case OptimizerDef::POLY:
        op.String("policy", "poly").Float("power", optimizer_.power()).Int("max_iter", optimizer_.decay_over());
        break;
      case OptimizerDef::COSINE:
        op.String("policy", "cosine").Float("max_lr", 1).Float("min_lr", optimizer_.final_fraction());
        op.Int("period", optimizer_.decay_over());
        break;
    }
    result_.learning_rate = kLearningRate;
  }

  // A blob of the optimizer, zeros of the shape and dtype of the parameter at first.
  std::string NewState(const std::string& parameter, const std::string& name) {
    const std::string blob = StrCat(kScope, parameter, "/", name);
    AddOp(&result_.init_net, "ConstantFill", {parameter}, {blob}).Float("value", 0);
    result_.state.push_back(blob);
    return blob;
  }

  // Numbers that are known better than by the floats of the optimizer.
  void WriteExactNumbers(OperatorDef* op) const {
    static const std::map<std::string, std::string> fields = {
        {"base_lr", "learning_rate"}, {"max_norm", "clip_norm"}, {"min_lr", "final_fraction"}};
    for (Argument& argument : *op->mutable_arg()) {
      const auto field = fields.find(argument.name());
      const auto number = exact_.find(field == fields.end() ? argument.name() : field->second);
      if (number == exact_.end()) continue;
      const bool is_negative = argument.name() == "base_lr" && IsAdam();
      SetDouble(is_negative ? -number->second : number->second, &argument);
    }
  }

  void WriteUpdate(const std::string& parameter, const std::string& gradient) {
    if (optimizer_.method() == OptimizerDef::SGD) {
      const std::string momentum = NewState(parameter, "momentum");
      AddOp(&result_.net, "MomentumSGDUpdate", {gradient, momentum, kLearningRate, parameter},
            {gradient, momentum, parameter})
          .Float("momentum", optimizer_.momentum())
          .Int("nesterov", optimizer_.nesterov() ? 1 : 0)
          .Float("weight_decay", optimizer_.weight_decay());
      return;
    }
    const std::string first = NewState(parameter, "moment1");
    const std::string second = NewState(parameter, "moment2");
    AddOp(&result_.net, "Adam", {parameter, first, second, gradient, kLearningRate, kIteration},
          {parameter, first, second})
        .Float("beta1", optimizer_.beta1())
        .Float("beta2", optimizer_.beta2())
        .Float("epsilon", optimizer_.epsilon())
        .Int("bias_corrected_epsilon", 1)
        .Float("weight_decay", optimizer_.weight_decay());
  }

  void ListExternals(const std::vector<std::string>& parameters) {
    result_.init_net.mutable_external_input()->Assign(parameters.begin(), parameters.end());
    for (const std::string& blob : result_.state) {
      result_.init_net.add_external_output(blob);
      // A net that lists no inputs reads whatever is there.
      if (result_.net.external_input_size() > 0) result_.net.add_external_input(blob);
    }
  }

  const OptimizerDef& optimizer_;
  const bool in_double_;
  const ExactNumbers& exact_;
  std::set<std::string> taken_;         // gradients that are a parameter's
  std::vector<std::string> gradients_;  // of each parameter
  TrainingNet result_;
};

}  // namespace

bool IsOfTrainingAlone(const std::string& blob) {
  return blob == kTrainStateBlob || blob == kTrainChecksumBlob || blob.starts_with(kScope);
}

void CheckOptimizer(const OptimizerDef& optimizer) {
  const auto check = [](bool ok, const char* field, double value, const char* must) {
    if (ok) return;
    throw Error(ErrorCode::kInvalidArgument, StrCat("optimizer.", field, " is ", value, ", must be ", must));
  };
  const auto check_at_least_zero = [&](const char* field, double value) {
    check(value >= 0 && std::isfinite(value), field, value, "at least 0");
  };
  const float rate = optimizer.learning_rate();
  check(rate > 0 && std::isfinite(rate), "learning_rate", rate, "above 0");
  check_at_least_zero("weight_decay", optimizer.weight_decay());
  check_at_least_zero("clip_norm", optimizer.clip_norm());
  check(optimizer.beta1() >= 0 && optimizer.beta1() < 1, "beta1", optimizer.beta1(), "at least 0 and below 1");
  check(optimizer.beta2() >= 0 && optimizer.beta2() < 1, "beta2", optimizer.beta2(), "at least 0 and below 1");
  check_at_least_zero("epsilon", optimizer.epsilon());
  check_at_least_zero("momentum", optimizer.momentum());
  check_at_least_zero("gamma", optimizer.gamma());
  check_at_least_zero("power", optimizer.power());
  const float last = optimizer.final_fraction();
  check(last >= 0 && last <= 1, "final_fraction", last, "from 0 to 1");
  check_at_least_zero("warmup", static_cast<double>(optimizer.warmup()));
  const OptimizerDef::Schedule schedule = optimizer.schedule();
  const auto check_use = [](bool is_given, bool is_used, const char* field, const char* by) {
    if (!is_given || is_used) return;
    throw Error(ErrorCode::kInvalidArgument, StrCat("optimizer.", field, " is used by ", by, " alone"));
  };
  const bool is_adam = optimizer.method() == OptimizerDef::ADAM;
  check_use(optimizer.has_momentum(), !is_adam, "momentum", "the method SGD");
  check_use(optimizer.has_nesterov(), !is_adam, "nesterov", "the method SGD");
  check_use(optimizer.nesterov(), optimizer.momentum() != 0, "nesterov", "a momentum above 0");
  check_use(optimizer.has_beta1(), is_adam, "beta1", "the method ADAM");
  check_use(optimizer.has_beta2(), is_adam, "beta2", "the method ADAM");
  check_use(optimizer.has_epsilon(), is_adam, "epsilon", "the method ADAM");
  const auto is = [&](OptimizerDef::Schedule other) { return schedule == other; };
  const bool decays = is(OptimizerDef::STEP) || is(OptimizerDef::EXP) || is(OptimizerDef::INV);
  check_use(optimizer.has_gamma(), decays, "gamma", "the schedules STEP, EXP and INV");
  check_use(optimizer.has_power(), is(OptimizerDef::INV) || is(OptimizerDef::POLY), "power",
            "the schedules INV and POLY");
  check_use(optimizer.has_decay_every(), is(OptimizerDef::STEP), "decay_every", "the schedule STEP");
  check_use(optimizer.has_decay_over(), is(OptimizerDef::POLY) || is(OptimizerDef::COSINE), "decay_over",
            "the schedules POLY and COSINE");
  check_use(optimizer.has_final_fraction(), is(OptimizerDef::COSINE), "final_fraction", "the schedule COSINE");
  if (decays) check(optimizer.gamma() > 0, "gamma", optimizer.gamma(), "above 0 for the schedules STEP, EXP and INV");
  if (is(OptimizerDef::INV) || is(OptimizerDef::POLY)) {
    check(optimizer.power() > 0, "power", optimizer.power(), "above 0 for the schedules INV and POLY");
  }
  if (is(OptimizerDef::STEP)) {
    check(optimizer.decay_every() > 0, "decay_every", static_cast<double>(optimizer.decay_every()),
          "above 0 for the schedule STEP");
  }
  if (is(OptimizerDef::POLY) || is(OptimizerDef::COSINE)) {
    check(optimizer.decay_over() > 0, "decay_over", static_cast<double>(optimizer.decay_over()),
          "above 0 for the schedules POLY and COSINE");
  }
}

TrainingNet MakeTrainingNet(const NetDef& net, const std::string& loss, const std::vector<std::string>& parameters,
                            const OptimizerDef& optimizer, bool in_double, const ExactNumbers& exact) {
  CheckOptimizer(optimizer);
  CheckNames(net);
  return TrainingNetWriter(optimizer, in_double, exact).Write(net, loss, parameters);
}

}  // namespace stepnet

// Iter counts the steps of training; LearningRate computes the learning rate of a step from the count.
// They are no formulas: one number a step, by policies that choose among many ways.
#include <cmath>
#include <limits>
#include <numbers>

#include "stepnet/operators/training.h"

namespace stepnet {
namespace {

const Registration iter =
    Operator("Iter")
        .Doc(
            "Counts the steps of training: adds 1 to iter, in place. The net that initialises the model makes the "
            "blob. "
            "At the end of a training net it counts the steps that are done, from 0 in the first step on.")
        .Input("iter", "int64, one element, at least 0")
        .Output("next", "the same blob")
        .EnforceInPlace({{0, 0}})
        .HasSideEffects()
        .Shapes([](const ShapeQuery& query) {
          ExpectIteration(query, 0);
          return SameAsInput(0)(query);
        })
        .Cpu({.make = [](const OperatorCall& op) -> RunFn {
                return [name = op.inputs()[0]](const OpRun& run) {
                  const std::optional<std::int64_t> count = IterationOf(run, 0, name);
                  if (!count) return;
                  if (*count == std::numeric_limits<std::int64_t>::max()) {
                    return run.Fault(0, 0, [&](std::int64_t) {
                      return Error(ErrorCode::kInvalidArgument,
                                   StrCat("the iteration number ", name, " is ", *count, ", and Iter cannot count on"));
                    });
                  }
                  *run.Out(0).As<std::int64_t>() = *count + 1;
                };
              },
              .checks_values = true});

// What the learning rate is multiplied with after so many iterations: 1 at iteration 0, except for cosine.
using Policy = std::function<double(double iteration)>;

// Loshchilov, Hutter, "SGDR: Stochastic Gradient Descent with Warm Restarts", ICLR 2017, equation 5.
Policy CosinePolicy(const OperatorCall& op) {
  return [low = op.Float("min_lr"), high = op.Float("max_lr"), first_period = op.Int("period"),
          t_mult = op.Float("t_mult"), shrink = op.Float("lr_shrink")](double iteration) {
    auto period = static_cast<double>(first_period);
    double restarts = 0;
    if (t_mult == 1) {
      restarts = std::floor(iteration / period);
      iteration -= restarts * period;
    }
    for (; iteration >= period; ++restarts, period *= t_mult) iteration -= period;
    const double middle = 0.5 * (1 + std::cos(std::numbers::pi * iteration / period));
    return std::pow(double{shrink}, restarts) * (low + (double{high} - low) * middle);
  };
}

Policy PolicyArgument(const OperatorCall& op) {
  const std::string& policy = op.String("policy");
  const double gamma = op.Float("gamma");
  const double power = op.Float("power");
  if (policy == "step") {
    return [gamma, size = static_cast<double>(op.Int("stepsize"))](double iteration) {
      return std::pow(gamma, std::floor(iteration / size));
    };
  }
  if (policy == "exp") return [gamma](double iteration) { return std::pow(gamma, iteration); };
  if (policy == "inv") return [gamma, power](double iteration) { return std::pow(1 + gamma * iteration, -power); };
  if (policy == "poly") {
    return [power, last = static_cast<double>(op.Int("max_iter"))](double iteration) {
      return iteration < last ? std::pow(1 - iteration / last, power) : 0;
    };
  }
  if (policy == "cosine") return CosinePolicy(op);
  return [](double) { return 1; };
}

// Each policy insists on the arguments that it uses.
void CheckPolicy(const OperatorCall& op, std::vector<NetProblem>* problems) {
  const std::string& policy = op.String("policy");
  const auto need = [&](bool ok, const char* what) {
    if (!ok) problems->push_back({.message = StrCat("LearningRate with policy ", policy, " needs ", what)});
  };
  const bool has_gamma = policy == "step" || policy == "exp" || policy == "inv";
  if (has_gamma) need(op.Float("gamma") > 0, "gamma above 0");
  if (policy == "inv" || policy == "poly") need(op.Float("power") > 0, "power above 0");
  if (policy == "step") need(op.Int("stepsize") > 0, "stepsize above 0");
  if (policy == "poly") need(op.Int("max_iter") > 0, "max_iter above 0");
  if (policy == "linearWarmup") need(op.HasArg("num_iter"), "num_iter");
}

// A line from `start` to 1 over the first iterations, before the policy begins.
struct Warmup {
  explicit Warmup(const OperatorCall& op) {
    const bool is_policy = op.String("policy") == "linearWarmup";
    iterations = static_cast<double>(op.Int(is_policy ? "num_iter" : "linear_warmup_num_iter"));
    start = op.Float(is_policy ? "start_multiplier" : "start_warmup_multiplier");
  }
  double At(double iteration) const { return start + (1 - start) * iteration / iterations; }

  double iterations;
  double start;
};

const Registration learning_rate =
    Operator("LearningRate")
        .Doc(
            "The learning rate of iteration n: base_lr * f(n). With w = linear_warmup_num_iter, f rises in a line from "
            "start_warmup_multiplier to 1 for n < w; after that, with k = n - w, it is by policy: fixed: 1; step: "
            "gamma^floor(k / stepsize); exp: gamma^k; inv: (1 + gamma k)^-power; poly: (1 - k / max_iter)^power, and 0 "
            "from max_iter on; cosine: min_lr + (max_lr - min_lr) (1 + cos(pi k / period)) / 2, from the start again "
            "after each period, t_mult times as long and times lr_shrink. linearWarmup is fixed with a warm-up of "
            "num_iter iterations from start_multiplier. Adam and WeightedSum add what they are given, so their base_lr "
            "is below 0; MomentumSGDUpdate subtracts.")
        .Input("iter", "int64, one element, at least 0: n")
        .Output("lr", "float, the shape of iter")
        .RequiredArg("base_lr", ArgumentType::kFloat, "the learning rate that the others are fractions of")
        .RequiredArg("policy", ArgumentType::kString, "how it changes",
                     OneOf({"fixed", "step", "exp", "inv", "poly", "cosine", "linearWarmup"}))
        .Arg("gamma", 0.0f, "for step, exp and inv", AtLeast(0))
        .Arg("power", 0.0f, "for inv and poly", AtLeast(0))
        .Arg("stepsize", 0, "for step: iterations that have the same rate", AtLeast(0))
        .Arg("max_iter", -1, "for poly: where the rate reaches 0")
        .Arg("min_lr", 0.1f, "for cosine: the lowest fraction of base_lr", AtLeast(0))
        .Arg("max_lr", 0.5f, "for cosine: the highest fraction of base_lr", AtLeast(0))
        .Arg("period", 50, "for cosine: iterations until it is lowest", AtLeast(1))
        .Arg("t_mult", 1.0f, "for cosine: each period is so many times as long as the one before", AtLeast(1))
        .Arg("lr_shrink", 0.99f, "for cosine: each period starts from this part of the one before", AtLeast(0))
        .Arg("num_iter", 0, "for linearWarmup: iterations of the warm-up", AtLeast(0))
        .Arg("start_multiplier", 0.0f, "for linearWarmup: where it starts", AtLeast(0))
        .Arg("linear_warmup_num_iter", 0, "for the other policies: iterations of the warm-up", AtLeast(0))
        .Arg("start_warmup_multiplier", 0.1f, "for the other policies: where the warm-up starts", AtLeast(0))
        .Check(CheckPolicy)
        .Shapes([](const ShapeQuery& query) {
          ExpectIteration(query, 0);
          return std::vector<TensorInfo>{{.dtype = DType::kFloat, .shape = query.In(0).shape}};
        })
        .Cpu({.make = [](const OperatorCall& op) -> RunFn {
                return [base = op.Float("base_lr"), policy = PolicyArgument(op), warmup = Warmup(op),
                        name = op.inputs()[0]](const OpRun& run) {
                  const auto n = static_cast<double>(IterationOf(run, 0, name).value_or(0));
                  const double factor = n < warmup.iterations ? warmup.At(n) : policy(n - warmup.iterations);
                  *run.Out(0).As<float>() = static_cast<float>(base * factor);
                };
              },
              .checks_values = true});

}  // namespace
}  // namespace stepnet

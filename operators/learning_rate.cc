// Iter counts the steps of training; LearningRate computes the learning rate of a step from the count.
// They are no formulas, which take longer to start than to compute one number; and one policy goes through its restarts
// in a loop.
#include "stepnet/operators/learning_rate.h"

#include <algorithm>
#include <limits>

#include "stepnet/core/floating.h"
#include "stepnet/operators/dtypes.h"
#include "stepnet/operators/training.h"

namespace stepnet {
namespace {

// Never inlined: a run without a fault needs no memory for it.
[[gnu::noinline]] void NoteLastIteration(const OpRun& run, const std::string& name, std::int64_t iteration) {
  run.Fault(0, 0, [&](std::int64_t) {
    return Error(ErrorCode::kInvalidArgument,
                 StrCat("the iteration number ", name, " is ", iteration, ", and Iter cannot count on"));
  });
}

// The iteration number of a run, which is not the last one that there is, or one below 0, which is a fault.
// LearningRate asks, too: an iteration that Iter cannot count at its end shall not change parameters.
std::int64_t CountableIterationOf(const OpRun& run, const std::string& name) {
  const std::int64_t iteration = IterationOf(run, 0, name);
  if (iteration != std::numeric_limits<std::int64_t>::max()) return iteration;
  NoteLastIteration(run, name, iteration);
  return -1;
}

const Registration iter =
    Operator("Iter")
        .Doc(
            "Counts the steps of training: adds 1 to iter, in place. The net that initialises the model makes the "
            "blob. At the end of a training net it counts the steps that are done, from 0 in the first step on.")
        .Input("iter", "int64, one element, at least 0")
        .Output("next", Like("iter", "the same blob"))
        .EnforceInPlace({{0, 0}})
        .HasSideEffects()
        .CheckShapes([](const ShapeQuery& query) { ExpectIteration(query, 0); })
        .Cpu({.make = [](const OperatorCall& op) -> RunFn {
                return [name = op.inputs()[0]](const OpRun& run) {
                  const std::int64_t count = CountableIterationOf(run, name);
                  if (count >= 0) *run.Out(0).As<std::int64_t>() = count + 1;
                };
              },
              .checks_values = true});

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

DType RateDType(const OperatorCall& op) {
  const DType dtype = DTypeOfCode(op.Int("dtype"), "dtype");
  if (IsFloatOrDouble(dtype)) return dtype;
  throw Error(ErrorCode::kTypeMismatch, StrCat("LearningRate makes float or double, not ", dtype));
}

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
        .Output("lr", "float, or what dtype says, the shape of iter")
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
        .Arg("dtype", 1, "1 float, 13 double")
        .Check(CheckPolicy)
        .Shapes([](const ShapeQuery& query) {
          ExpectIteration(query, 0);
          return std::vector<TensorInfo>{{.dtype = RateDType(query.op()), .shape = query.In(0).shape}};
        })
        .Cpu({.make = [](const OperatorCall& op) -> RunFn {
                return [policy = LearningRatePolicy(op), name = op.inputs()[0]](const OpRun& run) {
                  const auto n = static_cast<double>(std::max<std::int64_t>(0, CountableIterationOf(run, name)));
                  const TensorView& rate = run.Out(0);
                  if (rate.dtype == DType::kDouble) {
                    *rate.As<double>() = policy.RateAt(n);
                  } else {
                    *rate.As<float>() = static_cast<float>(policy.RateAt(n));
                  }
                };
              },
              .checks_values = true});

}  // namespace

LearningRatePolicy::LearningRatePolicy(const OperatorCall& op)
    : base_(op.Number("base_lr")), gamma_(op.Number("gamma")), power_(op.Number("power")) {
  const std::string& policy = op.String("policy");
  const bool is_warmup = policy == "linearWarmup";
  warmup_ = static_cast<double>(op.Int(is_warmup ? "num_iter" : "linear_warmup_num_iter"));
  start_ = op.Number(is_warmup ? "start_multiplier" : "start_warmup_multiplier");
  if (policy == "step") {
    kind_ = Kind::kStep;
    period_ = static_cast<double>(op.Int("stepsize"));
  } else if (policy == "exp") {
    kind_ = Kind::kExp;
  } else if (policy == "inv") {
    kind_ = Kind::kInv;
  } else if (policy == "poly") {
    kind_ = Kind::kPoly;
    period_ = static_cast<double>(op.Int("max_iter"));
  } else if (policy == "cosine") {
    kind_ = Kind::kCosine;
    period_ = static_cast<double>(op.Int("period"));
    low_ = op.Number("min_lr");
    high_ = op.Number("max_lr");
    t_mult_ = op.Number("t_mult");
    shrink_ = op.Number("lr_shrink");
  }
}

}  // namespace stepnet

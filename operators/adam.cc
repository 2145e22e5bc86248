// Adam, with AdamW's decoupled weight decay. With p, m, v, g, r parameter, first and second moment, gradient and rate
// (below 0), t = iter + 1, and b1, b2, e, d the arguments beta1, beta2, epsilon and weight_decay:
//   m' = b1 m + (1 - b1) g        v' = b2 v + (1 - b2) g²
//   p' = (1 + r d) p + r c m' / (sqrt(v') + e),  c = sqrt(1 - b2^t) / (1 - b1^t)
// which is Caffe2's formula. Where epsilon is added to the corrected sqrt(v' / (1 - b2^t)), as torch.optim.Adam does,
// this is the same with e sqrt(1 - b2^t) in place of e.
// Sources: Kingma, Ba, "Adam: A Method for Stochastic Optimization", ICLR 2015, algorithm 1 and the last paragraph of
// section 2; Loshchilov, Hutter, "Decoupled Weight Decay Regularization", ICLR 2019, algorithm 2.
#include <cmath>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "stepnet/operators/adam.cc"
#include <hwy/foreach_target.h>  // IWYU pragma: keep
#include <hwy/highway.h>

#include "stepnet/core/arithmetic_vectors-inl.h"
#include "stepnet/core/formulas/formula.h"
#include "stepnet/core/input_checks.h"
#include "stepnet/core/partial_vectors-inl.h"
#include "stepnet/operators/training.h"

#ifndef STEPNET_OPERATORS_ADAM_CC_
#define STEPNET_OPERATORS_ADAM_CC_
namespace stepnet {

struct AdamFactors {
  double beta1, beta2;
  double keep;     // of the parameter: 1 + r d
  double rate;     // r c
  double epsilon;  // as it is added to sqrt(v')
};

}  // namespace stepnet
#endif

HWY_BEFORE_NAMESPACE();
namespace stepnet {
namespace HWY_NAMESPACE {

template <typename T>
HWY_INLINE void Update(const OpRun& run, const AdamFactors& f) {
  const T *parameters = run.In(0).As<T>(), *moments1 = run.In(1).As<T>(), *moments2 = run.In(2).As<T>();
  const T* gradients = run.In(3).As<T>();
  T *next_parameters = run.Out(0).As<T>(), *next_moments1 = run.Out(1).As<T>(), *next_moments2 = run.Out(2).As<T>();
  const hn::ScalableTag<T> d;
  const auto beta1 = hn::Set(d, static_cast<T>(f.beta1)), rest1 = hn::Set(d, static_cast<T>(1 - f.beta1));
  const auto beta2 = hn::Set(d, static_cast<T>(f.beta2)), rest2 = hn::Set(d, static_cast<T>(1 - f.beta2));
  const auto keep = hn::Set(d, static_cast<T>(f.keep)), rate = hn::Set(d, static_cast<T>(f.rate));
  const auto epsilon = hn::Set(d, static_cast<T>(f.epsilon));
  ForEachVector(d, run.Out(0).size(), [&](auto access, std::int64_t i) HWY_ATTR {
    const auto gradient = access.Load(d, gradients + i);
    const auto m = MulAddOf(d, beta1, access.Load(d, moments1 + i), hn::Mul(rest1, gradient));
    const auto v = MulAddOf(d, beta2, access.Load(d, moments2 + i), hn::Mul(rest2, hn::Mul(gradient, gradient)));
    const auto direction = hn::Div(m, hn::Add(hn::Sqrt(v), epsilon));
    const auto kept = hn::Mul(keep, access.Load(d, parameters + i));
    access.Store(d, MulAddOf(d, rate, direction, kept), next_parameters + i);
    access.Store(d, m, next_moments1 + i);
    access.Store(d, v, next_moments2 + i);
  });
}

void UpdateFloat(const OpRun& run, const AdamFactors& f) { Update<float>(run, f); }
void UpdateDouble(const OpRun& run, const AdamFactors& f) { Update<double>(run, f); }

}  // namespace HWY_NAMESPACE
}  // namespace stepnet
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace stepnet {
namespace {

HWY_EXPORT(UpdateFloat);
HWY_EXPORT(UpdateDouble);

struct Adam {
  explicit Adam(const OperatorCall& op)
      : beta1(op.Number("beta1")),
        beta2(op.Number("beta2")),
        epsilon(op.Number("epsilon")),
        weight_decay(op.Number("weight_decay")),
        corrects_first(op.Bool("bias_corrected_epsilon")),
        iteration_name(op.inputs()[5]) {}

  AdamFactors FactorsOf(const OpRun& run, std::int64_t iteration) const {
    const double rate = RateOf(run.In(4));
    const double t = static_cast<double>(iteration) + 1;
    const double root = std::sqrt(1 - std::pow(beta2, t));
    return {.beta1 = beta1,
            .beta2 = beta2,
            .keep = 1 + rate * weight_decay,
            .rate = rate * root / (1 - std::pow(beta1, t)),
            .epsilon = corrects_first ? epsilon * root : epsilon};
  }

  void Run(const OpRun& run) const {
    const std::int64_t iteration = IterationOf(run, 5, iteration_name);
    if (iteration < 0) return KeepAll(run);
    const bool is_float = run.Out(0).dtype == DType::kFloat;
    (is_float ? HWY_DYNAMIC_DISPATCH(UpdateFloat) : HWY_DYNAMIC_DISPATCH(UpdateDouble))(run, FactorsOf(run, iteration));
  }

  static void KeepAll(const OpRun& run) {
    for (int o = 0; o < run.num_outputs(); ++o) {
      if (run.Out(o).data != run.In(o).data) CopyElements(run.In(o), run.Out(o));
    }
  }

  double beta1, beta2, epsilon, weight_decay;
  bool corrects_first;
  std::string iteration_name;
};

void AdamFormula(Formula& f) {
  const Expr parameter = f.In("param"), gradient = f.In("grad"), iteration = f.Scalar("iter");
  const Expr moment1 = f.In("moment1"), moment2 = f.In("moment2");
  const DType dtype = parameter.dtype();
  const double beta1 = f.Number("beta1"), beta2 = f.Number("beta2");
  // What is the same for all elements is computed in double.
  const Expr rate = Cast(DType::kDouble, f.Scalar("lr")), t = Cast(DType::kDouble, iteration) + 1;
  const Expr root = Sqrt(1 - Pow(beta2, t));
  const Expr kept = Cast(dtype, 1 + rate * f.Number("weight_decay"));
  const Expr factor = Cast(dtype, rate * root / (1 - Pow(beta1, t)));
  const Expr base = Expr::Constant(DType::kDouble, f.Number("epsilon"));
  const Expr epsilon = Cast(dtype, f.Bool("bias_corrected_epsilon") ? base * root : base);

  const Expr m = MulAdd(beta1, moment1, (1 - beta1) * gradient);
  const Expr v = MulAdd(beta2, moment2, (1 - beta2) * (gradient * gradient));
  const Expr p = MulAdd(factor, m / (Sqrt(v) + epsilon), kept * parameter);
  const Expr is_step = iteration >= 0;
  f.Check(is_step, StrCat("the iteration number ", f.op().inputs()[5], " is {}, below 0"), iteration);
  f.Out({Where(is_step, p, parameter), Where(is_step, m, moment1), Where(is_step, v, moment2)});
}

// At 1 the corrections divide by 0.
void CheckBetas(const OperatorCall& op, std::vector<NetProblem>* problems) {
  for (const char* beta : {"beta1", "beta2"}) {
    if (op.Float(beta) < 1) continue;
    problems->push_back({.message = StrCat("Adam: ", beta, " is ", op.Float(beta), ", must be below 1")});
  }
}

const Registration adam =
    Operator("Adam")
        .Doc(
            "A step of Adam: moment1' = beta1 moment1 + (1 - beta1) grad, moment2' = beta2 moment2 + (1 - beta2) "
            "grad², param' = (1 + lr weight_decay) param + lr c moment1' / (sqrt(moment2') + epsilon), where c = "
            "sqrt(1 - beta2^t) / (1 - beta1^t) and t = iter + 1. lr is added, so base_lr of LearningRate is below 0 "
            "here. torch.optim.AdamW with a rate of 0.001 is base_lr -0.001, epsilon 1e-8, bias_corrected_epsilon, and "
            "an Iter at the end of the net.")
        .Input("param", OfFloats("any shape"))
        .Input("moment1", Like("param", "zeros before the first step"))
        .Input("moment2", Like("param", "zeros before the first step"))
        .Input("grad", Like("param"))
        .Input("lr", "one float or double")
        .Input("iter", "int64, one element: steps before this one")
        .Output("new_param", Like("param"))
        .Output("new_moment1", Like("param"))
        .Output("new_moment2", Like("param"))
        .Arg("beta1", 0.9f, "the part of moment1 that stays, below 1", AtLeast(0))
        .Arg("beta2", 0.999f, "the part of moment2 that stays, below 1", AtLeast(0))
        .Arg("epsilon", 1e-5f, "keeps the division from 0", AtLeast(0))
        .Arg("bias_corrected_epsilon", false, "epsilon is added to sqrt(moment2' / (1 - beta2^t)), as PyTorch does")
        .Arg("weight_decay", 0.0f, "the part of param, times the rate, that each step takes away (AdamW)", AtLeast(0))
        .Check(CheckBetas)
        .InPlace({{0, 0}, {1, 1}, {2, 2}})
        .CheckShapes([](const ShapeQuery& query) {
          ExpectRate(query, 4);
          ExpectIteration(query, 5);
        })
        .Formula(AdamFormula, {.checks_values = true})
        // By hand, because seven arrays at once take half as long as instructions on blocks.
        .Cpu({.make = [](const OperatorCall& op) -> RunFn {
                return [adam = Adam(op)](const OpRun& run) { adam.Run(run); };
              },
              .checks_values = true});

}  // namespace
}  // namespace stepnet
#endif  // HWY_ONCE

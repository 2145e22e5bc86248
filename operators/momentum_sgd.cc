// MomentumSGDUpdate: gradient descent with momentum. With p, v, g, r parameter, momentum, gradient and rate, mu and d
// the arguments momentum and weight_decay:
//   v' = mu v + r (g + d p)        p' = p - v'; with nesterov p' = p - ((1 + mu) v' - mu v)
// With the same rate in all steps this is torch.optim.SGD, whose momentum is v / r.
// Source: Sutskever, Martens, Dahl, Hinton, "On the importance of initialization and momentum in deep learning",
// ICML 2013, equations 1 to 4.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "stepnet/operators/momentum_sgd.cc"
#include <hwy/foreach_target.h>  // IWYU pragma: keep
#include <hwy/highway.h>

#include "stepnet/core/arithmetic_vectors-inl.h"
#include "stepnet/core/formulas/formula.h"
#include "stepnet/core/input_checks.h"
#include "stepnet/core/partial_vectors-inl.h"
#include "stepnet/operators/training.h"

#ifndef STEPNET_OPERATORS_MOMENTUM_SGD_CC_
#define STEPNET_OPERATORS_MOMENTUM_SGD_CC_
namespace stepnet {

struct MomentumFactors {
  double rate, momentum, weight_decay;
  bool nesterov;
};

}  // namespace stepnet
#endif

HWY_BEFORE_NAMESPACE();
namespace stepnet {
namespace HWY_NAMESPACE {

template <typename T>
HWY_INLINE void Update(const OpRun& run, const MomentumFactors& f) {
  const T *gradients = run.In(0).As<T>(), *momenta = run.In(1).As<T>(), *parameters = run.In(3).As<T>();
  T *steps = run.Out(0).As<T>(), *next_momenta = run.Out(1).As<T>(), *next_parameters = run.Out(2).As<T>();
  const hn::ScalableTag<T> d;
  const auto mu = hn::Set(d, static_cast<T>(f.momentum));
  const auto rate = hn::Set(d, static_cast<T>(f.rate));
  const auto decay = hn::Set(d, static_cast<T>(f.weight_decay));
  const bool nesterov = f.nesterov;
  ForEachVector(d, run.Out(0).size(), [&](auto access, std::int64_t i) HWY_ATTR {
    const auto parameter = access.Load(d, parameters + i);
    const auto momentum = access.Load(d, momenta + i);
    const auto gradient = MulAddOf(d, decay, parameter, access.Load(d, gradients + i));
    const auto next = MulAddOf(d, mu, momentum, hn::Mul(rate, gradient));
    const auto step = nesterov ? MulAddOf(d, mu, hn::Sub(next, momentum), next) : next;
    access.Store(d, next, next_momenta + i);
    access.Store(d, step, steps + i);
    access.Store(d, hn::Sub(parameter, step), next_parameters + i);
  });
}

void UpdateFloat(const OpRun& run, const MomentumFactors& f) { Update<float>(run, f); }
void UpdateDouble(const OpRun& run, const MomentumFactors& f) { Update<double>(run, f); }

}  // namespace HWY_NAMESPACE
}  // namespace stepnet
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace stepnet {
namespace {

HWY_EXPORT(UpdateFloat);
HWY_EXPORT(UpdateDouble);

const Registration momentum_sgd_update =
    Operator("MomentumSGDUpdate")
        .Doc(
            "A step of gradient descent with momentum: momentum' = mu momentum + lr (grad + weight_decay param), step "
            "= momentum', param' = param - step; with nesterov step = (1 + mu) momentum' - mu momentum. mu is the "
            "argument momentum. lr is subtracted, so base_lr of LearningRate is above 0 here.")
        .Input("grad", OfFloats("any shape"))
        .Input("momentum", Like("grad", "zeros before the first step"))
        .Input("lr", "one float or double")
        .Input("param", Like("grad"))
        .Output("step", Like("grad", "what was subtracted"))
        .Output("new_momentum", Like("grad"))
        .Output("new_param", Like("grad"))
        .Arg("momentum", 0.0f, "the part of the momentum that stays", AtLeast(0))
        .Arg("nesterov", false, "looks ahead by the momentum that the step leaves")
        .Arg("weight_decay", 0.0f, "times param it is added to grad: L2 regularisation", AtLeast(0))
        .InPlace({{0, 0}, {1, 1}, {3, 2}})
        .CheckShapes([](const ShapeQuery& query) { ExpectRate(query, 2); })
        .Formula([](Formula& f) {
          const Expr parameter = f.In("param"), momentum = f.In("momentum");
          const Expr rate = Cast(parameter.dtype(), f.Scalar("lr"));
          const Expr gradient = MulAdd(f.Number("weight_decay"), parameter, f.In("grad"));
          const Expr next = MulAdd(f.Number("momentum"), momentum, rate * gradient);
          const Expr step = f.Bool("nesterov") ? MulAdd(f.Number("momentum"), next - momentum, next) : next;
          f.Out({step, next, parameter - step});
        })
        // By hand, because six arrays at once take half as long as instructions on blocks.
        .Cpu([](const OperatorCall& op) -> RunFn {
          const MomentumFactors given = {.rate = 0,
                                         .momentum = op.Number("momentum"),
                                         .weight_decay = op.Number("weight_decay"),
                                         .nesterov = op.Bool("nesterov")};
          return [given](const OpRun& run) {
            MomentumFactors factors = given;
            factors.rate = RateOf(run.In(2));
            const bool is_float = run.Out(0).dtype == DType::kFloat;
            (is_float ? HWY_DYNAMIC_DISPATCH(UpdateFloat) : HWY_DYNAMIC_DISPATCH(UpdateDouble))(run, factors);
          };
        });

}  // namespace
}  // namespace stepnet
#endif  // HWY_ONCE

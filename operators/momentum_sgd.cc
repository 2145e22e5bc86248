// MomentumSGDUpdate: gradient descent with momentum. With p, v, g, r parameter, momentum, gradient and rate, mu and d
// the arguments momentum and weight_decay:
//   v' = mu v + r (g + d p)        p' = p - v'; with nesterov p' = p - ((1 + mu) v' - mu v)
// With the same rate in all steps this is torch.optim.SGD, whose momentum is v / r.
// Source: Sutskever, Martens, Dahl, Hinton, "On the importance of initialization and momentum in deep learning",
// ICML 2013, equations 1 to 4.
#include "stepnet/core/formula.h"
#include "stepnet/operators/input_checks.h"
#include "stepnet/operators/training.h"

namespace stepnet {
namespace {

std::vector<TensorInfo> UpdateShapes(const ShapeQuery& query) {
  ExpectFloat(query, 0);
  ExpectAlike(query, 0, 1);
  ExpectRate(query, 2);
  ExpectAlike(query, 0, 3);
  return std::vector<TensorInfo>(3, {.dtype = query.In(0).dtype, .shape = query.In(0).shape});
}

const Registration momentum_sgd_update =
    Operator("MomentumSGDUpdate")
        .Doc(
            "A step of gradient descent with momentum: momentum' = mu momentum + lr (grad + weight_decay param), step "
            "= "
            "momentum', param' = param - step; with nesterov step = (1 + mu) momentum' - mu momentum. mu is the "
            "argument "
            "momentum. lr is subtracted, so base_lr of LearningRate is above 0 here.")
        .Input("grad", "any shape, float or double")
        .Input("momentum", "the shape and type of grad; zeros before the first step")
        .Input("lr", "one float or double")
        .Input("param", "the shape and type of grad")
        .Output("step", "the shape of grad; what was subtracted")
        .Output("new_momentum", "the shape of grad")
        .Output("new_param", "the shape of grad")
        .Arg("momentum", 0.0f, "the part of the momentum that stays", AtLeast(0))
        .Arg("nesterov", false, "looks ahead by the momentum that the step leaves")
        .Arg("weight_decay", 0.0f, "times param it is added to grad: L2 regularisation", AtLeast(0))
        .InPlace({{0, 0}, {1, 1}, {3, 2}})
        .Shapes(UpdateShapes)
        .Formula([](Formula& f) {
          const Expr parameter = f.In("param"), momentum = f.In("momentum");
          const Expr rate = Cast(parameter.dtype(), f.Scalar("lr"));
          const Expr gradient = MulAdd(f.Number("weight_decay"), parameter, f.In("grad"));
          const Expr next = MulAdd(f.Number("momentum"), momentum, rate * gradient);
          const Expr step = f.Bool("nesterov") ? MulAdd(f.Number("momentum"), next - momentum, next) : next;
          f.Out({step, next, parameter - step});
        });

}  // namespace
}  // namespace stepnet

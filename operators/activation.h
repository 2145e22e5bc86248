// What declarations of functions of one element have in common; what they compute is their formula.
#pragma once

#include <string>

#include "stepnet/operators/elementwise.h"
#include "stepnet/operators/input_checks.h"

namespace stepnet {

// y of x, float or double, with the gradient operator `type`Gradient, which reads x.
inline Operator Activation(const std::string& type, std::string doc) {
  Operator op(type);
  op.Doc(std::move(doc))
      .Input("x", "any shape")
      .Output("y", "the shape of x")
      .Shapes(SameFloats())
      .InPlace({{0, 0}})
      .Gradient(GradientFromInput(type + "Gradient"));
  return op;
}

// dx of x and dy.
inline Operator ActivationGradient(const std::string& type, std::string doc) {
  Operator op(type + "Gradient");
  op.Doc(std::move(doc))
      .Input("x", "input of " + type + ", any shape")
      .Input("dy", "the shape of x")
      .Output("dx", "the shape of x")
      .Shapes(SameFloats())
      .InPlace({{0, 0}, {1, 0}});
  return op;
}

}  // namespace stepnet

// What declarations of functions of one element have in common; what they compute is their formula.
#pragma once

#include <string>

#include "stepnet/core/declared_gradient.h"
#include "stepnet/core/formulas/formula.h"
#include "stepnet/core/input_checks.h"

namespace stepnet {

// y of x.
inline Operator ElementFunction(const std::string& type, const std::string& doc) {
  Operator op(type);
  op.Doc(doc).Input("x", OfFloats("any shape")).Output("y", Like("x")).InPlace({{0, 0}});
  return op;
}

// The same with the gradient operator `type`Gradient, which reads x, or y, so that the forward pass may overwrite x. It
// follows from the formula; `gradient` says what it computes.
inline Operator Activation(const std::string& type, const std::string& doc, const std::string& gradient) {
  return ElementFunction(type, doc).DerivedGradient({"x", "dy"}, {"dx"}, gradient);
}
inline Operator ActivationByOutput(const std::string& type, const std::string& doc, const std::string& gradient) {
  return ElementFunction(type, doc).DerivedGradient({"y", "dy"}, {"dx"}, gradient);
}

// The same where the gradient operator has a formula of its own, which GradientOf declares.
inline Operator Activation(const std::string& type, const std::string& doc) {
  return ElementFunction(type, doc).Gradient(type + "Gradient", {"x", "dy"}, {"dx"});
}
inline Operator ActivationByOutput(const std::string& type, const std::string& doc) {
  return ElementFunction(type, doc).Gradient(type + "Gradient", {"y", "dy"}, {"dx"});
}

}  // namespace stepnet

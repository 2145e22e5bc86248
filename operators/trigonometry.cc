// Sin and Cos.
#include <cmath>

#include "stepnet/operators/elementwise.h"
#include "stepnet/operators/input_checks.h"

namespace stepnet {
namespace {

Operator Forward(const std::string& type, const std::string& doc) {
  Operator op(type);
  op.Doc(doc)
      .Input("x", "radians, any shape")
      .Output("y", "the shape of x")
      .Shapes(SameFloats())
      .InPlace({{0, 0}})
      .Elementwise()
      .Gradient(GradientFromInput(type + "Gradient"));
  return op;
}

Operator Backward(const std::string& type, const std::string& doc) {
  Operator op(type + "Gradient");
  op.Doc(doc)
      .Input("x", "input of " + type + ", any shape")
      .Input("dy", "the shape of x")
      .Output("dx", "the shape of x")
      .Shapes(SameFloats())
      .InPlace({{0, 0}, {1, 0}})
      .Elementwise();
  return op;
}

const Registration sin = Forward("Sin", "The sine, element by element.").Cpu([](const OperatorCall& op) {
  return Map(op, [](auto x) { return std::sin(x); });
});
const Registration sin_gradient = Backward("Sin", "dx = dy * cos(x).").Cpu([](const OperatorCall& op) {
  return Map(op, [](auto x, auto dy) { return dy * std::cos(x); });
});
const Registration cos = Forward("Cos", "The cosine, element by element.").Cpu([](const OperatorCall& op) {
  return Map(op, [](auto x) { return std::cos(x); });
});
const Registration cos_gradient = Backward("Cos", "dx = -dy * sin(x).").Cpu([](const OperatorCall& op) {
  return Map(op, [](auto x, auto dy) { return -dy * std::sin(x); });
});

}  // namespace
}  // namespace stepnet

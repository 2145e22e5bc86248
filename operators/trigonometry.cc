// Sin and Cos.

#include "stepnet/core/formula.h"
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
      .InPlace({{0, 0}, {1, 0}});
  return op;
}

const Registration sin =
    Forward("Sin", "The sine, element by element.").Formula([](Formula& f) { f.Out({Sin(f.In("x"))}); });
const Registration sin_gradient = Backward("Sin", "dx = dy * cos(x).").Formula(DerivativeOf("Sin"));
const Registration cos =
    Forward("Cos", "The cosine, element by element.").Formula([](Formula& f) { f.Out({Cos(f.In("x"))}); });
const Registration cos_gradient = Backward("Cos", "dx = -dy * sin(x).").Formula(DerivativeOf("Cos"));

}  // namespace
}  // namespace stepnet

// WeightedSum: y = w0 x0 + w1 x1 + … with weights of one element: gradient descent, and averages of models.
#include <algorithm>
#include <iterator>

#include "stepnet/core/formulas/formula.h"
#include "stepnet/core/input_checks.h"

namespace stepnet {
namespace {

void CheckPairs(const ShapeQuery& query) {
  ExpectFloats(query);
  for (int i = 0; i < query.num_inputs(); i += 2) {
    ExpectSameShape(query, 0, i);
    ExpectOneElement(query, i + 1, "weights");
  }
}

// dx_i = w_i dy; dw_i is the sum of dy x_i.
void WeightedSumGradient(GradientBuilder& g) {
  const bool of_weights = g.op().Bool("grad_on_w");
  if (of_weights) ExpectInputsKept(g);
  const ArgumentMap broadcast = {{"broadcast", {.i = 1}}};
  for (int i = 0; i + 1 < g.op().num_inputs(); i += 2) {
    const std::string& weight = g.I(i + 1);
    g.Add({.type = "Mul",
           .inputs = {g.GO(0), weight},
           .outputs = {g.GI(i)},
           .arguments = broadcast,
           .copies_arguments = false});
    if (!of_weights) continue;
    const std::string product = g.GI(i + 1) + "_pre_red";
    g.Add({.type = "Mul", .inputs = {g.GO(0), g.I(i)}, .outputs = {product}, .copies_arguments = false});
    g.Add({.type = "SumReduceLike",
           .inputs = {product, weight},
           .outputs = {g.GI(i + 1)},
           .arguments = broadcast,
           .copies_arguments = false});
  }
}

const Registration weighted_sum =
    Operator("WeightedSum")
        .Doc(
            "y = w0 x0 + w1 x1 + …: tensors of one shape, each times a number. A step of gradient descent is "
            "WeightedSum(parameter, one, gradient, minus_rate) -> parameter.")
        .Input("x0", "any shape")
        .Input("w0", "one element, of the type of x0")
        .OptionalInputs("x_and_w", "x1, w1, x2, w2, …: as x0 and w0")
        .Output("y", Like("x0"))
        .Arg("grad_on_w", false, "the weights have gradients too")
        .Check([](const OperatorCall& op, std::vector<NetProblem>* problems) {
          if (op.num_inputs() % 2 == 0) return;
          problems->push_back({.message = StrCat("WeightedSum has ", op.num_inputs(),
                                                 " inputs, needs pairs of a tensor and a weight")});
        })
        .CheckShapes(CheckPairs)
        .InPlace({{0, 0}})
        .Gradient(WeightedSumGradient)
        .Formula([](Formula& f) {
          std::vector<Expr> pairs = {f.In("x0"), f.In("w0")};
          std::ranges::copy(f.Ins("x_and_w"), std::back_inserter(pairs));
          Expr sum = 0.0;
          for (size_t i = 0; i < pairs.size(); i += 2) sum = sum + pairs[i + 1] * pairs[i];
          f.Out({sum});
        });

}  // namespace
}  // namespace stepnet

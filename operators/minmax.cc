// Max, Min: the greatest and the least of the inputs, element by element.
//
// Their gradients say their formula: each of several equal inputs gets all of it. That of a DerivativeOf has the same
// bits for inputs of one shape, goes through the maxima again, and would sum itself what is repeated, which nets do as
// Caffe2's.
#include "stepnet/core/formulas/formula.h"
#include "stepnet/core/input_checks.h"
#include "stepnet/operators/broadcast.h"

namespace stepnet {
namespace {

Operator Extremum(const std::string& type, const std::string& doc, Expr (*best)(const Expr&, const Expr&)) {
  Operator op(type);
  op.Doc(doc)
      .Inputs("x", "one or more of one type, whose shapes repeat over each other")
      .Output("y", "the shape that all are repeated to")
      .Shapes([](const ShapeQuery& query) {
        ExpectFloats(query);
        return std::vector<TensorInfo>{{.dtype = query.In(0).dtype, .shape = RepeatedShape(query)}};
      })
      .InPlace({{0, 0}})
      .Gradient([type](GradientBuilder& g) {
        ExpectInputsKept(g);
        GradientOp gradient{.type = type + "Gradient", .inputs = {g.O(0), g.GO(0)}, .outputs = {}};
        for (int i = 0; i < g.op().num_inputs(); ++i) {
          gradient.inputs.push_back(g.I(i));
          gradient.outputs.push_back(UnreducedGradient(g, i));
        }
        g.Add(std::move(gradient));
        for (int i = 0; i < g.op().num_inputs(); ++i) ReduceGradient(g, i);
      })
      .Formula([best](Formula& f) {
        const std::vector<Expr> x = f.Ins("x");
        Expr y = x[0];
        for (size_t i = 1; i < x.size(); ++i) y = best(y, x[i]);
        f.Out({y});
      });
  return op;
}

Operator ExtremumGradient(const std::string& type) {
  Operator op(type + "Gradient");
  op.Doc("The gradient of each input: dy where the input is y, 0 elsewhere.")
      .Input("y", "output of " + type)
      .Input("dy", Like("y"))
      .Inputs("x", "the inputs of " + type + ", each of a shape that repeats over that of y")
      .Outputs("dx", Like("y", "one for each x"))
      .Check([](const OperatorCall& op, std::vector<NetProblem>* problems) {
        if (op.num_outputs() == op.num_inputs() - 2) return;
        problems->push_back({.message = StrCat(op.type(), " needs an output for each input after the second; it has ",
                                               op.num_inputs(), " inputs and ", op.num_outputs(), " outputs")});
      })
      .CheckShapes([](const ShapeQuery& query) {
        ExpectFloats(query);
        for (int i = 2; i < query.num_inputs(); ++i) CheckRepeated(query, {}, 0, i);
      })
      .Formula([](Formula& f) {
        std::vector<FormulaOutput> dx;
        for (const Expr& x : f.Ins("x")) dx.emplace_back(Where(Equal(x, f.In("y")), f.In("dy"), 0));
        f.Out(dx);
      });
  return op;
}

const Registration max = Extremum("Max", "The greatest of the inputs, element by element; NaN where one is NaN.", Max);
const Registration max_gradient = ExtremumGradient("Max");
const Registration min = Extremum("Min", "The least of the inputs, element by element; NaN where one is NaN.", Min);
const Registration min_gradient = ExtremumGradient("Min");

}  // namespace
}  // namespace stepnet

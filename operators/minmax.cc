// Max, Min: the greatest and the least of the inputs, element by element.
#include "stepnet/core/cancellation.h"
#include "stepnet/operators/broadcast.h"
#include "stepnet/operators/elementwise.h"
#include "stepnet/operators/input_checks.h"

namespace stepnet {
namespace {

Operator Extremum(const std::string& type, const std::string& doc, Arithmetic what) {
  Operator op(type);
  op.Doc(doc)
      .Inputs("x", "one or more of one shape and type, float or double")
      .Output("y", "the shape of the inputs")
      .Shapes(SameFloats())
      .InPlace({{0, 0}})
      .Elementwise()
      .Gradient([type](GradientBuilder& g) {
        ExpectInputsKept(g);
        GradientOp gradient{.type = type + "Gradient", .inputs = {g.O(0), g.GO(0)}, .outputs = {}};
        for (int i = 0; i < g.op().num_inputs(); ++i) {
          gradient.inputs.push_back(g.I(i));
          gradient.outputs.push_back(g.GI(i));
        }
        g.Add(std::move(gradient));
      })
      .Cpu([what](const OperatorCall& init) -> RunFn {
        return [what, type = init.type()](const OpRun& run) {
          ForFloatType(run.Out(0).dtype, type, [&](auto zero) {
            using T = decltype(zero);
            const std::int64_t n = run.Out(0).size();
            T* y = run.Out(0).As<T>();
            if (run.num_inputs() == 1) CopyElements(run.In(0), run.Out(0));
            const T* best = run.In(0).As<T>();
            for (int i = 1; i < run.num_inputs(); ++i) {
              BroadcastArithmetic(what, best, run.In(i).As<T>(), y, {.run = n});
              best = y;
            }
          });
        };
      });
  return op;
}

Operator ExtremumGradient(const std::string& type) {
  Operator op(type + "Gradient");
  op.Doc("The gradient of each input: dy where the input is y, 0 elsewhere.")
      .Input("y", "output of " + type)
      .Input("dy", "the shape of y")
      .Inputs("x", "the inputs of " + type)
      .Outputs("dx", "the shape of y, one for each x")
      .Check([](const OperatorCall& init, std::vector<NetProblem>* problems) {
        if (init.num_outputs() == init.num_inputs() - 2) return;
        problems->push_back({.message = StrCat(init.type(), " needs an output for each input after the second; it has ",
                                               init.num_inputs(), " inputs and ", init.num_outputs(), " outputs")});
      })
      .Shapes([](const ShapeQuery& query) {
        ExpectFloats(query);
        for (int i = 1; i < query.num_inputs(); ++i) ExpectAlike(query, 0, i);
        return std::vector<TensorInfo>(query.num_inputs() - 2,
                                       {.dtype = query.In(0).dtype, .shape = query.In(0).shape});
      })
      .Cpu([](const OperatorCall& init) -> RunFn {
        return [type = init.type()](const OpRun& run) {
          ForFloatType(run.Out(0).dtype, type, [&](auto zero) {
            using T = decltype(zero);
            const T* y = run.In(0).As<T>();
            const T* dy = run.In(1).As<T>();
            for (int i = 0; i < run.num_outputs(); ++i) {
              const T* x = run.In(2 + i).As<T>();
              T* dx = run.Out(i).As<T>();
              InBlocks(run.Out(i).size(), 1, [&](std::int64_t begin, std::int64_t end) {
                for (std::int64_t k = begin; k < end; ++k) dx[k] = x[k] == y[k] ? dy[k] : 0;
              });
            }
          });
        };
      });
  return op;
}

const Registration max =
    Extremum("Max", "The greatest of the inputs, element by element; NaN where one is NaN.", Arithmetic::kMax);
const Registration max_gradient = ExtremumGradient("Max");
const Registration min =
    Extremum("Min", "The least of the inputs, element by element; NaN where one is NaN.", Arithmetic::kMin);
const Registration min_gradient = ExtremumGradient("Min");

}  // namespace
}  // namespace stepnet

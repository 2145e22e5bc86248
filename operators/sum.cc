// Sum: y = x0 + x1 + …
#include "stepnet/core/formulas/formula.h"
#include "stepnet/operators/input_checks.h"

namespace stepnet {
namespace {

const Registration sum = Operator("Sum")
                             .Doc("y = x0 + x1 + …, element by element.")
                             .Inputs("x", "one or more of one shape and type")
                             .Output("y", "the shape of the inputs")
                             .Shapes([](const ShapeQuery& query) {
                               ExpectType(query, 0, {DType::kFloat, DType::kDouble, DType::kInt32, DType::kInt64});
                               for (int i = 1; i < query.num_inputs(); ++i) ExpectAlike(query, 0, i);
                               return std::vector<TensorInfo>{{.dtype = query.In(0).dtype, .shape = query.In(0).shape}};
                             })
                             .InPlace({{0, 0}})
                             .Gradient([](GradientBuilder& g) {
                               for (int i = 0; i < g.op().num_inputs(); ++i) g.SetDense(i, g.GO(0));
                             })
                             .Formula([](Formula& f) {
                               Expr sum;
                               for (const Expr& x : f.Ins("x")) sum = sum.defined() ? sum + x : x;
                               f.Out({sum});
                             });

}  // namespace
}  // namespace stepnet

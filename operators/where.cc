// Where: z = x where the condition holds, y elsewhere.
#include "stepnet/core/cancellation.h"
#include "stepnet/operators/dtypes.h"
#include "stepnet/operators/elementwise.h"
#include "stepnet/operators/input_checks.h"

namespace stepnet {
namespace {

bool IsPrefix(const Shape& shape, const Shape& of) {
  if (shape.rank() > of.rank()) return false;
  for (int i = 0; i < shape.rank(); ++i) {
    if (shape[i] != of[i]) return false;
  }
  return true;
}

// Throws unless the condition, input 0, fits the elements of input 1, or its rows.
void CheckCondition(const ShapeQuery& query) {
  if (query.In(0).dtype != DType::kBool) {
    throw Error(ErrorCode::kTypeMismatch,
                StrCat(query.op().type(), " needs a condition of type bool; ", InputText(query, 0)));
  }
  const Shape& condition = query.In(0).shape;
  const Shape& x = query.In(1).shape;
  const bool rows = query.op().Bool("broadcast_on_rows");
  if (rows ? IsPrefix(condition, x) : condition == x) return;
  throw Error(ErrorCode::kShapeMismatch,
              StrCat(query.op().type(), " needs a condition ",
                     rows ? "of the first dimensions of its other inputs" : "of one shape with its other inputs", "; ",
                     InputText(query, 0), " and ", InputText(query, 1)));
}

// Elements that one element of the condition decides about.
std::int64_t RunLength(const Shape& condition, const Shape& x) {
  return condition.size() == 0 ? 0 : x.size() / condition.size();
}

const Registration where =
    Operator("Where")
        .Doc("z = x where the condition holds, y elsewhere.")
        .Input("condition", "bool, the shape of x; with broadcast_on_rows the first dimensions of it: [N], [T, B]")
        .Input("x", "[N, …], any type")
        .Input("y", "the shape and type of x")
        .Output("z", "the shape and type of x")
        .Arg("broadcast_on_rows", false, "an element of the condition decides about a row")
        .InPlace({{1, 0}, {2, 0}})
        .Shapes([](const ShapeQuery& query) {
          ExpectAlike(query, 1, 2);
          CheckCondition(query);
          return std::vector<TensorInfo>{{.dtype = query.In(1).dtype, .shape = query.In(1).shape}};
        })
        .Gradient("WhereGradient", {"condition", "dz"}, {"dx", "dy"})
        .Cpu([](const OperatorCall&) -> RunFn {
          return [](const OpRun& run) {
            ForDType(run.Out(0).dtype, [&](auto zero) {
              using T = decltype(zero);
              const bool* condition = run.In(0).As<bool>();
              const T* x = run.In(1).As<T>();
              const T* y = run.In(2).As<T>();
              T* z = run.Out(0).As<T>();
              const std::int64_t length = RunLength(*run.In(0).shape, *run.In(1).shape);
              for (std::int64_t n = 0; n < run.In(0).size(); ++n, x += length, y += length, z += length) {
                CountWork(length);
                const T* chosen = condition[n] ? x : y;
                for (std::int64_t i = 0; i < length; ++i) z[i] = chosen[i];
              }
            });
          };
        });

const Registration where_gradient =
    Operator("WhereGradient")
        .Doc("dx = dz where the condition holds and 0 elsewhere; dy = dz where it does not.")
        .Input("condition", "as in Where")
        .Input("dz", "[N, …], float or double")
        .Output("dx", "the shape of dz")
        .Output("dy", "the shape of dz")
        .Arg("broadcast_on_rows", false, "as in Where")
        .Shapes([](const ShapeQuery& query) {
          ExpectFloat(query, 1);
          CheckCondition(query);
          return std::vector<TensorInfo>(2, {.dtype = query.In(1).dtype, .shape = query.In(1).shape});
        })
        .Cpu([](const OperatorCall& op) -> RunFn {
          return [type = op.type()](const OpRun& run) {
            ForFloatType(run.Out(0).dtype, type, [&](auto zero) {
              using T = decltype(zero);
              const bool* condition = run.In(0).As<bool>();
              const T* dz = run.In(1).As<T>();
              T* dx = run.Out(0).As<T>();
              T* dy = run.Out(1).As<T>();
              const std::int64_t length = RunLength(*run.In(0).shape, *run.In(1).shape);
              for (std::int64_t n = 0; n < run.In(0).size(); ++n) {
                CountWork(length);
                for (std::int64_t i = n * length; i < (n + 1) * length; ++i) {
                  dx[i] = condition[n] ? dz[i] : 0;
                  dy[i] = condition[n] ? 0 : dz[i];
                }
              }
            });
          };
        });

}  // namespace
}  // namespace stepnet

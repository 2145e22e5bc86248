// ElementwiseLinear: y = x * w + b, where w and b are repeated over the rows of x.
//
// Gradient, with sums over the rows: dx = dy * w, dw = sum(dy * x), db = sum(dy).
#include <algorithm>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "stepnet/operators/elementwise_linear.cc"
#include <hwy/foreach_target.h>  // IWYU pragma: keep
#include <hwy/highway.h>

#include "stepnet/core/cost.h"
#include "stepnet/operators/elementwise.h"
#include "stepnet/operators/input_checks.h"
#include "stepnet/operators/vector_loops-inl.h"

HWY_BEFORE_NAMESPACE();
namespace stepnet {
namespace HWY_NAMESPACE {

template <typename T>
HWY_INLINE void Linear(const T* x, const T* w, const T* b, T* y, std::int64_t rows, std::int64_t n) {
  if (n == 0) return;  // however many rows there are
  for (std::int64_t r = 0; r < rows; ++r, x += n, y += n) {
    ForVectors<T>(n, [&](auto d, std::int64_t i) HWY_ATTR {
      hn::StoreU(hn::MulAdd(hn::LoadU(d, x + i), hn::LoadU(d, w + i), hn::LoadU(d, b + i)), d, y + i);
    });
  }
}

template <typename T>
HWY_INLINE void LinearBackward(const T* dy, const T* x, const T* w, T* dx, T* dw, T* db, std::int64_t rows,
                               std::int64_t n) {
  std::fill_n(dw, n, T{0});
  std::fill_n(db, n, T{0});
  if (n == 0) return;
  for (std::int64_t r = 0; r < rows; ++r, dy += n, x += n, dx += n) {
    ForVectors<T>(n, [&](auto d, std::int64_t i) HWY_ATTR {
      const auto gradient = hn::LoadU(d, dy + i);
      hn::StoreU(hn::MulAdd(gradient, hn::LoadU(d, x + i), hn::LoadU(d, dw + i)), d, dw + i);
      hn::StoreU(hn::Add(gradient, hn::LoadU(d, db + i)), d, db + i);
      hn::StoreU(hn::Mul(gradient, hn::LoadU(d, w + i)), d, dx + i);
    });
  }
}

void LinearFloat(const float* x, const float* w, const float* b, float* y, std::int64_t rows, std::int64_t n) {
  Linear(x, w, b, y, rows, n);
}
void LinearDouble(const double* x, const double* w, const double* b, double* y, std::int64_t rows, std::int64_t n) {
  Linear(x, w, b, y, rows, n);
}
void BackwardFloat(const float* dy, const float* x, const float* w, float* dx, float* dw, float* db, std::int64_t rows,
                   std::int64_t n) {
  LinearBackward(dy, x, w, dx, dw, db, rows, n);
}
void BackwardDouble(const double* dy, const double* x, const double* w, double* dx, double* dw, double* db,
                    std::int64_t rows, std::int64_t n) {
  LinearBackward(dy, x, w, dx, dw, db, rows, n);
}

}  // namespace HWY_NAMESPACE
}  // namespace stepnet
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace stepnet {
namespace {

HWY_EXPORT(LinearFloat);
HWY_EXPORT(LinearDouble);
HWY_EXPORT(BackwardFloat);
HWY_EXPORT(BackwardDouble);

constexpr char kAxisDoc[] = "x is seen as [N, D], where D are the dimensions from this on; negative: from the end";

// Throws unless input `vector` is [D], where the dimensions of input `x` from `axis` on have D elements.
void CheckVector(const ShapeQuery& query, int x, int vector) {
  const Shape& shape = query.In(x).shape;
  const int axis = shape.CanonicalAxis(query.op().Int("axis"), "ElementwiseLinear: axis");
  const Shape& found = query.In(vector).shape;
  if (found.rank() == 1 && found[0] == shape.SizeFrom(axis)) return;
  throw Error(ErrorCode::kShapeMismatch,
              StrCat(query.op().type(), " with axis ", axis, " needs ", query.op().inputs()[vector], " [",
                     shape.SizeFrom(axis), "]; ", InputText(query, x), " and ", InputText(query, vector)));
}

const Registration elementwise_linear =
    Operator("ElementwiseLinear")
        .Doc("y = x * w + b, element by element, where w and b are repeated over the rows of x.")
        .Input("x", "[N, D] or more dimensions, see axis")
        .Input("w", "[D]")
        .Input("b", "[D]")
        .Output("y", "the shape of x")
        .Arg("axis", 1, kAxisDoc)
        .InPlace({{0, 0}})
        .Shapes([](const ShapeQuery& query) {
          ExpectFloats(query);
          CheckVector(query, 0, 1);
          CheckVector(query, 0, 2);
          return SameAsInput(0)(query);
        })
        .CostIs([](const ShapeQuery& query, std::span<const TensorInfo> outputs) -> Cost {
          return {.flops = 2 * static_cast<double>(outputs[0].shape.size()), .bytes = BytesMoved(query, outputs)};
        })
        .Gradient([](GradientBuilder& g) {
          ExpectInputsKept(g);
          g.Add({.type = "ElementwiseLinearGradient",
                 .inputs = {g.GO(0), g.I(0), g.I(1)},
                 .outputs = {g.GI(0), g.GI(1), g.GI(2)}});
        })
        .Cpu([](const OperatorCall& op) -> RunFn {
          return [type = op.type(), axis = op.Int("axis")](const OpRun& run) {
            ForFloatType(run.Out(0).dtype, type, [&](auto zero) {
              using T = decltype(zero);
              const std::int64_t n = run.In(1).size();
              const std::int64_t rows = run.In(0).shape->SizeTo(run.In(0).shape->CanonicalAxis(axis));
              const T* x = run.In(0).As<T>();
              const T* w = run.In(1).As<T>();
              const T* b = run.In(2).As<T>();
              T* y = run.Out(0).As<T>();
              if constexpr (sizeof(T) == sizeof(float)) {
                HWY_DYNAMIC_DISPATCH(LinearFloat)(x, w, b, y, rows, n);
              } else {
                HWY_DYNAMIC_DISPATCH(LinearDouble)(x, w, b, y, rows, n);
              }
            });
          };
        });

const Registration elementwise_linear_gradient =
    Operator("ElementwiseLinearGradient")
        .Doc("dx = dy * w; dw and db are the sums of dy * x and dy over the rows.")
        .Input("dy", "the shape of x")
        .Input("x", "as in ElementwiseLinear")
        .Input("w", "[D]")
        .Output("dx", "the shape of x")
        .Output("dw", "[D]")
        .Output("db", "[D]")
        .Arg("axis", 1, kAxisDoc)
        .InPlace({{0, 0}})
        .Shapes([](const ShapeQuery& query) {
          ExpectFloats(query);
          ExpectAlike(query, 0, 1);
          CheckVector(query, 1, 2);
          const TensorInfo dx{.dtype = query.In(1).dtype, .shape = query.In(1).shape};
          const TensorInfo dw{.dtype = dx.dtype, .shape = query.In(2).shape};
          return std::vector<TensorInfo>{dx, dw, dw};
        })
        .Cpu([](const OperatorCall& op) -> RunFn {
          return [type = op.type(), axis = op.Int("axis")](const OpRun& run) {
            ForFloatType(run.Out(0).dtype, type, [&](auto zero) {
              using T = decltype(zero);
              const std::int64_t n = run.In(2).size();
              const std::int64_t rows = run.In(1).shape->SizeTo(run.In(1).shape->CanonicalAxis(axis));
              const T* dy = run.In(0).As<T>();
              const T* x = run.In(1).As<T>();
              const T* w = run.In(2).As<T>();
              T* dx = run.Out(0).As<T>();
              T* dw = run.Out(1).As<T>();
              T* db = run.Out(2).As<T>();
              if constexpr (sizeof(T) == sizeof(float)) {
                HWY_DYNAMIC_DISPATCH(BackwardFloat)(dy, x, w, dx, dw, db, rows, n);
              } else {
                HWY_DYNAMIC_DISPATCH(BackwardDouble)(dy, x, w, dx, dw, db, rows, n);
              }
            });
          };
        });

}  // namespace
}  // namespace stepnet
#endif  // HWY_ONCE

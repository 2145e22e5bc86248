// LayerNorm: y = (x - mean) / std over the dimensions from `axis` on, with std = sqrt(variance + epsilon).
// Source: Ba, Kiros, Hinton, "Layer Normalization", 2016, eq. 3, without gain and bias.
//
// Gradient, with averages over the same dimensions: dx = (dy - average(dy) - y * average(dy * y)) / std.
#include <algorithm>
#include <cmath>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "stepnet/operators/layer_norm.cc"
#include <hwy/foreach_target.h>  // IWYU pragma: keep
#include <hwy/highway.h>

#include "stepnet/operators/elementwise.h"
#include "stepnet/operators/input_checks.h"
#include "stepnet/operators/vector_loops-inl.h"

HWY_BEFORE_NAMESPACE();
namespace stepnet {
namespace HWY_NAMESPACE {

// Variance as the average square of what is left after the mean: x^2 - mean^2 would lose its digits.
template <typename T>
HWY_INLINE void Normalize(const T* x, T* y, T* mean, T* deviation, std::int64_t rows, std::int64_t n, T epsilon) {
  const T count = std::max<T>(n, 1);
  for (std::int64_t r = 0; r < rows; ++r, x += n, y += n) {
    const auto element = [&](auto d, std::int64_t i) HWY_ATTR { return hn::LoadU(d, x + i); };
    const T average = SumVectors<T>(n, element) / count;
    const auto centered = [&](auto d, std::int64_t i) HWY_ATTR { return hn::Sub(element(d, i), hn::Set(d, average)); };
    const T squares = SumVectors<T>(n, [&](auto d, std::int64_t i) HWY_ATTR {
      const auto difference = centered(d, i);
      return hn::Mul(difference, difference);
    });
    mean[r] = average;
    deviation[r] = std::sqrt(squares / count + epsilon);
    const T scale = 1 / deviation[r];
    ForVectors<T>(
        n, [&](auto d, std::int64_t i) HWY_ATTR { hn::StoreU(hn::Mul(centered(d, i), hn::Set(d, scale)), d, y + i); });
  }
}

template <typename T>
HWY_INLINE void NormalizeBackward(const T* dy, const T* y, const T* deviation, T* dx, std::int64_t rows,
                                  std::int64_t n) {
  const T count = std::max<T>(n, 1);
  for (std::int64_t r = 0; r < rows; ++r, dy += n, y += n, dx += n) {
    const auto gradient = [&](auto d, std::int64_t i) HWY_ATTR { return hn::LoadU(d, dy + i); };
    const auto product = [&](auto d, std::int64_t i)
                             HWY_ATTR { return hn::Mul(hn::LoadU(d, dy + i), hn::LoadU(d, y + i)); };
    const T along_mean = SumVectors<T>(n, gradient) / count;
    const T along_y = SumVectors<T>(n, product) / count;
    const T scale = 1 / deviation[r];
    ForVectors<T>(n, [&](auto d, std::int64_t i) HWY_ATTR {
      const auto rest = hn::Sub(gradient(d, i), hn::Set(d, along_mean));
      const auto change = hn::NegMulAdd(hn::LoadU(d, y + i), hn::Set(d, along_y), rest);
      hn::StoreU(hn::Mul(change, hn::Set(d, scale)), d, dx + i);
    });
  }
}

void NormalizeFloat(const float* x, float* y, float* mean, float* deviation, std::int64_t rows, std::int64_t n,
                    float epsilon) {
  Normalize(x, y, mean, deviation, rows, n, epsilon);
}
void NormalizeDouble(const double* x, double* y, double* mean, double* deviation, std::int64_t rows, std::int64_t n,
                     double epsilon) {
  Normalize(x, y, mean, deviation, rows, n, epsilon);
}
void BackwardFloat(const float* dy, const float* y, const float* deviation, float* dx, std::int64_t rows,
                   std::int64_t n) {
  NormalizeBackward(dy, y, deviation, dx, rows, n);
}
void BackwardDouble(const double* dy, const double* y, const double* deviation, double* dx, std::int64_t rows,
                    std::int64_t n) {
  NormalizeBackward(dy, y, deviation, dx, rows, n);
}

}  // namespace HWY_NAMESPACE
}  // namespace stepnet
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace stepnet {
namespace {

HWY_EXPORT(NormalizeFloat);
HWY_EXPORT(NormalizeDouble);
HWY_EXPORT(BackwardFloat);
HWY_EXPORT(BackwardDouble);

// Mean and std have the dimensions before `axis`, and one of size 1.
Shape StatisticsShape(const Shape& x, int axis) {
  Shape shape = x;
  while (shape.rank() > axis) shape = shape.Without(shape.rank() - 1);
  return shape.Inserted(axis, 1);
}

// Throws when the rank of x, input i, does not have the axis.
int AxisOf(const ShapeQuery& query, int i) {
  return query.In(i).shape.CanonicalAxis(query.op().Int("axis"), "LayerNorm: axis");
}

const Registration layer_norm =
    Operator("LayerNorm")
        .Doc("Normalizes the dimensions from `axis` on to mean 0 and variance 1: y = (x - mean) / std.")
        .Input("x", "[N, …, D, …], where D is dimension `axis`")
        .Output("y", "the shape of x")
        .Output("mean", "[N, …, 1]")
        .Output("std", "[N, …, 1], sqrt(variance + epsilon)")
        .Arg("axis", 1, "the first dimension that is normalized; negative: from the end")
        .Arg("epsilon", 1e-5f, "added to the variance", AtLeast(0))
        .InPlace({{0, 0}})
        .Shapes([](const ShapeQuery& query) {
          ExpectFloat(query, 0);
          const auto& [dtype, shape, value] = query.In(0);
          const Shape statistics = StatisticsShape(shape, AxisOf(query, 0));
          return std::vector<TensorInfo>{{.dtype = dtype, .shape = shape},
                                         {.dtype = dtype, .shape = statistics},
                                         {.dtype = dtype, .shape = statistics}};
        })
        .Gradient([](GradientBuilder& g) {
          if (g.HasGO(1) || g.HasGO(2)) {
            throw Error(ErrorCode::kInvalidNet, "LayerNorm passes no gradient through its outputs mean and std");
          }
          ExpectInputsKept(g);
          g.Add(
              {.type = "LayerNormGradient", .inputs = {g.GO(0), g.O(0), g.O(1), g.O(2), g.I(0)}, .outputs = {g.GI(0)}});
        })
        .Cpu([](const OperatorCall& op) -> RunFn {
          return [type = op.type(), axis = op.Int("axis"), epsilon = op.Float("epsilon")](const OpRun& run) {
            ForFloatType(run.Out(0).dtype, type, [&](auto zero) {
              using T = decltype(zero);
              const std::int64_t rows = run.Out(1).size();
              const std::int64_t n = run.In(0).shape->SizeFrom(run.In(0).shape->CanonicalAxis(axis));
              const T* x = run.In(0).As<T>();
              T* y = run.Out(0).As<T>();
              T* mean = run.Out(1).As<T>();
              T* deviation = run.Out(2).As<T>();
              if constexpr (sizeof(T) == sizeof(float)) {
                HWY_DYNAMIC_DISPATCH(NormalizeFloat)(x, y, mean, deviation, rows, n, epsilon);
              } else {
                HWY_DYNAMIC_DISPATCH(NormalizeDouble)(x, y, mean, deviation, rows, n, epsilon);
              }
            });
          };
        });

const Registration layer_norm_gradient =
    Operator("LayerNormGradient")
        .Doc("Gradient of LayerNorm: dx = (dy - average(dy) - y * average(dy * y)) / std.")
        .Input("dy", "the shape of x")
        .Input("y", "output of LayerNorm, the shape of x")
        .Input("mean", "output of LayerNorm; its elements are not read")
        .Input("std", "output of LayerNorm")
        .Input("x", "input of LayerNorm; its elements are not read")
        .Output("dx", "the shape of x")
        .Arg("axis", 1, "as in LayerNorm")
        .Arg("epsilon", 1e-5f, "as in LayerNorm", AtLeast(0))
        .InPlace({{0, 0}})
        .Shapes([](const ShapeQuery& query) {
          ExpectFloats(query);
          ExpectAlike(query, 0, 1);
          ExpectAlike(query, 0, 4);
          ExpectAlike(query, 2, 3);
          const Shape statistics = StatisticsShape(query.In(0).shape, AxisOf(query, 0));
          if (query.In(3).shape != statistics) {
            throw Error(ErrorCode::kShapeMismatch, StrCat("LayerNormGradient needs std ", statistics, " for ",
                                                          InputText(query, 0), "; ", InputText(query, 3)));
          }
          return SameAsInput(0)(query);
        })
        .Cpu([](const OperatorCall& op) -> RunFn {
          return [type = op.type(), axis = op.Int("axis")](const OpRun& run) {
            ForFloatType(run.Out(0).dtype, type, [&](auto zero) {
              using T = decltype(zero);
              const std::int64_t rows = run.In(3).size();
              const std::int64_t n = run.In(0).shape->SizeFrom(run.In(0).shape->CanonicalAxis(axis));
              const T* dy = run.In(0).As<T>();
              const T* y = run.In(1).As<T>();
              const T* deviation = run.In(3).As<T>();
              T* dx = run.Out(0).As<T>();
              if constexpr (sizeof(T) == sizeof(float)) {
                HWY_DYNAMIC_DISPATCH(BackwardFloat)(dy, y, deviation, dx, rows, n);
              } else {
                HWY_DYNAMIC_DISPATCH(BackwardDouble)(dy, y, deviation, dx, rows, n);
              }
            });
          };
        });

}  // namespace
}  // namespace stepnet
#endif  // HWY_ONCE

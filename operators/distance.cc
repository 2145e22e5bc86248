// Distances between the rows of two tensors:
//   SquaredL2Distance: d_i = sum_j (x_ij - y_ij)^2 / 2
//   L1Distance:        d_i = sum_j |x_ij - y_ij|
#include <cmath>

#include "stepnet/core/cancellation.h"
#include "stepnet/core/operator.h"
#include "stepnet/operators/elementwise.h"
#include "stepnet/operators/input_checks.h"

namespace stepnet {
namespace {

// A scalar is a row of one element.
std::int64_t NumRows(const Shape& x) { return x.rank() > 0 ? x[0] : 1; }

std::vector<TensorInfo> DistanceShapes(const ShapeQuery& query) {
  ExpectFloat(query, 0);
  ExpectAlike(query, 0, 1);
  return {{.dtype = query.In(0).dtype, .shape = Shape({NumRows(query.In(0).shape)})}};
}

std::vector<TensorInfo> DistanceGradientShapes(const ShapeQuery& query) {
  ExpectFloats(query);
  ExpectAlike(query, 0, 1);
  const TensorInfo& x = query.In(0);
  if (query.In(2).shape != Shape({NumRows(x.shape)})) {
    throw Error(ErrorCode::kShapeMismatch, StrCat(InputText(query, 0), " and ", InputText(query, 2), "; ",
                                                  query.op().type(), " needs x [N, …] and dd [N]"));
  }
  return {{.dtype = x.dtype, .shape = x.shape}, {.dtype = x.dtype, .shape = x.shape}};
}

// term(x - y), summed over each row.
template <typename Term>
KernelFactory SumOverRows(Term term) {
  return [term](const OperatorCall& op) -> RunFn {
    return [term, type = op.type()](const OpRun& run) {
      ForFloatType(run.Out(0).dtype, type, [&](auto zero) {
        using T = decltype(zero);
        const std::int64_t rows = run.Out(0).size();
        const std::int64_t length = rows > 0 ? run.In(0).size() / rows : 0;
        const T* x = run.In(0).As<T>();
        const T* y = run.In(1).As<T>();
        for (std::int64_t i = 0; i < rows; ++i, x += length, y += length) {
          double sum = 0;  // a float would lose the small terms of long sums
          InBlocks(length, 1, [&](std::int64_t begin, std::int64_t end) {
            for (std::int64_t j = begin; j < end; ++j) sum += term(x[j] - y[j]);
          });
          run.Out(0).As<T>()[i] = static_cast<T>(sum);
        }
      });
    };
  };
}

// dx = derivative(x - y) * dd, dy = -dx.
template <typename Derivative>
KernelFactory GradientOverRows(Derivative derivative) {
  return [derivative](const OperatorCall& op) -> RunFn {
    return [derivative, type = op.type()](const OpRun& run) {
      ForFloatType(run.Out(0).dtype, type, [&](auto zero) {
        using T = decltype(zero);
        const std::int64_t rows = run.In(2).size();
        const std::int64_t length = rows > 0 ? run.In(0).size() / rows : 0;
        for (std::int64_t i = 0; i < rows; ++i) {
          const T* x = run.In(0).As<T>() + i * length;
          const T* y = run.In(1).As<T>() + i * length;
          const T dd = run.In(2).As<T>()[i];
          T* dx = run.Out(0).As<T>() + i * length;
          T* dy = run.Out(1).As<T>() + i * length;
          InBlocks(length, 1, [&](std::int64_t begin, std::int64_t end) {
            for (std::int64_t j = begin; j < end; ++j) {
              dx[j] = derivative(x[j] - y[j], dd);
              dy[j] = -dx[j];
            }
          });
        }
      });
    };
  };
}

Operator Distance(const char* type, const char* doc) {
  return Operator(type)
      .Doc(doc)
      .Input("x", "[N, …], float or double")
      .Input("y", "the shape of x")
      .Output("d", "[N]")
      .Shapes(DistanceShapes);
}

Operator DistanceGradient(const char* type, const char* doc) {
  return Operator(type)
      .Doc(doc)
      .Input("x", "[N, …], float or double")
      .Input("y", "the shape of x")
      .Input("dd", "[N]")
      .Output("dx", "the shape of x")
      .Output("dy", "the shape of x")
      .Shapes(DistanceGradientShapes);
}

const Registration squared_l2_distance =
    Distance("SquaredL2Distance", "Half the squared Euclidean distance of each row of x to that of y.")
        .Gradient("SquaredL2DistanceGradient", {"x", "y", "dd"}, {"dx", "dy"})
        .Cpu(SumOverRows([](auto difference) { return difference * difference / 2; }));

const Registration squared_l2_distance_gradient =
    DistanceGradient("SquaredL2DistanceGradient", "dx = (x - y) * dd, dy = -dx, dd being that of the row.")
        .Cpu(GradientOverRows([](auto difference, auto dd) { return difference * dd; }));

const Registration l1_distance = Distance("L1Distance", "The sum of |x - y| over each row.")
                                     .Gradient("L1DistanceGradient", {"x", "y", "dd"}, {"dx", "dy"})
                                     .Cpu(SumOverRows([](auto difference) { return std::abs(difference); }));

// Differences below the threshold count as 0, as in Caffe2.
const Registration l1_distance_gradient =
    DistanceGradient("L1DistanceGradient", "dx = sign(x - y) * dd, dy = -dx; 0 where |x - y| is at most 1e-12.")
        .Cpu(GradientOverRows([](auto difference, auto dd) {
          constexpr double kThreshold = 1e-12;
          if (std::isnan(difference)) return difference;
          return difference > kThreshold ? dd : difference < -kThreshold ? -dd : decltype(dd){0};
        }));

}  // namespace
}  // namespace stepnet

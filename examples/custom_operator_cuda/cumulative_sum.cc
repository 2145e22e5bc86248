// acme.CumulativeSum: y[i, j] = x[i, 0] + … + x[i, j], along the last dimension. An element depends on all before it in
// its row, which no formula says, so each device has a kernel: that of the CPU is here, that of a GPU in
// cumulative_sum.cu.
#include "stepnet/core/operator.h"

namespace {

using namespace stepnet;

template <typename T>
void SumRows(const T* x, T* y, std::int64_t rows, std::int64_t columns, bool from_back) {
  for (std::int64_t row = 0; row < rows; ++row, x += columns, y += columns) {
    T sum = 0;
    for (std::int64_t k = 0; k < columns; ++k) {
      const std::int64_t j = from_back ? columns - 1 - k : k;
      y[j] = sum += x[j];
    }
  }
}

KernelFactory OnCpu(bool from_back) {
  return [from_back](const OperatorCall&) -> RunFn {
    return [from_back](const OpRun& run) {
      const TensorView &x = run.In(0), &y = run.Out(0);
      const std::int64_t columns = x.dim(-1), rows = columns == 0 ? 0 : x.size() / columns;
      if (x.dtype == DType::kFloat) {
        SumRows(x.As<float>(), y.As<float>(), rows, columns, from_back);
      } else {
        SumRows(x.As<double>(), y.As<double>(), rows, columns, from_back);
      }
    };
  };
}

// What kernels rely on is checked here, for all devices.
std::vector<TensorInfo> Shapes(const ShapeQuery& query) {
  const TensorInfo& x = query.In(0);
  const bool is_float = x.dtype == DType::kFloat || x.dtype == DType::kDouble;
  if (!is_float || x.shape.rank() == 0) {
    throw Error(ErrorCode::kShapeMismatch, StrCat(query.op().inputs()[0], " is ", x.Description(), "; ",
                                                  query.op().type(), " needs rows [..., columns] of float or double"));
  }
  return {{.dtype = x.dtype, .shape = x.shape}};
}

const Registration cumulative_sum = Operator("acme.CumulativeSum")
                                        .Doc("Sums along each row: y[i, j] = x[i, 0] + … + x[i, j].")
                                        .Input("x", "[..., columns], float or double")
                                        .Output("y", "the shape of x")
                                        .InPlace({{0, 0}})
                                        .Shapes(Shapes)
                                        .Gradient("acme.CumulativeSumGradient", {"dy"}, {"dx"})
                                        .Cpu(OnCpu(/*from_back=*/false));

const Registration gradient = Operator("acme.CumulativeSumGradient")
                                  .Doc("dx[i, j] = dy[i, j] + … + dy[i, last].")
                                  .Input("dy", "[..., columns], float or double")
                                  .Output("dx", "the shape of dy")
                                  .InPlace({{0, 0}})
                                  .Shapes(Shapes)
                                  .Cpu(OnCpu(/*from_back=*/true));

}  // namespace

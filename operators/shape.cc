// Shape and Size: the sizes of a tensor as tensors.
#include "stepnet/core/operator.h"
#include "stepnet/operators/known_value.h"

namespace stepnet {
namespace {

std::vector<std::int64_t> SizesOf(const Shape& x, const std::vector<std::int64_t>& axes) {
  if (axes.empty()) return x.ToVector();
  std::vector<std::int64_t> sizes;
  for (const std::int64_t axis : axes) sizes.push_back(x[x.CanonicalAxis(axis, "an axis of Shape")]);
  return sizes;
}

const Registration shape =
    Operator("Shape")
        .Doc("The shape of a tensor.")
        .Input("x", "any shape and dtype")
        .Output("sizes", "int64 [rank of x], or [number of axes]")
        .Arg("axes", std::vector<std::int64_t>{}, "only the sizes of these dimensions; negative counts from the end")
        .Shapes([](const ShapeQuery& query) -> std::vector<TensorInfo> {
          return {KnownInts(DType::kInt64, SizesOf(query.In(0).shape, query.op().Ints("axes")))};
        })
        .ReadsShapes({0})
        .StopsGradient()
        .Cpu([](const OperatorCall& op) -> RunFn {
          return [axes = op.Ints("axes")](const OpRun& run) {
            const Shape& x = *run.In(0).shape;
            auto* sizes = run.Out(0).As<std::int64_t>();
            for (std::int64_t i = 0; i < run.Out(0).size(); ++i) {
              sizes[i] = x[axes.empty() ? static_cast<int>(i) : x.CanonicalAxis(axes[static_cast<size_t>(i)])];
            }
          };
        });

const Registration size = Operator("Size")
                              .Doc("The number of elements of a tensor.")
                              .Input("x", "any shape and dtype")
                              .Output("size", "int64 []")
                              .Shapes([](const ShapeQuery& query) -> std::vector<TensorInfo> {
                                return {{.dtype = DType::kInt64,
                                         .shape = {},
                                         .value = Tensor::Of<std::int64_t>(Shape(), {query.In(0).shape.size()})}};
                              })
                              .ReadsShapes({0})
                              .StopsGradient()
                              .Cpu([](const OperatorCall&) -> RunFn {
                                return [](const OpRun& run) { run.Out(0).As<std::int64_t>()[0] = run.In(0).size(); };
                              });

}  // namespace
}  // namespace stepnet

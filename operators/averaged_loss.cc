// AveragedLoss: the mean of all elements, what a training net minimises.
#include "stepnet/core/cancellation.h"
#include "stepnet/core/operator.h"
#include "stepnet/operators/elementwise.h"
#include "stepnet/operators/input_checks.h"

namespace stepnet {
namespace {

const Registration averaged_loss = Operator("AveragedLoss")
                                       .Doc("The mean of all elements; 0 where there are none.")
                                       .Input("x", "any shape, float or double")
                                       .Output("y", "[]")
                                       .Shapes([](const ShapeQuery& query) -> std::vector<TensorInfo> {
                                         ExpectFloat(query, 0);
                                         return {{.dtype = query.In(0).dtype, .shape = {}}};
                                       })
                                       .Gradient("AveragedLossGradient", {"x", "dy"}, {"dx"})
                                       .Cpu([](const OperatorCall&) -> RunFn {
                                         return [](const OpRun& run) {
                                           ForFloatType(run.Out(0).dtype, "AveragedLoss", [&](auto zero) {
                                             using T = decltype(zero);
                                             const T* x = run.In(0).As<T>();
                                             const std::int64_t n = run.In(0).size();
                                             double sum = 0;  // a float would lose the small terms of long sums
                                             InBlocks(n, 1, [&](std::int64_t begin, std::int64_t end) {
                                               for (std::int64_t i = begin; i < end; ++i) sum += x[i];
                                             });
                                             run.Out(0).As<T>()[0] =
                                                 n > 0 ? static_cast<T>(sum / static_cast<double>(n)) : T{0};
                                           });
                                         };
                                       });

const Registration averaged_loss_gradient =
    Operator("AveragedLossGradient")
        .Doc("dx = dy / number of elements of x, for each element.")
        .Input("x", "any shape, float or double; only its shape matters")
        .Input("dy", "one element")
        .Output("dx", "the shape of x")
        .Shapes([](const ShapeQuery& query) -> std::vector<TensorInfo> {
          ExpectFloats(query);
          if (query.In(1).shape.size() != 1) {
            throw Error(ErrorCode::kShapeMismatch,
                        StrCat(InputText(query, 1), "; AveragedLossGradient needs dy of one element"));
          }
          return {{.dtype = query.In(0).dtype, .shape = query.In(0).shape}};
        })
        .Cpu([](const OperatorCall&) -> RunFn {
          return [](const OpRun& run) {
            ForFloatType(run.Out(0).dtype, "AveragedLossGradient", [&](auto zero) {
              using T = decltype(zero);
              const std::int64_t n = run.Out(0).size();
              const T each = n > 0 ? run.In(1).As<T>()[0] / static_cast<T>(n) : T{0};
              T* dx = run.Out(0).As<T>();
              InBlocks(n, 1, [&](std::int64_t begin, std::int64_t end) { std::fill(dx + begin, dx + end, each); });
            });
          };
        });

}  // namespace
}  // namespace stepnet

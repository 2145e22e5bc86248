// Abs: y = |x|. Negative: y = -x.
#include <cmath>
#include <type_traits>

#include "stepnet/core/cancellation.h"
#include "stepnet/operators/elementwise.h"
#include "stepnet/operators/input_checks.h"

namespace stepnet {
namespace {

const Registration abs = Operator("Abs")
                             .Doc("y = |x|, element by element.")
                             .Input("x", "any shape")
                             .Output("y", "the shape of x")
                             .Shapes(SameFloats())
                             .InPlace({{0, 0}})
                             .Elementwise()
                             .Gradient(GradientFromInput("AbsGradient"))
                             .Cpu([](const OperatorCall& op) { return Map(op, [](auto x) { return std::abs(x); }); });

const Registration abs_gradient = Operator("AbsGradient")
                                      .Doc("dx = dy where x > 0, -dy where x < 0, 0 where x = 0.")
                                      .Input("x", "input of Abs, any shape")
                                      .Input("dy", "the shape of x")
                                      .Output("dx", "the shape of x")
                                      .Shapes(SameFloats())
                                      .InPlace({{0, 0}, {1, 0}})
                                      .Elementwise()
                                      .Cpu([](const OperatorCall& op) {
                                        return Map(op, [](auto x, auto dy) {
                                          const auto zero = decltype(x){0};
                                          return x == 0 ? zero : x > 0 ? dy : -dy;
                                        });
                                      });

// The lowest integer is its own negative.
template <typename T>
void NegateIntegers(const OpRun& run) {
  using Unsigned = std::make_unsigned_t<T>;
  const T* x = run.In(0).As<T>();
  T* y = run.Out(0).As<T>();
  InBlocks(run.Out(0).size(), 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) y[i] = static_cast<T>(-static_cast<Unsigned>(x[i]));
  });
}

const Registration negative = Operator("Negative")
                                  .Doc("y = -x, element by element.")
                                  .Input("x", "any shape; float, double, int32 or int64")
                                  .Output("y", "the shape of x")
                                  .Shapes([](const ShapeQuery& query) {
                                    ExpectType(query, 0, {DType::kFloat, DType::kDouble, DType::kInt32, DType::kInt64});
                                    return SameAsInput(0)(query);
                                  })
                                  .InPlace({{0, 0}})
                                  .Elementwise()
                                  .Gradient("Negative", {"dy"}, {"dx"})
                                  .Cpu([](const OperatorCall& op) -> RunFn {
                                    return [floats = Map(op, [](auto x) { return -x; })](const OpRun& run) {
                                      switch (run.Out(0).dtype) {
                                        case DType::kInt32: return NegateIntegers<std::int32_t>(run);
                                        case DType::kInt64: return NegateIntegers<std::int64_t>(run);
                                        default: return floats(run);
                                      }
                                    };
                                  });

}  // namespace
}  // namespace stepnet

// What RNN makes of the lengths of its sequences.
#include "stepnet/core/formulas/formula.h"
#include "stepnet/core/input_checks.h"

namespace stepnet {
namespace {

void ExpectLengths(const ShapeQuery& query) {
  const Shape& x = query.In(0).shape;
  const bool fits = x.rank() == 3 && query.In(1) == TensorInfo{.dtype = DType::kDouble, .shape = Shape({x[1]})};
  if (fits) return;
  throw WrongInputs(query, {0, 1}, "needs [T, B, C] and lengths double [B]");
}

const Registration rnn_lengths =
    Operator("RNNLengths")
        .Doc("Lengths of RNN as whole numbers; others, and those outside of [0, T], are faults of the run.")
        .Input("data", "[T, B, C]; its elements are not read")
        .Input("lengths", "double [B]")
        .Output("whole", OfTypes({DType::kInt64}, "int64 [B]", "lengths"))
        .RequiredArg("blob", ArgumentType::kString, "what messages call the lengths")
        .Private()
        .ReadsShapes({0})
        .CheckShapes(ExpectLengths)
        .StopsGradient()
        .Formula(
            [](Formula& f) {
              const Expr length = f.In("lengths");
              const std::int64_t steps = f.ShapeOf("data")[0];
              f.Check(And(And(length >= 0, length <= static_cast<double>(steps)), Equal(Floor(length), length)),
                      StrCat("element {element} of ", f.String("blob"),
                             " is {}; lengths here are whole numbers from 0 to ", steps),
                      length);
              f.Out({Cast(DType::kInt64, length)});
            },
            {.checks_values = true});

}  // namespace
}  // namespace stepnet

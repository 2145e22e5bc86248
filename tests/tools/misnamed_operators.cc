// A library for --op_library whose operator names a gradient operator that does not exist.
#include "stepnet/core/operator.h"

namespace stepnet {
namespace {

const Registration halved = Operator("test.Halved")
                                .Input("x", "any shape")
                                .Output("y", "the shape of x")
                                .Shapes(SameAsInput(0))
                                .Gradient("test.HalvedGradeint", {"dy"}, {"dx"});
const Registration gradient =
    Operator("test.HalvedGradient").Input("dy", "any shape").Output("dx", "the shape of dy").Shapes(SameAsInput(0));

}  // namespace
}  // namespace stepnet

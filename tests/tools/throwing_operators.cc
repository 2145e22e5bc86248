// A library for --op_library whose declaration throws while the library is loaded.
#include <stdexcept>

#include "stepnet/core/operator.h"

namespace stepnet {
namespace {

ShapeRule ShapesFromTheSky() { throw std::runtime_error("the sky is cloudy"); }

const Registration throws = Operator("test.Throwing").Input("x", "").Output("y", "").Shapes(ShapesFromTheSky());

}  // namespace
}  // namespace stepnet

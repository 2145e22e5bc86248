// Sin and Cos.
#include "stepnet/operators/activation.h"

namespace stepnet {
namespace {

const Registration sin =
    Activation("Sin", "The sine of x radians, element by element.", "dx = dy * cos(x).").Formula([](Formula& f) {
      f.Out({Sin(f.In("x"))});
    });
const Registration cos =
    Activation("Cos", "The cosine of x radians, element by element.", "dx = -dy * sin(x).").Formula([](Formula& f) {
      f.Out({Cos(f.In("x"))});
    });

}  // namespace
}  // namespace stepnet

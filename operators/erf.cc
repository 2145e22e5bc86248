// Erf: the error function, 2 / sqrt(pi) times the integral of e^(-t^2) from 0 to x.
#include "stepnet/operators/activation.h"

namespace stepnet {
namespace {

const Registration erf =
    Activation("Erf", "The error function, element by element.", "dx = dy * 2 / sqrt(pi) * e^(-x^2).")
        .Formula([](Formula& f) { f.Out({Erf(f.In("x"))}); });

}  // namespace
}  // namespace stepnet

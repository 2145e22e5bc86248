// Gelu: y = x * P(X <= x) for a standard normal X.
// Source: Hendrycks, Gimpel, "Gaussian Error Linear Units (GELUs)", 2016.
#include <numbers>

#include "stepnet/operators/activation.h"

namespace stepnet {
namespace {

constexpr double kRootOfHalf = std::numbers::sqrt2 / 2;

const Registration gelu = Activation("Gelu", "y = x * erfc(-x / sqrt(2)) / 2, element by element.",
                                     "dx = dy * (erfc(-x / sqrt(2)) / 2 + x * e^(-x^2 / 2) / sqrt(2 pi)).")
                              .Formula([](Formula& f) {
                                const Expr x = f.In("x");
                                f.Out({x * (0.5 * Erfc(-kRootOfHalf * x))});
                              });

}  // namespace
}  // namespace stepnet

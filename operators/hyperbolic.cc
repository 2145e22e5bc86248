// Sinh and Cosh, their inverses and that of Tanh, so that they keep their digits near 0 and overflow where the value
// does. Errors are at most 4 units in the last place.
#include <numbers>

#include "stepnet/operators/activation.h"

namespace stepnet {
namespace {

// From half of x, since e^x is infinite before half of it is.
Expr HyperbolicSine(const Expr& x) {
  const Expr up = Expm1(0.5 * x), down = Expm1(-0.5 * x);
  return 0.5 * (up - down) * (up + down + 2);
}
Expr HyperbolicCosine(const Expr& x) {
  const Expr twice_sine = Expm1(0.5 * x) - Expm1(-0.5 * x);
  return MulAdd(0.5 * twice_sine, twice_sine, 1);
}

const Registration sinh = Activation("Sinh", "(e^x - e^-x) / 2, element by element.").Formula([](Formula& f) {
  f.Out({HyperbolicSine(f.In("x"))});
});
const Registration cosh = Activation("Cosh", "(e^x + e^-x) / 2, element by element.").Formula([](Formula& f) {
  f.Out({HyperbolicCosine(f.In("x"))});
});
// Gradients by hand, but for that of Atanh: what computes the functions would be differentiated, which takes longer and
// loses digits.
const Registration sinh_gradient = GradientOf("Sinh", "dx = dy * cosh(x).").Formula([](Formula& f) {
  f.Out({f.In("dy") * HyperbolicCosine(f.In("x"))});
});
const Registration cosh_gradient = GradientOf("Cosh", "dx = dy * sinh(x).").Formula([](Formula& f) {
  f.Out({f.In("dy") * HyperbolicSine(f.In("x"))});
});

const Registration atanh =
    Activation("Atanh", "log((1 + x) / (1 - x)) / 2, element by element: NaN outside [-1, 1].", "dx = dy / (1 - x^2).")
        .Formula([](Formula& f) {
          const Expr x = f.In("x");
          f.Out({0.5 * (Log1p(x) - Log1p(-x))});
        });

// From here on x^2 + 1 and x^2 - 1 are x^2, and before it no square overflows.
constexpr double kLarge = 1e9;

// log(x + root), root^2 = x^2 + 1 or x^2 - 1, which is log(2 x) where x is large.
Expr LogOfSum(const Expr& x, const Expr& log) { return Where(x > kLarge, Log(x) + std::numbers::ln2, log); }

const Registration asinh = Activation("Asinh", "log(x + sqrt(x^2 + 1)), element by element.").Formula([](Formula& f) {
  const Expr x = f.In("x"), size = Abs(x), square = size * size;
  const Expr y = LogOfSum(size, Log1p(size + square / (1 + Sqrt(square + 1))));
  f.Out({Where(x > 0, y, Where(x < 0, -y, x))});
});
const Registration asinh_gradient = GradientOf("Asinh", "dx = dy / sqrt(x^2 + 1).").Formula([](Formula& f) {
  const Expr size = Abs(f.In("x"));
  f.Out({f.In("dy") / Where(size > kLarge, size, Sqrt(MulAdd(size, size, 1)))});
});

const Registration acosh =
    Activation("Acosh", "log(x + sqrt(x^2 - 1)), element by element: NaN below 1.").Formula([](Formula& f) {
      const Expr x = f.In("x"), above = x - 1;
      f.Out({LogOfSum(x, Log1p(above + Sqrt(above) * Sqrt(x + 1)))});
    });
const Registration acosh_gradient = GradientOf("Acosh", "dx = dy / sqrt(x^2 - 1).").Formula([](Formula& f) {
  const Expr x = f.In("x");
  f.Out({f.In("dy") / (Sqrt(x - 1) * Sqrt(x + 1))});
});

}  // namespace
}  // namespace stepnet

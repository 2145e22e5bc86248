// Sin and Cos, Tan's inverse and those of Sin and Cos.
// Source of the inverses: Moshier, "Methods and Programs for Mathematical Functions", 1989 (Cephes, atan.c). Errors are
// at most 4 units in the last place, also near 0 and at both ends of the domain.
#include <numbers>

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

Expr Polynomial(const Expr& x, std::initializer_list<double> coefficients) {
  Expr sum = *coefficients.begin();
  for (const double* next = coefficients.begin() + 1; next != coefficients.end(); ++next) sum = MulAdd(sum, x, *next);
  return sum;
}

// By the tangent of what is left of the angle, z, behind the nearest of 0, pi / 4 and pi / 2 with the sign of x.
Expr ArcTangent(const Expr& x) {
  const Expr size = Abs(x), is_large = size > 2.414213562373095, is_middle = size > 0.66;
  const Expr z = Where(is_large, -Sign(x), Where(is_middle, x - Sign(x), x)) /
                 Where(is_large, size, Where(is_middle, size + 1, Cast(x.dtype(), 1)));
  const Expr square = z * z;
  const Expr numerator =
      Polynomial(square, {-8.750608600031904122785e-1, -1.615753718733365076637e1, -7.500855792314704667340e1,
                          -1.228866684490136173410e2, -6.485021904942025371773e1});
  const Expr denominator =
      Polynomial(square, {1, 2.485846490142306297962e1, 1.650270098316988542046e2, 4.328810604912902668951e2,
                          4.853903996359136964868e2, 1.945506571482613964425e2});
  const Expr rest = z * MulAdd(square, numerator / denominator, 1);
  const Expr nearest = Where(is_large, Cast(x.dtype(), std::numbers::pi / 2), std::numbers::pi / 4);
  return Where(is_middle, MulAdd(Sign(x), nearest, rest), rest);
}

const Registration atan =
    Activation("Atan", "The arc tangent of x, element by element, in radians.").Formula([](Formula& f) {
      f.Out({ArcTangent(f.In("x"))});
    });
// Gradients by hand: what computes the functions would be differentiated, which takes longer and loses digits.
const Registration atan_gradient = GradientOf("Atan", "dx = dy / (1 + x^2).").Formula([](Formula& f) {
  const Expr x = f.In("x");
  f.Out({f.In("dy") / MulAdd(x, x, 1)});
});

// The cosine of the angle whose sine is x and the other way around; it keeps its digits near -1 and 1.
Expr OtherLeg(const Expr& x) { return Sqrt((1 - x) * (1 + x)); }

const Registration asin = Activation("Asin", "The arc sine of x, element by element, in radians: NaN outside [-1, 1].")
                              .Formula([](Formula& f) {
                                const Expr x = f.In("x");
                                f.Out({2 * ArcTangent(x / (1 + OtherLeg(x)))});
                              });
const Registration asin_gradient = GradientOf("Asin", "dx = dy / sqrt(1 - x^2).").Formula([](Formula& f) {
  f.Out({f.In("dy") / OtherLeg(f.In("x"))});
});

const Registration acos =
    Activation("Acos", "The arc cosine of x, element by element, in radians: NaN outside [-1, 1].")
        .Formula([](Formula& f) {
          const Expr x = f.In("x");
          f.Out({2 * ArcTangent(Sqrt((1 - x) / (1 + x)))});
        });
const Registration acos_gradient = GradientOf("Acos", "dx = -dy / sqrt(1 - x^2).").Formula([](Formula& f) {
  f.Out({-f.In("dy") / OtherLeg(f.In("x"))});
});

}  // namespace
}  // namespace stepnet

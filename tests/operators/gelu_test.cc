#include <cmath>
#include <limits>
#include <numbers>

#include "each.h"
#include "op_test.h"

namespace stepnet {
namespace {

double GeluOf(double x) { return x * 0.5 * std::erfc(-x / std::numbers::sqrt2); }

TEST(Gelu, FollowsItsEquation) {
  OpTest("Gelu").RandomIn("x", {3, 41}, 1, -4, 4).Follows(Each<GeluOf>, 0, 2e-6);
  OpTest("Gelu").RandomIn("x", {3, 41}, 1, -4, 4).InPlace(0, 0).Follows(Each<GeluOf>, 0, 2e-6);
  OpTest("Gelu").RandomIn("x", {3, 5}, 7, -3, 3).GradientMatches();
  OpTest("Gelu").Input("x", {0, 5}, {}).Gives({0, 5}, {});
}

// Value and slope of x, and the sum of the sizes of the slope's terms, which is what it can be exact to.
struct Exact {
  long double value, slope, terms;
};
Exact ExactAt(long double x) {
  constexpr long double kRootOfHalf = std::numbers::sqrt2_v<long double> / 2;
  const long double share = std::erfc(-x * kRootOfHalf) / 2;
  const long double term = x * std::exp(-x * x / 2) * kRootOfHalf * std::numbers::inv_sqrtpi_v<long double>;
  return {.value = x * share, .slope = share + term, .terms = share + std::fabs(term)};
}

// Units in the last place of `of` as a T.
template <typename T>
long double UlpsBetween(T got, long double want, long double of) {
  int exponent;
  std::frexp(of, &exponent);
  const int last = std::max(exponent, std::numeric_limits<T>::min_exponent) - std::numeric_limits<T>::digits;
  return std::fabs(got - want) / std::ldexp(1.0L, last);
}

// An x that is off by one unit in its last place changes the results by up to x^2 units of theirs: more than twice that
// is not asked for. Both tails end where results are denormal, and then 0 or x.
template <typename T>
void ExpectAccurate(double reach) {
  constexpr int kCount = 20001;
  Tensor x(kDTypeOf<T>, {kCount}), dy(kDTypeOf<T>, {kCount});
  for (int i = 0; i < kCount; ++i) {
    x.template data<T>()[i] = static_cast<T>(reach * (2.0 * i / (kCount - 1) - 1));
    dy.template data<T>()[i] = 1;
  }
  const Tensor y = OpTest("Gelu").Input("x", x).Run()[0];
  const Tensor dx = OpTest("GeluGradient").Input("x", x).Input("dy", dy).Run()[0];
  for (int i = 0; i < kCount; ++i) {
    const T at = x.template data<T>()[i];
    const auto [value, slope, terms] = ExactAt(at);
    const long double limit = 4 + 2 * static_cast<long double>(at) * at;
    ASSERT_LE(UlpsBetween(y.template data<T>()[i], value, value), limit) << at;
    ASSERT_LE(UlpsBetween(dx.template data<T>()[i], slope, terms), limit) << at;
  }
}

TEST(Gelu, KeepsItsDigitsInTheTails) {
  ExpectAccurate<float>(16);
  ExpectAccurate<double>(42);
}

TEST(Gelu, RefusesBadInput) {
  ExpectError([] { OpTest("Gelu").Input("x", Tensor::Of<std::int32_t>({1}, {1})).Run(); },
              "type mismatch: Gelu works on float, double, float16 and bfloat16; x is int32 [1]\n"
              "  at op 0 `output0 = Gelu(x)` with x int32 [1]\n"
              "  in net \"test\"");
}

}  // namespace
}  // namespace stepnet

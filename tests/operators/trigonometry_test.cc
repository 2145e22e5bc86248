// Arc functions, hyperbolic ones and their inverses: how exact they and their gradients are over their whole domain,
// against the C library's in long double.
#include <cmath>
#include <limits>
#include <random>

#include "op_test.h"

namespace stepnet {
namespace {

using Exact = long double;

struct Function {
  std::string type;
  Exact (*exact)(Exact);
  Exact (*slope)(Exact);
};

const std::vector<Function> kFunctions = {
    {"Atan", [](Exact x) { return std::atan(x); }, [](Exact x) { return 1 / (1 + x * x); }},
    {"Asin", [](Exact x) { return std::asin(x); }, [](Exact x) { return 1 / std::sqrt((1 - x) * (1 + x)); }},
    {"Acos", [](Exact x) { return std::acos(x); }, [](Exact x) { return -1 / std::sqrt((1 - x) * (1 + x)); }},
    {"Sinh", [](Exact x) { return std::sinh(x); }, [](Exact x) { return std::cosh(x); }},
    {"Cosh", [](Exact x) { return std::cosh(x); }, [](Exact x) { return std::sinh(x); }},
    {"Asinh", [](Exact x) { return std::asinh(x); }, [](Exact x) { return 1 / std::sqrt(x * x + 1); }},
    {"Acosh", [](Exact x) { return std::acosh(x); }, [](Exact x) { return 1 / std::sqrt((x - 1) * (x + 1)); }},
    {"Atanh", [](Exact x) { return std::atanh(x); }, [](Exact x) { return 1 / ((1 - x) * (1 + x)); }},
};

// In units of the last place of `want` as a T; 0 where both are NaN, or infinite alike.
template <typename T>
double UnitsFrom(double got, Exact want) {
  const T rounded = static_cast<T>(want);
  if (std::isnan(rounded) || std::isinf(rounded))
    return (std::isnan(rounded) ? std::isnan(got) : got == rounded) ? 0 : 1e30;
  const T size = std::max(std::abs(rounded), std::numeric_limits<T>::min());
  const Exact unit = std::nextafter(size, std::numeric_limits<T>::infinity()) - Exact{size};
  return static_cast<double>(std::abs(got - want) / unit);
}

// All exponents with both signs, the numbers around 1 and -1, and those up to where e^x is infinite.
template <typename T>
std::vector<double> Samples() {
  using Limits = std::numeric_limits<T>;
  std::mt19937_64 random(17);
  std::uniform_real_distribution<double> unit(-1, 1);
  std::vector<double> samples = {0, 1, -1, 2, -2, Limits::infinity(), -Limits::infinity(), Limits::quiet_NaN()};
  for (int exponent = Limits::min_exponent; exponent < Limits::max_exponent; ++exponent) {
    for (int i = 0; i < 8; ++i) samples.push_back(std::ldexp(unit(random), exponent));
  }
  for (int i = 0; i < 4000; ++i) {
    const double away = std::ldexp(unit(random), -(i % Limits::digits));
    for (const double x : {1 + away, -1 + away, 5 * away, Limits::max_exponent * 0.7 * away}) samples.push_back(x);
  }
  for (double& x : samples) x = static_cast<T>(x);
  return samples;
}

template <typename T>
void ExpectExact(DType dtype) {
  const std::vector<double> x = Samples<T>();
  const Shape shape = {std::ssize(x)};
  for (const Function& function : kFunctions) {
    const std::vector<double> y = ToDoubles(OpTest(function.type).Input("x", shape, x).Run(dtype)[0]);
    const std::vector<double> ones(x.size(), 1);
    OpTest gradient(function.type + "Gradient");
    const std::vector<double> dx = ToDoubles(gradient.Input("x", shape, x).Input("dy", shape, ones).Run(dtype)[0]);
    for (size_t i = 0; i < x.size(); ++i) {
      ASSERT_LE(UnitsFrom<T>(y[i], function.exact(x[i])), 4) << function.type << " of " << x[i] << " gives " << y[i];
      if (std::isnan(y[i]) || std::isinf(x[i])) continue;
      // A slope of less than the least number with all digits may be 0.
      const Exact slope = function.slope(x[i]);
      const bool is_tiny = std::abs(slope) < std::numeric_limits<T>::min();
      ASSERT_LE(is_tiny ? std::abs(dx[i]) : UnitsFrom<T>(dx[i], slope), is_tiny ? std::numeric_limits<T>::min() : 4)
          << function.type << "Gradient of " << x[i] << " gives " << dx[i];
    }
  }
}

TEST(Trigonometry, IsExactOverTheWholeDomain) {
  ExpectExact<float>(DType::kFloat);
  ExpectExact<double>(DType::kDouble);
}

TEST(Trigonometry, OddFunctionsKeepTheSignOfZero) {
  for (const std::string type : {"Atan", "Asin", "Sinh", "Asinh", "Atanh"}) {
    for (const DType dtype : {DType::kFloat, DType::kDouble}) {
      const std::vector<double> y = ToDoubles(OpTest(type).Input("x", {2}, {0.0, -0.0}).Run(dtype)[0]);
      EXPECT_FALSE(std::signbit(y[0])) << type;
      EXPECT_TRUE(std::signbit(y[1])) << type;
    }
  }
}

}  // namespace
}  // namespace stepnet

#include "stepnet/core/vector_math.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "for_each_target.h"

namespace stepnet {
namespace {

template <typename T>
struct Function {
  const char* name;
  void (*vector)(const T*, T*, std::int64_t);
  long double (*exact)(long double);
  double limit = 3;  // of its error, in units of the last place
};

long double ExactSigmoid(long double x) { return x >= 0 ? 1 / (1 + std::exp(-x)) : std::exp(x) / (1 + std::exp(x)); }
long double ExactExp(long double x) { return std::exp(x); }
long double ExactLog(long double x) { return std::log(x); }
long double ExactTanh(long double x) { return std::tanh(x); }
long double ExactErfc(long double x) { return std::erfc(x); }
long double ExactSin(long double x) { return std::sin(x); }
long double ExactCos(long double x) { return std::cos(x); }

template <typename T>
const Function<T> kFunctions[] = {{"exp", VectorExp, ExactExp},
                                  {"log", VectorLog, ExactLog},
                                  {"tanh", VectorTanh, ExactTanh},
                                  {"sigmoid", VectorSigmoid, ExactSigmoid},
                                  {"erfc", VectorErfc, ExactErfc, 4},
                                  {"sin", VectorSin, ExactSin, 0.51 * sizeof(T) / sizeof(float)},
                                  {"cos", VectorCos, ExactCos, 0.51 * sizeof(T) / sizeof(float)}};

// |got - want| in units of the last place of want as a T.
template <typename T>
double ErrorInUlps(T got, long double want) {
  constexpr double kWrong = 1e30;
  using Limits = std::numeric_limits<T>;
  if (std::isnan(want)) return std::isnan(got) ? 0 : kWrong;
  const T rounded = static_cast<T>(want);
  if (std::isinf(rounded) || !std::isfinite(got)) return got == rounded ? 0 : kWrong;
  int exponent;
  std::frexp(rounded, &exponent);
  const T ulp = std::ldexp(T{1}, std::max(exponent, Limits::min_exponent) - Limits::digits);
  return static_cast<double>(std::fabs((got - want) / ulp));
}

// All exponents, the ranges where the functions bend, and the edges.
template <typename T>
std::vector<T> Samples() {
  using Limits = std::numeric_limits<T>;
  std::mt19937_64 random(11);
  std::vector<T> samples = {0, 1, -1, Limits::min(), Limits::max(), Limits::denorm_min(), Limits::epsilon()};
  for (int i = 0; i < 3000; ++i) {
    const std::uint64_t bits = random();
    T any;
    std::memcpy(&any, &bits, sizeof(any));
    samples.push_back(any);
    const T unit = static_cast<T>(random() >> 11) / static_cast<T>(std::int64_t{1} << 53) * 2 - 1;
    for (const T scale : {T{1}, T{12}, T{28}, T{106}, T{750}}) samples.push_back(unit * scale);
    samples.push_back(T{1} + unit * T{0.5});
  }
  return samples;
}

template <typename T>
void ExpectAccurate() {
  const std::vector<T> x = Samples<T>();
  for (const Function<T>& function : kFunctions<T>) {
    std::vector<long double> exact(x.size());
    for (size_t i = 0; i < x.size(); ++i) exact[i] = function.exact(x[i]);
    ForEachTarget([&] {
      std::vector<T> y(x.size());
      function.vector(x.data(), y.data(), static_cast<std::int64_t>(x.size()));
      for (size_t i = 0; i < x.size(); ++i) {
        ASSERT_LE(ErrorInUlps(y[i], exact[i]), function.limit)
            << function.name << "(" << std::hexfloat << x[i] << ") gives " << y[i] << ", is " << exact[i];
      }
    });
  }
}

TEST(VectorMath, IsAccurateOverTheWholeRange) {
  ExpectAccurate<float>();
  ExpectAccurate<double>();
}

// Near multiples of pi/2 and where the C library goes on, on every target.
TEST(VectorMath, SinesOfFloatsAreRoundedOnce) {
  std::vector<float> x;
  for (const double factor : {1.0, 7.0, 1001.0, 65537.0, 333'773.0, 333'775.0, 1e6, 1e9, 1e30}) {
    const auto multiple = static_cast<float>(factor * 1.5707963267948966);
    for (const float value : {multiple, std::nextafter(multiple, 0.0f), std::nextafter(multiple, 1e38f)}) {
      x.insert(x.end(), {value, -value});
    }
  }
  ForEachTarget([&] {
    std::vector<float> sines(x.size()), cosines(x.size());
    VectorSin(x.data(), sines.data(), static_cast<std::int64_t>(x.size()));
    VectorCos(x.data(), cosines.data(), static_cast<std::int64_t>(x.size()));
    for (size_t i = 0; i < x.size(); ++i) {
      EXPECT_LE(ErrorInUlps(sines[i], ExactSin(x[i])), 0.501) << std::hexfloat << x[i];
      EXPECT_LE(ErrorInUlps(cosines[i], ExactCos(x[i])), 0.501) << std::hexfloat << x[i];
    }
  });
}

template <typename T>
void ExpectEdges() {
  const T infinity = std::numeric_limits<T>::infinity();
  const T nan = std::numeric_limits<T>::quiet_NaN();
  const T x[] = {nan, infinity, -infinity, T{1e4}, T{-1e4}, T{0}, -T{0}, T{-1}, T{1}};
  constexpr int kCount = 9;
  const T exp[] = {nan, infinity, 0, infinity, 0, 1, 1, std::exp(T{-1}), std::exp(T{1})};
  const T log[] = {nan, infinity, nan, std::log(T{1e4}), nan, -infinity, -infinity, nan, 0};
  const T tanh[] = {nan, 1, -1, 1, -1, 0, -T{0}, std::tanh(T{-1}), std::tanh(T{1})};
  const T sigmoid[] = {nan, 1, 0, 1, 0, 0.5, 0.5, 1 / (1 + std::exp(T{1})), 1 / (1 + std::exp(T{-1}))};
  const T erfc[] = {nan, 0, 2, 0, 2, 1, 1, std::erfc(T{-1}), std::erfc(T{1})};
  const T sin[] = {nan, nan, nan, std::sin(T{1e4}), std::sin(T{-1e4}), 0, -T{0}, std::sin(T{-1}), std::sin(T{1})};
  const T cos[] = {nan, nan, nan, std::cos(T{1e4}), std::cos(T{1e4}), 1, 1, std::cos(T{1}), std::cos(T{1})};
  const T* const expected[] = {exp, log, tanh, sigmoid, erfc, sin, cos};
  static_assert(std::size(expected) == std::size(kFunctions<T>));
  ForEachTarget([&] {
    for (size_t f = 0; f < std::size(expected); ++f) {
      T y[kCount];
      kFunctions<T>[f].vector(x, y, kCount);
      for (int i = 0; i < kCount; ++i) {
        SCOPED_TRACE(std::string(kFunctions<T>[f].name) + " of " + std::to_string(x[i]));
        if (std::isnan(expected[f][i])) {
          EXPECT_TRUE(std::isnan(y[i])) << y[i];
        } else if (std::isinf(expected[f][i])) {
          EXPECT_EQ(y[i], expected[f][i]);
        } else {
          EXPECT_NEAR(y[i], expected[f][i], 4 * std::numeric_limits<T>::epsilon() * std::fabs(expected[f][i]));
          EXPECT_EQ(std::signbit(y[i]), std::signbit(expected[f][i]));
        }
      }
    }
  });
}

TEST(VectorMath, SaturatesAndKeepsNaN) {
  ExpectEdges<float>();
  ExpectEdges<double>();
}

// Also of NaNs that signal, and of those in which a single bit of the fraction is set.
template <typename T, typename Bits>
void ExpectNaNs() {
  constexpr int kFractionBits = std::numeric_limits<T>::digits - 1;
  const T infinity = std::numeric_limits<T>::infinity();
  std::vector<T> nans;
  for (int bit = 0; bit < kFractionBits; ++bit) {
    for (const T sign : {infinity, -infinity}) {
      Bits bits;
      std::memcpy(&bits, &sign, sizeof(bits));
      bits |= Bits{1} << bit;
      std::memcpy(&nans.emplace_back(), &bits, sizeof(bits));
    }
  }
  ForEachTarget([&] {
    for (const Function<T>& function : kFunctions<T>) {
      std::vector<T> y(nans.size());
      function.vector(nans.data(), y.data(), static_cast<std::int64_t>(y.size()));
      for (size_t i = 0; i < y.size(); ++i) EXPECT_TRUE(std::isnan(y[i])) << function.name << ", bit " << i / 2;
    }
  });
}

TEST(VectorMath, GivesNaNOfAnyNaN) {
  ExpectNaNs<float, std::uint32_t>();
  ExpectNaNs<double, std::uint64_t>();
}

// The result of a value is the same bits alone and at any place of any array, misaligned or in place.
template <typename T>
void ExpectIndependentOfPosition() {
  constexpr int kMaxLength = 67;
  std::mt19937 random(3);
  std::uniform_real_distribution<T> distribution(T{0.01}, 5);
  std::vector<T> x(kMaxLength + 3);
  for (T& value : x) value = distribution(random);
  ForEachTarget([&] {
    for (const Function<T>& function : kFunctions<T>) {
      std::vector<T> alone(x.size());
      for (size_t i = 0; i < x.size(); ++i) function.vector(&x[i], &alone[i], 1);
      for (int n = 0; n <= kMaxLength; ++n) {
        for (int offset = 0; offset < 3; ++offset) {
          std::vector<T> y(x.size() + 1, T{-7});
          function.vector(x.data() + offset, y.data() + 1, n);
          std::vector<T> in_place = x;
          function.vector(in_place.data() + offset, in_place.data() + offset, n);
          SCOPED_TRACE(testing::Message() << function.name << ", length " << n << ", offset " << offset);
          ASSERT_EQ(std::memcmp(y.data() + 1, alone.data() + offset, n * sizeof(T)), 0);
          ASSERT_EQ(std::memcmp(in_place.data() + offset, alone.data() + offset, n * sizeof(T)), 0);
          ASSERT_EQ(y[0], T{-7});
          for (size_t i = n + 1; i < y.size(); ++i) ASSERT_EQ(y[i], T{-7}) << "written beyond the end";
          for (size_t i = offset + n; i < x.size(); ++i) ASSERT_EQ(in_place[i], x[i]) << "written beyond the end";
        }
      }
    }
  });
}

TEST(VectorMath, DependsOnTheValueAlone) {
  ExpectIndependentOfPosition<float>();
  ExpectIndependentOfPosition<double>();
}

}  // namespace
}  // namespace stepnet

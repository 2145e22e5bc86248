#include <algorithm>
#include <cmath>
#include <numbers>

#include "operator_errors.h"
#include "stepnet/core/strings.h"
#include "stepnet/core/vector_math.h"

namespace stepnet {
namespace {

// Adds in the order in which RowSum does.
template <typename T, typename Term>
T RowSumOf(std::size_t begin, std::size_t end, const Term& term) {
  constexpr std::size_t kPartials = 64;
  T partial[kPartials] = {};
  for (std::size_t i = begin; i < end; ++i) partial[(i - begin) % kPartials] += term(i);
  for (std::size_t width = kPartials / 2; width > 0; width /= 2) {
    for (std::size_t i = 0; i < width; ++i) partial[i] += partial[i + width];
  }
  return partial[0];
}

// Element i by its pair of words, as Box and Muller have it.
template <typename T>
T NormalOf(const std::vector<T>& words, std::size_t i) {
  const std::size_t pair = i - i % 2;
  const T radius = std::sqrt(-2 * std::log((words[pair] + 1) * T{0x1p-32}));
  const T angle = 2 * std::numbers::pi_v<T> * (words[pair + 1] * T{0x1p-32});
  return radius * (i % 2 == 0 ? std::cos(angle) : std::sin(angle));
}

// Where no float changed.
Before OfDouble(Before::Function<double> fn) {
  Before before;
  before.of_double = std::move(fn);
  return before;
}

}  // namespace

std::vector<Case> ChangedCases() {
  const auto swish_gradient = [](double low, double high) {
    constexpr std::int64_t kCount = 1 << 16;
    return Case{.type = "SwishGradient",
                .sizes = StrCat(kCount, " in [", low, ", ", high, ")"),
                .inputs = {{{kCount}, low, high},
                           {.shape = {kCount}, .of_first = [](Exact x) { return x * Sigmoid(x); }},
                           {{kCount}}},
                .outputs = {"dx"},
                .exact = [](const std::vector<Numbers>& in) -> std::vector<Numbers> {
                  return {EachOf(in[0].size(), [&](std::size_t i) {
                    const Exact s = Sigmoid(in[0][i]);
                    return in[2][i] * s * (1 + in[0][i] * (1 - s));
                  })};
                },
                .before =
                    []<typename T>(const std::vector<std::vector<T>>& in) {
                      std::vector<T> dx(in[0].size());
                      VectorSigmoid(in[0].data(), dx.data(), static_cast<std::int64_t>(dx.size()));
                      for (std::size_t i = 0; i < dx.size(); ++i)
                        dx[i] = in[2][i] * (in[1][i] + dx[i] * (1 - in[1][i]));
                      return dx;
                    }};
  };
  constexpr std::int64_t kNormal = 200'000, kRows = 400, kRun = 16, kAfter = 64, kLong = 3 << 20;
  const Case gaussian{.type = "GaussianFill",
                      .sizes = StrCat(kNormal),
                      .inputs = {},
                      .outputs = {"y"},
                      .exact = [](const std::vector<Numbers>& words) -> std::vector<Numbers> {
                        return {EachOf(words[0].size(), [&](std::size_t i) { return NormalOf(words[0], i); })};
                      },
                      .num_random = kNormal,
                      .before = OfDouble([](const std::vector<std::vector<double>>& words) {
                        std::vector<double> y(words[0].size());
                        for (std::size_t i = 0; i < y.size(); ++i) y[i] = NormalOf(words[0], i);
                        return y;
                      })};
  const Case middle{.type = "SumReduceLike",
                    .sizes = StrCat(kRun, " in the middle of [", kRows, ", ", kRun, ", ", kAfter, "]"),
                    .inputs = {{{kRows, kRun, kAfter}}, {{kRun}}},
                    .outputs = {"c"},
                    .exact = [](const std::vector<Numbers>& in) -> std::vector<Numbers> {
                      Numbers sums(kRun);
                      for (std::size_t i = 0; i < in[0].size(); ++i) sums[i / kAfter % kRun] += in[0][i];
                      return {sums};
                    },
                    .arguments = {{"broadcast", 1}, {"axis", 1}},
                    .before =
                        []<typename T>(const std::vector<std::vector<T>>& in) {
                          std::vector<T> sums(kRun);
                          for (std::size_t row = 0; row < kRows * kRun; ++row) {
                            sums[row % kRun] +=
                                RowSumOf<T>(row * kAfter, (row + 1) * kAfter, [&](std::size_t i) { return in[0][i]; });
                          }
                          return sums;
                        }};
  const Case norm{
      .type = "ClipByGlobalNorm",
      .sizes = StrCat(kLong),
      .inputs = {{{kLong}}},
      .outputs = {"y", "norm"},
      .exact = [](const std::vector<Numbers>& in) -> std::vector<Numbers> {
        return {{}, {std::sqrt(SumOf(0, in[0].size(), [&](std::size_t i) { return in[0][i] * in[0][i]; }))}};
      },
      .floats = {{"max_norm", 1e30f}},
      .before =
          []<typename T>(const std::vector<std::vector<T>>& in) {
            const double squares = RowSumOf<double>(
                0, in[0].size(), [&](std::size_t i) { return static_cast<double>(in[0][i]) * in[0][i]; });
            return std::vector<T>{static_cast<T>(std::sqrt(squares))};
          }};
  return {swish_gradient(-10, 10), swish_gradient(3e7, 6e7), gaussian, middle, norm};
}

}  // namespace stepnet

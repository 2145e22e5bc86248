// Errors of reductions, on every target, in units of the last place of the sum of the terms' magnitudes:
//   RowSum 2 (1.1 found), of products 2 (1.4), however long the row is; a sum in order loses 60 of 20,000 terms.
//   RowMax 0.
//   Sums over n rows, which are in order: half the root of n and half a unit.
//   Operators that add up all elements or rows 2, means included.
// Other primitives are held against double in tests/core/expressions/expr_evaluate_test.cc.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>

#include "stepnet/core/regions/region_program.h"
#include "stepnet/tests/core/for_each_target.h"
#include "stepnet/tests/operators/op_test.h"

namespace stepnet {
namespace {

constexpr double kRowLimit = 2;

// Numbers of both signs and of some magnitudes, so that terms are lost where they are added carelessly.
template <typename T>
std::vector<T> Numbers(std::int64_t count, unsigned seed) {
  std::mt19937_64 random(seed);
  std::vector<T> numbers(static_cast<size_t>(count));
  for (T& number : numbers) {
    const double unit = std::ldexp(static_cast<double>(random() >> 11), -53);
    number = static_cast<T>(std::ldexp(unit - 0.3, static_cast<int>(random() % 6)));
  }
  return numbers;
}

// What terms add up to, and what the roundings of their sum are measured by.
struct Sum {
  long double value = 0;
  long double magnitude = 0;

  void Add(long double term) {
    value += term;
    magnitude += std::fabs(term);
  }
  template <typename T>
  double ErrorOf(T got) const {
    if (magnitude == 0) return got == 0 ? 0 : 1e30;
    const T size = static_cast<T>(magnitude);
    const T unit = std::nextafter(size, std::numeric_limits<T>::infinity()) - size;
    return static_cast<double>(std::fabs(static_cast<long double>(got) - value) / unit);
  }
};

constexpr std::int64_t kLengths[] = {0, 1, 5, 63, 64, 65, 300, 1000, 4099, 20000};
constexpr std::int64_t kRows = 5;

template <typename T>
void ExpectRowsAccurate() {
  const Expr x = Expr::Input(0, "x", kDTypeOf<T>);
  for (const std::int64_t n : kLengths) {
    const RegionOperand elements{.dtype = kDTypeOf<T>, .size = kRows * n, .strides = {0, 0, n, 1}};
    const RegionOperand rows{.dtype = kDTypeOf<T>, .size = kRows, .strides = {0, 0, 1, 0}};
    const auto output = [&](const Expr& value) {
      return RegionOutput{.value = value, .memory = rows, .kind = RegionOutputKind::kRows};
    };
    const Region region{.sizes = {1, 1, kRows, n},
                        .inputs = {elements},
                        .outputs = {output(RowSum(x)), output(RowSum(x * x)), output(RowMax(x))}};
    const std::vector<T> values = Numbers<T>(kRows * n, static_cast<unsigned>(n));
    std::vector<T> sums(kRows), squares(kRows), greatest(kRows);
    const void* inputs[] = {values.data()};
    void* outputs[] = {sums.data(), squares.data(), greatest.data()};
    RegionProgram(region).Run(inputs, outputs);
    for (std::int64_t row = 0; row < kRows; ++row) {
      Sum sum, square;
      T most = -std::numeric_limits<T>::infinity();
      for (std::int64_t j = 0; j < n; ++j) {
        const T value = values[static_cast<size_t>(row * n + j)];
        sum.Add(value);
        square.Add(static_cast<long double>(value) * value);
        most = std::max(most, value);
      }
      EXPECT_LE(sum.ErrorOf(sums[row]), kRowLimit) << "sum of " << n;
      EXPECT_LE(square.ErrorOf(squares[row]), kRowLimit) << "sum of the squares of " << n;
      EXPECT_EQ(greatest[row], most) << "maximum of " << n;
    }
  }
}

TEST(ReductionAccuracy, OfRows) {
  ForEachTarget([] {
    ExpectRowsAccurate<float>();
    ExpectRowsAccurate<double>();
  });
}

template <typename T>
void ExpectColumnsAccurate() {
  constexpr std::int64_t kColumns = 37;
  const Expr x = Expr::Input(0, "x", kDTypeOf<T>);
  for (const std::int64_t n : kLengths) {
    const RegionOperand elements{.dtype = kDTypeOf<T>, .size = kColumns * n, .strides = {0, 0, kColumns, 1}};
    const RegionOperand columns{.dtype = kDTypeOf<T>, .size = kColumns, .strides = {0, 0, 0, 1}};
    const Region region{.sizes = {1, 1, n, kColumns},
                        .inputs = {elements},
                        .outputs = {{.value = x, .memory = columns, .kind = RegionOutputKind::kSums}}};
    const std::vector<T> values = Numbers<T>(kColumns * n, static_cast<unsigned>(n));
    std::vector<T> sums(kColumns);
    const void* inputs[] = {values.data()};
    void* outputs[] = {sums.data()};
    RegionProgram(region).Run(inputs, outputs);
    for (std::int64_t column = 0; column < kColumns; ++column) {
      Sum sum;
      for (std::int64_t i = 0; i < n; ++i) sum.Add(values[static_cast<size_t>(i * kColumns + column)]);
      EXPECT_LE(sum.ErrorOf(sums[column]), 0.5 * std::sqrt(static_cast<double>(n)) + 0.5)
          << "sum over " << n << " rows";
    }
  }
}

TEST(ReductionAccuracy, OverRows) {
  ForEachTarget([] {
    ExpectColumnsAccurate<float>();
    ExpectColumnsAccurate<double>();
  });
}

// Operators that add up all elements, or those of rows.
struct Case {
  const char* type;
  bool squares = false;
  bool averages = false;
  bool of_rows = false;
};
constexpr Case kCases[] = {
    {.type = "SumElements"},
    {.type = "SumSqrElements", .squares = true},
    {.type = "SumElements", .averages = true},
    {.type = "SumSqrElements", .squares = true, .averages = true},
    {.type = "AveragedLoss", .averages = true},
    {.type = "ReduceSum", .of_rows = true},
    {.type = "ReduceMean", .averages = true, .of_rows = true},
};

template <typename T>
void ExpectOperatorAccurate(const Case& c, std::int64_t n) {
  const std::int64_t rows = c.of_rows ? kRows : 1;
  const std::vector<T> values = Numbers<T>(rows * n, static_cast<unsigned>(n));
  OpTest op(c.type);
  op.Input("x", Tensor::Of<T>({rows, n}, values));
  if (c.of_rows) op.Ints("axes", {1});
  if (GetOperator(c.type).FindArgument("average") != nullptr) op.Arg("average", c.averages ? 1 : 0);
  const Tensor y = op.Run()[0];
  for (std::int64_t row = 0; row < rows; ++row) {
    Sum sum;
    for (std::int64_t j = 0; j < n; ++j) {
      const long double value = values[static_cast<size_t>(row * n + j)];
      sum.Add((c.squares ? value * value : value) / (c.averages ? n : 1));
    }
    EXPECT_LE(sum.ErrorOf(y.data<T>()[row]), kRowLimit) << c.type << " of " << n;
  }
}

TEST(ReductionAccuracy, OfOperators) {
  ForEachTarget([] {
    for (const Case& c : kCases) {
      for (const std::int64_t n : kLengths) {
        if (n == 0) continue;
        ExpectOperatorAccurate<float>(c, n);
        ExpectOperatorAccurate<double>(c, n);
      }
    }
  });
}

}  // namespace
}  // namespace stepnet

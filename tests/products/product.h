// A product of random matrices and what it is by its formula, in double.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <random>
#include <vector>

#include "stepnet/products/gemm.h"

namespace stepnet {

// All rows in memory are longer than they need to be: what nobody reads or writes is NaN.
struct Product {
  static constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

  std::int64_t m, n, k;
  bool a_transposed, b_transposed;
  std::int64_t a_stride = (a_transposed ? m : k) + 3, b_stride = (b_transposed ? k : n) + 1, c_stride = n + 2;
  std::vector<float> a = a_transposed ? Random(k, m, a_stride) : Random(m, k, a_stride);
  std::vector<float> b = b_transposed ? Random(n, k, b_stride) : Random(k, n, b_stride);
  std::vector<float> c = Random(m, n, c_stride), bias = Random(1, n, n);

  static std::vector<float> Random(std::int64_t rows, std::int64_t columns, std::int64_t stride) {
    std::mt19937 random(static_cast<unsigned>(rows + 7 * columns + 31 * stride));
    std::uniform_real_distribution<float> distribution(-1, 1);
    std::vector<float> values(static_cast<size_t>(rows * stride), kNaN);
    for (std::int64_t i = 0; i < rows; ++i) {
      for (std::int64_t j = 0; j < columns; ++j) values[i * stride + j] = distribution(random);
    }
    return values;
  }

  MatrixView<float> A() const { return {a.data(), a_stride, a_transposed}; }
  MatrixView<float> B() const { return {b.data(), b_stride, b_transposed}; }

  // What C holds when `multiply` begins.
  std::vector<float> Before(bool accumulates) const { return accumulates ? c : std::vector<float>(c.size(), kNaN); }

  // In pieces of so many rows and columns: multiply(rows, columns, A, B, C, first column).
  template <typename Multiply>
  std::vector<float> Run(bool accumulates, std::int64_t rows, std::int64_t columns, const Multiply& multiply) const {
    std::vector<float> out = Before(accumulates);
    for (std::int64_t i = 0; i < m; i += rows) {
      for (std::int64_t j = 0; j < n; j += columns) {
        multiply(std::min(rows, m - i), std::min(columns, n - j), A().From(i, 0), B().From(0, j),
                 out.data() + i * c_stride + j, j);
      }
    }
    return out;
  }

  double Expected(std::int64_t i, std::int64_t j, bool accumulates, bool has_bias) const {
    double sum = (accumulates ? c[i * c_stride + j] : 0.0) + (has_bias ? bias[j] : 0.0);
    for (std::int64_t l = 0; l < k; ++l) sum += static_cast<double>(*A().From(i, l).data) * *B().From(l, j).data;
    return sum;
  }
};

inline bool AreSame(const std::vector<float>& x, const std::vector<float>& y) {
  return std::ranges::equal(x, y,
                            [](float one, float other) { return one == other || (one != one && other != other); });
}

}  // namespace stepnet

// Products of few rows with weights as FC keeps them, [N, K], and the other way around, [K, N].
#include <benchmark/benchmark.h>

#include <vector>

#include "stepnet/operators/gemm.h"

namespace stepnet {
namespace {

void ProductLayout(benchmark::State& state) {
  const std::int64_t m = state.range(0), k = state.range(1), n = 4 * k;
  const bool transposed = state.range(2) != 0;
  const std::vector<float> x(m * k, 0.1F), w(n * k, 0.1F);
  std::vector<float> y(m * n);
  for (auto run : state) {
    Gemm<float>(m, n, k, {x.data(), k}, {w.data(), transposed ? k : n, transposed}, y.data(), n);
    benchmark::DoNotOptimize(y.data());
  }
  state.counters["GFLOP/s"] =
      benchmark::Counter(2e-9 * static_cast<double>(m * n * k), benchmark::Counter::kIsIterationInvariantRate);
}

BENCHMARK(ProductLayout)
    ->ArgNames({"M", "K", "transposed"})
    ->ArgsProduct({{1, 2, 3, 4, 8, 16, 32, 64}, {64, 256, 512}, {1, 0}});

// What it costs to compute a product of 4 K columns in blocks of so many of them (operators/gemm.h), with weights as
// they are or packed for these blocks.
void ProductBlocks(benchmark::State& state) {
  const std::int64_t m = state.range(0), k = state.range(1), n = 4 * k, width = state.range(2);
  const bool packed = state.range(3) != 0;
  const std::vector<float> x(m * k, 0.1F), w(n * k, 0.1F);
  std::vector<float> y(m * n);
  for (auto run : state) {
    for (std::int64_t begin = 0; begin < n; begin += width) {
      const MatrixView<float> weights{w.data() + begin * k, packed ? width : k, !packed};
      Gemm<float>(m, width, k, {x.data(), k}, weights, y.data() + begin, n);
    }
    benchmark::DoNotOptimize(y.data());
  }
}

BENCHMARK(ProductBlocks)
    ->ArgNames({"M", "K", "columns", "packed"})
    ->ArgsProduct({{1, 8, 32, 64, 256}, {128, 256}, {512, 256, 128, 64}, {0, 1}});

}  // namespace
}  // namespace stepnet

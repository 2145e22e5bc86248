// Products of few rows with weights as FC keeps them, [N, K], the other way around, [K, N], and in panels; and
// gradients of these weights.
#include <benchmark/benchmark.h>
#include <hwy/aligned_allocator.h>

#include <algorithm>
#include <vector>

#include "stepnet/products/gemm.h"
#include "stepnet/products/panel_product.h"

namespace stepnet {
namespace {

// On cache lines, as tensors are.
using Floats = hwy::AlignedFreeUniquePtr<float[]>;
Floats Full(std::int64_t count) {
  Floats values = hwy::AllocateAligned<float>(static_cast<size_t>(count));
  std::fill_n(values.get(), count, 0.1F);
  return values;
}

void ProductLayout(benchmark::State& state) {
  const std::int64_t m = state.range(0), k = state.range(1), n = 4 * k;
  const bool transposed = state.range(2) != 0;
  const Floats x = Full(m * k), w = Full(n * k), y = Full(m * n);
  for (auto run : state) {
    Gemm<float>(m, n, k, {x.get(), k}, {w.get(), transposed ? k : n, transposed}, y.get(), n);
    benchmark::DoNotOptimize(y.get());
  }
  state.counters["GFLOP/s"] =
      benchmark::Counter(2e-9 * static_cast<double>(m * n * k), benchmark::Counter::kIsIterationInvariantRate);
}

BENCHMARK(ProductLayout)
    ->ArgNames({"M", "K", "transposed"})
    ->ArgsProduct({{1, 2, 3, 4, 8, 16, 32, 64}, {32, 64, 128, 256, 512}, {1, 0}});

// Gradients of such weights, of so many rows: the columns of [M, 4K] times those of [M, K], in blocks as plans have
// them.
void ProductColumns(benchmark::State& state) {
  const std::int64_t m = state.range(0), k = state.range(1), n = 4 * k;
  const std::int64_t block = n / BlocksOfGemm(n, k, m).count;
  const std::vector<float> x(m * k, 0.1F), dy(m * n, 0.1F);
  std::vector<float> dw(n * k);
  for (auto run : state) {
    for (std::int64_t i = 0; i < n; i += block) {
      Gemm<float>(block, k, m, {dy.data() + i, n, true}, {x.data(), k}, dw.data() + i * k, k);
    }
    benchmark::DoNotOptimize(dw.data());
  }
  state.counters["GFLOP/s"] =
      benchmark::Counter(2e-9 * static_cast<double>(m * n * k), benchmark::Counter::kIsIterationInvariantRate);
}

BENCHMARK(ProductColumns)->ArgNames({"M", "K"})->ArgsProduct({{64, 400, 3200}, {128, 256, 512, 1024}});

// The same products with weights in panels (products/panel_product.h), of all columns or of so many in turn; and what
// it takes to lay them out.
void ProductPanels(benchmark::State& state) {
  const std::int64_t m = state.range(0), k = state.range(1), n = 4 * k, width = state.range(2);
  const std::vector<float> x(m * k, 0.1F), w(n * k, 0.1F);
  std::vector<float> y(m * n);
  const auto panels = hwy::AllocateAligned<float>(PanelElements(n, k));  // on cache lines, as in plans
  PackPanels<float>(n, k, {w.data(), k, true}, 0, NumPanels(n), panels.get());
  for (auto run : state) {
    for (std::int64_t begin = 0; begin < n; begin += width) {
      PanelProduct(m, {n, begin, std::min(n, begin + width), n}, k, x.data(), k, panels.get(), y.data(), n);
    }
    benchmark::DoNotOptimize(y.data());
  }
  state.counters["GFLOP/s"] =
      benchmark::Counter(2e-9 * static_cast<double>(m * n * k), benchmark::Counter::kIsIterationInvariantRate);
}

BENCHMARK(ProductPanels)
    ->ArgNames({"M", "K", "columns"})
    ->ArgsProduct({{1, 2, 3, 4, 8, 16, 32, 64, 128}, {64, 256, 512}, {1 << 20, 64, 16}});

void ProductPack(benchmark::State& state) {
  const std::int64_t k = state.range(0), n = 4 * k;
  const std::vector<float> w(n * k, 0.1F);
  const auto panels = hwy::AllocateAligned<float>(PanelElements(n, k));
  for (auto run : state) {
    PackPanels<float>(n, k, {w.data(), k, true}, 0, NumPanels(n), panels.get());
    benchmark::DoNotOptimize(panels.get());
  }
  state.counters["GB/s"] =
      benchmark::Counter(4e-9 * static_cast<double>(n * k), benchmark::Counter::kIsIterationInvariantRate);
}

BENCHMARK(ProductPack)->ArgName("K")->Arg(64)->Arg(256)->Arg(512)->Arg(1024);

}  // namespace
}  // namespace stepnet

// Regions: what a run adds to its work (64 elements), what fusing saves (a peephole LSTM's pointwise operators as one
// region, written by hand and composed, and one by one), and how long composing a region and making a program take.
//
//   build/release/bench/stepnet_bench --benchmark_filter=Region
#include <benchmark/benchmark.h>

#include <new>
#include <string>
#include <vector>

#include "stepnet/core/regions/region_composition.h"
#include "stepnet/core/regions/region_program.h"
#include "stepnet/core/strings.h"
#include "stepnet/core/target.h"
#include "stepnet/core/vector_math.h"

namespace stepnet {
namespace {

// Arrays lie on cache lines, as tensors do: elsewhere a run takes up to 1.3 times as long, by where the heap puts them.
template <typename T>
struct OnLines {
  using value_type = T;
  static constexpr std::align_val_t kAlignment{kLineBytes};

  T* allocate(size_t n) { return static_cast<T*>(::operator new(n * sizeof(T), kAlignment)); }
  void deallocate(T* data, size_t /*n*/) { ::operator delete(data, kAlignment); }
  bool operator==(const OnLines&) const = default;
};
using Floats = std::vector<float, OnLines<float>>;

Floats Values(std::int64_t n) {
  Floats values(static_cast<size_t>(n));
  for (std::int64_t i = 0; i < n; ++i) values[i] = static_cast<float>(i * 37 % 101) / 25 - 2;
  return values;
}

// Elements [R, C] of an array whose rows are `row` long, from `offset` on.
RegionOperand Elements(std::int64_t rows, std::int64_t row, std::int64_t offset = 0) {
  return {.dtype = DType::kFloat, .size = rows * row, .offset = offset, .strides = {0, 0, row, 1}};
}

Expr In(int number) { return Expr::Input(number, StrCat("x", number), DType::kFloat); }

// A region of one operator on dense operands.
Region Single(const Expr& value, int inputs, std::int64_t rows, std::int64_t columns) {
  const RegionOperand dense = Elements(rows, columns);
  return {.sizes = {1, 1, rows, columns},
          .inputs = std::vector<RegionOperand>(static_cast<size_t>(inputs), dense),
          .outputs = {{.value = value, .memory = dense}}};
}

void RunSingle(benchmark::State& state, const Expr& value, int inputs) {
  const std::int64_t n = state.range(0);
  const RegionProgram program(Single(value, inputs, 1, n));
  const Floats a = Values(n), b = Values(n);
  Floats y(a.size());
  const void* in[] = {a.data(), b.data()};
  void* out[] = {y.data()};
  for (auto _ : state) program.Run(in, out);
  state.SetItemsProcessed(state.iterations() * n);
}

void RegionTanh(benchmark::State& state) { RunSingle(state, Tanh(In(0)), 1); }
void RegionAdd(benchmark::State& state) { RunSingle(state, In(0) + In(1), 2); }
void RegionTanhWithoutRegion(benchmark::State& state) {
  const Floats a = Values(state.range(0));
  Floats y(a.size());
  for (auto _ : state) VectorTanh(a.data(), y.data(), state.range(0));
  state.SetItemsProcessed(state.iterations() * state.range(0));
}
BENCHMARK(RegionTanh)->Arg(64)->Arg(4096)->Arg(1 << 20);
BENCHMARK(RegionTanhWithoutRegion)->Arg(64)->Arg(4096)->Arg(1 << 20);
BENCHMARK(RegionAdd)->Arg(64)->Arg(4096)->Arg(1 << 20);

constexpr std::int64_t kRows = 32, kUnits = 256;

// The operators between the products of examples/cells/peephole_lstm.cell: h @ u is added, the gates are split. Inputs
// 0 to 3 are gates of x @ w + b, 4 to 7 of h @ u, then come c_prev, p_i, p_f and p_o.
Region Peephole() {
  const std::int64_t row = 4 * kUnits;
  Region region{.sizes = {1, 1, kRows, kUnits}};
  for (int half = 0; half < 2; ++half) {
    for (int gate = 0; gate < 4; ++gate) region.inputs.push_back(Elements(kRows, row, gate * kUnits));
  }
  region.inputs.push_back(Elements(kRows, kUnits));
  for (int i = 0; i < 3; ++i) {
    region.inputs.push_back({.dtype = DType::kFloat, .size = kUnits, .strides = {0, 0, 0, 1}});
  }
  const Expr i = In(0) + In(4), f = In(1) + In(5), o = In(2) + In(6), g = In(3) + In(7);
  const Expr c_prev = In(8);
  const Expr c = Sigmoid(f + In(10) * c_prev) * c_prev + Sigmoid(i + In(9) * c_prev) * Tanh(g);
  const Expr h = Sigmoid(o + In(11) * c) * Tanh(c);
  region.outputs = {{.value = h, .memory = Elements(kRows, kUnits)}, {.value = c, .memory = Elements(kRows, kUnits)}};
  return region;
}

void RegionPeephole(benchmark::State& state) {
  const RegionProgram program(Peephole());
  const Floats x = Values(kRows * 4 * kUnits), u = Values(kRows * 4 * kUnits), c_prev = Values(kRows * kUnits);
  const Floats p = Values(kUnits);
  Floats h(c_prev.size()), c(c_prev.size());
  const void* in[] = {x.data(), x.data(), x.data(),      x.data(), u.data(), u.data(),
                      u.data(), u.data(), c_prev.data(), p.data(), p.data(), p.data()};
  void* out[] = {h.data(), c.data()};
  for (auto _ : state) program.Run(in, out);
  state.SetItemsProcessed(state.iterations() * kRows * kUnits);
}
BENCHMARK(RegionPeephole);

// The same 16 operators, each a region of its own that reads and writes arrays of all rows.
void RegionPeepholeOneByOne(benchmark::State& state) {
  const RegionProgram add(Single(In(0) + In(1), 2, kRows, kUnits));
  const RegionProgram add_gates(Single(In(0) + In(1), 2, kRows, 4 * kUnits));
  const RegionProgram multiply(Single(In(0) * In(1), 2, kRows, kUnits));
  const RegionProgram sigmoid(Single(Sigmoid(In(0)), 1, kRows, kUnits));
  const RegionProgram tanh(Single(Tanh(In(0)), 1, kRows, kUnits));
  const Floats x = Values(kRows * 4 * kUnits), u = Values(kRows * 4 * kUnits), c_prev = Values(kRows * kUnits);
  Floats gates(x.size());
  std::vector<Floats> y(16, Floats(c_prev.size()));
  const auto run = [](const RegionProgram& program, const float* a, const float* b, float* out) {
    const void* in[] = {a, b};
    void* outputs[] = {out};
    program.Run(in, outputs);
  };
  const float* gate[4];
  for (int k = 0; k < 4; ++k) gate[k] = gates.data() + k * kRows * kUnits;
  for (auto _ : state) {
    run(add_gates, x.data(), u.data(), gates.data());
    run(multiply, c_prev.data(), c_prev.data(), y[0].data());
    run(add, gate[1], y[0].data(), y[1].data());
    run(sigmoid, y[1].data(), nullptr, y[2].data());
    run(multiply, y[2].data(), c_prev.data(), y[3].data());
    run(multiply, c_prev.data(), c_prev.data(), y[4].data());
    run(add, gate[0], y[4].data(), y[5].data());
    run(sigmoid, y[5].data(), nullptr, y[6].data());
    run(tanh, gate[3], nullptr, y[7].data());
    run(multiply, y[6].data(), y[7].data(), y[8].data());
    run(add, y[3].data(), y[8].data(), y[9].data());
    run(multiply, y[9].data(), c_prev.data(), y[10].data());
    run(add, gate[2], y[10].data(), y[11].data());
    run(sigmoid, y[11].data(), nullptr, y[12].data());
    run(tanh, y[9].data(), nullptr, y[13].data());
    run(multiply, y[12].data(), y[13].data(), y[14].data());
  }
  state.SetItemsProcessed(state.iterations() * kRows * kUnits);
}
BENCHMARK(RegionPeepholeOneByOne);

// The 17 operators, the Split among them, with the tensors that each reads and writes: 0 x @ w + b, 1 h @ u, 2 c_prev,
// 3 to 5 peepholes; 22 h, 18 c.
std::vector<RegionPart> PeepholeParts() {
  const RegionOperand dense = Elements(kRows, kUnits);
  const RegionOperand column{.dtype = DType::kFloat, .size = kUnits, .strides = {0, 0, 0, 1}};
  std::vector<RegionPart> parts;
  const auto add = [&](const Expr& value, std::vector<RegionOperand> inputs, std::vector<int> from, int to) {
    Region region{.sizes = {1, 1, kRows, kUnits}, .inputs = std::move(inputs)};
    region.outputs = {{.value = value, .memory = dense}};
    parts.push_back({.region = std::move(region), .inputs = std::move(from), .outputs = {to}});
  };
  const auto product = [&](int p, int c, int to) { add(In(0) * In(1), {column, dense}, {p, c}, to); };
  const auto multiply = [&](int a, int b, int to) { add(In(0) * In(1), {dense, dense}, {a, b}, to); };
  const auto sum = [&](int a, int b, int to) { add(In(0) + In(1), {dense, dense}, {a, b}, to); };
  const auto sigmoid = [&](int x, int to) { add(Sigmoid(In(0)), {dense}, {x}, to); };
  const auto tanh = [&](int x, int to) { add(Tanh(In(0)), {dense}, {x}, to); };
  parts.push_back({.region = Single(In(0) + In(1), 2, 1, kRows * 4 * kUnits), .inputs = {0, 1}, .outputs = {6}});
  Region split{.sizes = {1, 1, kRows, kUnits}};
  for (int gate = 0; gate < 4; ++gate) {
    split.inputs.push_back(Elements(kRows, 4 * kUnits, gate * kUnits));
    split.outputs.push_back({.value = In(gate), .memory = dense});
  }
  parts.push_back({.region = std::move(split), .inputs = {6, 6, 6, 6}, .outputs = {7, 8, 9, 10}});
  product(4, 2, 11);
  sum(8, 11, 12);
  sigmoid(12, 13);
  multiply(13, 2, 14);
  product(3, 2, 15);
  sum(7, 15, 16);
  sigmoid(16, 17);
  tanh(10, 23);
  multiply(17, 23, 24);
  sum(14, 24, 18);
  product(5, 18, 19);
  sum(9, 19, 20);
  sigmoid(20, 21);
  tanh(18, 25);
  multiply(21, 25, 22);
  return parts;
}

void RegionPeepholeComposed(benchmark::State& state) {
  const auto composed = std::get<ComposedRegion>(ComposeRegions(PeepholeParts(), {.wanted = {22, 18}}));
  const RegionProgram program(composed.region);
  const Floats x = Values(kRows * 4 * kUnits), u = Values(kRows * 4 * kUnits), c_prev = Values(kRows * kUnits);
  const Floats p = Values(kUnits);
  Floats h(c_prev.size()), c(c_prev.size());
  const float* const tensors[] = {x.data(), u.data(), c_prev.data(), p.data(), p.data(), p.data()};
  std::vector<const void*> in;
  for (const int tensor : composed.inputs) in.push_back(tensors[tensor]);
  void* out[] = {h.data(), c.data()};
  for (auto _ : state) program.Run(in, out);
  state.SetItemsProcessed(state.iterations() * kRows * kUnits);
}
BENCHMARK(RegionPeepholeComposed);

// Rows of 10 and of 256; items are elements.
void RegionSoftmax(benchmark::State& state) {
  const std::int64_t columns = state.range(0), rows = 8192 / columns;
  const Expr e = Exp(In(0) - RowMax(In(0)));
  const RegionProgram program(Single(e / RowSum(e), 1, rows, columns));
  const Floats x = Values(rows * columns);
  Floats y(x.size());
  const void* in[] = {x.data()};
  void* out[] = {y.data()};
  for (auto _ : state) program.Run(in, out);
  state.SetItemsProcessed(state.iterations() * rows * columns);
}
BENCHMARK(RegionSoftmax)->Arg(10)->Arg(256)->Arg(4096);

// Short rows that a column is repeated over: blocks hold several.
void RegionAddColumn(benchmark::State& state) {
  const std::int64_t columns = state.range(0), rows = 8192 / columns;
  Region region = Single(In(0) + In(1), 2, rows, columns);
  region.inputs[1] = {.dtype = DType::kFloat, .size = columns, .strides = {0, 0, 0, 1}};
  const RegionProgram program(region);
  const Floats x = Values(rows * columns), column = Values(columns);
  Floats y(x.size());
  const void* in[] = {x.data(), column.data()};
  void* out[] = {y.data()};
  for (auto _ : state) program.Run(in, out);
  state.SetItemsProcessed(state.iterations() * rows * columns);
}
BENCHMARK(RegionAddColumn)->Arg(8)->Arg(64)->Arg(256);

// The step of fast weights, matrices [K, K] for each of 32 heads: s = 0.95 s + v k, read by a query.
void RegionFastWeights(benchmark::State& state) {
  constexpr std::int64_t kHeads = 32;
  const std::int64_t k = state.range(0);
  const RegionOperand matrix{.dtype = DType::kFloat, .size = kHeads * k * k, .strides = {0, k * k, k, 1}};
  const RegionOperand of_rows{.dtype = DType::kFloat, .size = kHeads * k, .strides = {0, k, 1, 0}};
  const RegionOperand of_columns{.dtype = DType::kFloat, .size = kHeads * k, .strides = {0, k, 0, 1}};
  const Expr s = MulAdd(In(1), In(2), In(0) * 0.95);
  const RegionProgram program(
      Region{.sizes = {1, kHeads, k, k},
             .inputs = {matrix, of_rows, of_columns, of_columns},
             .outputs = {{.value = s, .memory = matrix},
                         {.value = RowSum(s * In(3)), .memory = of_rows, .kind = RegionOutputKind::kRows}}});
  const Floats before = Values(matrix.size), rows = Values(of_rows.size);
  Floats after(before.size()), y(rows.size());
  const void* in[] = {before.data(), rows.data(), rows.data(), rows.data()};
  void* out[] = {after.data(), y.data()};
  for (auto _ : state) program.Run(in, out);
  state.SetItemsProcessed(state.iterations() * matrix.size);
}
BENCHMARK(RegionFastWeights)->Arg(16)->Arg(32)->Arg(64)->Arg(128);

// That of Mamba, a batch of 8 with N numbers for each of 64 units.
void RegionSelectiveMemory(benchmark::State& state) {
  constexpr std::int64_t kBatch = 8, kStates = 64;
  const std::int64_t n = state.range(0);
  const RegionOperand memory{.dtype = DType::kFloat, .size = kBatch * kStates * n, .strides = {0, kStates * n, n, 1}};
  const RegionOperand rate{.dtype = DType::kFloat, .size = kStates * n, .strides = {0, 0, n, 1}};
  const RegionOperand of_rows{.dtype = DType::kFloat, .size = kBatch * kStates, .strides = {0, kStates, 1, 0}};
  const RegionOperand of_columns{.dtype = DType::kFloat, .size = kBatch * n, .strides = {0, n, 0, 1}};
  const Expr s = MulAdd(Exp(-In(2) * In(1)), In(0), In(2) * In(3) * In(4));
  const RegionProgram program(
      Region{.sizes = {1, kBatch, kStates, n},
             .inputs = {memory, rate, of_rows, of_rows, of_columns, of_columns},
             .outputs = {{.value = s, .memory = memory},
                         {.value = RowSum(s * In(5)), .memory = of_rows, .kind = RegionOutputKind::kRows}}});
  const Floats before = Values(memory.size), rates = Values(rate.size), rows = Values(of_rows.size);
  const Floats columns = Values(of_columns.size);
  Floats after(before.size()), y(rows.size());
  const void* in[] = {before.data(), rates.data(), rows.data(), rows.data(), columns.data(), columns.data()};
  void* out[] = {after.data(), y.data()};
  for (auto _ : state) program.Run(in, out);
  state.SetItemsProcessed(state.iterations() * memory.size);
}
BENCHMARK(RegionSelectiveMemory)->Arg(8)->Arg(16)->Arg(64);

// The gradient of a gain: products of what has elements, added up over the rows.
void RegionSumOverRows(benchmark::State& state) {
  const std::int64_t columns = state.range(0), rows = 8192 / columns;
  const RegionOperand dense = Elements(rows, columns);
  const RegionOperand column{.dtype = DType::kFloat, .size = columns, .strides = {0, 0, 0, 1}};
  const RegionProgram program(
      Region{.sizes = {1, 1, rows, columns},
             .inputs = {dense, dense},
             .outputs = {{.value = In(0) * In(1), .memory = column, .kind = RegionOutputKind::kSums}}});
  const Floats x = Values(rows * columns);
  Floats sums(static_cast<size_t>(columns));
  const void* in[] = {x.data(), x.data()};
  void* out[] = {sums.data()};
  for (auto _ : state) program.Run(in, out);
  state.SetItemsProcessed(state.iterations() * rows * columns);
}
BENCHMARK(RegionSumOverRows)->Arg(16)->Arg(64)->Arg(256);

void RegionMakeProgram(benchmark::State& state) {
  const Region region = Peephole();
  for (auto _ : state) benchmark::DoNotOptimize(RegionProgram(region));
}
BENCHMARK(RegionMakeProgram);

void RegionCompose(benchmark::State& state) {
  const std::vector<RegionPart> parts = PeepholeParts();
  for (auto _ : state) benchmark::DoNotOptimize(ComposeRegions(parts, {.wanted = {22, 18}}));
}
BENCHMARK(RegionCompose);

void RegionMakeExpressions(benchmark::State& state) {
  for (auto _ : state) benchmark::DoNotOptimize(Peephole());
}
BENCHMARK(RegionMakeExpressions);

}  // namespace
}  // namespace stepnet

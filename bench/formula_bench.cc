// From an operator's formula to the program that runs it: what its first run with new shapes takes beside its work.
//
//   build/release/bench/stepnet_bench --benchmark_filter=FormulaToProgram
#include <benchmark/benchmark.h>

#include "stepnet/core/formulas/formula_kernel.h"
#include "stepnet/core/formulas/formula_program.h"
#include "stepnet/core/strings.h"
#include "stepnet/proto/net.pb.h"

namespace stepnet {
namespace {

void FormulaToProgram(benchmark::State& state, const std::string& type, int num_outputs,
                      const std::vector<TensorInfo>& inputs) {
  OperatorDef def;
  def.set_type(type);
  for (size_t i = 0; i < inputs.size(); ++i) def.add_input(StrCat("x", i));
  for (int o = 0; o < num_outputs; ++o) def.add_output(StrCat("y", o));
  const OperatorCall call(def);
  const ShapeQuery query(call, inputs);
  const std::vector<TensorInfo> outputs = DeclaredOutputs(query);
  for (auto _ : state) {
    const FormulaProgram program(query, ~std::uint64_t{0}, MakeFormulaRegion(query, outputs));
    program.Prepare();
  }
}

TensorInfo Floats(const Shape& shape) { return {.dtype = DType::kFloat, .shape = shape}; }
TensorInfo Ints(std::int64_t n) { return {.dtype = DType::kInt32, .shape = Shape({n})}; }

constexpr std::int64_t kRows = 32, kUnits = 256;
const TensorInfo kOfRows = Floats({kRows, kUnits}), kOfState = Floats({1, kRows, kUnits});
const std::vector<TensorInfo> kOfUnit = {kOfState, kOfState, Floats({1, kRows, 4 * kUnits}), Ints(kRows), Ints(1)};
const std::vector<TensorInfo> kOfUnitGradient = [] {
  std::vector<TensorInfo> inputs = kOfUnit;
  inputs.insert(inputs.end(), 4, kOfState);
  return inputs;
}();

BENCHMARK_CAPTURE(FormulaToProgram, Tanh, "Tanh", 1, {kOfRows});
BENCHMARK_CAPTURE(FormulaToProgram, LayerNorm, "LayerNorm", 3, {kOfRows});
BENCHMARK_CAPTURE(FormulaToProgram, LSTMUnit, "LSTMUnit", 2, kOfUnit);
BENCHMARK_CAPTURE(FormulaToProgram, LSTMUnitGradient, "LSTMUnitGradient", 3, kOfUnitGradient);

}  // namespace
}  // namespace stepnet

// What an executor adds to an instruction: steps of operators that do nothing, each waiting for the one before. The
// counter `per_instruction` is the time of a run by the number of instructions in all of its steps.
//
//   build/release/bench/stepnet_bench --benchmark_filter=Overhead
#include <benchmark/benchmark.h>

#include "one_state.h"
#include "stepnet/core/operator.h"
#include "stepnet/nets/net.h"
#include "stepnet/nets/op_builder.h"

namespace stepnet {
namespace {

constexpr int kInstructions = 20;  // of a step
constexpr std::int64_t kSteps = 1000;

// A cost that makes a schedule cut the operator up where it may.
Cost PretendedCost(const ShapeQuery& query, std::span<const TensorInfo>) {
  return {.flops = query.op().Int("parts") > 1 ? 1e6 : 0};
}

const Registration nothing =
    Operator("bench.Nothing")
        .Inputs("x", "any")
        .Output("y", "as x; not written")
        .Arg("parts", 1, "in how many parts it may run")
        .Shapes(SameAsInput(0))
        .CostIs(PretendedCost)
        .Cpu({.make = [](const OperatorCall&) -> RunFn { return [](const OpRun&) {}; },
              .max_parts = [](const ShapeQuery& query,
                              std::span<const TensorInfo>) { return static_cast<int>(query.op().Int("parts")); }});

NetDef ChainOf(int parts) {
  NetDef step;
  AddOp(&step, "bench.Nothing", {"x_t", "h_prev"}, {"b0"}).Int("parts", parts);
  for (int i = 1; i < kInstructions; ++i) {
    AddOp(&step, "bench.Nothing", {StrCat("b", i - 1)}, {i + 1 < kInstructions ? StrCat("b", i) : "h"})
        .Int("parts", parts);
  }
  return OneStateNet(step);
}

void RunChain(benchmark::State& state, const RunOptions& options, int parts) {
  Workspace workspace;
  workspace.SetTensor("x", Tensor::Zeros(DType::kFloat, {kSteps, 1, 1}));
  workspace.SetTensor("h0", Tensor::Zeros(DType::kFloat, {1, 1}));
  const std::unique_ptr<Net> net = Net::Create(ChainOf(parts), workspace, options);
  net->Run();
  for (auto _ : state) net->Run();
  state.counters["per_instruction"] =
      benchmark::Counter(static_cast<double>(kInstructions * kSteps * state.iterations()),
                         benchmark::Counter::kIsRate | benchmark::Counter::kInvert);
}

void OverheadSerial(benchmark::State& state) { RunChain(state, {.executor = "serial"}, 1); }
// One thread goes on with what it has made ready.
void OverheadInline(benchmark::State& state) { RunChain(state, {.executor = "parallel", .threads = 2}, 1); }
// Each instruction is handed to a second thread in part and waits for both parts.
void OverheadAcrossThreads(benchmark::State& state) { RunChain(state, {.executor = "parallel", .threads = 2}, 2); }

BENCHMARK(OverheadSerial)->UseRealTime();
BENCHMARK(OverheadInline)->UseRealTime();
BENCHMARK(OverheadAcrossThreads)->UseRealTime();

}  // namespace
}  // namespace stepnet

// What it takes to make a net ready and run it once, by the number of its operators: where a curve is steeper than the
// number, something compares all with all.
//
//   build/release/bench/stepnet_bench --benchmark_filter=Planning
#include <benchmark/benchmark.h>

#include <functional>

#include "one_state.h"
#include "stepnet/core/strings.h"
#include "stepnet/nets/backward.h"
#include "stepnet/nets/backward_step.h"
#include "stepnet/nets/net.h"
#include "stepnet/nets/op_builder.h"

namespace stepnet {
namespace {

// A step that adds its input to a state, and makes the new row of the state of that, in `size` operators.
NetDef Recurrent(int size, const std::function<void(int size, NetDef* step)>& from_sum_to_h) {
  NetDef step;
  AddOp(&step, "Add", {"x_t", "h_prev"}, {"sum"});
  from_sum_to_h(size, &step);
  return OneStateNet(step, {"w"});
}

void InPlace(int size, NetDef* step) {
  for (int i = 2; i < size; ++i) AddOp(step, "Tanh", {"sum"}, {"sum"});
  AddOp(step, "Copy", {"sum"}, {"h"});
}

void FromOneBlob(int size, NetDef* step) {
  std::vector<std::string> read;
  for (int i = 2; i < size; ++i) {
    read.push_back(StrCat("a", i));
    AddOp(step, "Tanh", {"sum"}, {read.back()});
  }
  AddOp(step, "Sum", read, {"h"});
}

void WithOneWeight(int size, NetDef* step) {
  std::string last = "sum";
  for (int i = 2; i < size; ++i) {
    const std::string next = StrCat("a", i);
    AddOp(step, "Mul", {last, "w"}, {next});
    last = next;
  }
  AddOp(step, "Copy", {last}, {"h"});
}

// Values are read near and far from where they are computed, and one by all.
void WithReadersFarApart(int size, NetDef* step) {
  for (int i = 1; i < size / 2; ++i) {
    const std::string product = StrCat("m", i), before = i > 1 ? StrCat("a", i - 1) : "sum";
    AddOp(step, "Mul", {before, i > 3 ? StrCat("a", i / 2) : "sum"}, {product});
    AddOp(step, "Add", {product, "h_prev"}, {StrCat("a", i)});
  }
  AddOp(step, "Tanh", {StrCat("a", size / 2 - 1)}, {"h"});
}

void MakeAndRun(const NetDef& net, benchmark::State& state) {
  for (auto _ : state) {
    Workspace workspace;
    workspace.SetTensor("x", Tensor::Zeros(DType::kFloat, {3, 1, 1}));
    workspace.SetTensor("h0", Tensor::Zeros(DType::kFloat, {1, 1, 1}));
    workspace.SetTensor("w", Tensor::Zeros(DType::kFloat, {1, 1, 1}));
    Net::Create(net, workspace)->Run();
  }
  state.SetComplexityN(state.range(0));
}

void PlanningInPlace(benchmark::State& state) {
  MakeAndRun(Recurrent(static_cast<int>(state.range(0)), InPlace), state);
}
void PlanningOneBlobReadByAll(benchmark::State& state) {
  MakeAndRun(Recurrent(static_cast<int>(state.range(0)), FromOneBlob), state);
}
void PlanningReadersFarApart(benchmark::State& state) {
  MakeAndRun(Recurrent(static_cast<int>(state.range(0)), WithReadersFarApart), state);
}
// Forward and backward, the making of the gradient left out.
void PlanningOneWeightWithGradient(benchmark::State& state) {
  NetDef net = Recurrent(static_cast<int>(state.range(0)), WithOneWeight);
  AddBackwardStepNets(&net);
  MakeAndRun(AddGradients(net, {"h_all"}, {"x", "w"}).net, state);
}

// Makes the gradient of a net that reads one blob in each operator.
void PlanningGradientOfFanOut(benchmark::State& state) {
  NetDef net;
  std::vector<std::string> read;
  for (int i = 1; i < state.range(0); ++i) {
    read.push_back(StrCat("a", i));
    AddOp(&net, "Tanh", {"x"}, {read.back()});
  }
  AddOp(&net, "Sum", read, {"y"});
  for (auto _ : state) benchmark::DoNotOptimize(AddGradients(net, {"y"}, {"x"}));
  state.SetComplexityN(state.range(0));
}

void RunPlainNet(const char* type, benchmark::State& state) {
  NetDef net;
  net.set_type(type);
  net.set_num_workers(2);
  std::string last = "x";
  for (int i = 0; i < state.range(0); ++i) {
    const std::string next = StrCat("a", i);
    AddOp(&net, "Tanh", {last}, {next});
    last = next;
  }
  MakeAndRun(net, state);
}
void PlanningSimpleNet(benchmark::State& state) { RunPlainNet("simple", state); }
void PlanningDagNet(benchmark::State& state) { RunPlainNet("dag", state); }

// Five sizes, each twice the one before; or, of plain nets, four.
void StepSizes(benchmark::internal::Benchmark* curve) {
  for (int size = 250; size <= 4000; size *= 2) curve->Arg(size);
  curve->Complexity()->Unit(benchmark::kMillisecond);
}
void NetSizes(benchmark::internal::Benchmark* curve) {
  for (int size = 12'500; size <= 100'000; size *= 2) curve->Arg(size);
  curve->Complexity()->Unit(benchmark::kMillisecond);
}

BENCHMARK(PlanningInPlace)->Apply(StepSizes);
BENCHMARK(PlanningOneBlobReadByAll)->Apply(StepSizes);
BENCHMARK(PlanningReadersFarApart)->Apply(StepSizes);
BENCHMARK(PlanningOneWeightWithGradient)->Apply(StepSizes);
BENCHMARK(PlanningGradientOfFanOut)->Apply(StepSizes);
BENCHMARK(PlanningSimpleNet)->Apply(NetSizes);
BENCHMARK(PlanningDagNet)->Apply(NetSizes);

}  // namespace
}  // namespace stepnet

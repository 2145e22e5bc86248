// Operators alone on one thread: a run of the kernel at 64, 4 K and 1 M elements, and of units and operators on rows at
// sizes of small and usual layers. OpByFormula/… are the formulas of operators whose kernels are written by hand.
//
//   build/release/bench/stepnet_bench --benchmark_filter=Op/
//   build/release/bench/stepnet_bench --benchmark_filter='Op(ByFormula)?/Adam'
#include <benchmark/benchmark.h>
#include <google/protobuf/text_format.h>

#include <algorithm>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "random_tensor.h"
#include "stepnet/core/operator.h"
#include "stepnet/core/run_context.h"
#include "stepnet/core/strings.h"
#include "stepnet/proto/net.pb.h"
#if __has_include("stepnet/core/formulas/formula_kernel.h")  // scripts/bench_operators: not in every other version
#include "stepnet/core/formulas/formula_kernel.h"
#define STEPNET_HAS_FORMULAS
#endif

namespace stepnet {
namespace {

struct Input {
  std::vector<std::int64_t> shape;
  DType dtype = DType::kFloat;
  float scale = 10;  // of numbers in [-0.1, 0.1)
  float offset = 0;
};

Tensor TensorOf(const Input& operand, unsigned seed) {
  const Shape shape(operand.shape);
  Tensor tensor(operand.dtype, shape);
  const Tensor random = Random(shape, seed);
  for (std::int64_t i = 0; i < shape.size(); ++i) {
    const float value = random.data<float>()[i] * operand.scale + operand.offset;
    switch (operand.dtype) {
      case DType::kFloat: tensor.data<float>()[i] = value; break;
      case DType::kBool: tensor.data<bool>()[i] = value > 0; break;
      case DType::kInt64: tensor.data<std::int64_t>()[i] = static_cast<std::int64_t>(value * 10) + 20; break;
      default: tensor.data<std::int32_t>()[i] = static_cast<std::int32_t>(value * 10) + 20;
    }
  }
  return tensor;
}

enum class By { kKernel, kFormula };

RunFn MakeKernel(const OperatorCall& call, By by) {
  OperatorSchema schema = call.schema();
#ifdef STEPNET_HAS_FORMULAS
  if (by == By::kFormula) {
    schema.kernels.clear();
    CompleteFromFormula(&schema);
  }
#endif
  return schema.FindKernel(DeviceKind::kCpu)->make(call);
}

// Runs an operator, given as a net's text, on these inputs. By a formula: its own or, where it has none, that of
// formulas_of_kernels_bench.cc.
void RunOperator(benchmark::State& state, const std::string& text, const std::vector<Input>& operands, By by) try {
  OperatorDef def;
  if (!google::protobuf::TextFormat::ParseFromString(text, &def)) return state.SkipWithError("does not parse");
  const std::string trial = "bench." + def.type();
  if (by == By::kFormula && FindOperator(trial) != nullptr) def.set_type(trial);
  const OperatorCall call(def);
  std::vector<Tensor> inputs;
  std::vector<TensorInfo> infos;
  for (const Input& operand : operands) {
    inputs.push_back(TensorOf(operand, static_cast<unsigned>(inputs.size())));
    infos.push_back({.dtype = operand.dtype, .shape = inputs.back().shape()});
  }
  std::vector<Tensor> outputs;
  for (const TensorInfo& info : call.schema().shapes(ShapeQuery(call, infos)))
    outputs.emplace_back(info.dtype, info.shape);
  std::vector<TensorView> in, out;
  for (Tensor& tensor : inputs) in.push_back(tensor.View());
  for (int o = 0; o < def.output_size(); ++o) {
    const auto input = std::ranges::find(def.input(), def.output(o));
    const bool is_in_place = input != def.input().end();
    out.push_back(is_in_place ? in[input - def.input().begin()] : outputs[o].View());
  }
  const RunFn kernel = MakeKernel(call, by);
  RunContext context;
  kernel(OpRun(in, out, context));  // makes the program of a formula, and touches the pages of outputs
  for (auto _ : state) {
    context.scratch.Reset();
    kernel(OpRun(in, out, context));
  }
  state.SetItemsProcessed(state.iterations() * outputs[0].size());
} catch (const Error& error) {
  state.SkipWithError(error.what());
}

// Training runs optimizers in place: the input that each output is then.
const std::map<std::string, std::vector<int>> kInPlace = {{"Adam", {0, 1, 2}}, {"MomentumSGDUpdate", {0, 1, 3}}};

std::string TextOf(const std::string& type, int inputs, int outputs, const std::string& arguments) {
  std::string text = StrCat("type: \"", type, "\" ");
  for (int i = 0; i < inputs; ++i) text += StrCat("input: \"x", i, "\" ");
  const auto in_place = kInPlace.find(type);
  for (int o = 0; o < outputs; ++o) {
    text += StrCat("output: \"", in_place == kInPlace.end() ? StrCat("y", o) : StrCat("x", in_place->second[o]), "\" ");
  }
  return text + arguments;
}

// These operators also run by a formula.
const std::set<std::string> kWithKernels = {"Adam",
                                            "ArgMax",
                                            "Iter",
                                            "LabelCrossEntropy",
                                            "LabelCrossEntropyGradient",
                                            "MomentumSGDUpdate",
                                            "RangeFill",
                                            "ReduceMeanGradient",
                                            "ReduceSum",
                                            "ReduceSumGradient",
                                            "SequenceMask",
                                            "SoftmaxWithLossGradient",
                                            "StepMask",
                                            "SumElements",
                                            "SumSqrElements",
                                            "SumSqrElementsGradient",
                                            "Where",
                                            "WhereGradient"};

void Register(const std::string& name, const std::string& type, int outputs, const std::vector<Input>& operands,
              const std::string& arguments = "") {
  const std::string text = TextOf(type, static_cast<int>(operands.size()), outputs, arguments);
  const auto add = [&](const char* group, By by) {
    benchmark::RegisterBenchmark(StrCat(group, "/", name).c_str(),
                                 [=](benchmark::State& state) { RunOperator(state, text, operands, by); });
  };
  add("Op", By::kKernel);
  const bool has_formula =
      (kWithKernels.contains(type) && !name.starts_with("ReduceSumOfColumns")) || name == "LearningRate/exp";
  if (has_formula) add("OpByFormula", By::kFormula);
}

void RegisterPointwise(std::int64_t n) {
  const Input x{.shape = {n}};
  const auto add = [&](const std::string& type, const std::vector<Input>& operands, const std::string& arguments = "",
                       int outputs = 1) { Register(StrCat(type, "/", n), type, outputs, operands, arguments); };
  for (const char* type : {"Tanh", "Sigmoid", "Relu", "Elu", "LeakyRelu", "Exp", "Softplus", "Softsign", "Swish",
                           "Sqrt", "Sqr", "Abs", "Negative", "Sin", "HardSigmoid", "Log", "Gelu"}) {
    add(type, {x});
  }
  for (const char* type : {"TanhGradient", "SigmoidGradient", "ReluGradient", "GeluGradient", "MishGradient", "Add",
                           "Sub", "Mul", "Div", "Max", "EQ", "LT"}) {
    add(type, {x, x});
  }
  add("Clip", {x}, "arg { name: \"min\" f: -0.5 } arg { name: \"max\" f: 0.5 }");
  add("Pow", {x}, "arg { name: \"exponent\" f: 2 }");
  add("Scale", {x}, "arg { name: \"scale\" f: 2 }");
  add("Sum", {x, x});
  add("WeightedSum", {x, {.shape = {1}}, x, {.shape = {1}}});
  add("Where", {{.shape = {n}, .dtype = DType::kBool}, x, x});
  add("Not", {{.shape = {n}, .dtype = DType::kBool}});
  add("Cast", {x}, "arg { name: \"to\" i: 2 }");
  add("CastGradient", {x, {.shape = {n}, .dtype = DType::kDouble}});
  add("WhereGradient", {{.shape = {n}, .dtype = DType::kBool}, x}, "", 2);
  add("SumElements", {x});
  add("SumSqrElements", {x});
  add("SumElementsGradient", {x, {.shape = {1}}});
  add("SumSqrElementsGradient", {x, {.shape = {1}}});
  add("Dropout", {x}, "arg { name: \"ratio\" f: 0.5 }", 2);
  add("DivGradient", {x, x, x}, "", 2);
  const std::string shape = StrCat("arg { name: \"shape\" ints: ", n, " }");
  for (const char* type : {"UniformFill", "XavierFill", "RangeFill"}) add(type, {}, shape);
  add("Adam", {x, x, {.shape = {n}, .scale = 0}, x, {.shape = {1}}, {.shape = {1}, .dtype = DType::kInt64}}, "", 3);
  // A rate with which values stay as large as they are, run for run.
  const Input rate{.shape = {1}, .scale = 0, .offset = 0.1F};
  add("MomentumSGDUpdate", {x, x, rate, x}, "arg { name: \"momentum\" f: 0.9 }", 3);
}

void RegisterTraining() {
  const Input iteration{.shape = {1}, .dtype = DType::kInt64};
  Register("Iter", "Iter", 1, {iteration});
  for (const char* policy : {"fixed", "step", "exp", "inv", "poly", "cosine"}) {
    Register(StrCat("LearningRate/", policy), "LearningRate", 1, {iteration},
             StrCat("arg { name: \"policy\" s: \"", policy, "\" } arg { name: \"base_lr\" f: 0.1 } ",
                    "arg { name: \"gamma\" f: 0.9 } arg { name: \"power\" f: 0.5 } ",
                    "arg { name: \"stepsize\" i: 3 } arg { name: \"max_iter\" i: 1000 }"));
  }
}

// Rows [R, C].
void RegisterRows(std::int64_t rows, std::int64_t columns) {
  const Input x{.shape = {rows, columns}};
  const Input column{.shape = {columns}};
  const auto name = [&](const char* type) { return StrCat(type, "/", rows, "/", columns); };
  Register(name("AddColumn"), "Add", 1, {x, column}, "arg { name: \"broadcast\" i: 1 }");
  Register(name("Softmax"), "Softmax", 1, {x});
  Register(name("SoftmaxGradient"), "SoftmaxGradient", 1, {x, x});
  const Input of_rows{.shape = {rows, 1}}, of_columns{.shape = {1, columns}};
  Register(name("LogSoftmax"), "LogSoftmax", 1, {x});
  Register(name("LogSoftmaxGradient"), "LogSoftmaxGradient", 1, {x, x});
  Register(name("LayerNorm"), "LayerNorm", 3, {x});
  Register(name("LayerNormGradient"), "LayerNormGradient", 1, {x, x, of_rows, of_rows, x});
  Register(name("ElementwiseLinear"), "ElementwiseLinear", 1, {x, column, column});
  Register(name("SquaredL2Distance"), "SquaredL2Distance", 1, {x, x});
  Register(name("CrossEntropy"), "CrossEntropy", 1, {x, {.shape = x.shape, .scale = 0}});
  Register(name("SigmoidCrossEntropyWithLogits"), "SigmoidCrossEntropyWithLogits", 1, {x, x});
  Register(name("SigmoidCrossEntropyWithLogitsGradient"), "SigmoidCrossEntropyWithLogitsGradient", 1,
           {{.shape = {rows}}, x, x});
  for (const auto& [what, of_b] :
       {std::pair("Columns", Input{.shape = {columns}}), {"Rows", {.shape = {rows, 1}}}, {"One", {.shape = {1}}}}) {
    Register(name(StrCat("DivGradientBy", what).c_str()), "DivGradient", 2, {of_b, x, x});
  }
  Register(name("ReduceSum"), "ReduceSum", 1, {x}, "arg { name: \"axes\" ints: 1 }");
  Register(name("ReduceSumOfColumns"), "ReduceSum", 1, {x}, "arg { name: \"axes\" ints: 0 }");
  Register(name("ReduceSumOfAll"), "ReduceSum", 1, {x});
  for (const char* type : {"ReduceSumGradient", "ReduceMeanGradient"}) {
    Register(name(type), type, 1, {of_rows, x, of_rows}, "arg { name: \"axes\" ints: 1 }");
    Register(name(StrCat(type, "OfColumns").c_str()), type, 1, {of_columns, x, of_columns},
             "arg { name: \"axes\" ints: 0 }");
    const Input middle{.shape = {4, 1, columns}}, whole{.shape = {4, rows / 4, columns}};
    Register(name(StrCat(type, "OfMiddle").c_str()), type, 1, {middle, whole, middle},
             "arg { name: \"axes\" ints: 1 }");
  }
  const Input condition{.shape = {rows}, .dtype = DType::kBool};
  const std::string on_rows = "arg { name: \"broadcast_on_rows\" i: 1 }";
  Register(name("WhereOnRows"), "Where", 1, {condition, x, x}, on_rows);
  Register(name("WhereGradientOnRows"), "WhereGradient", 2, {condition, x}, on_rows);
  Register(name("ArgMax"), "ArgMax", 1, {x});
  Register(name("SequenceMaskUpper"), "SequenceMask", 1, {x}, "arg { name: \"mode\" s: \"upper\" }");
  if (columns < 30) return;
  const Input lengths{.shape = {rows}, .dtype = DType::kInt32};  // from 10 to 29
  Register(name("SequenceMask"), "SequenceMask", 1, {x, lengths}, "arg { name: \"mode\" s: \"sequence\" }");
  Register(name("LabelCrossEntropy"), "LabelCrossEntropy", 1, {x, lengths});
  Register(name("LabelCrossEntropyGradient"), "LabelCrossEntropyGradient", 1, {x, lengths, {.shape = {rows}}});
  Register(name("SoftmaxWithLoss"), "SoftmaxWithLoss", 2, {x, lengths});
  Register(name("SoftmaxWithLossGradient"), "SoftmaxWithLossGradient", 1, {x, lengths, x, {.shape = {1}}});
  Register(name("StepMask"), "StepMask", 1, {{.shape = {columns, rows, 1}}, lengths});
}

// What moves elements, of rows [R, C].
void RegisterMoves(std::int64_t rows, std::int64_t columns) {
  const Input x{.shape = {rows, columns}}, weights{.shape = {columns, 64}},
      index{.shape = {rows}, .dtype = DType::kInt32};
  const auto name = [&](const char* type) { return StrCat(type, "/", rows, "/", columns); };
  Register(name("Concat"), "Concat", 2, {x, x});
  Register(name("Split"), "Split", 2, {x});
  Register(name("SliceColumns"), "Slice", 1, {x},
           "arg { name: \"starts\" ints: 0 ints: 1 } arg { name: \"ends\" ints: -1 ints: -1 }");
  Register(name("SliceRows"), "Slice", 1, {x}, "arg { name: \"starts\" ints: 1 } arg { name: \"ends\" ints: -1 }");
  Register(name("Transpose"), "Transpose", 1, {x});
  Register(name("TransposeRuns"), "Transpose", 1, {{.shape = {rows / 2, 2, columns}}},
           "arg { name: \"axes\" ints: 1 ints: 0 ints: 2 }");
  Register(name("Tile"), "Tile", 1, {x}, "arg { name: \"tiles\" i: 2 } arg { name: \"axis\" i: 1 }");
  if (rows > 30) Register(name("Gather"), "Gather", 1, {x, index});  // rows 10 to 29
  Register(name("RowTimesColumns"), "MatMul", 1, {{.shape = {1, columns}}, weights});
}

void RegisterUnits(std::int64_t n, std::int64_t d) {
  const Input state{.shape = {1, n, d}};
  const auto gates = [&](int count) { return Input{.shape = {1, n, count * d}}; };
  const Input lengths{.shape = {n}, .dtype = DType::kInt32};
  const Input step{.shape = {1}, .dtype = DType::kInt32, .scale = 0};
  const std::string without = "arg { name: \"sequence_lengths\" i: 0 }";
  const auto name = [&](const char* what) { return StrCat(what, "/", n, "/", d); };
  Register(name("LSTMUnit"), "LSTMUnit", 2, {state, state, gates(4), lengths, step});
  Register(name("LSTMUnitWithoutLengths"), "LSTMUnit", 2, {state, state, gates(4), step}, without);
  Register(name("LSTMUnitGradient"), "LSTMUnitGradient", 3,
           {state, state, gates(4), lengths, step, state, state, state, state});
  Register(name("GRUUnit"), "GRUUnit", 1, {state, gates(3), lengths, step});
  Register(name("GRUUnitGradient"), "GRUUnitGradient", 2, {state, gates(3), lengths, step, state, state});
}

const bool registered = [] {
  for (const std::int64_t n : {64, 4096, 1 << 20}) RegisterPointwise(n);
  RegisterTraining();
  for (const auto& [rows, columns] : {std::pair(32, 10), {32, 256}, {64, 4096}}) {
    RegisterRows(rows, columns);
    RegisterMoves(rows, columns);
  }
  for (const auto& [n, d] : {std::pair(1, 64), {32, 256}}) RegisterUnits(n, d);
  return true;
}();

}  // namespace
}  // namespace stepnet

#include "formula_operators.h"

#include "stepnet/core/operator.h"
#include "stepnet/proto/net.pb.h"

namespace stepnet {
namespace {

Operator Testing(const char* type, const std::vector<const char*>& inputs, const std::vector<const char*>& outputs,
                 FormulaRule formula, FormulaOptions options = {}) {
  Operator op(type);
  for (const char* input : inputs) op.Input(input, "any shape");
  for (const char* output : outputs) op.Output(output, "any shape");
  op.Private().StopsGradient().Formula(std::move(formula), options);
  return op;
}

// With the gradient TYPE(y, dy) → dx.
Operator WithGradient(Operator op, const std::string& type) {
  op.Gradient([type](GradientBuilder& g) { g.Add({.type = type, .inputs = {g.O(0), g.GO(0)}, .outputs = {g.GI(0)}}); });
  return op;
}

const Registration add = Testing("TestAdd", {"a", "b"}, {"y"}, [](Formula& f) {
                           f.Out({f.In("a") + f.In("b")});
                         }).Gradient([](GradientBuilder& g) {
  for (int i = 0; i < 2; ++i) g.Add({.type = "TestPass", .inputs = {g.GO(0)}, .outputs = {g.GI(i)}});
});
const Registration pass = Testing("TestPass", {"x"}, {"y"}, [](Formula& f) { f.Out({f.In("x")}); });

const Registration mul = Testing("TestMul", {"a", "b"}, {"y"}, [](Formula& f) {
                           f.Out({f.In("a") * f.In("b")});
                         }).Gradient([](GradientBuilder& g) {
  for (int i = 0; i < 2; ++i) g.Add({.type = "TestMul", .inputs = {g.GO(0), g.I(1 - i)}, .outputs = {g.GI(i)}});
});

const Registration tanh =
    WithGradient(Testing("TestTanh", {"x"}, {"y"}, [](Formula& f) { f.Out({Tanh(f.In("x"))}); }), "TestTanhGradient");
const Registration tanh_gradient = Testing("TestTanhGradient", {"y", "dy"}, {"dx"}, [](Formula& f) {
  const Expr y = f.In("y");
  f.Out({f.In("dy") * (1 - y * y)});
});

const Registration sigmoid = WithGradient(
    Testing("TestSigmoid", {"x"}, {"y"}, [](Formula& f) { f.Out({Sigmoid(f.In("x"))}); }), "TestSigmoidGradient");
const Registration sigmoid_gradient = Testing("TestSigmoidGradient", {"y", "dy"}, {"dx"}, [](Formula& f) {
  const Expr y = f.In("y");
  f.Out({f.In("dy") * y * (1 - y)});
});

const Registration softmax_gradient = Testing("TestSoftmaxGradient", {"y", "dy"}, {"dx"}, [](Formula& f) {
  const Expr y = f.In("y"), dy = f.In("dy");
  f.Out({y * (dy - RowSum(dy * y))});
});

const Registration mul_add =
    Testing("TestMulAdd", {"a", "b", "c"}, {"y"}, [](Formula& f) { f.Out({MulAdd(f.In("a"), f.In("b"), f.In("c"))}); });

const Registration gates = Testing("TestGates", {"gates", "c_prev"}, {"c", "h"}, [](Formula& f) {
  const std::vector<Expr> gate = f.Blocks("gates", 4);
  const Expr c = Sigmoid(gate[1]) * f.In("c_prev") + Sigmoid(gate[0]) * Tanh(gate[3]);
  f.Out({c, Sigmoid(gate[2]) * Tanh(c)});
});

const Registration split = Testing("TestSplit", {"x"}, {"a", "b"}, [](Formula& f) {
  const std::vector<Expr> halves = f.Blocks("x", 2);
  f.Out({halves[0], halves[1]});
});

const Registration split4 = Testing("TestSplit4", {"x"}, {"a", "b", "c", "d"}, [](Formula& f) {
  const std::vector<Expr> quarters = f.Blocks("x", 4);
  f.Out({quarters[0], quarters[1], quarters[2], quarters[3]});
});

const Registration join = Testing("TestJoin", {"a", "b"}, {"y"}, [](Formula& f) {
  f.Out({SideBySide({f.In("a"), f.In("b")})});
});

Expr Softmax(const Expr& x) {
  const Expr e = Exp(x - RowMax(x));
  return e / RowSum(e);
}

const Registration softmax = WithGradient(
    Testing("TestSoftmax", {"x"}, {"y"}, [](Formula& f) { f.Out({Softmax(f.In("x"))}); }), "TestSoftmaxGradient");

const Registration row_sum =
    Testing("TestRowSum", {"x"}, {"sums"}, [](Formula& f) { f.Out({OfRows(RowSum(f.In("x")))}); });

const Registration row_norm = Testing("TestRowNorm", {"x"}, {"y", "largest"}, [](Formula& f) {
  const Expr x = f.In("x");
  const Expr largest = RowMax(Abs(x));
  f.Out({x / (largest + 1), OfRows(largest)});
});

const Registration scale_rows =
    Testing("TestScaleRows", {"x", "rows"}, {"y"}, [](Formula& f) { f.Out({f.In("x") * f.Row("rows")}); });

const Registration add_column =
    Testing("TestAddColumn", {"x", "column"}, {"y"}, [](Formula& f) { f.Out({f.In("x") + f.Column("column")}); });

const Registration scale =
    Testing("TestScale", {"x", "scale"}, {"y"}, [](Formula& f) { f.Out({f.In("x") * f.Scalar("scale")}); });

const Registration sum_rows =
    Testing("TestSumRows", {"x"}, {"sums"}, [](Formula& f) { f.Out({SumOverRows(f.In("x"))}); });

const Registration position = Testing("TestPosition", {"x"}, {"y"}, [](Formula& f) {
  const Expr x = f.In("x");
  f.Out({Where(Index(3) < Index(2), x, 0)});
});

const Registration positive = Testing("TestPositive", {"x"}, {"y"},
                                      [](Formula& f) {
                                        const Expr x = f.In("x");
                                        f.Check(x >= 0, "x is {}, must be at least 0", x);
                                        f.Out({x + 0});
                                      },
                                      {.checks_values = true});

}  // namespace

FormulaStep AddFormulaStep(const std::string& type, const std::vector<int>& inputs, int num_outputs,
                           std::vector<TensorInfo>* tensors) {
  OperatorDef def;
  def.set_type(type);
  std::vector<TensorInfo> infos;
  for (const int input : inputs) {
    def.add_input(StrCat("t", input));
    infos.push_back((*tensors)[input]);
  }
  const int first = static_cast<int>(tensors->size());
  for (int o = 0; o < num_outputs; ++o) def.add_output(StrCat("t", first + o));
  const OperatorCall call(def);
  const ShapeQuery query(call, infos);
  FormulaStep step{.type = type, .inputs = inputs, .outputs = {}, .formula = {}};
  step.formula = MakeFormulaRegion(query, call.schema().shapes(query));
  for (int o = 0; o < num_outputs; ++o) {
    step.outputs.push_back(first + o);
    tensors->push_back(step.formula.infos[o]);
  }
  return step;
}

}  // namespace stepnet

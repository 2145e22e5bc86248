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

const Registration add = Testing("test.Add", {"a", "b"}, {"y"}, [](Formula& f) {
                           f.Out({f.In("a") + f.In("b")});
                         }).Gradient([](GradientBuilder& g) {
  for (int i = 0; i < 2; ++i) g.Add({.type = "test.Pass", .inputs = {g.GO(0)}, .outputs = {g.GI(i)}});
});
const Registration pass = Testing("test.Pass", {"x"}, {"y"}, [](Formula& f) { f.Out({f.In("x")}); });

const Registration mul = Testing("test.Mul", {"a", "b"}, {"y"}, [](Formula& f) {
                           f.Out({f.In("a") * f.In("b")});
                         }).Gradient([](GradientBuilder& g) {
  for (int i = 0; i < 2; ++i) g.Add({.type = "test.Mul", .inputs = {g.GO(0), g.I(1 - i)}, .outputs = {g.GI(i)}});
});

const Registration tanh =
    WithGradient(Testing("test.Tanh", {"x"}, {"y"}, [](Formula& f) { f.Out({Tanh(f.In("x"))}); }), "test.TanhGradient");
const Registration tanh_gradient = Testing("test.TanhGradient", {"y", "dy"}, {"dx"}, [](Formula& f) {
  const Expr y = f.In("y");
  f.Out({f.In("dy") * (1 - y * y)});
});

const Registration sigmoid = WithGradient(
    Testing("test.Sigmoid", {"x"}, {"y"}, [](Formula& f) { f.Out({Sigmoid(f.In("x"))}); }), "test.SigmoidGradient");
const Registration sigmoid_gradient = Testing("test.SigmoidGradient", {"y", "dy"}, {"dx"}, [](Formula& f) {
  const Expr y = f.In("y");
  f.Out({f.In("dy") * y * (1 - y)});
});

const Registration softmax_gradient = Testing("test.SoftmaxGradient", {"y", "dy"}, {"dx"}, [](Formula& f) {
  const Expr y = f.In("y"), dy = f.In("dy");
  f.Out({y * (dy - RowSum(dy * y))});
});

const Registration mul_add = Testing("test.MulAdd", {"a", "b", "c"}, {"y"},
                                     [](Formula& f) { f.Out({MulAdd(f.In("a"), f.In("b"), f.In("c"))}); });

const Registration gates = Testing("test.Gates", {"gates", "c_prev"}, {"c", "h"}, [](Formula& f) {
  const std::vector<Expr> gate = f.Blocks("gates", 4);
  const Expr c = Sigmoid(gate[1]) * f.In("c_prev") + Sigmoid(gate[0]) * Tanh(gate[3]);
  f.Out({c, Sigmoid(gate[2]) * Tanh(c)});
});

const Registration split = Testing("test.Split", {"x"}, {"a", "b"}, [](Formula& f) {
  const std::vector<Expr> halves = f.Blocks("x", 2);
  f.Out({halves[0], halves[1]});
});

const Registration split4 = Testing("test.Split4", {"x"}, {"a", "b", "c", "d"}, [](Formula& f) {
  const std::vector<Expr> quarters = f.Blocks("x", 4);
  f.Out({quarters[0], quarters[1], quarters[2], quarters[3]});
});

const Registration join = Testing("test.Join", {"a", "b"}, {"y"}, [](Formula& f) {
  f.Out({SideBySide({f.In("a"), f.In("b")})});
});

Expr Softmax(const Expr& x) {
  const Expr e = Exp(x - RowMax(x));
  return e / RowSum(e);
}

const Registration softmax = WithGradient(
    Testing("test.Softmax", {"x"}, {"y"}, [](Formula& f) { f.Out({Softmax(f.In("x"))}); }), "test.SoftmaxGradient");

const Registration row_sum =
    Testing("test.RowSum", {"x"}, {"sums"}, [](Formula& f) { f.Out({OfRows(RowSum(f.In("x")))}); });

const Registration row_norm = Testing("test.RowNorm", {"x"}, {"y", "largest"}, [](Formula& f) {
  const Expr x = f.In("x");
  const Expr largest = RowMax(Abs(x));
  f.Out({x / (largest + 1), OfRows(largest)});
});

const Registration scale_rows =
    Testing("test.ScaleRows", {"x", "rows"}, {"y"}, [](Formula& f) { f.Out({f.In("x") * f.Row("rows")}); });

const Registration add_column =
    Testing("test.AddColumn", {"x", "column"}, {"y"}, [](Formula& f) { f.Out({f.In("x") + f.Column("column")}); });

const Registration scale =
    Testing("test.Scale", {"x", "scale"}, {"y"}, [](Formula& f) { f.Out({f.In("x") * f.Scalar("scale")}); });

const Registration sum_rows =
    Testing("test.SumOverRows", {"x"}, {"sums"}, [](Formula& f) { f.Out({SumOverRows(f.In("x"))}); });

const Registration position = Testing("test.Position", {"x"}, {"y"}, [](Formula& f) {
  const Expr x = f.In("x");
  f.Out({Where(Index(3) < Index(2), x, 0)});
});

const Registration positive = Testing("test.Positive", {"x"}, {"y"},
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

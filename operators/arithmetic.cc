// Add, Sub, Mul, Div: c = a op b, with Caffe2's legacy broadcasting, and the operators that their gradients consist of.
//
// With da, db, dc the gradients of a, b, c, and R the sum over the elements of a that meet one of b:
//   Add: da = dc, db = R(dc)                 Mul: da = dc * b, db = R(dc * a)
//   Sub: da = dc, db = R(-dc)                Div: da = dc / b, db = -R(dc * c) / b
#include "stepnet/core/formula.h"
#include "stepnet/operators/broadcast.h"
#include "stepnet/operators/elementwise.h"
#include "stepnet/operators/input_checks.h"

namespace stepnet {
namespace {

const std::vector<DType> kNumbers = {DType::kFloat, DType::kDouble, DType::kInt32, DType::kInt64};

Expr Result(Formula& f, Arithmetic what) {
  const Expr a = f.In("a");
  const Expr b = f.In("b");
  switch (what) {
    case Arithmetic::kAdd: return a + b;
    case Arithmetic::kSubtract: return a - b;
    case Arithmetic::kMultiply: return a * b;
    default: break;
  }
  const bool is_float = a.dtype() == DType::kFloat || a.dtype() == DType::kDouble;
  if (!is_float) f.Check(NotEqual(b, 0), StrCat(f.op().type(), " of the integer {} by 0"), a);
  return a / b;
}

Operator ArithmeticOperator(const std::string& type, const std::string& doc, Arithmetic what) {
  Operator op(type);
  op.Doc(doc)
      .Input("a", "any shape; float, double, int32 or int64")
      .Input("b", "the shape of a; with broadcast=1 a run of its sizes, or one element")
      .Output("c", "the shape of a")
      .Args(BroadcastArguments())
      .Shapes(BroadcastShapes(kNumbers))
      .InPlace({{0, 0}, {1, 0}})
      .Check([](const OperatorCall& init, std::vector<NetProblem>* problems) {
        CheckBy([](const OperatorCall& of) { ReadBroadcastRule(of); })(init, problems);
        if (!init.Bool("broadcast") || init.inputs()[0] == init.outputs()[0]) return;
        if (init.inputs()[1] == init.outputs()[0]) {
          problems->push_back({.message = StrCat(init.type(), " with broadcast can overwrite its first input alone")});
        }
      })
      .Formula([what](Formula& f) { f.Out({Result(f, what)}); }, {.checks_values = what == Arithmetic::kDivide});
  return op;
}

// Adds db = R(of), where `of` is a gradient in the shape of a.
void ReduceToSecondInput(GradientBuilder& g, const std::string& of) {
  g.Add({.type = "SumReduceLike", .inputs = {of, g.I(1)}, .outputs = {g.GI(1)}});
}

// A name for a gradient in the shape of a that is then reduced to that of b, as in nets that Caffe2 wrote.
std::string Unreduced(const GradientBuilder& g) { return g.I(1) + "_grad_autogen_pre_red"; }

const Registration add =
    ArithmeticOperator("Add", "c = a + b, element by element.", Arithmetic::kAdd).Gradient([](GradientBuilder& g) {
      g.SetDense(0, g.GO(0));
      if (g.op().Bool("broadcast")) {
        ReduceToSecondInput(g, g.GO(0));
      } else {
        g.SetDense(1, g.GO(0));
      }
    });

const Registration sub =
    ArithmeticOperator("Sub", "c = a - b, element by element.", Arithmetic::kSubtract).Gradient([](GradientBuilder& g) {
      g.SetDense(0, g.GO(0));
      const bool broadcast = g.op().Bool("broadcast");
      const std::string negative = broadcast ? Unreduced(g) : g.GI(1);
      g.Add({.type = "Negative", .inputs = {g.GO(0)}, .outputs = {negative}, .copies_arguments = false});
      if (broadcast) ReduceToSecondInput(g, negative);
    });

const Registration mul =
    ArithmeticOperator("Mul", "c = a * b, element by element.", Arithmetic::kMultiply).Gradient([](GradientBuilder& g) {
      ExpectInputsKept(g);
      const bool broadcast = g.op().Bool("broadcast");
      g.Add({.type = "Mul", .inputs = {g.GO(0), g.I(1)}, .outputs = {g.GI(0)}});
      const std::string product = broadcast ? Unreduced(g) : g.GI(1);
      g.Add({.type = "Mul", .inputs = {g.GO(0), g.I(0)}, .outputs = {product}, .copies_arguments = false});
      if (broadcast) ReduceToSecondInput(g, product);
    });

const Registration div =
    ArithmeticOperator("Div", "c = a / b, element by element; integers round towards 0.", Arithmetic::kDivide)
        .Gradient([](GradientBuilder& g) {
          ExpectInputsKept(g);
          g.Add({.type = "DivGradient", .inputs = {g.I(1), g.O(0), g.GO(0)}, .outputs = {g.GI(0), g.GI(1)}});
        });

const Registration div_gradient =
    Operator("DivGradient")
        .Doc("Gradient of Div: da = dc / b, db = -(dc * c) / b, summed over what one element of b met.")
        .Input("b", "second input of Div")
        .Input("c", "output of Div, float or double")
        .Input("dc", "the shape of c")
        .Output("da", "the shape of c")
        .Output("db", "the shape of b")
        .Args(BroadcastArguments())
        .InPlace({{0, 0}})
        .Check(CheckBy([](const OperatorCall& init) { ReadBroadcastRule(init); }))
        .Shapes([](const ShapeQuery& query) {
          ExpectFloats(query);
          ExpectAlike(query, 1, 2);
          CheckBroadcast(query, ReadBroadcastRule(query.op()), /*a=*/1, /*b=*/0);
          const DType dtype = query.In(0).dtype;
          return std::vector<TensorInfo>{{.dtype = dtype, .shape = query.In(1).shape},
                                         {.dtype = dtype, .shape = query.In(0).shape}};
        })
        .Cpu([](const OperatorCall& op) -> RunFn {
          return [rule = ReadBroadcastRule(op)](const OpRun& run) {
            const BroadcastPlan plan = PlanBroadcast(rule, *run.In(1).shape, *run.In(0).shape);
            ForFloatType(run.Out(0).dtype, "DivGradient", [&](auto zero) {
              using T = decltype(zero);
              const std::int64_t size = run.In(1).size();
              const T* b = run.In(0).As<T>();
              const T* dc = run.In(2).As<T>();
              T* db = run.Out(1).As<T>();
              T* product = run.ScratchOf<T>(size);
              BroadcastArithmetic(Arithmetic::kMultiply, dc, run.In(1).As<T>(), product, {.run = size});
              BroadcastSum(product, db, plan);
              for (std::int64_t i = 0; i < run.Out(1).size(); ++i) db[i] = -db[i] / b[i];
              BroadcastArithmetic(Arithmetic::kDivide, dc, b, run.Out(0).As<T>(), plan);
            });
          };
        });

const Registration sum_reduce_like =
    Operator("SumReduceLike")
        .Doc(
            "Sums a down to the shape of b: the gradient of a broadcast second input. Element j of the output is the "
            "sum of all elements of a that Add with broadcast=1 would add b[j] to.")
        .Input("a", "any shape, float or double")
        .Input("b", "a run of a's sizes, or one element; its elements are not read")
        .Output("c", "the shape of b, the type of a")
        .Args(BroadcastArguments())
        .Check(CheckBy([](const OperatorCall& init) { ReadBroadcastRule(init, /*always=*/true); }))
        .Shapes([](const ShapeQuery& query) {
          ExpectFloat(query, 0);
          CheckBroadcast(query, ReadBroadcastRule(query.op(), /*always=*/true));
          return std::vector<TensorInfo>{{.dtype = query.In(0).dtype, .shape = query.In(1).shape}};
        })
        .CostIs([](const ShapeQuery& query, std::span<const TensorInfo> outputs) -> Cost {
          const auto elements = static_cast<double>(query.In(0).shape.size());
          const auto sums = static_cast<double>(outputs[0].shape.size());
          return {.flops = elements, .bytes = (elements + sums) * static_cast<double>(DTypeBytes(outputs[0].dtype))};
        })
        .Cpu([](const OperatorCall& op) -> RunFn {
          return [rule = ReadBroadcastRule(op, /*always=*/true)](const OpRun& run) {
            const BroadcastPlan plan = PlanBroadcast(rule, *run.In(0).shape, *run.In(1).shape);
            ForFloatType(run.Out(0).dtype, "SumReduceLike", [&](auto zero) {
              using T = decltype(zero);
              BroadcastSum(run.In(0).As<T>(), run.Out(0).As<T>(), plan);
            });
          };
        });

}  // namespace
}  // namespace stepnet

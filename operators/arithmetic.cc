// Add, Sub, Mul, Div, Power: c = a op b, with broadcasting, and the operators that their gradients consist of.
//
// With da, db, dc the gradients of a, b, c, and R the sum over the elements of c that one of the input has met:
//   Add: da = R(dc), db = R(dc)              Mul: da = R(dc * b), db = R(dc * a)
//   Sub: da = R(dc), db = R(-dc)             Div: da = R(dc / b), db = -R(dc * c) / b
//   Power: da = R(dc * b * a^(b - 1)), db = R(dc * c * log(a))
// What a gradient rule writes must be right for all shapes. Where nothing is repeated, R is a copy, which plans of
// steps leave out (compiler/passes/drop_moves.cc).
#include "stepnet/core/floating.h"
#include "stepnet/core/formulas/formula.h"
#include "stepnet/core/input_checks.h"
#include "stepnet/core/regions/region_kernels.h"
#include "stepnet/operators/dim_groups.h"
#include "stepnet/operators/elementwise.h"

namespace stepnet {
namespace {

const std::vector<DType> kNumbers = {DType::kFloat, DType::kDouble, DType::kInt32, DType::kInt64};

Operator ArithmeticOperator(const std::string& type, const std::string& doc,
                            const std::vector<DType>& dtypes = kNumbers) {
  return BroadcastOperator(type, doc, dtypes)
      .InPlace({{0, 0}, {1, 0}})
      .Check([](const OperatorCall& op, std::vector<NetProblem>* problems) {
        CheckBy([](const OperatorCall& of) { ReadBroadcastRule(of); })(op, problems);
        if (!op.Bool("broadcast") || op.inputs()[0] == op.outputs()[0]) return;  // by shape: known with shapes
        if (op.inputs()[1] == op.outputs()[0]) {
          problems->push_back({.message = StrCat(op.type(), " with broadcast can overwrite its first input alone")});
        }
      });
}

const Registration add = ArithmeticOperator("Add", "c = a + b, element by element.")
                             .Formula([](Formula& f) { f.Out({f.In("a") + f.In("b")}); })
                             .Gradient([](GradientBuilder& g) {
                               PassGradient(g, 0);
                               PassGradient(g, 1);
                             });

const Registration sub =
    ArithmeticOperator("Sub", "c = a - b, element by element.")
        .Formula([](Formula& f) { f.Out({f.In("a") - f.In("b")}); })
        .Gradient([](GradientBuilder& g) {
          PassGradient(g, 0);
          const std::string negative = UnreducedGradient(g, 1);
          g.Add({.type = "Negative", .inputs = {g.GO(0)}, .outputs = {negative}, .copies_arguments = false});
          ReduceGradient(g, 1);
        });

const Registration mul =
    ArithmeticOperator("Mul", "c = a * b, element by element.")
        .Formula([](Formula& f) { f.Out({f.In("a") * f.In("b")}); })
        .Gradient([](GradientBuilder& g) {
          ExpectInputsKept(g);
          for (const int i : {0, 1}) {
            const std::string product = UnreducedGradient(g, i);
            // Only b is repeated as broadcast=1 says.
            g.Add({.type = "Mul", .inputs = {g.GO(0), g.I(1 - i)}, .outputs = {product}, .copies_arguments = i == 0});
            ReduceGradient(g, i);
          }
        });

const Registration div =
    ArithmeticOperator("Div", "c = a / b, element by element; integers round towards 0.")
        .Formula([](Formula& f) { f.Out({f.In("a") / f.In("b")}); })
        .Gradient([](GradientBuilder& g) {
          ExpectInputsKept(g);
          const std::string da = UnreducedGradient(g, 0);
          g.Add({.type = "DivGradient", .inputs = {g.I(1), g.O(0), g.GO(0)}, .outputs = {da, g.GI(1)}});
          ReduceGradient(g, 0);
        });

const Registration div_gradient =
    Operator("DivGradient")
        .Doc("Gradient of Div: da = dc / b, db = -(dc * c) / b, summed over what one element of b met.")
        .Input("b", "second input of Div")
        .Input("c", "output of Div")
        .Input("dc", Like("c"))
        .Output("da", Like("c"))
        .Output("db", Like("b"))
        .Args(BroadcastArguments())
        .InPlace({{0, 0}})
        .Check(CheckBy([](const OperatorCall& op) { ReadBroadcastRule(op); }))
        .CheckShapes([](const ShapeQuery& query) {
          ExpectFloats(query);
          CheckRepeated(query, ReadBroadcastRule(query.op()), /*a=*/1, /*b=*/0);
        })
        .Formula(DerivativeOf("Div"));

const Registration power = ArithmeticOperator("Power", "c = a^b, element by element.", {DType::kFloat, DType::kDouble})
                               .Formula([](Formula& f) { f.Out({Pow(f.In("a"), f.In("b"))}); })
                               .Gradient([](GradientBuilder& g) {
                                 ExpectInputsKept(g);
                                 g.Add({.type = "PowerGradient",
                                        .inputs = {g.I(0), g.I(1), g.O(0), g.GO(0)},
                                        .outputs = {UnreducedGradient(g, 0), UnreducedGradient(g, 1)}});
                                 for (const int i : {0, 1}) ReduceGradient(g, i);
                               });

// By hand, as what was repeated is summed by operators of the net.
const Registration power_gradient =
    Operator("PowerGradient")
        .Doc(
            "Gradient of Power before it is summed over what was repeated: da = dc * b * a^(b - 1), and 0 where b is "
            "0; "
            "db = dc * c * log(a), and 0 where a is 0 and b is not negative.")
        .Input("a", "first input of Power")
        .Input("b", "second input of Power")
        .Input("c", "output of Power")
        .Input("dc", Like("c"))
        .Output("da", Like("c"))
        .Output("db", Like("c"))
        .Args(BroadcastArguments())
        .Check(CheckBy([](const OperatorCall& op) { ReadBroadcastRule(op); }))
        .CheckShapes([](const ShapeQuery& query) {
          ExpectFloats(query);
          CheckRepeated(query, {}, /*a=*/2, /*b=*/0);
          CheckRepeated(query, ReadBroadcastRule(query.op()), /*a=*/2, /*b=*/1);
        })
        .Formula([](Formula& f) {
          const Expr a = f.In("a"), b = f.In("b"), dc = f.In("dc");
          f.Out({Where(Equal(b, 0), 0, dc * (b * Pow(a, b - 1))),
                 Where(And(Equal(a, 0), b >= 0), 0, dc * (f.In("c") * Log(a)))});
        });

// Whether the rows of all steps can be summed at once: b has none.
std::optional<RowOperands> SummedRows(const ShapeQuery& query) {
  const Shape &a = query.In(0).shape, &b = query.In(1).shape;
  if (a.rank() == 0 || ReadBroadcastRule(query.op(), /*always=*/true).axis != -1) return {};
  const int first = b.rank() - a.rank();  // which stands for a's first dimension
  if (first >= 0 && b[first] != 1) return {};
  return RowOperands{.inputs = {0}, .outputs = {}};
}

// Sums what is only stored, in float; each sum is rounded once.
void SumStored(const OpRun& run, const BroadcastRule& rule) {
  const TensorView &a = run.In(0), &c = run.Out(0);
  float* const loaded = run.ScratchOf<float>(a.size());
  float* const sums = run.ScratchOf<float>(c.size());
  const auto cast = [](DType from, const void* x, DType to, void* y, std::int64_t n) {
    KernelOf(ExprOp::kCast, from, to)(y, x, nullptr, nullptr, nullptr, n);
  };
  cast(a.dtype, a.data, DType::kFloat, loaded, a.size());
  SumRepeated(run, rule, loaded, *a.shape, sums, *run.In(1).shape);
  cast(DType::kFloat, sums, c.dtype, c.data, c.size());
}

// No formula: those sum over the last dimensions, or over all that come before, and this over any that b lacks.
const Registration sum_reduce_like =
    Operator("SumReduceLike")
        .Doc(
            "Sums a down to the shape of b: the gradient of an input that was repeated. Element j of the output is the "
            "sum of all elements of a that Add, by shape or with broadcast=1, would add b[j] to.")
        .Input("a", OfTypes({DType::kFloat, DType::kDouble, DType::kFloat16, DType::kBFloat16},
                            "any shape; float, double, float16 or bfloat16"))
        .Input("b", "a shape that repeats over that of a, or a run of its sizes; its elements are not read")
        .Output("c", "the shape of b, the type of a")
        .SumsLike(1)
        .Rows(SummedRows)
        .Args(BroadcastArguments())
        .Check(CheckBy([](const OperatorCall& op) { ReadBroadcastRule(op, /*always=*/true); }))
        .Shapes([](const ShapeQuery& query) {
          CheckRepeated(query, ReadBroadcastRule(query.op(), /*always=*/true));
          return std::vector<TensorInfo>{{.dtype = query.In(0).dtype, .shape = query.In(1).shape}};
        })
        .Expands([](Expansion& e) {
          if (IsStoredFloat(e.In(0).dtype)) return;
          const BroadcastRule rule = ReadBroadcastRule(e.op(), /*always=*/true);
          e.Sum(0, SumOf(0, GroupsOfRepeated(rule, e.In(0).shape, e.In(1).shape)));
        })
        .CostIs([](const ShapeQuery& query, std::span<const TensorInfo> outputs) -> Cost {
          const auto elements = static_cast<double>(query.In(0).shape.size());
          const auto sums = static_cast<double>(outputs[0].shape.size());
          return {.flops = elements, .bytes = (elements + sums) * static_cast<double>(DTypeBytes(outputs[0].dtype))};
        })
        .Cpu({.make = [](const OperatorCall& op) -> RunFn {
                return [rule = ReadBroadcastRule(op, /*always=*/true)](const OpRun& run) {
                  if (IsStoredFloat(run.In(0).dtype)) return SumStored(run, rule);
                  ForFloatType(run.Out(0).dtype, "SumReduceLike", [&](auto zero) {
                    using T = decltype(zero);
                    const std::int64_t n = run.Out(0).size();
                    T* const out = run.Out(0).As<T>();
                    T* const sums = run.Adds(0) ? run.ScratchOf<T>(n) : out;
                    SumRepeated(run, rule, run.In(0).As<T>(), *run.In(0).shape, sums, *run.In(1).shape);
                    if (sums == out) return;
                    for (std::int64_t i = 0; i < n; ++i) out[i] += sums[i];
                  });
                };
              },
              .can_add = {0}});

}  // namespace
}  // namespace stepnet

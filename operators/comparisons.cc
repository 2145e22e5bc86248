// EQ, NE, LT, LE, GT, GE: c = a op b as bool, with broadcasting (core/broadcast_rule.h).
#include "stepnet/core/formulas/formula.h"
#include "stepnet/operators/broadcast.h"
#include "stepnet/operators/input_checks.h"

namespace stepnet {
namespace {

const std::vector<DType> kOrdered = {DType::kFloat, DType::kDouble, DType::kInt32, DType::kInt64};
const std::vector<DType> kComparable = {DType::kFloat, DType::kDouble, DType::kInt32, DType::kInt64, DType::kBool};

Operator Comparison(const std::string& type, const std::string& sign, const std::vector<DType>& dtypes,
                    Expr (*compare)(const Expr&, const Expr&)) {
  Operator op(type);
  op.Doc("c = a " + sign + " b, element by element.")
      .Input("a", "any shape; " + Join(dtypes, ", "))
      .Input("b",
             "a shape that repeats over that of a, or the other way round; with broadcast=1 a run of its sizes, or one "
             "element")
      .Output("c", "bool, the shape that both are repeated to")
      .Args(BroadcastArguments())
      .Check(CheckBy([](const OperatorCall& op) { ReadBroadcastRule(op); }))
      .Shapes(BroadcastShapes(dtypes, DType::kBool))
      .StopsGradient()
      .Formula([compare](Formula& f) { f.Out({compare(f.In("a"), f.In("b"))}); });
  return op;
}

const Registration eq = Comparison("EQ", "==", kComparable, Equal);
const Registration ne = Comparison("NE", "!=", kComparable, NotEqual);
const Registration lt = Comparison("LT", "<", kOrdered, operator<);
const Registration le = Comparison("LE", "<=", kOrdered, operator<=);
const Registration gt = Comparison("GT", ">", kOrdered, operator>);
const Registration ge = Comparison("GE", ">=", kOrdered, operator>=);

}  // namespace
}  // namespace stepnet

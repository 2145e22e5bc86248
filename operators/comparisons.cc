// EQ, NE, LT, LE, GT, GE: c = a op b as bool, with broadcasting (core/broadcast_rule.h).
#include "stepnet/core/formulas/formula.h"
#include "stepnet/operators/broadcast.h"

namespace stepnet {
namespace {

const std::vector<DType> kOrdered = {DType::kFloat, DType::kDouble, DType::kInt32, DType::kInt64};
const std::vector<DType> kComparable = {DType::kFloat, DType::kDouble, DType::kInt32, DType::kInt64, DType::kBool};

Operator Comparison(const std::string& type, const std::string& sign, const std::vector<DType>& dtypes,
                    Expr (*compare)(const Expr&, const Expr&)) {
  return BroadcastOperator(type, StrCat("c = a ", sign, " b, element by element."), dtypes, DType::kBool)
      .StopsGradient()
      .Formula([compare](Formula& f) { f.Out({compare(f.In("a"), f.In("b"))}); });
}

const Registration eq = Comparison("EQ", "==", kComparable, Equal);
const Registration ne = Comparison("NE", "!=", kComparable, NotEqual);
const Registration lt = Comparison("LT", "<", kOrdered, operator<);
const Registration le = Comparison("LE", "<=", kOrdered, operator<=);
const Registration gt = Comparison("GT", ">", kOrdered, operator>);
const Registration ge = Comparison("GE", ">=", kOrdered, operator>=);

}  // namespace
}  // namespace stepnet

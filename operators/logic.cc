// And, Or, Xor, Not: of bools, with broadcasting (core/broadcast_rule.h).
#include "stepnet/core/formulas/formula.h"
#include "stepnet/core/input_checks.h"
#include "stepnet/operators/broadcast.h"

namespace stepnet {
namespace {

Operator Logic(const std::string& type, const std::string& doc, Expr (*logic)(const Expr&, const Expr&)) {
  return BroadcastOperator(type, doc, {DType::kBool}).InPlace({{0, 0}}).StopsGradient().Formula([logic](Formula& f) {
    f.Out({logic(f.In("a"), f.In("b"))});
  });
}

const Registration logical_and = Logic("And", "True where a and b are.", And);
const Registration logical_or = Logic("Or", "True where a or b is.", Or);
const Registration logical_xor = Logic("Xor", "True where one of a and b is.", NotEqual);

const Registration logical_not = Operator("Not")
                                     .Doc("True where x is not.")
                                     .Input("x", OfTypes({DType::kBool}, "bool, any shape"))
                                     .Output("y", Like("x"))
                                     .InPlace({{0, 0}})
                                     .StopsGradient()
                                     .Formula([](Formula& f) { f.Out({Not(f.In("x"))}); });

}  // namespace
}  // namespace stepnet

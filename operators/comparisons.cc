// EQ, NE, LT, LE, GT, GE: c = a op b as bool, with Caffe2's legacy broadcasting.
#include "stepnet/operators/broadcast.h"
#include "stepnet/operators/input_checks.h"

namespace stepnet {
namespace {

const std::vector<DType> kOrdered = {DType::kFloat, DType::kDouble, DType::kInt32, DType::kInt64};
const std::vector<DType> kComparable = {DType::kFloat, DType::kDouble, DType::kInt32, DType::kInt64, DType::kBool};

template <typename Fn>
RunFn Compare(const OperatorCall& op, Fn fn) {
  return [fn, rule = ReadBroadcastRule(op)](const OpRun& run) {
    const BroadcastPlan plan = PlanBroadcast(rule, *run.In(0).shape, *run.In(1).shape);
    const auto compare = [&](auto zero) {
      using T = decltype(zero);
      const T* a = run.In(0).As<T>();
      const T* b = run.In(1).As<T>();
      bool* c = run.Out(0).As<bool>();
      ForBroadcast(plan, [&](std::int64_t x, std::int64_t y) { c[x] = fn(a[x], b[y]); });
    };
    switch (run.In(0).dtype) {
      case DType::kFloat: return compare(float{});
      case DType::kDouble: return compare(double{});
      case DType::kInt32: return compare(std::int32_t{});
      case DType::kInt64: return compare(std::int64_t{});
      default: return compare(bool{});
    }
  };
}

template <typename Fn>
Operator Comparison(const std::string& type, const std::string& sign, const std::vector<DType>& dtypes, Fn fn) {
  Operator op(type);
  op.Doc("c = a " + sign + " b, element by element.")
      .Input("a", "any shape; " + Join(dtypes, ", "))
      .Input("b", "the shape of a; with broadcast=1 a run of its sizes, or one element")
      .Output("c", "bool, the shape of a")
      .Args(BroadcastArguments())
      .Check(CheckBy([](const OperatorCall& init) { ReadBroadcastRule(init); }))
      .Shapes(BroadcastShapes(dtypes, DType::kBool))
      .Elementwise()
      .StopsGradient()
      .Cpu([fn](const OperatorCall& init) { return Compare(init, fn); });
  return op;
}

const Registration eq = Comparison("EQ", "==", kComparable, [](auto a, auto b) { return a == b; });
const Registration ne = Comparison("NE", "!=", kComparable, [](auto a, auto b) { return a != b; });
const Registration lt = Comparison("LT", "<", kOrdered, [](auto a, auto b) { return a < b; });
const Registration le = Comparison("LE", "<=", kOrdered, [](auto a, auto b) { return a <= b; });
const Registration gt = Comparison("GT", ">", kOrdered, [](auto a, auto b) { return a > b; });
const Registration ge = Comparison("GE", ">=", kOrdered, [](auto a, auto b) { return a >= b; });

}  // namespace
}  // namespace stepnet

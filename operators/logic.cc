// And, Or, Xor, Not: of bools, with Caffe2's legacy broadcasting.
#include "stepnet/core/cancellation.h"
#include "stepnet/operators/broadcast.h"
#include "stepnet/operators/input_checks.h"

namespace stepnet {
namespace {

template <typename Fn>
Operator Logic(const std::string& type, const std::string& doc, Fn fn) {
  Operator op(type);
  op.Doc(doc)
      .Input("a", "bool, any shape")
      .Input("b", "bool, the shape of a; with broadcast=1 a run of its sizes, or one element")
      .Output("c", "bool, the shape of a")
      .Args(BroadcastArguments())
      .Check(CheckBy([](const OperatorCall& init) { ReadBroadcastRule(init); }))
      .Shapes(BroadcastShapes({DType::kBool}))
      .InPlace({{0, 0}})
      .Elementwise()
      .StopsGradient()
      .Cpu([fn](const OperatorCall& init) -> RunFn {
        return [fn, rule = ReadBroadcastRule(init)](const OpRun& run) {
          const bool* a = run.In(0).As<bool>();
          const bool* b = run.In(1).As<bool>();
          bool* c = run.Out(0).As<bool>();
          ForBroadcast(PlanBroadcast(rule, *run.In(0).shape, *run.In(1).shape),
                       [&](std::int64_t x, std::int64_t y) { c[x] = fn(a[x], b[y]); });
        };
      });
  return op;
}

const Registration logical_and = Logic("And", "True where a and b are.", [](bool a, bool b) { return a && b; });
const Registration logical_or = Logic("Or", "True where a or b is.", [](bool a, bool b) { return a || b; });
const Registration logical_xor = Logic("Xor", "True where one of a and b is.", [](bool a, bool b) { return a != b; });

const Registration logical_not = Operator("Not")
                                     .Doc("True where x is not.")
                                     .Input("x", "bool, any shape")
                                     .Output("y", "bool, the shape of x")
                                     .Shapes([](const ShapeQuery& query) {
                                       ExpectType(query, 0, {DType::kBool});
                                       return SameAsInput(0)(query);
                                     })
                                     .InPlace({{0, 0}})
                                     .Elementwise()
                                     .StopsGradient()
                                     .Cpu([](const OperatorCall&) -> RunFn {
                                       return [](const OpRun& run) {
                                         const bool* x = run.In(0).As<bool>();
                                         bool* y = run.Out(0).As<bool>();
                                         InBlocks(run.Out(0).size(), 1, [&](std::int64_t begin, std::int64_t end) {
                                           for (std::int64_t i = begin; i < end; ++i) y[i] = !x[i];
                                         });
                                       };
                                     });

}  // namespace
}  // namespace stepnet

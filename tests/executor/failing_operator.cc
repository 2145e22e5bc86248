#include "failing_operator.h"

#include <stdexcept>

#include "stepnet/core/move.h"
#include "stepnet/core/operator.h"

namespace stepnet {

std::atomic<std::int64_t> fails_at = -1;

namespace {

const Registration fails = Operator("test.FailsInStep")
                               .Doc("y = x, or an exception.")
                               .Input("x", "any")
                               .Output("y", "as x")
                               .Shapes(SameAsInput(0))
                               .StopsGradient()
                               .Cpu([](const OperatorCall&) -> RunFn {
                                 return [](const OpRun& run) {
                                   if (run.step() == fails_at) throw std::runtime_error("as asked");
                                   CopyElements(run.In(0), run.Out(0));
                                 };
                               });

}  // namespace
}  // namespace stepnet

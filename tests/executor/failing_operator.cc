#include "failing_operator.h"

#include <new>
#include <stdexcept>

#include "stepnet/core/device.h"
#include "stepnet/core/error.h"
#include "stepnet/core/move.h"
#include "stepnet/core/operator.h"

namespace stepnet {

std::atomic<std::int64_t> fails_at = -1;
std::atomic<Thrown> fails_with = Thrown::kRuntimeError;

namespace {

void FailAsAsked(const OpRun& run) {
  if (run.step() != fails_at) return;
  switch (fails_with.load()) {
    case Thrown::kRuntimeError: throw std::runtime_error("as asked");
    case Thrown::kError: throw Error(ErrorCode::kInvalidArgument, "as asked");
    case Thrown::kBadAlloc: throw std::bad_alloc();
    case Thrown::kInt: throw 42;  // NOLINT: users throw anything
  }
}

const Registration fails = Operator("test.FailsInStep")
                               .Doc("y = x, or an exception.")
                               .Input("x", "any")
                               .Output("y", "as x")
                               .Shapes(SameAsInput(0))
                               .StopsGradient()
                               .Cpu([](const OperatorCall&) -> RunFn {
                                 return [](const OpRun& run) {
                                   FailAsAsked(run);
                                   CopyElements(run.In(0), run.Out(0));
                                 };
                               });

// As operators of users have them, who know nothing of what devices do for the library's own.
const Kernel kOfDevices = {.make = [](const OperatorCall&) -> RunFn {
  return [](const OpRun& run) {
    FailAsAsked(run);
    run.queue().Copy(run.In(0).data, run.Out(0).data, run.Out(0).size_bytes());
  };
}};
const KernelRegistration fails_on_poison("test.FailsInStep", DeviceKind::kPrivate, kOfDevices);
const KernelRegistration fails_on_gpu("test.FailsInStep", DeviceKind::kCuda, kOfDevices);

}  // namespace
}  // namespace stepnet

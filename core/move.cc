#include "stepnet/core/move.h"

#include "stepnet/core/accumulate.h"

namespace stepnet {

void CopyInput(const OpRun& run) {
  const TensorView &from = run.In(0), &to = run.Out(0);
  if (run.context().queue == nullptr) return CopyElements(from, to);
  if (from.data != to.data) run.queue().Copy(from.data, to.data, to.size_bytes());
}

void AddInput(const OpRun& run) {
  const TensorView &from = run.In(0), &to = run.Out(0);
  if (run.context().queue == nullptr) return Accumulate(from, to);
  run.queue().Add(from.data, to.data, to.dtype, to.size());
}

Kernel CopyKernel() {
  return {.make = [](const OperatorCall&) -> RunFn { return CopyInput; }};
}

}  // namespace stepnet

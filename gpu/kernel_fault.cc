#include "stepnet/gpu/kernel_fault.h"

#include <utility>

#include "stepnet/core/expressions/expr_evaluate.h"

namespace stepnet {
namespace {

DeviceLateFaults* LateFaultsOf(const OpRun& run) {
  const RunContext& context = run.context();
  const bool has_room = DeviceFaultSite::HasRoomFor(context.site);
  return has_room ? static_cast<DeviceLateFaults*>(context.late_faults) : nullptr;
}

Error WithElement(const Fault& fault, std::int64_t element) {
  return Error(fault.error.code(), stepnet::WithElement(fault.error.message(), element));
}

}  // namespace

DeviceLateFaults::DeviceLateFaults(DeviceRuntime& runtime)
    : runtime_(runtime), record_(static_cast<DeviceFault*>(runtime.Allocate(sizeof(DeviceFault)))) {
  runtime_.queue().Fill(record_, 0, sizeof(DeviceFault));
}

DeviceLateFaults::~DeviceLateFaults() { runtime_.Free(record_, sizeof(DeviceFault)); }

void DeviceLateFaults::SetPending(std::shared_ptr<const FaultMessages> messages) {
  pending_.insert(std::move(messages));
  LateFaults::SetPending();
}

std::optional<LateFaults::Found> DeviceLateFaults::TakeNoted() {
  DeviceFault noted;
  runtime_.queue().CopyToHost(record_, &noted, sizeof(noted));
  const auto reported = std::exchange(pending_, {});
  if (!noted.any()) return std::nullopt;
  runtime_.queue().Fill(record_, 0, sizeof(DeviceFault));
  Fault fault = FaultOf(noted);
  fault.error = WithElement(fault, fault.place.element);
  return Found{.net_op = NetOpOf(noted), .fault = std::move(fault)};
}

KernelFault::KernelFault(const OpRun& run, const std::vector<Expr>& requirements, std::int64_t num_elements)
    : KernelFault(run, FaultMessagesOf(requirements), num_elements) {}

KernelFault::KernelFault(const OpRun& run, std::shared_ptr<const FaultMessages> messages, std::int64_t num_elements)
    : run_(run),
      messages_(std::move(messages)),
      num_elements_(num_elements),
      late_faults_(LateFaultsOf(run)),
      record_(late_faults_ != nullptr ? late_faults_->record() : run.ScratchOf<DeviceFault>(1)) {
  if (late_faults_ != nullptr) {
    site_ = DeviceFaultSite::Of(run.context().site, run.range(), num_elements);
    late_faults_->SetPending(messages_);
  } else if (run.context().queue == nullptr) {
    *record_ = {};
  } else {
    run.queue().Fill(record_, 0, sizeof(DeviceFault));
  }
  site_.messages = messages_->first();
}

void KernelFault::Report() const {
  if (late_faults_ != nullptr) return;
  DeviceFault found;
  if (run_.context().queue == nullptr) {
    found = *record_;
  } else {
    run_.queue().CopyToHost(record_, &found, sizeof(found));
  }
  if (!found.any()) return;
  const Fault fault = FaultOf(found);
  run_.FaultOf(fault.place.element, num_elements_, [&](std::int64_t element) { return WithElement(fault, element); });
}

const DeviceFault* FaultThatStops(const OpRun& run) {
  const auto* late_faults = static_cast<const DeviceLateFaults*>(run.context().late_faults);
  const bool stops = late_faults != nullptr && run.context().stops_after_faults && late_faults->pending();
  return stops ? late_faults->record() : nullptr;
}

Expr RequirementOf(std::string_view message, const std::vector<DType>& values) {
  std::vector<Expr> operands = {Expr::Input(0, "condition", DType::kBool)};
  for (size_t i = 0; i < values.size(); ++i) {
    operands.push_back(Expr::Input(static_cast<int>(i) + 1, "value", values[i]));
  }
  return MakeExpr(ExprOp::kRequire, operands, {.text = message});
}

}  // namespace stepnet

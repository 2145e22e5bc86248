#include "stepnet/gpu/device_fault.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <mutex>
#include <optional>

#include "stepnet/core/expressions/expr_evaluate.h"
#include "stepnet/core/strings.h"
#include "stepnet/gpu/shared_values.h"

namespace stepnet {
namespace {

std::uint64_t LowBits(std::uint64_t value, int count) { return value & ((std::uint64_t{1} << count) - 1); }

// So many messages that no kernel holds any more are kept: those of as many kernels that run without being recorded.
constexpr size_t kMaxUnusedMessages = 256;

// The messages that there are, by the number of their first.
struct NumberedMessages {
  std::mutex mutex;
  std::uint64_t next = 0;
  std::map<std::uint64_t, const FaultMessages*> by_first;

  static NumberedMessages& Get() {
    static NumberedMessages& all = *new NumberedMessages;  // nets at namespace scope end late
    return all;
  }
};

}  // namespace

bool DeviceFaultSite::HasRoomFor(const FaultSite& site) {
  return site.net_op < (1 << kNetOpBits) - 1 && site.first_step < std::int64_t{1} << kStepBits &&
         site.op < std::int64_t{1} << kOpBits;
}

DeviceFaultSite DeviceFaultSite::Of(const FaultSite& site, const RunRange* range, std::int64_t num_elements) {
  constexpr std::int64_t kStep = std::int64_t{1} << kOpBits;
  const auto net_op = static_cast<std::uint64_t>(site.net_op) << (kStepBits + kOpBits);
  DeviceFaultSite made{.place = net_op + static_cast<std::uint64_t>(site.first_step * kStep + site.op)};
  if (range == nullptr || range->num_steps == 1) return made;
  made.next_place = range->backward ? -kStep : kStep;
  made.elements_of_step = num_elements / range->num_steps;
  if (range->backward) made.place += static_cast<std::uint64_t>((range->num_steps - 1) * kStep);
  return made;
}

int NetOpOf(const DeviceFault& fault) {
  return static_cast<int>(~fault.place >> (DeviceFaultSite::kStepBits + DeviceFaultSite::kOpBits));
}

FaultPlace PlaceOf(const DeviceFault& fault) {
  const std::uint64_t step = LowBits(~fault.place >> DeviceFaultSite::kOpBits, DeviceFaultSite::kStepBits);
  return {.step = static_cast<std::int64_t>(step),
          .op = static_cast<std::int64_t>(LowBits(~fault.place, DeviceFaultSite::kOpBits)),
          .element = static_cast<std::int64_t>(~fault.element)};
}

Fault FaultOf(const DeviceFault& fault) {
  const std::optional<std::string> message = FaultMessages::Find(fault);
  return {.place = PlaceOf(fault),
          .error = Error(ErrorCode::kInvalidArgument,
                         message.value_or("a value is not allowed, and what is to be said of it went with the kernel "
                                          "that found it; a run on the CPU says it"))};
}

FaultMessages::FaultMessages(std::span<const Expr> requirements)
    : requirements_(requirements.begin(), requirements.end()) {
  NumberedMessages& all = NumberedMessages::Get();
  const std::lock_guard lock(all.mutex);
  first_ = all.next;
  all.by_first.emplace(first_, this);
  all.next += std::max<size_t>(requirements_.size(), 1);
}

FaultMessages::~FaultMessages() {
  NumberedMessages& all = NumberedMessages::Get();
  const std::lock_guard lock(all.mutex);
  all.by_first.erase(first_);
}

std::optional<std::string> FaultMessages::Find(const DeviceFault& fault) {
  NumberedMessages& all = NumberedMessages::Get();
  const std::lock_guard lock(all.mutex);  // nobody ends them meanwhile
  const auto behind = all.by_first.upper_bound(fault.requirement);
  if (behind == all.by_first.begin()) return std::nullopt;
  const auto& [first, messages] = *std::prev(behind);
  const std::uint64_t place = fault.requirement - first;
  if (place >= messages->requirements_.size()) return std::nullopt;
  const Expr& require = messages->requirements_[place];
  std::vector<ExprScalar> values;
  for (const ExprNode* shown : require->Operands().subspan(1)) {
    values.push_back({.dtype = shown->dtype, .bits = fault.values[values.size()]});
  }
  return FaultMessage(*require, values);
}

std::shared_ptr<const FaultMessages> FaultMessagesOf(std::span<const Expr> requirements) {
  static auto& shared = *new SharedValues<FaultMessages>(kMaxUnusedMessages);
  std::string key;
  for (const Expr& require : requirements) {
    key += StrCat(require->text, "\n");
    for (const ExprNode* shown : require->Operands().subspan(1)) key += StrCat(shown->dtype, " ");
  }
  return shared.Get(key, [&] { return std::make_unique<const FaultMessages>(requirements); });
}

}  // namespace stepnet

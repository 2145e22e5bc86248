#include "stepnet/gpu/device_fault.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <mutex>
#include <utility>
#include <vector>

#include "stepnet/core/expressions/expr_evaluate.h"
#include "stepnet/core/strings.h"

namespace stepnet {
namespace {

std::uint64_t LowBits(std::uint64_t value, int count) { return value & ((std::uint64_t{1} << count) - 1); }

struct Messages {
  std::mutex mutex;
  std::map<std::string, std::uint64_t> first;  // by key
  std::vector<FaultMessageRule> rules;
};

Messages& AllMessages() {
  static Messages& messages = *new Messages;
  return messages;
}

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
  Messages& messages = AllMessages();
  const std::lock_guard lock(messages.mutex);
  const FaultMessageRule& rule = messages.rules.at(fault.requirement);
  return {.place = PlaceOf(fault), .error = Error(ErrorCode::kInvalidArgument, rule(fault.values))};
}

std::uint64_t NumberOfMessages(const std::string& key, std::vector<FaultMessageRule> rules) {
  Messages& messages = AllMessages();
  const std::lock_guard lock(messages.mutex);
  const auto [found, is_new] = messages.first.try_emplace(key, messages.rules.size());
  if (is_new) std::ranges::move(rules, std::back_inserter(messages.rules));
  return found->second;
}

std::uint64_t NumberOfMessages(std::span<const Expr> requirements) {
  std::string key;
  std::vector<FaultMessageRule> rules;
  for (const Expr& require : requirements) {
    key += StrCat(require->text, "\n");
    for (const ExprNode* shown : require->Operands().subspan(1)) key += StrCat(shown->dtype, " ");
    rules.emplace_back([require](std::span<const std::uint64_t> noted) {
      std::vector<ExprScalar> values;
      for (const ExprNode* shown : require->Operands().subspan(1)) {
        values.push_back({.dtype = shown->dtype, .bits = noted[values.size()]});
      }
      return FaultMessage(*require, values);
    });
  }
  return NumberOfMessages(key, std::move(rules));
}

}  // namespace stepnet

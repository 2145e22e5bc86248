#include "stepnet/gpu/device_fault.h"

#include <vector>

#include "stepnet/core/expr_evaluate.h"

namespace stepnet {

FaultPlace PlaceOf(const DeviceFault& fault) {
  constexpr std::uint64_t kInstructions = (std::uint64_t{1} << DeviceFault::kInstructionBits) - 1;
  return {.step = static_cast<std::int64_t>(~fault.place >> DeviceFault::kInstructionBits),
          .op = static_cast<std::int64_t>(~fault.place & kInstructions),
          .element = static_cast<std::int64_t>(~fault.element)};
}

Fault FaultOf(const DeviceFault& fault, std::span<const Expr> requirements) {
  const ExprNode& require = *requirements[fault.requirement];
  std::vector<ExprScalar> values;
  for (const ExprNode* shown : require.Operands().subspan(1)) {
    values.push_back({.dtype = shown->dtype, .bits = fault.values[values.size()]});
  }
  return {.place = PlaceOf(fault), .error = Error(ErrorCode::kInvalidArgument, FaultMessage(require, values))};
}

}  // namespace stepnet

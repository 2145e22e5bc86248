#include "poison_conditions.h"

namespace stepnet {

PoisonConditions& ThePoisonConditions() {
  static PoisonConditions& conditions = *new PoisonConditions;
  return conditions;
}

PoisonOrder::PoisonOrder(unsigned seed) {
  PoisonConditions& conditions = ThePoisonConditions();
  const std::lock_guard lock(conditions.mutex);
  conditions.order.emplace(seed);
}
PoisonOrder::~PoisonOrder() {
  PoisonConditions& conditions = ThePoisonConditions();
  const std::lock_guard lock(conditions.mutex);
  conditions.order.reset();
}

PoisonFailure::PoisonFailure(PoisonFault fault, std::int64_t k) {
  PoisonConditions& conditions = ThePoisonConditions();
  const std::lock_guard lock(conditions.mutex);
  conditions.fault = fault;
  conditions.before_fault = k;
}
PoisonFailure::~PoisonFailure() {
  PoisonConditions& conditions = ThePoisonConditions();
  const std::lock_guard lock(conditions.mutex);
  conditions.fault.reset();
}
bool PoisonFailure::has_happened() const {
  PoisonConditions& conditions = ThePoisonConditions();
  const std::lock_guard lock(conditions.mutex);
  return conditions.before_fault < 0;
}

}  // namespace stepnet

#include "stepnet/core/spare_memory.h"

#include <mutex>
#include <vector>

#include "stepnet/core/scoped_value.h"

namespace stepnet {
namespace {

struct Owners {
  std::mutex mutex;
  std::vector<SpareMemory*> all;
};

Owners& AllOwners() {
  static Owners owners;
  return owners;
}

thread_local bool is_freeing = false;

}  // namespace

void SpareMemory::Offer() {
  const std::lock_guard lock(AllOwners().mutex);
  AllOwners().all.push_back(this);
}

SpareMemory::~SpareMemory() { Withdraw(); }

void SpareMemory::Withdraw() {
  const std::lock_guard lock(AllOwners().mutex);
  std::erase(AllOwners().all, this);
}

bool FreeSpareMemory() {
  if (is_freeing) return false;
  const ScopedValue<bool> freeing(is_freeing, true);
  const std::lock_guard lock(AllOwners().mutex);
  while (true) {
    SpareMemory* best = nullptr;
    double gain = 0;
    for (SpareMemory* owner : AllOwners().all) {
      const double of_owner = owner->Gain();
      if (of_owner <= gain) continue;
      best = owner;
      gain = of_owner;
    }
    if (best == nullptr) return false;
    if (best->FreeNext()) return true;
  }
}

}  // namespace stepnet

#include "stepnet/core/spare_memory.h"

#include <mutex>
#include <utility>
#include <vector>

#include "stepnet/core/cancellation.h"
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

using Held = std::vector<std::shared_ptr<const void>>;
thread_local Held* let_go = nullptr;  // by owners that this thread asks; null: it asks none

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

void SpareMemory::LetGo(std::shared_ptr<const void> held) { let_go->push_back(std::move(held)); }

bool FreeSpareMemory() {
  if (let_go != nullptr) return false;
  Held held;
  const ScopedValue<Held*> freeing(let_go, &held);
  // Whoever looks whether to stop may wait for a thread that withdraws an owner, as Python's code does.
  const CancellationScope not_cancelled(nullptr);
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

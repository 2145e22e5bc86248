// PlanCache: the plans of one operator, by what they depend on. Safe from many threads.
#pragma once

#include <list>
#include <memory>
#include <mutex>
#include <utility>

namespace stepnet {

template <typename Key, typename Plan>
class PlanCache {
 public:
  // The plan with this key; made by `make` when there is none. The plans used longest ago are dropped.
  template <typename Make>
  std::shared_ptr<const Plan> Get(const Key& key, Make&& make) {
    const std::lock_guard lock(mutex_);
    for (auto entry = entries_.begin(); entry != entries_.end(); ++entry) {
      if (!(entry->first == key)) continue;
      entries_.splice(entries_.begin(), entries_, entry);
      return entries_.front().second;
    }
    entries_.emplace_front(key, make());
    if (entries_.size() > kMaxPlans) entries_.pop_back();
    return entries_.front().second;
  }

 private:
  // Enough for batches of every size up to 64; a bound, so that ever new shapes do not fill the memory.
  static constexpr size_t kMaxPlans = 64;
  std::mutex mutex_;
  std::list<std::pair<Key, std::shared_ptr<const Plan>>> entries_;
};

}  // namespace stepnet

// KeptByKey: what takes long to make and is the same for equal keys, kept for whoever asks next.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>

namespace stepnet {

// Keys are bytes. Any number of threads may use it at once.
template <typename Value>
class KeptByKey {
 public:
  explicit KeptByKey(size_t max_kept) : max_kept_(max_kept) {}

  // Null where nothing is kept for the key.
  std::shared_ptr<const Value> Find(std::string_view key) {
    const std::lock_guard lock(mutex_);
    const auto found = values_.find(key);
    return found == values_.end() ? nullptr : found->second;
  }
  // Beside what was kept last: when there is too much of it, all of that is dropped.
  void Keep(std::string_view key, std::shared_ptr<const Value> value) {
    const std::lock_guard lock(mutex_);
    if (values_.size() >= max_kept_) values_.clear();
    values_.emplace(key, std::move(value));
  }

 private:
  struct Hash : std::hash<std::string_view> {
    using is_transparent = void;
  };

  const size_t max_kept_;
  std::mutex mutex_;
  std::unordered_map<std::string, std::shared_ptr<const Value>, Hash, std::equal_to<>> values_;
};

}  // namespace stepnet

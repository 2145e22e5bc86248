// RegisteredList: what objects at namespace scope have added, in the order of their registration.
#pragma once

#include <mutex>
#include <utility>
#include <vector>

namespace stepnet {

template <typename T>
class RegisteredList {
 public:
  void Add(T item) {
    const std::lock_guard lock(mutex_);
    items_.push_back(std::move(item));
  }
  // A copy, so that what an item does may ask for the list again.
  std::vector<T> Items() const {
    const std::lock_guard lock(mutex_);
    return items_;
  }

 private:
  mutable std::mutex mutex_;
  std::vector<T> items_;
};

}  // namespace stepnet

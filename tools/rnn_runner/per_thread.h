// PerThread: what observers keep apart for each thread that calls them, so that no thread waits for another.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

namespace stepnet::runner {

template <typename T>
class PerThread {
 public:
  // The first T is that of the thread that makes this.
  PerThread() : id_(next_id_.fetch_add(1)) { Mine(); }
  PerThread(const PerThread&) = delete;
  PerThread& operator=(const PerThread&) = delete;

  // That of the calling thread; found without a lock where the thread asks again.
  T& Mine() {
    struct Last {
      std::uint64_t id = 0;
      T* mine = nullptr;
    };
    thread_local Last last;
    if (last.id != id_) last = {id_, Find()};
    return *last.mine;
  }

  // In the order in which threads came. Not while others may call Mine.
  const std::vector<std::unique_ptr<T>>& All() const { return all_; }

 private:
  T* Find() {
    const std::lock_guard lock(mutex_);
    T*& mine = of_thread_[std::this_thread::get_id()];
    if (mine == nullptr) mine = all_.emplace_back(std::make_unique<T>()).get();
    return mine;
  }

  static inline std::atomic<std::uint64_t> next_id_ = 1;
  const std::uint64_t id_;
  std::mutex mutex_;
  std::map<std::thread::id, T*> of_thread_;
  std::vector<std::unique_ptr<T>> all_;
};

// What people call the threads of a PerThread, in its order: "caller", "helper 1", …
inline std::string ThreadName(size_t number) { return number == 0 ? "caller" : "helper " + std::to_string(number); }

}  // namespace stepnet::runner

// SharedValues: what is made once for a key, and shared by all who ask for it.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <list>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>

namespace stepnet {

// A value lives while somebody holds it. Of those that nobody holds any more, `max_unused` are kept for who asks next;
// beyond that, the one that was let go first goes first. Safe to use from any thread; holders may outlive it.
template <typename Value>
class SharedValues {
 public:
  using Holder = std::shared_ptr<const Value>;

  explicit SharedValues(size_t max_unused) : state_(std::make_shared<State>(max_unused)) {}

  // The value of `key`: what make(), a unique_ptr, gives where there is none. Who asks for what another thread is
  // making waits for it. Throws what `make` throws, and keeps nothing then.
  template <typename Make>
  Holder Get(const std::string& key, const Make& make) {
    const auto lease = std::make_shared<Lease>();
    lease->entry = state_->Hold(key, make);
    lease->state = state_;
    return Holder(lease, lease->entry->value.get());
  }

  struct Counts {
    std::int64_t made = 0;    // so far
    std::int64_t held = 0;    // by somebody
    std::int64_t unused = 0;  // and kept
  };
  Counts counts() const { return state_->counts(); }

 private:
  struct Entry {
    std::string key;
    std::unique_ptr<const Value> value = nullptr;  // null: a thread is making it
    std::int64_t num_leases = 0;
  };
  using Entries = std::list<Entry>;

  class State {
   public:
    explicit State(size_t max_unused) : max_unused_(max_unused) {}

    // One lease more.
    template <typename Make>
    typename Entries::iterator Hold(const std::string& key, const Make& make) {
      std::unique_lock lock(mutex_);
      auto found = index_.find(key);
      for (; found != index_.end() && found->second->value == nullptr; found = index_.find(key)) changed_.wait(lock);
      if (found == index_.end()) return MakeEntry(key, make, lock);
      const auto entry = found->second;
      if (entry->num_leases++ == 0) held_.splice(held_.end(), unused_, entry);
      return entry;
    }

    // One less. What goes is destroyed without the lock.
    void LetGo(typename Entries::iterator entry) noexcept {
      Entries gone;
      const std::lock_guard lock(mutex_);
      if (--entry->num_leases > 0) return;
      unused_.splice(unused_.end(), held_, entry);
      if (unused_.size() <= max_unused_) return;
      index_.erase(unused_.front().key);
      gone.splice(gone.end(), unused_, unused_.begin());
    }

    Counts counts() const {
      const std::lock_guard lock(mutex_);
      return {.made = num_made_,
              .held = static_cast<std::int64_t>(held_.size()),
              .unused = static_cast<std::int64_t>(unused_.size())};
    }

   private:
    template <typename Make>
    typename Entries::iterator MakeEntry(const std::string& key, const Make& make, std::unique_lock<std::mutex>& lock) {
      Entries made;
      made.push_back({.key = key, .num_leases = 1});
      const auto entry = made.begin();
      index_.emplace(entry->key, entry);
      lock.unlock();
      std::unique_ptr<const Value> value;
      try {
        value = make();
      } catch (...) {
        lock.lock();
        index_.erase(entry->key);
        changed_.notify_all();
        throw;
      }
      lock.lock();
      entry->value = std::move(value);
      held_.splice(held_.end(), made);
      ++num_made_;
      changed_.notify_all();
      return entry;
    }

    const size_t max_unused_;
    mutable std::mutex mutex_;
    std::condition_variable changed_;  // something has been made, or could not be
    Entries held_, unused_;            // unused: the one that was let go first comes first
    std::unordered_map<std::string_view, typename Entries::iterator> index_;  // by key, also those being made
    std::int64_t num_made_ = 0;
  };

  // What the copies of a holder share.
  struct Lease {
    std::shared_ptr<State> state = nullptr;  // null: it holds nothing yet
    typename Entries::iterator entry = {};
    Lease() = default;
    Lease(const Lease&) = delete;
    Lease& operator=(const Lease&) = delete;
    ~Lease() {
      if (state != nullptr) state->LetGo(entry);
    }
  };

  const std::shared_ptr<State> state_;
};

}  // namespace stepnet

// FirstFailure: what one of several threads threw, for the one that waits for all of them.
#pragma once

#include <atomic>
#include <exception>
#include <mutex>
#include <utility>

namespace stepnet {

class FirstFailure {
 public:
  // Keeps the exception when it is the first; later ones are consequences or of no interest. Without an argument, to be
  // called in a catch block.
  void Note(std::exception_ptr failure = std::current_exception()) {
    const std::lock_guard lock(mutex_);
    if (!failed_) failure_ = std::move(failure);
    failed_ = true;
  }
  // Keeps this exception in place of an earlier one: for who knows that it comes first in an order of its own.
  void Replace(std::exception_ptr failure) {
    const std::lock_guard lock(mutex_);
    failure_ = std::move(failure);
    failed_ = true;
  }

  bool failed() const { return failed_; }

  // Throws what was noted, once: threads that hold on to this object have no part in the life of the exception.
  void Rethrow() {
    std::unique_lock lock(mutex_);
    const std::exception_ptr failure = std::exchange(failure_, nullptr);
    lock.unlock();
    if (failure != nullptr) std::rethrow_exception(failure);
  }

 private:
  std::mutex mutex_;
  std::atomic<bool> failed_ = false;
  std::exception_ptr failure_;
};

}  // namespace stepnet

// ProgramsByShapes: what a kernel runs for each of the shapes that it has met.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <memory>
#include <mutex>
#include <vector>

namespace stepnet {

// Those for the first shapes stay and are found without a lock. A kernel that meets ever more of them, as sequences of
// any length give, keeps the last ones that it used. Any number of threads may use it at once.
template <typename Program>  // has IsFor(arguments of With) const
class ProgramsByShapes {
 public:
  ProgramsByShapes() = default;
  ProgramsByShapes(const ProgramsByShapes&) = delete;
  ProgramsByShapes& operator=(const ProgramsByShapes&) = delete;

  // Returns use(program): the one for these shapes, which is make(), a shared_ptr, when they are met first.
  template <typename Make, typename Use, typename... Shapes>
  auto With(const Make& make, const Use& use, const Shapes&... shapes) {
    const Program* const first = FindFirst(shapes...);
    return first != nullptr ? use(*first) : use(*FindOrMake(make, shapes...));
  }

  // The program where these shapes are among the first ones; else null.
  template <typename... Shapes>
  const Program* FindFirst(const Shapes&... shapes) const {
    for (const auto& first : first_) {
      const Program* program = first.load(std::memory_order_acquire);
      if (program == nullptr || program->IsFor(shapes...)) return program;
    }
    return nullptr;
  }

 private:
  static constexpr size_t kFirst = 8;
  static constexpr size_t kLast = 32;

  // Never inlined: what it keeps on the stack would slow down each run.
  template <typename Make, typename... Shapes>
  [[gnu::noinline]] std::shared_ptr<const Program> FindOrMake(const Make& make, const Shapes&... shapes) {
    const std::lock_guard lock(mutex_);
    const auto known = std::ranges::find_if(known_, [&](const auto& program) { return program->IsFor(shapes...); });
    if (known != known_.end()) {
      if (known - known_.begin() < static_cast<std::ptrdiff_t>(kFirst)) return *known;
      std::rotate(known, known + 1, known_.end());
      return known_.back();
    }
    std::shared_ptr<const Program> made = make();
    if (known_.size() == kFirst + kLast) known_.erase(known_.begin() + kFirst);
    known_.push_back(made);
    if (known_.size() <= kFirst) first_[known_.size() - 1].store(made.get(), std::memory_order_release);
    return made;
  }

  std::array<std::atomic<const Program*>, kFirst> first_ = {};  // null from some place on
  std::mutex mutex_;
  std::vector<std::shared_ptr<const Program>> known_;  // the first ones; behind them others, the last used at the end
};

}  // namespace stepnet

#include "poison_runtime.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <optional>

#include "poison_faults.h"
#include "stepnet/core/accumulate.h"
#include "stepnet/core/memory_changes.h"
#include "stepnet/core/strings.h"

namespace stepnet {

std::byte* PoisonRuntime::Reserve(int access) {
  void* room = mmap(nullptr, kRoom, access, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (room == MAP_FAILED) throw Error(ErrorCode::kOutOfMemory, "no addresses for the poison device");
  return static_cast<std::byte*>(room);
}

PoisonRuntime::PoisonRuntime(int index)
    : index_(index), room_(Reserve(PROT_NONE)), memory_of_room_(Reserve(PROT_READ | PROT_WRITE)) {}

void* PoisonRuntime::Allocate(std::int64_t bytes) {
  poison_watch.Refuse("it takes memory of the device");
  NoteMemoryChange();
  const std::lock_guard lock(mutex_);
  const std::int64_t pages = PagesOf(bytes);
  if (pages > memory_.limit - memory_.current || Fails(PoisonFault::kAllocation)) {
    throw Error(ErrorCode::kOutOfMemory, StrCat("the poison device has no ", bytes, " bytes"));
  }
  std::byte* memory = nullptr;
  if (std::vector<std::byte*>& free = free_[pages]; !free.empty()) {
    memory = free.back();
    free.pop_back();
  } else {
    if (used_ + pages + kPage > kRoom) throw Error(ErrorCode::kOutOfMemory, "the poison device has no more addresses");
    memory = room_ + used_;
    used_ += pages + kPage;
    if (mprotect(Real(memory) + pages, kPage, PROT_NONE) != 0) std::abort();
  }
  ++counts_.allocations;
  memory_.current += pages;
  memory_.peak = std::max(memory_.peak, memory_.current);
  Put([this, memory, pages] { std::memset(Real(memory), 0xff, pages); });
  // At the end of its pages, so that what runs over it meets the one behind.
  return memory + pages - RoundUp(std::max<std::int64_t>(bytes, 1), 256);
}

void PoisonRuntime::Free(void* data, std::int64_t bytes) noexcept {
  poison_watch.Refuse("it gives memory of the device back");
  NoteMemoryChange();
  const std::lock_guard lock(mutex_);
  const std::int64_t pages = PagesOf(bytes);
  std::byte* memory = static_cast<std::byte*>(data) + RoundUp(std::max<std::int64_t>(bytes, 1), 256) - pages;
  memory_.current -= pages;
  Put([this, memory, pages] { std::memset(Real(memory), 0xff, pages); });
  free_[pages].push_back(memory);
}

void PoisonRuntime::WhenDone(std::function<void()> then) noexcept {
  std::unique_lock lock(mutex_);
  pending_.emplace_back(done_ + std::ssize(work_), std::move(then));
  CallReady(std::move(lock));
}

MemoryUse PoisonRuntime::memory() const {
  const std::lock_guard lock(mutex_);
  return memory_;
}

void PoisonRuntime::SetMemoryLimit(std::int64_t bytes) {
  const std::lock_guard lock(mutex_);
  if (bytes < memory_.current) throw Error(ErrorCode::kInvalidArgument, "more of the poison device is in use");
  memory_.limit = bytes;
}

PoisonCounts PoisonRuntime::Counts() const {
  const std::lock_guard lock(mutex_);
  PoisonCounts counts = counts_;
  counts.bytes = memory_.current;
  return counts;
}

std::vector<std::int64_t> PoisonRuntime::Orders() const {
  const std::lock_guard lock(mutex_);
  return orders_;
}

void PoisonRuntime::Copy(const void* from, void* to, std::int64_t bytes) {
  const std::lock_guard lock(mutex_);
  ++counts_.copies;
  const auto *a = static_cast<const std::byte*>(from), *b = static_cast<const std::byte*>(to);
  if (a < b + bytes && b < a + bytes) std::abort();  // a device may do it in any order
  PutWork([=, this] { std::memcpy(Real(to), Real(from), bytes); });
}

void PoisonRuntime::Fill(void* to, std::uint8_t byte, std::int64_t bytes) {
  const std::lock_guard lock(mutex_);
  PutWork([=, this] { std::memset(Real(to), byte, bytes); });
}

void PoisonRuntime::Add(const void* from, void* to, DType dtype, std::int64_t count) {
  const std::lock_guard lock(mutex_);
  PutWork([=, this] {
    const Shape shape({count});
    Accumulate({const_cast<void*>(Real(from)), &shape, dtype}, {Real(to), &shape, dtype});
  });
}

void PoisonRuntime::CopyFromHost(const void* from_host, void* to, std::int64_t bytes) {
  poison_watch.MeetHost("it copies from the host");
  const auto* begin = static_cast<const std::byte*>(from_host);
  const std::lock_guard lock(mutex_);
  ++counts_.copies_from_host;
  PutWork([this, to, held = std::vector<std::byte>(begin, begin + bytes)] {
    if (!held.empty()) std::memcpy(Real(to), held.data(), held.size());
  });
}

void PoisonRuntime::CopyToHost(const void* from, void* to_host, std::int64_t bytes) {
  poison_watch.MeetHost("it copies to the host");
  std::unique_lock lock(mutex_);
  Put([=, this] { std::memcpy(to_host, Real(from), bytes); });
  WaitForAll(std::move(lock));
}

void PoisonRuntime::Wait() {
  poison_watch.MeetHost("it waits for the device");
  WaitForAll(std::unique_lock(mutex_));
}

std::shared_ptr<const double> PoisonRuntime::MarkTime() {
  auto time = std::make_shared<double>(0);
  const std::lock_guard lock(mutex_);
  Put([time] { *time = std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); });
  return time;
}

void PoisonRuntime::PutKernel(std::function<void()> run) {
  const std::lock_guard lock(mutex_);
  ++counts_.kernels;
  PutWork(std::move(run));
}

void PoisonRuntime::PutRecorded(const std::shared_ptr<const PoisonRecording>& recording, bool waits) {
  const std::lock_guard lock(mutex_);
  ++counts_.played;
  PutWork([recording, seed = static_cast<unsigned>(counts_.played)] { DoInSomeOrder(*recording, seed); });
  if (waits) DoAllBut(1);
}

bool PoisonRuntime::Fails(PoisonFault fault) const {
  PoisonConditions& conditions = ThePoisonConditions();
  return index_ == 0 && conditions.fault == fault && conditions.before_fault-- == 0;
}

void PoisonRuntime::PutWork(std::function<void()> work) {
  if (Fails(PoisonFault::kLaunch)) throw Error(ErrorCode::kFailed, "the poison device refuses this");
  if (Fails(PoisonFault::kWork)) {
    work = [] { throw Error(ErrorCode::kFailed, "work on the poison device failed"); };
  }
  if (poison_watch.kept != nullptr) return poison_watch.kept->back().works.push_back(std::move(work));
  Put(std::move(work));
}

void PoisonRuntime::Put(std::function<void()> work) {
  work_.push_back(std::move(work));
  SomeGoOn();
}

void PoisonRuntime::WaitForAll(std::unique_lock<std::mutex> lock) {
  std::exception_ptr failure;
  try {
    DoAll();
  } catch (...) {
    failure = std::current_exception();
  }
  CallReady(std::move(lock));
  if (failure != nullptr) std::rethrow_exception(failure);
}

void PoisonRuntime::Order(std::int64_t stream) {
  const std::lock_guard lock(mutex_);
  orders_.push_back(stream);
}

void PoisonRuntime::CallReady(std::unique_lock<std::mutex> lock) {
  std::vector<std::function<void()>> ready;
  for (; !pending_.empty() && pending_.front().first <= done_; pending_.pop_front()) {
    ready.push_back(std::move(pending_.front().second));
  }
  lock.unlock();
  for (const auto& then : ready) then();
}

void PoisonRuntime::Do(std::int64_t count) {
  for (; count > 0 && !work_.empty(); --count) {
    const std::function<void()> work = std::move(work_.front());
    work_.pop_front();
    ++done_;
    try {
      if (failure_ == nullptr) work();
    } catch (...) {
      failure_ = std::current_exception();
    }
  }
}

void PoisonRuntime::DoAllBut(std::int64_t last) {
  ++counts_.host_waits;
  SomeGoOn();
  Do(std::ssize(work_) - last);
  if (failure_ != nullptr) std::rethrow_exception(std::exchange(failure_, nullptr));
}

std::unique_ptr<LateFaults> PoisonRuntime::MakeLateFaults() { return std::make_unique<PoisonFaults>(*this); }

std::unique_ptr<Recorder> PoisonRuntime::MakeRecorder() { return MakePoisonRecorder(*this); }

namespace {

// Those that have been asked for.
std::array<std::atomic<PoisonRuntime*>, kNumPoisonDevices> runtimes = {};

}  // namespace

PoisonRuntime& PoisonRuntimeAt(int index) {
  static std::mutex mutex;
  if (index < 0 || index >= kNumPoisonDevices) {
    throw Error(ErrorCode::kInvalidArgument, StrCat("there is no poison device ", index));
  }
  const std::lock_guard lock(mutex);
  if (runtimes[index] == nullptr) runtimes[index] = new PoisonRuntime(index);
  return *runtimes[index];
}

void PoisonRuntime::SomeGoOn() {
  PoisonConditions& conditions = ThePoisonConditions();
  if (!conditions.order) return;
  for (PoisonRuntime* runtime : runtimes) {
    constexpr unsigned kMaxCalls = 6;
    const unsigned drawn = (*conditions.order)() % (2 * kMaxCalls);
    if (runtime != nullptr && drawn < kMaxCalls) runtime->Do(drawn);
  }
}

}  // namespace stepnet

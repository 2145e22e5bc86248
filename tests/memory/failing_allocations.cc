#include "failing_allocations.h"

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdlib>
#include <new>

namespace {

constinit std::atomic<bool> counts{false};
constinit std::atomic<std::int64_t> counted{0};
constinit std::atomic<std::int64_t> live{0};
constinit std::atomic<std::int64_t> first_to_fail{0};
constinit std::atomic<std::int64_t> last_to_fail{0};

// Null for one that fails.
void* Allocate(std::size_t size, std::align_val_t alignment) noexcept {
  if (counts) {
    const std::int64_t number = ++counted;
    if (number >= first_to_fail && number <= last_to_fail) return nullptr;
  }
  void* data = nullptr;
  if (posix_memalign(&data, std::max(static_cast<std::size_t>(alignment), sizeof(void*)),
                     std::max<std::size_t>(size, 1)) != 0) {
    return nullptr;
  }
  ++live;
  return data;
}

void* AllocateOrThrow(std::size_t size, std::align_val_t alignment) {
  if (void* data = Allocate(size, alignment)) return data;
  throw std::bad_alloc();
}

void Free(void* data) noexcept {
  if (data != nullptr) --live;
  std::free(data);
}

constexpr std::align_val_t kUsual{alignof(std::max_align_t)};

}  // namespace

void* operator new(std::size_t size) { return AllocateOrThrow(size, kUsual); }
void* operator new[](std::size_t size) { return AllocateOrThrow(size, kUsual); }
void* operator new(std::size_t size, std::align_val_t alignment) { return AllocateOrThrow(size, alignment); }
void* operator new[](std::size_t size, std::align_val_t alignment) { return AllocateOrThrow(size, alignment); }
void* operator new(std::size_t size, const std::nothrow_t&) noexcept { return Allocate(size, kUsual); }
void* operator new[](std::size_t size, const std::nothrow_t&) noexcept { return Allocate(size, kUsual); }
void* operator new(std::size_t size, std::align_val_t alignment, const std::nothrow_t&) noexcept {
  return Allocate(size, alignment);
}
void* operator new[](std::size_t size, std::align_val_t alignment, const std::nothrow_t&) noexcept {
  return Allocate(size, alignment);
}
void operator delete(void* data) noexcept { Free(data); }
void operator delete[](void* data) noexcept { Free(data); }
void operator delete(void* data, std::size_t) noexcept { Free(data); }
void operator delete[](void* data, std::size_t) noexcept { Free(data); }
void operator delete(void* data, std::align_val_t) noexcept { Free(data); }
void operator delete[](void* data, std::align_val_t) noexcept { Free(data); }
void operator delete(void* data, std::size_t, std::align_val_t) noexcept { Free(data); }
void operator delete[](void* data, std::size_t, std::align_val_t) noexcept { Free(data); }
void operator delete(void* data, const std::nothrow_t&) noexcept { Free(data); }
void operator delete[](void* data, const std::nothrow_t&) noexcept { Free(data); }
void operator delete(void* data, std::align_val_t, const std::nothrow_t&) noexcept { Free(data); }
void operator delete[](void* data, std::align_val_t, const std::nothrow_t&) noexcept { Free(data); }

namespace stepnet {

FailingAllocations::FailingAllocations(std::int64_t first, std::int64_t last) {
  counted = 0;
  first_to_fail = first;
  last_to_fail = last;
  counts = true;
}

void FailingAllocations::Stop() { counts = false; }

std::int64_t FailingAllocations::count() const { return counted; }

std::int64_t LiveAllocations() { return live; }

}  // namespace stepnet

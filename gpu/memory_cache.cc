#include "stepnet/gpu/memory_cache.h"

#include <algorithm>
#include <utility>

#include "stepnet/core/error.h"
#include "stepnet/core/memory_limit_text.h"
#include "stepnet/core/strings.h"

namespace stepnet {
namespace {

// Sizes grow by an eighth, large ones by less, so that what is freed fits again.
std::int64_t BlockBytes(std::int64_t bytes) {
  constexpr std::int64_t kMaxUnit = 16 << 20;
  std::int64_t unit = 512;
  while (bytes / unit > 16 && unit < kMaxUnit) unit *= 2;
  return std::max<std::int64_t>(bytes / unit + (bytes % unit > 0), 1) * unit;
}

}  // namespace

MemoryCache::MemoryCache(Source source, std::int64_t limit) : source_(std::move(source)), use_{.limit = limit} {}

void* MemoryCache::Allocate(std::int64_t bytes) {
  const std::int64_t block = BlockBytes(bytes);
  void* memory = TakeCached(block);
  if (memory == nullptr) memory = TakeNew(block, bytes);
  use_.current += block;
  use_.peak = std::max(use_.peak, use_.current);
  return memory;
}

void* MemoryCache::TakeCached(std::int64_t block) {
  const auto found = cached_.find(block);
  if (found == cached_.end()) return nullptr;
  void* const memory = found->second;
  cached_.erase(found);
  use_.cached -= block;
  return memory;
}

void* MemoryCache::TakeNew(std::int64_t block, std::int64_t bytes) {
  const std::string used = StrCat(use_.current, " bytes of at most ", use_.limit, " are in use");
  if (block > use_.limit - use_.current) {
    throw Error(ErrorCode::kOutOfMemory,
                StrCat(bytes, " bytes of ", source_.device, " exceed the limit of its memory: ", used, " ",
                       kRaiseDeviceMemoryLimit));
  }
  if (block > use_.limit - use_.current - use_.cached) ReleaseCached();
  void* memory = source_.take(block);
  if (memory == nullptr && !cached_.empty()) {
    ReleaseCached();
    memory = source_.take(block);
  }
  if (memory == nullptr) {
    throw Error(ErrorCode::kOutOfMemory,
                StrCat(source_.device, " has no ", bytes, " bytes left: by this process ", used));
  }
  return memory;
}

void MemoryCache::Free(void* memory, std::int64_t bytes) noexcept {
  const std::int64_t block = BlockBytes(bytes);
  use_.current -= block;
  try {
    cached_.emplace(block, memory);
    use_.cached += block;
  } catch (...) {  // the host has no memory to remember it
    try {
      source_.wait();
    } catch (...) {  // nothing uses the memory of a device that fails
    }
    source_.give_back(memory);
  }
}

void MemoryCache::ReleaseCached() {
  if (cached_.empty()) return;
  source_.wait();
  for (const auto& [bytes, memory] : cached_) source_.give_back(memory);
  cached_.clear();
  use_.cached = 0;
}

void MemoryCache::SetLimit(std::int64_t bytes) {
  if (bytes < use_.current) {
    throw Error(ErrorCode::kInvalidArgument, StrCat("a limit of ", bytes, " bytes for the memory of ", source_.device,
                                                    ", of which ", use_.current, " are in use"));
  }
  use_.limit = bytes;
  if (use_.cached > bytes - use_.current) ReleaseCached();
}

}  // namespace stepnet

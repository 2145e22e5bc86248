// MemoryCache: memory of a device, which keeps what is freed and gives it out again by size, up to a limit. Knows no
// CUDA.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>

#include "stepnet/core/device.h"

namespace stepnet {

// Not thread-safe.
class MemoryCache {
 public:
  // Where the memory comes from.
  struct Source {
    std::string device;                             // its name, for messages
    std::function<void*(std::int64_t bytes)> take;  // null where the device has none left
    std::function<void(void* memory)> give_back;    // must not throw
    std::function<void()> wait;                     // until the device no longer uses what was freed
  };
  MemoryCache(Source source, std::int64_t limit);

  // Beyond the limit, or where the device has none left, what nobody uses is given back first, and then it throws
  // kOutOfMemory: nothing has been taken.
  void* Allocate(std::int64_t bytes);
  void Free(void* memory, std::int64_t bytes) noexcept;
  // Gives back what nobody uses.
  void ReleaseCached();

  const MemoryUse& use() const { return use_; }
  // Throws kInvalidArgument for less than is in use.
  void SetLimit(std::int64_t bytes);

 private:
  void* TakeCached(std::int64_t block);
  void* TakeNew(std::int64_t block, std::int64_t bytes);

  const Source source_;
  MemoryUse use_;
  std::multimap<std::int64_t, void*> cached_;  // by bytes
};

}  // namespace stepnet

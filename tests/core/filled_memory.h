// FilledMemory: memory that nobody has written starts with bytes of this value until the scope ends.
#pragma once

#include "stepnet/core/memory_fill.h"

namespace stepnet {

class FilledMemory {
 public:
  explicit FilledMemory(std::optional<std::uint8_t> byte) : before_(MemoryFill()) { SetMemoryFill(byte); }
  ~FilledMemory() { SetMemoryFill(before_); }
  FilledMemory(const FilledMemory&) = delete;
  FilledMemory& operator=(const FilledMemory&) = delete;

 private:
  std::optional<std::uint8_t> before_;
};

// NaN in every float; small numbers.
inline constexpr std::uint8_t kFills[] = {255, 60};

}  // namespace stepnet

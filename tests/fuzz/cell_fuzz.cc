// Bytes as a cell: printed, parsed again, expanded, and its net tried.
#include <cstddef>
#include <cstdint>
#include <string>

#include "fault.h"
#include "stepnet/core/tensor.h"
#include "text_mutator.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  constexpr std::int64_t kMemory = 16 << 20;
  stepnet::SetTensorMemoryLimit(kMemory);
  std::mt19937 random(static_cast<unsigned>(size));
  stepnet::AbortAtFault(stepnet::TryCell({reinterpret_cast<const char*>(data), size}, random));
  return 0;
}

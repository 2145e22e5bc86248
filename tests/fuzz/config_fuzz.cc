// Bytes as the config of a training, which then does one iteration.
#include <cstddef>
#include <cstdint>
#include <string>

#include "fault.h"
#include "stepnet/core/tensor.h"
#include "text_mutator.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  constexpr std::int64_t kMemory = 16 << 20;
  stepnet::SetTensorMemoryLimit(kMemory);
  stepnet::AbortAtFault(stepnet::TryConfig({reinterpret_cast<const char*>(data), size}));
  return 0;
}

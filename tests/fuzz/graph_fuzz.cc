// Bytes as the text of a step graph: what is parsed is printed, parsed again and must be the same.
#include <cstddef>
#include <cstdint>
#include <string>

#include "fault.h"
#include "text_mutator.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  stepnet::AbortAtFault(stepnet::TryGraph({reinterpret_cast<const char*>(data), size}));
  return 0;
}

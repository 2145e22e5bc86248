// Bytes as a binary NetDef: parsed, checked, and run with little memory.
#include <cstddef>
#include <cstdint>
#include <string>

#include "harmless_net.h"
#include "stepnet/core/error.h"
#include "stepnet/core/proto_io.h"
#include "stepnet/core/tensor.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  // Also bounds the time: a loop over more steps than fit is refused.
  constexpr std::int64_t kMemory = 4 << 20;
  stepnet::SetTensorMemoryLimit(kMemory);
  stepnet::NetDef net;
  try {
    stepnet::ParseMessageBytes({reinterpret_cast<const char*>(data), size}, "fuzz", &net);
  } catch (const stepnet::Error&) {
    return 0;
  }
  stepnet::Workspace workspace;
  stepnet::CheckAndRun(net, workspace);
  return 0;
}

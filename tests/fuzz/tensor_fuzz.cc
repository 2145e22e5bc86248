// Bytes as a file of tensors: .npy, TensorProtos, TensorProto, BlobProto, minidb, safetensors or .npz.
#include <cstddef>
#include <cstdint>
#include <string>

#include "fault.h"
#include "stepnet/core/tensor.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  constexpr std::int64_t kMemory = 16 << 20;
  stepnet::SetTensorMemoryLimit(kMemory);
  stepnet::AbortAtFault(stepnet::TryTensorFile({reinterpret_cast<const char*>(data), size}));
  return 0;
}

// Bytes as a file of tensors: .npy, TensorProtos, TensorProto, BlobProto or minidb. What can be read is written and
// read again.
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <string>

#include "stepnet/core/error.h"
#include "stepnet/core/file.h"
#include "stepnet/core/npy.h"
#include "stepnet/core/strings.h"
#include "stepnet/core/tensor_io.h"

namespace {

using stepnet::Error;
using stepnet::StrCat;
using stepnet::Tensor;

std::string ScratchFile(const char* name) {
  static const std::string folder = StrCat(std::filesystem::temp_directory_path().string(), "/tensor_fuzz.", getpid());
  std::filesystem::create_directories(folder);
  return StrCat(folder, "/", name);
}

void ReadAnyNpy(const std::string& bytes) {
  const std::string path = ScratchFile("array.npy");
  stepnet::WriteFile(path, bytes);
  const Tensor tensor = stepnet::ReadNpy(path);
  // Strings that end in zeros cannot be written.
  if (tensor.dtype() == stepnet::DType::kString) return;
  stepnet::WriteNpy(tensor, path);
  if (stepnet::ReadNpy(path).shape() != tensor.shape()) std::abort();
}

void ReadAnyTensors(const std::string& bytes) {
  const std::string path = ScratchFile("tensors.pb");
  stepnet::WriteFile(path, bytes);
  const stepnet::NamedTensors tensors = stepnet::ReadTensors(path);
  stepnet::WriteTensors(tensors, path);
  // No tensors make an empty file, which is no file of tensors.
  if (!tensors.empty() && stepnet::ReadTensors(path).size() != tensors.size()) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  constexpr std::int64_t kMemory = 16 << 20;
  stepnet::SetTensorMemoryLimit(kMemory);
  const std::string bytes(reinterpret_cast<const char*>(data), size);
  try {
    bytes.starts_with("\x93NUMPY") ? ReadAnyNpy(bytes) : ReadAnyTensors(bytes);
  } catch (const Error&) {
  }
  return 0;
}

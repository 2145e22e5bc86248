#include <filesystem>

#include "scratch_folder.h"
#include "stepnet/core/error.h"
#include "stepnet/core/strings.h"
#include "stepnet/io/file.h"
#include "stepnet/io/npy.h"
#include "stepnet/io/tensor_io.h"
#include "trials.h"

namespace stepnet {
namespace {

std::string NpyFault(const std::string& path) {
  const Tensor tensor = ReadNpy(path);
  // Strings that end in zeros cannot be written.
  if (tensor.dtype() == DType::kString) return "";
  WriteNpy(tensor, path);
  const Tensor again = ReadNpy(path);
  return again.shape() == tensor.shape() ? "" : StrCat(tensor.Description(), " is read again as ", again.Description());
}

std::string TensorsFault(const std::string& path) {
  const NamedTensors tensors = ReadTensors(path);
  WriteTensors(tensors, path);
  // No tensors make an empty file, which is no file of tensors.
  if (tensors.empty()) return "";
  const size_t again = ReadTensors(path).size();
  return again == tensors.size() ? "" : StrCat(tensors.size(), " tensors are read again as ", again);
}

}  // namespace

TrialResult TryTensorFile(const std::string& bytes) {
  const std::string path = ScratchFolder() + "/file";
  WriteFile(path, bytes);
  try {
    return {.fault = bytes.starts_with("\x93NUMPY") ? NpyFault(path) : TensorsFault(path), .ran = true};
  } catch (const Error& error) {
    return RefusedBy(error);
  }
}

}  // namespace stepnet

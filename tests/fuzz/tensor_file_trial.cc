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

// What is read is described in the same way, and is written and read again as it is.
std::string TensorsFault(const std::string& path) {
  const NamedTensors tensors = ReadTensors(path);
  const NamedInfos infos = DescribeTensors(path);
  if (infos.size() != tensors.size()) return StrCat(tensors.size(), " tensors are described as ", infos.size());
  for (size_t i = 0; i < infos.size(); ++i) {
    if (infos[i].first == tensors[i].first && infos[i].second.Description() == tensors[i].second.Description())
      continue;
    return StrCat(tensors[i].second.Description(), " is described as ", infos[i].second.Description());
  }
  // No tensors make an empty file of TensorProtos, which is no file of tensors.
  if (tensors.empty()) return "";
  for (const char* kind : {"", ".safetensors", ".npz"}) {
    try {
      WriteTensors(tensors, path + kind);
    } catch (const Error&) {  // other kinds do not hold every name and dtype
      if (*kind == '\0') throw;
      continue;
    }
    const size_t again = ReadTensors(path + kind).size();
    if (again != tensors.size()) return StrCat(tensors.size(), " tensors are read again as ", again, " of ", kind);
  }
  return "";
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

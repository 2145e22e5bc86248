// Source: NumPy, documentation of numpy.savez and numpy.lib.format.
#include "stepnet/io/npz.h"

#include <set>

#include "stepnet/core/error.h"
#include "stepnet/core/strings.h"
#include "stepnet/io/npy.h"
#include "stepnet/io/zip_archive.h"

namespace stepnet {
namespace {

constexpr std::string_view kSuffix = ".npy";

// "w" of "w.npy".
std::string ArrayName(const ZipEntry& entry, const std::string& path) {
  if (entry.name.ends_with(kSuffix)) return entry.name.substr(0, entry.name.size() - kSuffix.size());
  const bool is_checkpoint = entry.name.ends_with("data.pkl");
  throw Error(
      ErrorCode::kInputOutput,
      StrCat(path, " is a zip archive with the entry \"", entry.name, "\", which is no .npy: arrays of a .npz file are",
             is_checkpoint ? " (is it a checkpoint of PyTorch? safetensors.torch.save_file writes its tensors "
                             "in a form that needs no Python to be read)"
                           : ""));
}

}  // namespace

FoundTensors ReadNpz(const std::string& path, const NameFilter& wanted, const PlaceFinder& find_place) {
  ZipReader archive(path);
  std::set<std::string> names;
  for (const ZipEntry& entry : archive.entries()) {
    if (names.insert(ArrayName(entry, path)).second) continue;
    throw Error(ErrorCode::kInputOutput, StrCat(path, " holds \"", entry.name, "\" twice"));
  }
  FoundTensors found;
  for (const ZipEntry& entry : archive.entries()) {
    const std::string name = ArrayName(entry, path);
    if (!IsWanted(wanted, name)) continue;
    const std::unique_ptr<ByteSource> source = archive.Open(entry);
    Tensor place;
    const TensorInfo info = ReadNpyFrom(
        source.get(), [&](DType dtype, const Shape& shape) { return place = find_place(name, dtype, shape); });
    found.push_back({.name = name, .info = info, .place = place});
  }
  return found;
}

void WriteNpz(const NamedTensors& tensors, const std::string& path) {
  std::set<std::string> names;
  ZipWriter archive(path);
  for (const auto& [name, tensor] : tensors) {
    if (!names.insert(name).second) {
      throw Error(ErrorCode::kInputOutput, StrCat("cannot write ", path, ": two tensors are called \"", name, "\""));
    }
    const NpyBytes npy = EncodeNpy(tensor, StrCat(path, "/", name, kSuffix));
    const std::span elements(static_cast<const std::byte*>(npy.elements.raw()),
                             static_cast<size_t>(npy.elements.size_bytes()));
    archive.Add(StrCat(name, kSuffix), {std::as_bytes(std::span(npy.header)), elements});
  }
  archive.Commit();
}

}  // namespace stepnet

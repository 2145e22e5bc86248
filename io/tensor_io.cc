#include "stepnet/io/tensor_io.h"

#include <algorithm>
#include <limits>

#include "stepnet/core/error.h"
#include "stepnet/core/memory_for.h"
#include "stepnet/core/printable.h"
#include "stepnet/core/strings.h"
#include "stepnet/io/file.h"
#include "stepnet/io/minidb.h"
#include "stepnet/io/npz.h"
#include "stepnet/io/proto_io.h"
#include "stepnet/io/safetensors.h"
#include "stepnet/io/zip_archive.h"
#include "stepnet/proto/net.pb.h"

namespace stepnet {
namespace {

constexpr std::string_view kChunkSeparator = "#%";

Tensor NewPlace(const std::string& name, DType dtype, const Shape& shape) {
  return WithMemoryFor("the tensor", name, [&] { return Tensor(dtype, shape); });
}
Tensor NoPlace(const std::string&, DType, const Shape&) { return {}; }

[[noreturn]] void Throw(const std::string& name, const std::string& message) {
  throw Error(ErrorCode::kInputOutput, StrCat("tensor \"", name, "\"", message));
}

std::string StartOf(const std::string& path) {
  FileReader file(path);
  std::string start(static_cast<size_t>(std::min(file.left(), std::max(kSafetensorsStartBytes, kZipStartBytes))), '\0');
  file.Read(start.data(), std::ssize(start), "the start of the file");
  return start;
}

void CollectMiniDb(const std::string& path, const NameFilter& wanted, ChunkCollector* collector) {
  MiniDbReader reader(path);
  std::string key, value;
  while (reader.Next(&key, &value)) {
    const std::string name = BlobOfKey(key);
    if (!IsWanted(wanted, name)) continue;
    BlobProto blob;
    ParseMessageBytes(value, StrCat("the value of \"", key, "\""), &blob);
    collector->Add(blob, name);
  }
}

void CollectMessages(const std::string& path, const NameFilter& wanted, ChunkCollector* collector) {
  const std::string content = ReadFile(path);
  const auto collect = [&](const auto& proto, const std::string& name) {
    if (IsWanted(wanted, name)) collector->Add(proto, name);
  };
  switch (DetectKindOf(content)) {
    case MessageKind::kBlobProto: {
      BlobProto blob;
      ParseMessage(content, path, &blob);
      return collect(blob, blob.has_name() ? blob.name() : blob.tensor().name());
    }
    case MessageKind::kTensorProto: {
      TensorProto proto;
      ParseMessage(content, path, &proto);
      return collect(proto, proto.name());
    }
    default: {
      TensorProtos protos;
      ParseMessage(content, path, &protos);
      for (const TensorProto& proto : protos.protos()) collect(proto, proto.name());
      return;
    }
  }
}

FoundTensors FindTensors(const std::string& path, const NameFilter& wanted, const PlaceFinder& find_place) {
  const std::string start = StartOf(path);
  if (StartsSafetensors(start)) return ReadSafetensors(path, wanted, find_place);
  if (StartsZip(start)) return ReadNpz(path, wanted, find_place);
  ChunkCollector collector(find_place);
  if (LooksLikeMiniDb(path)) {
    CollectMiniDb(path, wanted, &collector);
  } else {
    CollectMessages(path, wanted, &collector);
  }
  return collector.Take();
}

// What the file holds, every tensor whole.
FoundTensors ReadFound(const std::string& path, const NameFilter& wanted, const PlaceFinder& find_place) {
  try {
    return FindTensors(path, wanted, find_place);
  } catch (Error& error) {
    // What the file as a whole is blamed for names it already.
    if (error.message().find(path) != std::string::npos || !error.places().empty()) throw;
    throw error.At({.file = path});
  }
}

}  // namespace

bool HoldsOnlyTensors(const std::string& path) {
  const std::string start = StartOf(path);
  return StartsSafetensors(start) || StartsZip(start);
}

NamedTensors ReadTensors(const std::string& path, const NameFilter& wanted) {
  NamedTensors tensors;
  for (FoundTensor& found : ReadFound(path, wanted, NewPlace)) {
    tensors.emplace_back(std::move(found.name), std::move(found.place));
  }
  return tensors;
}

NamedInfos DescribeTensors(const std::string& path, const NameFilter& wanted) {
  NamedInfos infos;
  for (FoundTensor& found : ReadFound(path, wanted, NoPlace)) {
    infos.emplace_back(std::move(found.name), std::move(found.info));
  }
  return infos;
}

void ReadTensorsInto(const std::string& path, const NamedTensors& places) {
  const auto place_of = [&](const std::string& name) {
    return std::ranges::find(places, name, &NamedTensors::value_type::first);
  };
  std::vector<std::pair<Tensor, Tensor>> read;  // for places on other devices: the place, what it is to hold
  const auto find_place = [&](const std::string& name, DType dtype, const Shape& shape) {
    const Tensor& place = place_of(name)->second;
    if (place.dtype() != dtype || place.shape() != shape) {
      Throw(name, StrCat(" is ", dtype, " ", shape, ", ", place.Description(), " is needed"));
    }
    return place.device().IsHost() ? place : read.emplace_back(place, NewPlace(name, dtype, shape)).second;
  };
  const auto is_wanted = [&](const std::string& name) { return place_of(name) != places.end(); };
  const FoundTensors found = ReadFound(path, is_wanted, find_place);
  for (const auto& [name, place] : places) {
    if (std::ranges::find(found, name, &FoundTensor::name) != found.end()) continue;
    throw Error(ErrorCode::kInputOutput, StrCat(path, " holds no tensor \"", name, "\""));
  }
  for (const auto& [place, tensor] : read) CopyTensor(tensor, place);
}

void CheckNamesToWrite(const NamedTensors& tensors, const std::string& path) {
  constexpr size_t kMaxBytes = 1000, kMaxShown = 80;
  for (const auto& [name, tensor] : tensors) {
    if (!name.empty() && name.size() <= kMaxBytes && PrintableLine(name) == name) continue;
    throw Error(ErrorCode::kInputOutput,
                StrCat("cannot write ", path, ": a tensor is called \"", PrintableLine(name.substr(0, kMaxShown)),
                       "\"; names are printable and have 1 to ", kMaxBytes, " bytes"));
  }
}

void WriteTensors(const NamedTensors& tensors, const std::string& path) {
  CheckNamesToWrite(tensors, path);
  if (path.ends_with(".safetensors")) return WriteSafetensors(tensors, path);
  if (path.ends_with(".npz")) return WriteNpz(tensors, path);
  if (tensors.empty()) {
    throw Error(ErrorCode::kInvalidArgument,
                StrCat("there are no tensors, of which ", path,
                       " would be an empty file, and nothing reads that; .safetensors and .npz can hold none"));
  }
  if (path.ends_with(".minidb")) return WriteMiniDb(tensors, path);
  WriteTensorProtos(tensors, path);
}

void WriteTensorProtos(const NamedTensors& tensors, const std::string& path) {
  TensorProtos protos;
  for (const auto& [name, tensor] : tensors) *protos.add_protos() = TensorToProto(name, tensor);
  WriteMessage(protos, path);
}

void WriteMiniDb(const NamedTensors& tensors, const std::string& path, std::int64_t elements_of_chunk) {
  MiniDbWriter writer(path);
  AddToMiniDb(tensors, &writer, elements_of_chunk);
  writer.Commit();
}

void AddToMiniDb(const NamedTensors& tensors, MiniDbWriter* writer, std::int64_t elements_of_chunk) {
  for (const auto& [name, anywhere] : tensors) {
    const Tensor tensor = anywhere.To({});
    if (name.find(kChunkSeparator) != std::string::npos) {
      Throw(name, " cannot be kept in a minidb: \"#%\" separates names from the numbers of chunks");
    }
    BlobProto blob;
    blob.set_name(name);
    blob.set_type("Tensor");
    std::int64_t chunk = 0;
    std::int64_t begin = 0;
    do {  // a tensor without elements is one chunk too
      const std::int64_t end = std::min(begin + elements_of_chunk, tensor.size());
      *blob.mutable_tensor() = ChunkToProto(name, tensor, begin, end);
      if (blob.ByteSizeLong() > static_cast<size_t>(std::numeric_limits<std::int32_t>::max())) {
        Throw(name, " cannot be kept in a minidb: a chunk of it has more than 2 GiB");
      }
      writer->Add(StrCat(name, kChunkSeparator, chunk++), blob.SerializeAsString());
      begin = end;
    } while (begin < tensor.size());
  }
}

std::string BlobOfKey(const std::string& key) { return key.substr(0, key.find(kChunkSeparator)); }

}  // namespace stepnet

// Tensors in files: TensorProto, files of TensorProtos, BlobProto, and minidb files of blobs. (.npy is in npy.h.)
//
// Files are untrusted: the number of values is compared with the dimensions before memory is taken. Fields of Caffe2
// and of PyTorch's copy of it are read: typed fields, byte_data, raw_data, bfloat16 in place of float, chunks
// (`segment`). Throw kInputOutput, naming tensor and file, unless said otherwise.
#pragma once

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "stepnet/core/tensor.h"

namespace stepnet {

class BlobProto;
class MiniDbWriter;
class TensorProto;

// In the order of the file; no name twice.
using NamedTensors = std::vector<std::pair<std::string, Tensor>>;

// The dtype of a TensorProto.DataType, and back. DTypeFromNumber throws kTypeMismatch for numbers without one.
DType DTypeFromNumber(std::int64_t data_type);
int NumberFromDType(DType dtype);

// A whole tensor: a proto that holds a part of one is refused.
Tensor TensorFromProto(const TensorProto& proto);
TensorProto TensorToProto(const std::string& name, const Tensor& tensor);

// A blob of type "Tensor", or "std::string" as a string tensor of one element and no dimensions.
Tensor TensorFromBlob(const BlobProto& blob);
BlobProto TensorToBlob(const std::string& name, const Tensor& tensor);

// Which tensors of a file are wanted, by name; others are skipped without being looked at.
using NameFilter = std::function<bool(const std::string& name)>;

// All tensors of a file of whatever kind: TensorProtos, one TensorProto, one BlobProto, minidb. Chunks are put
// together.
NamedTensors ReadTensors(const std::string& path, const NameFilter& wanted = {});

// Dtypes and shapes of what ReadTensors would give; it throws the same, and keeps no values.
using NamedInfos = std::vector<std::pair<std::string, TensorInfo>>;
NamedInfos DescribeTensors(const std::string& path, const NameFilter& wanted = {});

// Overwrites the elements of `places` by what the file holds under their names, so that no second copy is ever in
// memory. Throws as ReadTensors does, and for a name that the file lacks or holds with another dtype or shape; some
// places are overwritten then.
void ReadTensorsInto(const std::string& path, const NamedTensors& places);

// A file of TensorProtos; text when the name says so (IsTextFileName). Holds less than 2 GiB.
void WriteTensors(const NamedTensors& tensors, const std::string& path);

// A minidb as Caffe2's Save writes it: a BlobProto for each chunk of a tensor, key `name#%k`.
inline constexpr std::int64_t kElementsOfChunk = 1'000'000;
void WriteMiniDb(const NamedTensors& tensors, const std::string& path,
                 std::int64_t elements_of_chunk = kElementsOfChunk);

// As WriteMiniDb, into a minidb that more is written to.
void AddToMiniDb(const NamedTensors& tensors, MiniDbWriter* writer, std::int64_t elements_of_chunk = kElementsOfChunk);

// The blob that a key of a minidb belongs to: "w" for "w#%3".
std::string BlobOfKey(const std::string& key);

}  // namespace stepnet

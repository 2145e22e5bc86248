// Tensors in files: TensorProtos, a TensorProto, a BlobProto, minidb files of blobs, safetensors and .npz. (A single
// .npy, which has no name, is in npy.h.)
//
// What a file holds is told from its content, not from its name. Files are untrusted: sizes are compared with the data
// before memory is taken. Throw kInputOutput, naming tensor and file, unless said otherwise.
#pragma once

#include <string>

#include "stepnet/io/named_tensors.h"
#include "stepnet/io/tensor_proto.h"

namespace stepnet {

class MiniDbWriter;

// All tensors of a file of whatever kind. Chunks are put together.
NamedTensors ReadTensors(const std::string& path, const NameFilter& wanted = {});

// Dtypes and shapes of what ReadTensors would give; it throws the same, and keeps no values.
NamedInfos DescribeTensors(const std::string& path, const NameFilter& wanted = {});

// Overwrites the elements of `places` by what the file holds under their names, so that no second copy is ever in
// memory. Throws as ReadTensors does, and for a name that the file lacks or holds with another dtype or shape; some
// places are overwritten then.
void ReadTensorsInto(const std::string& path, const NamedTensors& places);

// Whether a file is of a kind that holds nothing but tensors: safetensors or .npz. Throws when it cannot be read.
bool HoldsOnlyTensors(const std::string& path);

// Throws where a name is not printable (PrintableLine), or has not 1 to 1000 bytes: others do not survive in every kind
// of file, nor in what reads it. `path` is where the tensors are to be written.
void CheckNamesToWrite(const NamedTensors& tensors, const std::string& path);

// Writes the kind of file that the name says: .safetensors, .npz or .minidb, TensorProtos for any other. Throws also
// for names as above, and for what the kind cannot hold (safetensors.h, npz.h): a minidb and TensorProtos no tensors at
// all, of which they would be empty files, as files are that were cut off.
void WriteTensors(const NamedTensors& tensors, const std::string& path);

// A file of TensorProtos; text when the name says so (IsTextFileName). Holds less than 2 GiB.
void WriteTensorProtos(const NamedTensors& tensors, const std::string& path);

// A minidb as Caffe2's Save writes it: a BlobProto for each chunk of a tensor, key `name#%k`.
inline constexpr std::int64_t kElementsOfChunk = 1'000'000;
void WriteMiniDb(const NamedTensors& tensors, const std::string& path,
                 std::int64_t elements_of_chunk = kElementsOfChunk);

// Does what WriteMiniDb does, into a minidb that more is written to.
void AddToMiniDb(const NamedTensors& tensors, MiniDbWriter* writer, std::int64_t elements_of_chunk = kElementsOfChunk);

// The blob that a key of a minidb belongs to: "w" for "w#%3".
std::string BlobOfKey(const std::string& key);

}  // namespace stepnet

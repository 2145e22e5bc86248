// Tensors as messages: TensorProto, whole or in chunks, and BlobProto.
//
// Messages are untrusted: the number of values is compared with the dimensions before memory is taken. Fields of Caffe2
// and of PyTorch's copy of it are read: typed fields, byte_data, raw_data, bfloat16 in place of float, chunks
// (`segment`). Throw kInputOutput, naming the tensor, unless said otherwise.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "stepnet/core/tensor.h"
#include "stepnet/io/named_tensors.h"

namespace stepnet {

class BlobProto;
class TensorProto;

// The dtype of a TensorProto.DataType, and back. DTypeFromNumber throws kTypeMismatch for numbers without one.
DType DTypeFromNumber(std::int64_t data_type);
int NumberFromDType(DType dtype);

// A whole tensor: a proto that holds a part of one is refused.
Tensor TensorFromProto(const TensorProto& proto);
TensorProto TensorToProto(const std::string& name, const Tensor& tensor);
// The elements [begin, end) of a tensor of the host, as a chunk of it.
TensorProto ChunkToProto(const std::string& name, const Tensor& tensor, std::int64_t begin, std::int64_t end);

// A blob of type "Tensor", or "std::string" as a string tensor of one element and no dimensions.
Tensor TensorFromBlob(const BlobProto& blob);
BlobProto TensorToBlob(const std::string& name, const Tensor& tensor);

// Puts tensors together from the chunks in which messages give them.
class ChunkCollector {
 public:
  explicit ChunkCollector(PlaceFinder find_place) : find_place_(std::move(find_place)) {}

  void Add(const TensorProto& proto, const std::string& name);
  void Add(const BlobProto& blob, const std::string& name);

  // What was added, in the order of first chunks. Throws unless the chunks of every tensor are all there.
  FoundTensors Take();

 private:
  struct Entry {
    FoundTensor found;
    std::map<std::int64_t, std::int64_t> parts = {};  // begin → end of its chunks
  };

  PlaceFinder find_place_;
  std::vector<Entry> entries_;
  std::map<std::string, size_t> index_;
};

}  // namespace stepnet

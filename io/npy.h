// Tensors in NumPy's .npy files.
//
// Read: versions 1.0 to 3.0, either byte order, C and Fortran order; f2 f4 f8 i1 i2 i4 i8 u1 u2 b1, and strings ('U' as
// UTF-8, 'S'). Files are untrusted: the header is checked against the file's size before memory is taken.
#pragma once

#include <functional>
#include <string>

#include "stepnet/core/tensor.h"
#include "stepnet/io/byte_source.h"

namespace stepnet {

// Throws kInputOutput, naming the file, for anything but one such array; kOutOfMemory.
Tensor ReadNpy(const std::string& path);

// Does what ReadNpy does, from a file or an entry of an archive, all that is left of it, to where `find_place` says
// once dtype and shape are known (PlaceFinder in named_tensors.h). Elements in Fortran order are in memory twice
// meanwhile.
TensorInfo ReadNpyFrom(ByteSource* source, const std::function<Tensor(DType, const Shape&)>& find_place);

// Version 1.0, little endian, C order. bfloat16, which NumPy does not have, is written as float; strings as 'U' where
// all are UTF-8, otherwise as 'S'. Throws kInputOutput, also for strings that end in a zero byte: the format drops it.
void WriteNpy(const Tensor& tensor, const std::string& path);

// What WriteNpy writes: the header, and behind it the bytes of `elements`. `path` is for messages.
struct NpyBytes {
  std::string header;
  Tensor elements;
};
NpyBytes EncodeNpy(const Tensor& tensor, const std::string& path);

}  // namespace stepnet

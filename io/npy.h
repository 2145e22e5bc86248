// Tensors in NumPy's .npy files.
//
// Read: versions 1.0 to 3.0, either byte order, C and Fortran order; f2 f4 f8 i1 i2 i4 i8 u1 u2 b1, and strings ('U' as
// UTF-8, 'S'). Files are untrusted: the header is checked against the file's size before memory is taken.
#pragma once

#include <string>

#include "stepnet/core/tensor.h"

namespace stepnet {

// Throws kInputOutput, naming the file, for anything but one such array; kOutOfMemory.
Tensor ReadNpy(const std::string& path);

// Version 1.0, little endian, C order. bfloat16, which NumPy does not have, is written as float; strings as 'U' where
// all are UTF-8, otherwise as 'S'. Throws kInputOutput, also for strings that end in a zero byte: the format drops it.
void WriteNpy(const Tensor& tensor, const std::string& path);

}  // namespace stepnet

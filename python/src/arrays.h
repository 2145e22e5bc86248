// Tensors over the memory of Python's arrays, and arrays over that of tensors: nothing is copied.
#pragma once

#include <nanobind/nanobind.h>

#include <string>
#include <string_view>

#include "stepnet/core/tensor.h"

namespace stepnet::python {

// str(object) in UTF-8; what is not in that, lone surrogates, as escapes. For names that callers give, and messages.
std::string Utf8Of(nanobind::handle object);

// A str; bytes that are no UTF-8, which files may hold, as escapes.
nanobind::object StrOf(std::string_view text);

// What an array is given as, for messages: an input "x", a parameter "w".
struct ArrayRole {
  const char* kind;
  const std::string& name;
};
std::string Text(const ArrayRole& role);  // the input "x"

// A tensor that shows the memory of `array` and keeps it alive: anything with the buffer protocol, as NumPy's arrays,
// or with __dlpack__, in the host's memory. What is not contiguous, or not aligned, is copied, and a CopyWarning says
// so. Throws kTypeMismatch for what is no array or has a dtype that no tensor has, and what Python raises. Needs the
// GIL.
Tensor TensorOf(nanobind::handle array, const ArrayRole& role);

// A NumPy array that shows the memory of `tensor`, which lies on the host, and keeps it alive; for bfloat16, which
// NumPy does not have, an object with __dlpack__; None for an undefined tensor. Throws kTypeMismatch for strings. Needs
// the GIL.
nanobind::object ArrayOf(const Tensor& tensor, bool read_only = false);

// "float32": what NumPy calls the dtype.
std::string NumpyName(DType dtype);

}  // namespace stepnet::python

// Tensors over the memory of Python's arrays, and arrays over that of tensors: nothing is copied, on the host or on a
// device.
#pragma once

#include <nanobind/nanobind.h>

#include <optional>
#include <string>
#include <string_view>

#include "stepnet/core/tensor.h"

namespace stepnet::python {

// str(object) in UTF-8; what is not in that, lone surrogates, as escapes. For names that callers give, and messages. A
// whole number of more than 1000 bits is "an int of 16610 bits".
std::string Utf8Of(nanobind::handle object);
// The same of repr(object).
std::string ReprOf(nanobind::handle object);

// A str; bytes that are no UTF-8, which files may hold, as escapes.
nanobind::object StrOf(std::string_view text);
nanobind::list ListOf(const std::vector<std::string>& texts);

// What an array is given as, for messages: an input "x", a parameter "w".
struct ArrayRole {
  const char* kind;
  const std::string& name;
  bool is_time_major = false;         // a sequence [T, B, …] of a cell, which could take [B, T, …]
  std::optional<DType> must_be = {};  // where that is known
};
std::string Text(const ArrayRole& role);  // the input "x"

class TensorExchange;  // exchange.h

// Where arrays may lie: in the host's memory, or on this device.
struct ArrayPlace {
  Device device = {};
  // One of the device's streams. What lies on the device is ready there, and given back there: the caller orders the
  // queue by it (InOrderOf). Without one whoever lends an array makes the queue wait for it, and has it back when the
  // queue has done what it was given before.
  std::optional<StreamId> stream = {};
  // Reads and gives tensors of PyTorch, all on the host, for a caller who says itself what is copied; null where there
  // is no such caller.
  const TensorExchange* exchange = nullptr;
};

inline bool IsOnDevice(const Tensor& tensor) { return !tensor.device().IsHost(); }

// What is lent of an array. Dtype and shape of the tensor hold; its elements are those of the array only where nothing
// says why they have to be copied.
struct LentArray {
  Tensor tensor = {};
  const char* why_copied = nullptr;
  nanobind::object array = {};  // of which the copy is made
};

// The memory of `array`, which the tensor keeps alive: anything with the buffer protocol, as NumPy's arrays, or with
// __dlpack__. Where whole numbers are needed, a list or tuple of such is taken, too, and copied. Throws kTypeMismatch
// for what is no array or has a dtype that no tensor has, kInvalidArgument for one that lies elsewhere, and what Python
// raises. Needs the GIL.
LentArray LentOf(nanobind::handle array, const ArrayRole& role, const ArrayPlace& place = {});

// The tensor; of what is not contiguous, or not aligned, that of a copy, and a CopyWarning says so. Whoever knows which
// dtype and shape it must have compares them before. Throws kOutOfMemory, naming it, where tensors may not have as much
// more. Needs the GIL.
Tensor Contiguous(const LentArray& lent, const ArrayRole& role, const ArrayPlace& place = {});

// Both at once.
inline Tensor TensorOf(nanobind::handle array, const ArrayRole& role, const ArrayPlace& place = {}) {
  return Contiguous(LentOf(array, role, place), role, place);
}

// A NumPy array that shows the memory of `tensor` and keeps it alive; for bfloat16, which NumPy does not have, an
// object with __dlpack__; for a tensor on a device a DeviceArray (device_array.h), which `ready_on` knows to be ready;
// None for an undefined tensor. Throws kTypeMismatch for strings. Needs the GIL.
nanobind::object ArrayOf(const Tensor& tensor, bool read_only = false, std::optional<StreamId> ready_on = {});

// "float32": what NumPy calls the dtype.
std::string NumpyName(DType dtype);

}  // namespace stepnet::python

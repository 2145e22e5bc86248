// Arrays that others lend by DLPack, on the host or on a device.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <cstdint>
#include <optional>
#include <span>
#include <utility>

#include "stepnet/python/src/arrays.h"

namespace stepnet::python {

// Does what LentOf does, of what has __dlpack__, or of what that gives.
LentArray LentByDlpack(nanobind::handle array, const ArrayRole& role, const ArrayPlace& place);

// A tensor over a copy of what lies on a device, and says how it is copied there.
Tensor CopyOnDevice(const LentArray& lent, const ArrayRole& role, const ArrayPlace& place);

// DLPack's DLManagedTensorVersioned, version 1; in that of any version the numbers come first.
struct VersionedTensor {
  std::uint32_t major = 0, minor = 0;
  void* manager = nullptr;
  void (*deleter)(VersionedTensor*) = nullptr;
  std::uint64_t flags = 0;
  nanobind::dlpack::dltensor tensor;
};

// What DLPack describes: the dtype, nothing for one that no tensor has; whether it is in the host's memory; and whether
// its elements follow each other, where strides of dimensions of one element say nothing.
std::optional<DType> FromDlpack(const nanobind::dlpack::dtype& dtype);
bool IsOnHost(const nanobind::dlpack::device& device);
bool IsContiguous(std::span<const std::int64_t> dims, const std::int64_t* strides);

// Whether there are elements at an address where no memory is: none, or an offset to none. CheckMemory throws
// kInvalidArgument then, naming the array.
bool HasNoMemory(const void* data, std::int64_t elements);
void CheckMemory(const void* data, std::int64_t elements, const ArrayRole& role);

// Describes a tensor. Its dimensions, and strides behind them, come into `sizes`, which must live as long.
void Describe(const Tensor& tensor, std::span<std::int64_t> sizes, nanobind::dlpack::dltensor* described);

// A dtype in the terms of DLPack.
nanobind::dlpack::dtype DlpackOf(DType dtype);

// A device in the terms of DLPack: its type and index.
std::pair<int, int> DlpackOf(const Device& device);

}  // namespace stepnet::python

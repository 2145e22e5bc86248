// Arrays that others lend by DLPack, on the host or on a device.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <utility>

#include "stepnet/python/src/arrays.h"

namespace stepnet::python {

// Does what LentOf does, of what has __dlpack__, or of what that gives.
LentArray LentByDlpack(nanobind::handle array, const ArrayRole& role, const ArrayPlace& place);

// A tensor over a copy of what lies on a device, and says how it is copied there.
Tensor CopyOnDevice(const LentArray& lent, const ArrayRole& role, const ArrayPlace& place);

// A dtype in the terms of DLPack.
nanobind::dlpack::dtype DlpackOf(DType dtype);

// A device in the terms of DLPack: its type and index.
std::pair<int, int> DlpackOf(const Device& device);

}  // namespace stepnet::python

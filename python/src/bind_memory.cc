// The memory of tensors, for Python.

#include <cstdint>

#include "stepnet/core/device.h"
#include "stepnet/core/error.h"
#include "stepnet/core/strings.h"
#include "stepnet/core/tensor.h"
#include "stepnet/python/src/array_reading.h"
#include "stepnet/python/src/arrays.h"
#include "stepnet/python/src/bindings.h"
#include "stepnet/python/src/calls.h"
#include "stepnet/python/src/options.h"
#include "stepnet/python/src/text_caster.h"

namespace nb = nanobind;

namespace stepnet::python {
namespace {

// Bytes that are in use, were at most, and may be.
nb::tuple Memory(nb::handle device) {
  const std::string name = TextOf("device", device);
  const MemoryUse use = CallWithoutGil([&] {
    const Device place = ParseDevice(name);
    return place.IsHost() ? TensorMemory() : RuntimeOf(place).memory();
  });
  return nb::make_tuple(use.current, use.peak, use.limit);
}

void SetMaxMemory(nb::handle bytes, nb::handle device) {
  const std::int64_t limit = WholeNumberOf("bytes", bytes);
  const std::string name = TextOf("device", device);
  if (limit < 0) {
    throw Error(ErrorCode::kInvalidArgument, StrCat("bytes is ", limit, "; it must be 0 or more"));
  }
  CallWithoutGil([&] {
    const Device place = ParseDevice(name);
    if (place.IsHost()) {
      SetTensorMemoryLimit(limit);
    } else {
      RuntimeOf(place).SetMemoryLimit(limit);
    }
  });
}

// The elements of an array in the host's memory, one after the other, in memory of tensors, without a warning: for
// whoever says in other words that it is copied.
nb::object ContiguousCopy(nb::handle array, const std::string& kind, const std::string& name) {
  const ArrayRole role{kind.c_str(), name};
  return ArrayOf(CopyOf(LentOf(array, role), role, /*warns=*/false));
}

}  // namespace

void BindMemory(nb::module_& module) {
  module.def("contiguous_copy", &ContiguousCopy);
  module.def("memory", &Memory, Anything());
  module.def("set_max_memory", &SetMaxMemory, Anything(), Anything());
}

}  // namespace stepnet::python

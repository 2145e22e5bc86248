// What reading an array takes, whichever way it is lent: by a buffer (arrays.cc) or by DLPack (dlpack.cc).
#pragma once

#include <nanobind/nanobind.h>

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <utility>

#include "stepnet/python/src/arrays.h"

namespace stepnet::python {

// Lets go of what belongs to Python, from whichever thread. What is left when the interpreter has ended is not touched.
template <typename Release>
std::function<void()> WithGil(Release release) {
  return [release = std::move(release)] {
    if (!Py_IsInitialized()) return;
    const nanobind::gil_scoped_acquire gil;
    release();
  };
}

// A module; nothing where nobody has imported it.
nanobind::object Imported(const char* name);

// The dtype of a kind, which is one of b i u f and B (bfloat16), and of a size in bytes.
std::optional<DType> DTypeOf(char kind, std::int64_t bytes);

bool IsAligned(const void* data, DType dtype);

// "a Tensor", "an int"
std::string TypeNameWithArticle(nanobind::handle object);

// Whether it is a tensor of PyTorch with a tangent, as within torch.autograd.forward_ad, of which its memory says
// nothing.
bool HasTangent(nanobind::handle array);

// Whether it is what JAX computes with where a function is traced or differentiated, which has no elements.
bool IsTracedByJax(nanobind::handle array);

// What the elements of an array are, as it says itself; of one that does not, its type.
std::string ElementsOf(nanobind::handle array);
[[noreturn]] void ThrowNoDType(const ArrayRole& role, const std::string& elements);

// The shape of an array. Throws kShapeMismatch, naming it, for more dimensions or larger sizes than tensors have.
Shape ShapeOf(std::span<const std::int64_t> dims, const ArrayRole& role);

// Says in a CopyWarning that the array is copied, since it is `why`, and how it would not be.
void WarnOfCopy(const ArrayRole& role, const char* why, const char* better);

// A copy of an array in the host's memory, in memory of tensors, which is counted and limited; NumPy puts the elements
// there. `warns`: a CopyWarning says so. Throws kOutOfMemory, naming it.
Tensor CopyOf(const LentArray& lent, const ArrayRole& role, bool warns);

}  // namespace stepnet::python

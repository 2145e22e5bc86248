#include "stepnet/python/src/array_reading.h"

#include "stepnet/core/error.h"
#include "stepnet/core/memory_for.h"
#include "stepnet/core/strings.h"

namespace nb = nanobind;

namespace stepnet::python {
nb::object Imported(const char* name) {
  nb::object module = nb::steal(PyImport_GetModule(nb::str(name).ptr()));
  if (!module.is_valid() && PyErr_Occurred() != nullptr) nb::raise_python_error();
  return module;
}

std::optional<DType> DTypeOf(char kind, std::int64_t bytes) {
  switch (kind) {
    case 'b': return bytes == 1 ? std::optional(DType::kBool) : std::nullopt;
    case 'B': return bytes == 2 ? std::optional(DType::kBFloat16) : std::nullopt;
    case 'i':
      if (bytes == 1) return DType::kInt8;
      if (bytes == 2) return DType::kInt16;
      if (bytes == 4) return DType::kInt32;
      return bytes == 8 ? std::optional(DType::kInt64) : std::nullopt;
    case 'u':
      if (bytes == 1) return DType::kUInt8;
      return bytes == 2 ? std::optional(DType::kUInt16) : std::nullopt;
    case 'f':
      if (bytes == 2) return DType::kFloat16;
      if (bytes == 4) return DType::kFloat;
      return bytes == 8 ? std::optional(DType::kDouble) : std::nullopt;
    default: return std::nullopt;
  }
}

bool IsAligned(const void* data, DType dtype) {
  return reinterpret_cast<std::uintptr_t>(data) % static_cast<std::uintptr_t>(DTypeBytes(dtype)) == 0;
}

std::string TypeNameWithArticle(nb::handle object) {
  return Utf8Of(nb::module_::import_("stepnet.source").attr("with_article")(object.type()));
}

void WarnOfCopy(const ArrayRole& role, const char* why, const char* better) {
  const std::string text = StrCat(Text(role), " is ", why, " and is copied; ", better);
  nb::module_::import_("warnings")
      .attr("warn")(StrOf(text), nb::module_::import_("stepnet.errors").attr("CopyWarning"), nb::arg("stacklevel") = 2);
}

namespace {

// Whether the array, [T, B, …], is a view of a contiguous one [B, T, …].
bool IsViewOfBatchMajor(nb::handle array) {
  if (!nb::hasattr(array, "swapaxes")) return false;
  const nb::object turned = array.attr("swapaxes")(0, 1);
  if (nb::hasattr(turned, "is_contiguous")) return nb::cast<bool>(turned.attr("is_contiguous")());
  return nb::hasattr(turned, "flags") && nb::cast<bool>(turned.attr("flags").attr("c_contiguous"));
}

}  // namespace

Tensor CopyOf(const LentArray& lent, const ArrayRole& role, bool warns) {
  const DType dtype = lent.tensor.dtype();
  if (dtype == DType::kBFloat16) {
    throw Error(ErrorCode::kInvalidArgument, StrCat(Text(role), " is ", lent.why_copied,
                                                    ", and NumPy, which would copy it, has no bfloat16; give a copy"));
  }
  if (warns) {
    const bool is_batch_major = role.is_time_major && IsViewOfBatchMajor(lent.array);
    WarnOfCopy(role, lent.why_copied,
               is_batch_major ? "give it as numpy.ascontiguousarray makes it or, with option batch_major = true in the "
                                "cell, as [B, T, …], which it is a view of"
                              : "give it as numpy.ascontiguousarray makes it");
  }
  const Tensor copy =
      WithMemoryFor(StrCat("a copy of the ", role.kind), role.name, [&] { return Tensor(dtype, lent.tensor.shape()); });
  const nb::module_ numpy = nb::module_::import_("numpy");
  nb::object source = lent.array;
  if (!PyObject_CheckBuffer(source.ptr())) source = numpy.attr("from_dlpack")(source);
  numpy.attr("copyto")(ArrayOf(copy), source);
  return copy;
}

bool IsTracedByJax(nb::handle array) {
  const nb::object core = Imported("jax.core");
  return core.is_valid() && nb::hasattr(core, "Tracer") && nb::isinstance(array, core.attr("Tracer"));
}

bool HasTangent(nb::handle array) {
  static nb::handle forward_ad;  // it stays when it is imported, and finding it takes longer than the rest
  if (!forward_ad.is_valid()) forward_ad = Imported("torch.autograd.forward_ad").release();
  if (!forward_ad.is_valid()) return false;
  const nb::object level = nb::getattr(forward_ad, "_current_level", nb::none());
  if (PyLong_Check(level.ptr()) && nb::cast<int>(level) < 0) return false;
  return !forward_ad.attr("unpack_dual")(array).attr("tangent").is_none();
}

std::string ElementsOf(nb::handle array) {
  return nb::hasattr(array, "dtype") ? Utf8Of(array.attr("dtype")) : Utf8Of(array.type().attr("__qualname__"));
}

void ThrowNoDType(const ArrayRole& role, const std::string& elements) {
  throw Error(ErrorCode::kTypeMismatch,
              StrCat(Text(role), " has elements ", elements,
                     ", which no tensor has; tensors have float16, bfloat16, float32, float64, bool, int8 to int64, "
                     "uint8 and uint16",
                     elements.starts_with('>') ? ", in the byte order of this machine" : "",
                     role.must_be ? "; it must be " + NumpyName(*role.must_be) : "",
                     role.must_be == DType::kInt32 ? " or int64" : ""));
}

Shape ShapeOf(std::span<const std::int64_t> dims, const ArrayRole& role) {
  if (std::ssize(dims) > Shape::kMaxRank) {
    throw Error(ErrorCode::kShapeMismatch,
                StrCat(Text(role), " has ", dims.size(), " dimensions; tensors have at most ", Shape::kMaxRank));
  }
  try {
    return Shape(dims);
  } catch (const Error& error) {
    throw Error(error.code(), StrCat(Text(role), " has a shape that no tensor has: ", error.message()));
  }
}

}  // namespace stepnet::python

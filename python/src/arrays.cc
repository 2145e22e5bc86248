#include "stepnet/python/src/arrays.h"

#include <nanobind/ndarray.h>
#include <nanobind/stl/string.h>

#include <bit>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "stepnet/core/error.h"
#include "stepnet/core/strings.h"

namespace nb = nanobind;

namespace stepnet::python {
namespace {

// Lets go of what belongs to Python, from whichever thread. What is left when the interpreter has ended is not touched.
template <typename Release>
std::function<void()> WithGil(Release release) {
  return [release = std::move(release)] {
    if (!Py_IsInitialized()) return;
    const nb::gil_scoped_acquire gil;
    release();
  };
}

// A buffer that Python has lent.
class Buffer {
 public:
  // Empty where `array` does not lend its memory with strides and format.
  static std::shared_ptr<Buffer> Of(nb::handle array) {
    if (!PyObject_CheckBuffer(array.ptr())) return nullptr;
    auto buffer = std::make_shared<Buffer>();
    if (PyObject_GetBuffer(array.ptr(), &buffer->view_, PyBUF_RECORDS_RO) != 0) {
      PyErr_Clear();
      return nullptr;
    }
    buffer->is_held_ = true;
    return buffer;
  }
  Buffer() = default;
  ~Buffer() { Release(); }
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;

  void Release() {
    if (is_held_) PyBuffer_Release(&view_);
    is_held_ = false;
  }
  const Py_buffer& view() const { return view_; }

 private:
  Py_buffer view_ = {};
  bool is_held_ = false;
};

// The dtype of a kind, which is one of b i u f and B (bfloat16), and of a size in bytes.
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

// The dtype that a buffer's format names: one character, behind a sign of the machine's own byte order.
std::optional<DType> DTypeOf(const Py_buffer& view) {
  const char* format = view.format == nullptr ? "B" : view.format;
  constexpr char kOwnOrder = std::endian::native == std::endian::little ? '<' : '>';
  if (*format == '@' || *format == '=' || *format == kOwnOrder) ++format;
  if (*format == '\0' || format[1] != '\0') return std::nullopt;
  switch (*format) {
    case '?': return DTypeOf('b', view.itemsize);
    case 'b':
    case 'h':
    case 'i':
    case 'l':
    case 'q': return DTypeOf('i', view.itemsize);
    case 'B':
    case 'H':
    case 'I':
    case 'L':
    case 'Q': return DTypeOf('u', view.itemsize);
    case 'e':
    case 'f':
    case 'd': return DTypeOf('f', view.itemsize);
    default: return std::nullopt;
  }
}

std::optional<DType> DTypeOf(const nb::dlpack::dtype& dtype) {
  if (dtype.lanes != 1 || dtype.bits % 8 != 0) return std::nullopt;
  switch (static_cast<nb::dlpack::dtype_code>(dtype.code)) {
    case nb::dlpack::dtype_code::Bool: return DTypeOf('b', dtype.bits / 8);
    case nb::dlpack::dtype_code::Int: return DTypeOf('i', dtype.bits / 8);
    case nb::dlpack::dtype_code::UInt: return DTypeOf('u', dtype.bits / 8);
    case nb::dlpack::dtype_code::Float: return DTypeOf('f', dtype.bits / 8);
    case nb::dlpack::dtype_code::Bfloat: return DTypeOf('B', dtype.bits / 8);
    default: return std::nullopt;
  }
}

bool IsAligned(const void* data, DType dtype) {
  return reinterpret_cast<std::uintptr_t>(data) % static_cast<std::uintptr_t>(DTypeBytes(dtype)) == 0;
}

std::string TypeName(nb::handle object) { return Utf8Of(object.type().attr("__qualname__")); }

Tensor CopyOf(nb::handle array, const ArrayRole& role, const char* why) {
  const std::string text =
      StrCat(Text(role), " is ", why, " and is copied; give it as numpy.ascontiguousarray makes it");
  nb::module_::import_("warnings")
      .attr("warn")(text, nb::module_::import_("stepnet.errors").attr("CopyWarning"), nb::arg("stacklevel") = 2);
  const nb::module_ numpy = nb::module_::import_("numpy");
  nb::object source = nb::borrow(array);
  if (!PyObject_CheckBuffer(array.ptr())) source = numpy.attr("from_dlpack")(source);
  return TensorOf(numpy.attr("array")(source, nb::arg("order") = "C"), role);
}

[[noreturn]] void ThrowNoDType(const ArrayRole& role, nb::handle array) {
  std::string dtype = TypeName(array);
  if (nb::hasattr(array, "dtype")) dtype = Utf8Of(array.attr("dtype"));
  throw Error(ErrorCode::kTypeMismatch,
              StrCat(Text(role), " has elements ", dtype,
                     ", which no tensor has; tensors have float16, bfloat16, float32, float64, bool, int8 to int64, "
                     "uint8 and uint16, in the byte order of this machine"));
}

// The shape of an array. Throws kShapeMismatch, naming it, for more dimensions or larger sizes than tensors have.
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

Tensor TensorOfBuffer(nb::handle array, const std::shared_ptr<Buffer>& buffer, const ArrayRole& role) {
  const Py_buffer& view = buffer->view();
  const std::optional<DType> dtype = DTypeOf(view);
  if (!dtype) ThrowNoDType(role, array);
  const Shape shape = ShapeOf({view.shape, static_cast<size_t>(view.ndim)}, role);
  if (PyBuffer_IsContiguous(&view, 'C') == 0) return CopyOf(array, role, "not contiguous");
  if (!IsAligned(view.buf, *dtype)) return CopyOf(array, role, "not aligned");
  return Tensor::Wrap(view.buf, *dtype, shape, WithGil([buffer] { buffer->Release(); }));
}

// Whether the elements follow each other. Strides of dimensions of one element say nothing.
bool IsContiguous(const nb::ndarray<nb::ro>& array) {
  if (array.size() == 0) return true;
  std::int64_t expected = 1;
  for (size_t d = array.ndim(); d-- > 0;) {
    if (array.shape(d) != 1 && array.stride(d) != expected) return false;
    expected *= static_cast<std::int64_t>(array.shape(d));
  }
  return true;
}

// What __dlpack__ gives. An array that is read-only has none for those who know no versions.
nb::object CapsuleOf(nb::handle array, const ArrayRole& role) {
  const auto why_not = [&](nb::python_error& raised) {
    if (!raised.matches(PyExc_Exception)) throw std::move(raised);
    throw Error(ErrorCode::kTypeMismatch, StrCat(Text(role), " cannot be read: ", Utf8Of(raised.value())));
  };
  try {
    return array.attr("__dlpack__")();
  } catch (nb::python_error& raised) {
    if (!raised.matches(PyExc_BufferError)) why_not(raised);
  }
  try {
    return array.attr("__dlpack__")(nb::arg("max_version") = nb::make_tuple(1, 1));
  } catch (nb::python_error& raised) {
    why_not(raised);
  }
  return {};
}

constexpr std::uintptr_t kFirstPage = 4096;

Tensor TensorOfDlpack(nb::handle array, const ArrayRole& role) {
  auto lent = std::make_shared<nb::ndarray<nb::ro>>();
  // Nanobind notes that a capsule is used: whoever gives it a second time must learn it.
  const nb::object capsule = CapsuleOf(array, role);
  if (!PyCapsule_CheckExact(capsule.ptr()) || !nb::try_cast(capsule, *lent, /*convert=*/false)) {
    throw Error(ErrorCode::kTypeMismatch,
                StrCat(Text(role), " is a ", TypeName(array), " whose __dlpack__ gives no array that can be read"));
  }
  // No memory, and an offset to it, are an address where no memory is.
  if (reinterpret_cast<std::uintptr_t>(lent->data()) < kFirstPage && lent->size() > 0) {
    throw Error(ErrorCode::kInvalidArgument, StrCat(Text(role), " has ", lent->size(), " elements and no memory"));
  }
  if (lent->device_type() != nb::device::cpu::value) {
    throw Error(ErrorCode::kInvalidArgument,
                StrCat(Text(role), " lies on another device than the CPU; it must be in the host's memory"));
  }
  const std::optional<DType> dtype = DTypeOf(lent->dtype());
  if (!dtype) ThrowNoDType(role, array);
  std::vector<std::int64_t> dims;
  for (size_t d = 0; d < lent->ndim(); ++d) dims.push_back(static_cast<std::int64_t>(lent->shape(d)));
  const Shape shape = ShapeOf(dims, role);  // before anybody copies what is too large
  const char* const fault = !IsContiguous(*lent)               ? "not contiguous"
                            : !IsAligned(lent->data(), *dtype) ? "not aligned"
                                                               : nullptr;
  if (fault != nullptr && *dtype == DType::kBFloat16) {
    throw Error(ErrorCode::kInvalidArgument,
                StrCat(Text(role), " is ", fault, ", and NumPy, which would copy it, has no bfloat16; give a copy"));
  }
  if (fault != nullptr) return CopyOf(array, role, fault);
  const void* const data = lent->data();
  return Tensor::Wrap(data, *dtype, shape, WithGil([lent] { *lent = nb::ndarray<nb::ro>(); }));
}

nb::dlpack::dtype DlpackOf(DType dtype) {
  const auto of = [&](nb::dlpack::dtype_code code) {
    return nb::dlpack::dtype{
        .code = static_cast<std::uint8_t>(code), .bits = static_cast<std::uint8_t>(8 * DTypeBytes(dtype)), .lanes = 1};
  };
  switch (dtype) {
    case DType::kBool: return of(nb::dlpack::dtype_code::Bool);
    case DType::kBFloat16: return of(nb::dlpack::dtype_code::Bfloat);
    case DType::kFloat:
    case DType::kDouble:
    case DType::kFloat16: return of(nb::dlpack::dtype_code::Float);
    case DType::kUInt8:
    case DType::kUInt16: return of(nb::dlpack::dtype_code::UInt);
    default: return of(nb::dlpack::dtype_code::Int);
  }
}

template <typename Array>
nb::object MakeArray(const Tensor& tensor) {
  auto owner = std::make_unique<Tensor>(tensor);
  const nb::capsule capsule(owner.get(), [](void* held) noexcept { delete static_cast<Tensor*>(held); });
  owner.release();  // the capsule has it
  size_t dims[Shape::kMaxRank] = {};
  for (int d = 0; d < tensor.shape().rank(); ++d) dims[d] = static_cast<size_t>(tensor.shape()[d]);
  const Array array(tensor.raw(), static_cast<size_t>(tensor.shape().rank()), dims, capsule, nullptr,
                    DlpackOf(tensor.dtype()));
  return nb::cast(array);
}

}  // namespace

std::string Utf8Of(nb::handle object) {
  const nb::str text{nb::borrow(object)};
  const nb::object bytes = nb::steal(PyUnicode_AsEncodedString(text.ptr(), "utf-8", "backslashreplace"));
  if (!bytes.is_valid()) nb::raise_python_error();
  return {PyBytes_AsString(bytes.ptr()), static_cast<size_t>(PyBytes_Size(bytes.ptr()))};
}

nb::object StrOf(std::string_view text) {
  const auto size = static_cast<Py_ssize_t>(text.size());
  nb::object made = nb::steal(PyUnicode_DecodeUTF8(text.data(), size, "backslashreplace"));
  if (!made.is_valid()) nb::raise_python_error();
  return made;
}

std::string Text(const ArrayRole& role) { return StrCat("the ", role.kind, " \"", role.name, "\""); }

Tensor TensorOf(nb::handle array, const ArrayRole& role) {
  if (const std::shared_ptr<Buffer> buffer = Buffer::Of(array)) return TensorOfBuffer(array, buffer, role);
  if (nb::hasattr(array, "__dlpack__")) return TensorOfDlpack(array, role);
  throw Error(ErrorCode::kTypeMismatch,
              StrCat(Text(role), " is a ", TypeName(array),
                     ", no array; it must be one of NumPy, or have __dlpack__ or the buffer protocol"));
}

nb::object ArrayOf(const Tensor& tensor, bool read_only) {
  if (!tensor.defined()) return nb::none();
  if (tensor.dtype() == DType::kString) {
    throw Error(ErrorCode::kTypeMismatch, StrCat("a tensor ", tensor.Description(), " cannot be an array"));
  }
  if (tensor.dtype() == DType::kBFloat16) return MakeArray<nb::ndarray<>>(tensor);
  return read_only ? MakeArray<nb::ndarray<nb::numpy, nb::ro>>(tensor) : MakeArray<nb::ndarray<nb::numpy>>(tensor);
}

std::string NumpyName(DType dtype) {
  if (dtype == DType::kFloat) return "float32";
  return dtype == DType::kDouble ? "float64" : DTypeName(dtype);
}

}  // namespace stepnet::python

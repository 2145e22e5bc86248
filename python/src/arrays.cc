#include "stepnet/python/src/arrays.h"

#include <nanobind/ndarray.h>

#include <algorithm>
#include <bit>
#include <cstdint>
#include <memory>
#include <optional>

#include "stepnet/core/error.h"
#include "stepnet/core/memory_for.h"
#include "stepnet/core/strings.h"
#include "stepnet/python/src/array_reading.h"
#include "stepnet/python/src/device_array.h"
#include "stepnet/python/src/dlpack.h"
#include "stepnet/python/src/exchange.h"

namespace nb = nanobind;

namespace stepnet::python {
namespace {

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

// The dtype that a buffer's format names: one character, behind a sign of the machine's own byte order.
std::optional<DType> FormatDType(const Py_buffer& view) {
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

LentArray LentByBuffer(nb::handle array, const std::shared_ptr<Buffer>& buffer, const ArrayRole& role,
                       std::optional<DType> known = {}) {
  const Py_buffer& view = buffer->view();
  const std::optional<DType> dtype = known ? known : FormatDType(view);
  if (!dtype) ThrowNoDType(role, ElementsOf(array));
  const Shape shape = ShapeOf({view.shape, static_cast<size_t>(view.ndim)}, role);
  LentArray lent{.tensor = Tensor::Wrap(view.buf, *dtype, shape, WithGil([buffer] { buffer->Release(); })),
                 .array = nb::borrow(array)};
  if (PyBuffer_IsContiguous(&view, 'C') == 0) {
    lent.why_copied = "not contiguous";
  } else if (!IsAligned(view.buf, *dtype)) {
    lent.why_copied = "not aligned";
  }
  return lent;
}

// An array of NumPy with bfloat16, which the package ml_dtypes brings and of which buffers and NumPy's DLPack know
// nothing, as one of whole numbers; nothing for any other.
nb::object BFloat16BitsOf(nb::handle array) {
  if (PyObject_CheckBuffer(array.ptr()) == 0) return {};
  if (!nb::isinstance(array, nb::module_::import_("numpy").attr("ndarray"))) return {};
  return ElementsOf(array) == "bfloat16" ? array.attr("view")("uint16") : nb::object();
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

// In UTF-8 what `print`, of Python, makes of an object; of a long whole number, which some versions of Python print at
// any length and others refuse, how long it is.
std::string TextBy(PyObject* (*print)(PyObject*), nb::handle object) {
  constexpr std::int64_t kMaxBits = 1000;
  if (PyLong_Check(object.ptr()) != 0) {
    const auto bits = nb::cast<std::int64_t>(object.attr("bit_length")());
    if (bits > kMaxBits) return StrCat("an int of ", bits, " bits");
  }
  const nb::object text = nb::steal(print(object.ptr()));
  if (!text.is_valid()) nb::raise_python_error();
  const nb::object bytes = nb::steal(PyUnicode_AsEncodedString(text.ptr(), "utf-8", "backslashreplace"));
  if (!bytes.is_valid()) nb::raise_python_error();
  return {PyBytes_AsString(bytes.ptr()), static_cast<size_t>(PyBytes_Size(bytes.ptr()))};
}

}  // namespace

std::string Utf8Of(nb::handle object) { return TextBy(PyObject_Str, object); }

std::string ReprOf(nb::handle object) { return TextBy(PyObject_Repr, object); }

nb::object StrOf(std::string_view text) {
  const auto size = static_cast<Py_ssize_t>(text.size());
  nb::object made = nb::steal(PyUnicode_DecodeUTF8(text.data(), size, "backslashreplace"));
  if (!made.is_valid()) nb::raise_python_error();
  return made;
}

nb::list ListOf(const std::vector<std::string>& texts) {
  nb::list made;
  for (const std::string& text : texts) made.append(StrOf(text));
  return made;
}

std::string Text(const ArrayRole& role) { return StrCat("the ", role.kind, " \"", role.name, "\""); }

namespace {

bool MayBeItems(nb::handle given, const ArrayRole& role) {
  return (role.must_be == DType::kInt32 || role.must_be == DType::kInt64) &&
         (nb::isinstance<nb::list>(given) || nb::isinstance<nb::tuple>(given));
}

// A vector of the whole numbers in a list or tuple, of the dtype that it must be. Throws kTypeMismatch for other items
// and for numbers that the dtype does not hold.
Tensor VectorOf(nb::handle given, const ArrayRole& role) {
  const nb::tuple items(nb::borrow(given));  // what is read may change a list
  const DType dtype = *role.must_be;
  const Tensor vector = WithMemoryFor(StrCat("the ", role.kind), role.name,
                                      [&] { return Tensor(dtype, {static_cast<std::int64_t>(items.size())}); });
  for (size_t i = 0; i < items.size(); ++i) {
    const nb::handle item = items[i];
    const bool is_whole = PyIndex_Check(item.ptr()) != 0 && PyBool_Check(item.ptr()) == 0;
    const nb::object number = is_whole ? nb::steal(PyNumber_Index(item.ptr())) : nb::object();
    int overflow = 0;
    const std::int64_t value = number.is_valid() ? PyLong_AsLongLongAndOverflow(number.ptr(), &overflow) : 0;
    PyErr_Clear();  // of an array that is no number, which has __index__ all the same
    const bool is_too_large = overflow != 0 || (dtype == DType::kInt32 && value != static_cast<std::int32_t>(value));
    if (!number.is_valid() || is_too_large) {
      const nb::object found = nb::module_::import_("stepnet.source").attr("kind_of")(item);
      throw Error(ErrorCode::kTypeMismatch,
                  StrCat(Text(role), " is ", TypeNameWithArticle(given), " whose item ", i, " is ", Utf8Of(found),
                         "; items must be whole numbers of ", NumpyName(dtype)));
    }
    if (dtype == DType::kInt32) {
      vector.data<std::int32_t>()[i] = static_cast<std::int32_t>(value);
    } else {
      vector.data<std::int64_t>()[i] = value;
    }
  }
  return vector;
}

}  // namespace

LentArray LentOf(nb::handle array, const ArrayRole& role, const ArrayPlace& place) {
  if (place.exchange != nullptr) {
    if (std::optional<LentArray> lent = place.exchange->Lend(array, role)) return *std::move(lent);
  }
  if (PyObject_CheckBuffer(array.ptr()) == 0) {
    if (std::optional<LentArray> lent = TensorExchange::LendPlain(array, role)) return *std::move(lent);
  }
  if (nb::hasattr(array, "filled") && nb::hasattr(array, "mask")) {
    throw Error(ErrorCode::kTypeMismatch, StrCat(Text(role), " is ", TypeNameWithArticle(array),
                                                 ", some of whose elements may be masked; give array.filled(value)"));
  }
  if (const std::shared_ptr<Buffer> buffer = Buffer::Of(array)) return LentByBuffer(array, buffer, role);
  if (const nb::object bits = BFloat16BitsOf(array); bits.is_valid()) {
    return LentByBuffer(array, Buffer::Of(bits), role, DType::kBFloat16);
  }
  // Capsules are for callers who order streams themselves.
  const bool is_ordered = place.stream && PyCapsule_CheckExact(array.ptr()) != 0;
  if (is_ordered || nb::hasattr(array, "__dlpack__")) return LentByDlpack(array, role, place);
  if (MayBeItems(array, role)) return {.tensor = VectorOf(array, role)};
  throw Error(ErrorCode::kTypeMismatch,
              StrCat(Text(role), " is ", TypeNameWithArticle(array),
                     ", no array; it must be one of NumPy, or have __dlpack__ or the buffer protocol"));
}

namespace {

// Bytes of a bool other than 0 and 1, which a view of other numbers has, are true, as NumPy and PyTorch read them;
// kernels compute with the bytes.
Tensor WithBoolsOf(const Tensor& tensor) {
  if (tensor.dtype() != DType::kBool || !tensor.device().IsHost()) return tensor;
  const auto* const bytes = static_cast<const unsigned char*>(tensor.raw());
  if (std::all_of(bytes, bytes + tensor.size(), [](unsigned char byte) { return byte <= 1; })) return tensor;
  Tensor bools(DType::kBool, tensor.shape());
  std::transform(bytes, bytes + tensor.size(), bools.data<bool>(), [](unsigned char byte) { return byte != 0; });
  return bools;
}

}  // namespace

Tensor Contiguous(const LentArray& lent, const ArrayRole& role, const ArrayPlace& place) {
  if (lent.why_copied == nullptr) return WithBoolsOf(lent.tensor);
  return lent.tensor.device().IsHost() ? CopyOf(lent, role, /*warns=*/place.exchange == nullptr)
                                       : CopyOnDevice(lent, role, place);
}

nb::object ArrayOf(const Tensor& tensor, bool read_only, std::optional<StreamId> ready_on) {
  if (!tensor.defined()) return nb::none();
  if (!tensor.device().IsHost() || tensor.dtype() == DType::kBFloat16) return nb::cast(DeviceArray(tensor, ready_on));
  if (tensor.dtype() == DType::kString) {
    throw Error(ErrorCode::kTypeMismatch, StrCat("a tensor ", tensor.Description(), " cannot be an array"));
  }
  return read_only ? MakeArray<nb::ndarray<nb::numpy, nb::ro>>(tensor) : MakeArray<nb::ndarray<nb::numpy>>(tensor);
}

std::string NumpyName(DType dtype) {
  if (dtype == DType::kFloat) return "float32";
  return dtype == DType::kDouble ? "float64" : DTypeName(dtype);
}

}  // namespace stepnet::python

#include "stepnet/python/src/dlpack.h"

#include <algorithm>
#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "stepnet/core/error.h"
#include "stepnet/core/strings.h"
#include "stepnet/python/src/array_reading.h"

namespace nb = nanobind;

namespace stepnet::python {
namespace {

// Devices by DLPack's numbers.
constexpr int kCpu = 1, kCuda = 2, kExtension = 12, kCudaManaged = 13;

// Throws kInvalidArgument for one on which no tensor is, and for one that is not the place.
Device DeviceOf(std::int64_t type, std::int64_t index, const ArrayRole& role, const ArrayPlace& place) {
  std::optional<Device> device;
  if (type == kCpu) {
    device.emplace();
  } else if (index >= 0 && index <= std::numeric_limits<std::int16_t>::max()) {
    const auto number = static_cast<std::int16_t>(index);
    if (type == kCuda || type == kCudaManaged) device = {.kind = DeviceKind::kCuda, .index = number};
    if (type == kExtension) device = {.kind = DeviceKind::kPrivate, .index = number};
  }
  if (device && (device->IsHost() || device == place.device)) return *device;
  const std::string found = device ? DeviceName(*device) : StrCat("a device of DLPack's type ", type);
  const std::string also = place.device.IsHost() ? "" : StrCat(" or on ", place.device);
  throw Error(ErrorCode::kInvalidArgument,
              StrCat(Text(role), " lies on ", found, "; it must be in the host's memory", also));
}

[[noreturn]] void ThrowCannotBeRead(nb::handle array, const ArrayRole& role, const std::string& why) {
  if (IsTracedByJax(array)) {
    throw Error(
        ErrorCode::kTypeMismatch,
        StrCat(Text(role),
               " is traced by JAX, as within jax.jit, grad and vmap, and has no elements; call it outside, or by "
               "jax.pure_callback"));
  }
  if (nb::hasattr(array, "is_deleted") && nb::bool_(array.attr("is_deleted")())) {
    throw Error(ErrorCode::kTypeMismatch,
                StrCat(Text(role), " has been deleted, as JAX does with an array that is donated to a function"));
  }
  const nb::object better = nb::module_::import_("stepnet.source").attr("what_to_lend")(array);
  if (better.is_none()) ThrowNoDType(role, ElementsOf(array));
  throw Error(ErrorCode::kTypeMismatch, StrCat(Text(role), " cannot be read: ", why, Utf8Of(better)));
}

// What Python has raised, for messages: its text or, of one that has none, its type.
std::string ReasonOf(const nb::python_error& raised) {
  const std::string text = Utf8Of(raised.value());
  return text.empty() ? StrCat("it raised ", Utf8Of(raised.type().attr("__name__")), ", which says no more") : text;
}

// Where the array says that it lies.
Device DeviceOf(nb::handle array, const ArrayRole& role, const ArrayPlace& place) {
  if (!nb::hasattr(array, "__dlpack_device__")) return {};
  std::int64_t type = 0, index = 0;
  nb::object said;
  try {
    said = array.attr("__dlpack_device__")();
  } catch (nb::python_error& raised) {
    if (!raised.matches(PyExc_Exception)) throw;
    ThrowCannotBeRead(array, role, ReasonOf(raised));
  }
  const bool is_device = nb::isinstance<nb::tuple>(said) && nb::len(said) == 2 && nb::try_cast(said[0], type) &&
                         nb::try_cast(said[1], index);
  if (is_device) return DeviceOf(type, index, role, place);
  throw Error(ErrorCode::kTypeMismatch,
              StrCat(Text(role), " is ", TypeNameWithArticle(array), " whose __dlpack_device__ gives ", ReprOf(said),
                     "; it must be a type and a number"));
}

// A dtype as others call it, "uint32", or by DLPack's numbers where it has no such name.
std::string DTypeText(const nb::dlpack::dtype& dtype) {
  const char* kind = nullptr;
  switch (static_cast<nb::dlpack::dtype_code>(dtype.code)) {
    case nb::dlpack::dtype_code::Int: kind = "int"; break;
    case nb::dlpack::dtype_code::UInt: kind = "uint"; break;
    case nb::dlpack::dtype_code::Float: kind = "float"; break;
    case nb::dlpack::dtype_code::Complex: kind = "complex"; break;
    default: break;
  }
  if (kind != nullptr && dtype.lanes == 1) return StrCat(kind, int{dtype.bits});
  return StrCat("of DLPack's type ", int{dtype.code}, " with ", int{dtype.bits}, " bits and ", dtype.lanes,
                dtype.lanes == 1 ? " lane" : " lanes");
}

// What __dlpack__ is called with. DLPack's -1: whoever lends need not make any stream wait.
nb::dict OptionsFor(const Device& device, const ArrayPlace& place) {
  constexpr int kNoStream = -1;
  nb::dict options;
  if (device.IsHost()) return options;
  if (place.stream) {
    options["stream"] = kNoStream;
  } else if (const StreamId own = RuntimeOf(device).queue().stream_id(); own != 0) {
    options["stream"] = own;
  }
  return options;
}

// The array, with the elements that its memory holds: a tensor of PyTorch may be the negative of these, or have a
// tangent, of which DLPack says nothing. Throws kInvalidArgument for a tangent.
nb::object Resolved(nb::handle array, const ArrayRole& role) {
  if (!nb::hasattr(array, "resolve_neg")) return nb::borrow(array);
  try {
    if (HasTangent(array)) {
      throw Error(ErrorCode::kInvalidArgument,
                  StrCat(Text(role),
                         " has a tangent of forward mode (torch.autograd.forward_ad), of which nothing here "
                         "knows; give torch.autograd.forward_ad.unpack_dual(tensor).primal"));
    }
    return array.attr("resolve_neg")();
  } catch (nb::python_error& raised) {
    if (!raised.matches(PyExc_Exception)) throw;
    ThrowCannotBeRead(array, role, ReasonOf(raised));
  }
}

// What __dlpack__ gives. An array that is read-only has none for those who know no versions. Where it has none for
// others either, or knows none itself, as NumPy before 2.1, what it said at first is why.
nb::object CapsuleOf(nb::handle array, const ArrayRole& role, nb::dict options) {
  std::string why;
  for (const bool is_versioned : {false, true}) {
    if (is_versioned) options["max_version"] = nb::make_tuple(1, 1);
    try {
      return array.attr("__dlpack__")(**options);
    } catch (nb::python_error& raised) {
      if (!raised.matches(PyExc_Exception)) throw;
      if (!is_versioned) why = ReasonOf(raised);
      if (!raised.matches(PyExc_BufferError)) break;
    }
  }
  ThrowCannotBeRead(array, role, why);
}

// Throws kTypeMismatch for what nanobind would read, though it says that there is something else or nothing.
void CheckCapsule(nb::handle capsule, const ArrayRole& role) {
  const nb::dlpack::dltensor* tensor = nullptr;
  if (PyCapsule_IsValid(capsule.ptr(), "dltensor_versioned") != 0) {
    const auto* versioned =
        static_cast<const VersionedTensor*>(PyCapsule_GetPointer(capsule.ptr(), "dltensor_versioned"));
    if (versioned->major != nb::dlpack::major_version) {
      throw Error(ErrorCode::kTypeMismatch,
                  StrCat(Text(role), " is lent by version ", versioned->major, ".", versioned->minor,
                         " of DLPack; version ", nb::dlpack::major_version, " is read, and what has no version"));
    }
    tensor = &versioned->tensor;
  } else if (PyCapsule_IsValid(capsule.ptr(), "dltensor") != 0) {
    tensor = static_cast<const nb::dlpack::dltensor*>(PyCapsule_GetPointer(capsule.ptr(), "dltensor"));
  }
  if (tensor == nullptr) return;  // none that nanobind reads
  if (tensor->ndim < 0 || (tensor->ndim > 0 && tensor->shape == nullptr)) {
    throw Error(ErrorCode::kTypeMismatch, StrCat(Text(role), " is lent by DLPack with ", tensor->ndim, " dimensions",
                                                 tensor->ndim < 0 ? "; it must be 0 or more" : " and no shape"));
  }
}

// A copy that the array makes of itself on its device, as PyTorch's and CuPy's do; nothing where it cannot.
nb::object OwnCopyOf(nb::handle array) {
  for (const char* method : {"contiguous", "copy"}) {
    if (nb::hasattr(array, method)) return array.attr(method)();
  }
  return {};
}

// The array goes back when nobody needs it, and the device neither.
std::function<void()> ReleaseOf(std::shared_ptr<nb::ndarray<nb::ro>> lent, const Device& device,
                                const ArrayPlace& place) {
  std::function<void()> release = WithGil([lent = std::move(lent)] { *lent = nb::ndarray<nb::ro>(); });
  if (device.IsHost() || place.stream) return release;
  return [release = std::move(release), &runtime = RuntimeOf(device)] { runtime.WhenDone(release); };
}

}  // namespace

std::optional<DType> FromDlpack(const nb::dlpack::dtype& dtype) {
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

bool IsOnHost(const nb::dlpack::device& device) { return device.device_type == kCpu; }

bool IsContiguous(std::span<const std::int64_t> dims, const std::int64_t* strides) {
  if (strides == nullptr || std::ranges::count(dims, 0) > 0) return true;
  std::int64_t expected = 1;
  for (size_t d = dims.size(); d-- > 0;) {
    if (dims[d] != 1 && strides[d] != expected) return false;
    expected *= dims[d];
  }
  return true;
}

bool HasNoMemory(const void* data, std::int64_t elements) {
  constexpr std::uintptr_t kFirstPage = 4096;
  return reinterpret_cast<std::uintptr_t>(data) < kFirstPage && elements > 0;
}

void CheckMemory(const void* data, std::int64_t elements, const ArrayRole& role) {
  if (!HasNoMemory(data, elements)) return;
  throw Error(ErrorCode::kInvalidArgument, StrCat(Text(role), " has ", elements, " elements and no memory"));
}

void Describe(const Tensor& tensor, std::span<std::int64_t> sizes, nb::dlpack::dltensor* described) {
  const int rank = tensor.shape().rank();
  std::int64_t stride = 1;
  for (int d = rank - 1; d >= 0; --d) {
    sizes[d] = tensor.shape()[d];
    sizes[rank + d] = stride;
    stride *= sizes[d];
  }
  const auto [type, index] = DlpackOf(tensor.device());
  described->data = tensor.raw(tensor.device());
  described->device = {.device_type = type, .device_id = index};
  described->ndim = rank;
  described->dtype = DlpackOf(tensor.dtype());
  described->shape = sizes.data();
  described->strides = sizes.data() + rank;
}

LentArray LentByDlpack(nb::handle given, const ArrayRole& role, const ArrayPlace& place) {
  const bool is_capsule = PyCapsule_CheckExact(given.ptr()) != 0;
  const Device said = is_capsule ? Device{} : DeviceOf(given, role, place);
  // PyTorch lends what lies on the thread's current GPU alone.
  const std::shared_ptr<void> current = said.IsHost() ? nullptr : RuntimeOf(said).MakeCurrent();
  const nb::object array = Resolved(given, role);
  auto lent = std::make_shared<nb::ndarray<nb::ro>>();
  // Nanobind notes that a capsule is used: whoever gives it a second time must learn it.
  const nb::object capsule = is_capsule ? array : CapsuleOf(array, role, OptionsFor(said, place));
  CheckCapsule(capsule, role);
  if (!PyCapsule_CheckExact(capsule.ptr()) || !nb::try_cast(capsule, *lent, /*convert=*/false)) {
    throw Error(ErrorCode::kTypeMismatch, StrCat(Text(role), " is ", TypeNameWithArticle(array),
                                                 " whose __dlpack__ gives no array that can be read"));
  }
  CheckMemory(lent->data(), static_cast<std::int64_t>(lent->size()), role);
  const Device device = DeviceOf(lent->device_type(), lent->device_id(), role, place);
  if (!is_capsule && device != said) {
    throw Error(ErrorCode::kInvalidArgument,
                StrCat(Text(role), " lies on ", device, ", and says that it lies on ", said));
  }
  const std::optional<DType> dtype = FromDlpack(lent->dtype());
  if (!dtype) ThrowNoDType(role, nb::hasattr(array, "dtype") ? ElementsOf(array) : DTypeText(lent->dtype()));
  const std::span dims(lent->shape_ptr(), lent->ndim());
  const Shape shape = ShapeOf(dims, role);  // before anybody copies what is too large
  const char* const fault = !IsContiguous(dims, lent->stride_ptr()) ? "not contiguous"
                            : !IsAligned(lent->data(), *dtype)      ? "not aligned"
                                                                    : nullptr;
  const void* const data = lent->data();
  return {.tensor = Tensor::Wrap(data, *dtype, shape, ReleaseOf(std::move(lent), device, place), device),
          .why_copied = fault,
          .array = array};
}

Tensor CopyOnDevice(const LentArray& lent, const ArrayRole& role, const ArrayPlace& place) {
  const nb::object copy = OwnCopyOf(lent.array);
  // What copies itself to the same again would do so for ever.
  const LentArray lent_again = copy.is_valid() ? LentOf(copy, role, place) : LentArray();
  if (!copy.is_valid() || copy.is(lent.array) || lent_again.why_copied != nullptr) {
    throw Error(ErrorCode::kInvalidArgument,
                StrCat(Text(role), " is ", lent.why_copied, "; give a copy that is contiguous"));
  }
  WarnOfCopy(role, lent.why_copied, "give one that is contiguous");
  return lent_again.tensor;
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

std::pair<int, int> DlpackOf(const Device& device) {
  switch (device.kind) {
    case DeviceKind::kCpu: return {kCpu, 0};
    case DeviceKind::kCuda: return {kCuda, device.index};
    case DeviceKind::kPrivate: return {kExtension, device.index};
  }
  return {};
}

}  // namespace stepnet::python

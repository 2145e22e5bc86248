#include "stepnet/python/src/exchange.h"

#include <nanobind/stl/unique_ptr.h>

#include <algorithm>
#include <cstdint>
#include <utility>

#include "stepnet/core/shape.h"
#include "stepnet/python/src/array_reading.h"
#include "stepnet/python/src/bindings.h"
#include "stepnet/python/src/dlpack.h"
#include "stepnet/python/src/options.h"

namespace nb = nanobind;

namespace stepnet::python {

// DLPack's DLPackExchangeAPI. In that of any version the numbers come first, then an older one.
struct TensorExchange::Functions {
  std::uint32_t major, minor;
  const Functions* older;
  void* allocate;
  int (*managed_of_object)(void* object, VersionedTensor** managed);
  int (*object_of_managed)(VersionedTensor* managed, void** object);
  void* view_of_object;
  void* current_stream;
};

namespace {

// A tensor that somebody else holds.
struct HeldTensor {
  explicit HeldTensor(const Tensor& given) : tensor(given) {
    managed.major = nb::dlpack::major_version;
    managed.manager = this;
    managed.deleter = [](VersionedTensor* held) { delete static_cast<HeldTensor*>(held->manager); };
    Describe(tensor, sizes, &managed.tensor);
  }
  HeldTensor(const HeldTensor&) = delete;
  HeldTensor& operator=(const HeldTensor&) = delete;

  const Tensor tensor;
  std::int64_t sizes[2 * Shape::kMaxRank] = {};
  VersionedTensor managed = {};
};

// What PyTorch has lent goes back without the GIL, which it takes itself where it needs it.
struct GiveBack {
  void operator()(VersionedTensor* managed) const {
    if (managed->deleter != nullptr && Py_IsInitialized()) managed->deleter(managed);
  }
};
using LentTensor = std::unique_ptr<VersionedTensor, GiveBack>;

}  // namespace

std::unique_ptr<TensorExchange> TensorExchange::Make(nb::handle lent, const nb::tuple& classes) {
  constexpr const char* kCapsuleName = "dlpack_exchange_api";
  if (PyCapsule_IsValid(lent.ptr(), kCapsuleName) == 0) return nullptr;
  auto* functions = static_cast<const Functions*>(PyCapsule_GetPointer(lent.ptr(), kCapsuleName));
  while (functions != nullptr && functions->major > nb::dlpack::major_version) functions = functions->older;
  if (functions == nullptr || functions->major != nb::dlpack::major_version) return nullptr;
  return std::unique_ptr<TensorExchange>(new TensorExchange(functions, classes));
}

std::optional<LentArray> TensorExchange::Lend(nb::handle tensor, const ArrayRole& role) const {
  const nb::handle type = tensor.type();
  if (!std::ranges::any_of(classes_, [&](nb::handle each) { return each.is(type); })) return std::nullopt;
  if (nb::cast<bool>(tensor.attr("is_neg")())) return Lend(tensor.attr("detach")().attr("resolve_neg")(), role);
  VersionedTensor* managed = nullptr;
  if (functions_->managed_of_object(tensor.ptr(), &managed) != 0) {
    PyErr_Clear();
    return std::nullopt;
  }
  LentTensor lent(managed);
  const nb::dlpack::dltensor& described = lent->tensor;
  if (!IsOnHost(described.device)) return std::nullopt;
  const std::optional<DType> dtype = FromDlpack(described.dtype);
  if (!dtype) ThrowNoDType(role, ElementsOf(tensor));
  const auto rank = static_cast<size_t>(described.ndim);
  const Shape shape = ShapeOf({described.shape, rank}, role);
  const void* const data = static_cast<const char*>(described.data) + described.byte_offset;
  if (HasNoMemory(data, shape.size())) {
    // Zeros that PyTorch has made no memory for, as gradients of torch.sgn.
    const bool are_zeros = nb::cast<bool>(tensor.attr("_is_zerotensor")());
    if (are_zeros) return Lend(tensor.attr("detach")().attr("clone")(), role);
    CheckMemory(data, shape.size(), role);
  }
  const char* const fault = !IsContiguous({described.shape, rank}, described.strides) ? "not contiguous"
                            : !IsAligned(data, *dtype)                                ? "not aligned"
                                                                                      : nullptr;
  const nb::object copied = fault == nullptr ? nb::object() : tensor.attr("detach")();
  return LentArray{.tensor = Tensor::Wrap(data, *dtype, shape, [held = lent.release()] { GiveBack()(held); }),
                   .why_copied = fault,
                   .array = copied};
}

std::optional<LentArray> TensorExchange::LendPlain(nb::handle array, const ArrayRole& role) {
  // Never destroyed: it holds a class of Python's. A class is looked at once, and one alone has an exchange.
  static const TensorExchange* exchange = nullptr;
  if (exchange == nullptr) {
    constexpr const char* kTensor = "Tensor";
    const nb::object torch = Imported("torch");
    if (!torch.is_valid() || !nb::hasattr(torch, kTensor)) return std::nullopt;
    const nb::object tensor = torch.attr(kTensor);
    if (!array.type().is(tensor)) return std::nullopt;
    exchange = Make(nb::getattr(tensor, "__dlpack_c_exchange_api__", nb::none()), nb::make_tuple(tensor)).release();
    if (exchange == nullptr) return std::nullopt;
  }
  if (!array.type().is(exchange->classes_[0])) return std::nullopt;
  if (array.attr("requires_grad").ptr() != Py_False || HasTangent(array)) return std::nullopt;
  return exchange->Lend(array, role);
}

nb::object TensorExchange::Give(const Tensor& tensor) const {
  auto held = std::make_unique<HeldTensor>(tensor);
  void* made = nullptr;
  // It is theirs, whatever comes of it.
  if (functions_->object_of_managed(&held.release()->managed, &made) != 0) nb::raise_python_error();
  return nb::steal(static_cast<PyObject*>(made));
}

void BindExchange(nb::module_& module) {
  nb::class_<TensorExchange>(module, "TensorExchange");
  module.def("tensor_exchange", &TensorExchange::Make, Anything(), nb::arg());
}

}  // namespace stepnet::python

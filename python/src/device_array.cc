#include "stepnet/python/src/device_array.h"

#include <cstdint>
#include <memory>
#include <vector>

#include "stepnet/core/error.h"
#include "stepnet/core/floating.h"
#include "stepnet/core/strings.h"
#include "stepnet/python/src/arrays.h"
#include "stepnet/python/src/bindings.h"
#include "stepnet/python/src/calls.h"
#include "stepnet/python/src/dlpack.h"
#include "stepnet/python/src/options.h"
#include "stepnet/python/src/text_caster.h"

namespace nb = nanobind;

namespace stepnet::python {
namespace {

// DLManagedTensor of DLPack, which everybody takes who takes its versions.
struct ManagedTensor {
  nb::dlpack::dltensor tensor;
  void* manager = nullptr;
  void (*deleter)(ManagedTensor*) = nullptr;
};

constexpr const char* kCapsuleName = "dltensor";  // "used_dltensor" when somebody has taken it

// A tensor that somebody else uses on a stream of theirs.
class TakenTensor {
 public:
  TakenTensor(const Tensor& tensor, std::optional<StreamId> stream) : tensor_(tensor), stream_(stream) {
    sizes_.resize(2 * static_cast<size_t>(tensor.shape().rank()));
    Describe(tensor, sizes_, &managed_.tensor);
    managed_.manager = this;
    managed_.deleter = [](ManagedTensor* managed) { delete static_cast<TakenTensor*>(managed->manager); };
  }
  TakenTensor(const TakenTensor&) = delete;
  TakenTensor& operator=(const TakenTensor&) = delete;
  // What gets this memory next is behind the stream then.
  ~TakenTensor() {
    if (!stream_) return;
    try {
      RuntimeOf(tensor_.device()).queue().WaitFor(*stream_);
    } catch (...) {  // the stream is gone, and what it was given, or the device is
    }
  }

  ManagedTensor* managed() { return &managed_; }

 private:
  const Tensor tensor_;
  const std::optional<StreamId> stream_;
  std::vector<std::int64_t> sizes_;  // dimensions, and strides behind them
  ManagedTensor managed_ = {};
};

nb::object CapsuleOf(std::unique_ptr<TakenTensor> taken) {
  nb::object capsule = nb::steal(PyCapsule_New(taken->managed(), kCapsuleName, [](PyObject* held) {
    if (PyCapsule_IsValid(held, kCapsuleName) == 0) return;  // whoever took it lets go of it
    auto* const managed = static_cast<ManagedTensor*>(PyCapsule_GetPointer(held, kCapsuleName));
    managed->deleter(managed);
  }));
  if (!capsule.is_valid()) nb::raise_python_error();
  static_cast<void>(taken.release());  // the capsule has it
  return capsule;
}

void ExpectDevice(nb::handle asked, const Device& device) {
  const auto [type, index] = DlpackOf(device);
  if (asked.is_none() || nb::make_tuple(type, index).equal(asked)) return;
  PyErr_SetString(
      PyExc_BufferError,
      StrCat("the array is on ", device, ", and is given there alone; numpy() gives a copy on the host").c_str());
  nb::raise_python_error();
}

}  // namespace

nb::tuple DeviceArray::shape() const {
  nb::list sizes;
  for (int d = 0; d < tensor_.shape().rank(); ++d) sizes.append(tensor_.shape()[d]);
  return nb::tuple(sizes);
}

std::string DeviceArray::dtype() const { return NumpyName(tensor_.dtype()); }

std::string DeviceArray::Description() const {
  return StrCat("<stepnet.DeviceArray ", dtype(), " ", tensor_.shape(), " on ", device(), ">");
}

nb::object DeviceArray::Numpy() const {
  return ArrayOf(CallWithoutGil([&] {
    const bool is_host = tensor_.device().IsHost();
    const std::shared_ptr<void> thread = is_host ? nullptr : RuntimeOf(tensor_.device()).MakeCurrent();
    const Tensor tensor = is_host ? tensor_.Clone() : tensor_.To({});
    return tensor.dtype() == DType::kBFloat16 ? Widened(tensor) : tensor;
  }));
}

// NumPy, which would make an array of one object, asks everything for this.
nb::object DeviceArray::AsNumpy(nb::handle dtype, nb::handle copy) const {
  if (!tensor_.device().IsHost()) {
    throw Error(ErrorCode::kTypeMismatch, StrCat("the array is on ", device(), "; numpy() gives a copy on the host"));
  }
  if (!copy.is_none() && !TruthOf("copy", copy)) {
    throw Error(ErrorCode::kInvalidArgument, StrCat("NumPy has no ", this->dtype(), ", so it needs a copy"));
  }
  nb::object array = Numpy();
  return dtype.is_none() ? array : array.attr("astype")(dtype);
}

nb::tuple DeviceArray::DlpackDevice() const {
  const auto [type, index] = DlpackOf(tensor_.device());
  return nb::make_tuple(type, index);
}

// DLPack numbers them so.
std::optional<StreamId> DeviceArray::StreamOf(nb::handle stream) const {
  constexpr StreamId kDefault = 1;
  if (stream.is_none()) return kDefault;
  const std::int64_t number = WholeNumberOf("stream", stream);
  if (number == -1) return std::nullopt;
  if (number > 0) return static_cast<StreamId>(number);
  throw Error(ErrorCode::kInvalidArgument,
              StrCat("stream is ", number, "; it must be the handle of a stream, 1 or 2 for the default ones, or -1"));
}

nb::object DeviceArray::Dlpack(nb::handle stream, nb::handle /*max_version*/, nb::handle dl_device,
                               nb::handle copy) const {
  ExpectDevice(dl_device, tensor_.device());
  const bool is_copy = !copy.is_none() && TruthOf("copy", copy);
  if (tensor_.device().IsHost()) {
    return CapsuleOf(std::make_unique<TakenTensor>(is_copy ? tensor_.Clone() : tensor_, std::nullopt));
  }
  const std::optional<StreamId> taken_on = StreamOf(stream);
  DeviceRuntime& runtime = RuntimeOf(tensor_.device());
  const std::shared_ptr<void> thread = runtime.MakeCurrent();
  const Tensor given = is_copy ? tensor_.Clone() : tensor_;
  if (taken_on && (is_copy || taken_on != ready_on_)) runtime.queue().LetWait(*taken_on);
  return CapsuleOf(std::make_unique<TakenTensor>(given, taken_on));
}

void BindDeviceArray(nb::module_& module) {
  nb::class_<DeviceArray>(
      module, "DeviceArray",
      "An array in the memory of a device, which a call has left there, or one of bfloat16, which NumPy does not\n"
      "have, in the host's memory.\n\n"
      "Other libraries take it without a copy: ``torch.from_dlpack(array)``, ``cupy.from_dlpack``,\n"
      "``jax.dlpack.from_dlpack``. Nobody waits: the stream on which it is taken comes behind the\n"
      "work that fills it. That stream must live as long as what was taken on it.")
      .def_prop_ro("shape", &DeviceArray::shape, "The dimensions, a tuple.")
      .def_prop_ro("dtype", &DeviceArray::dtype, "As NumPy calls it: ``\"float32\"``.")
      .def_prop_ro("device", &DeviceArray::device, "``\"cuda:0\"``.")
      .def("numpy", &DeviceArray::Numpy,
           "A copy in the host's memory, for which the caller waits. One of bfloat16 is float32, exactly.")
      .def("__array__", &DeviceArray::AsNumpy, nb::arg("dtype") = nb::none(), nb::arg("copy") = nb::none())
      .def("__dlpack_device__", &DeviceArray::DlpackDevice)
      .def("__dlpack__", &DeviceArray::Dlpack, nb::kw_only(), nb::arg("stream") = nb::none(),
           nb::arg("max_version") = nb::none(), nb::arg("dl_device") = nb::none(), nb::arg("copy") = nb::none())
      .def("__repr__", &DeviceArray::Description);
}

}  // namespace stepnet::python

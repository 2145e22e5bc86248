// Tensor: dtype, shape and a contiguous, row-major view of ref-counted storage.
//
// A tensor is a value: copying one shares its storage. Slices along dimension 0 and reshapes are views, free of cost.
// A view never reallocates: to change a shape is to make another tensor.
// Thread safety: tensors may be copied and read from many threads; elements are synchronised by whoever writes them.
#pragma once

#include <cstdint>
#include <functional>
#include <initializer_list>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "stepnet/core/device.h"
#include "stepnet/core/shape.h"

namespace stepnet {

enum class DType : std::uint8_t {
  kFloat,
  kDouble,
  kFloat16,
  kBFloat16,  // the 16-bit types are storage; operators convert
  kInt8,
  kInt16,
  kInt32,
  kInt64,
  kUInt8,
  kUInt16,
  kBool,
  kString,
};

// IEEE binary16 and bfloat16 as their bits.
struct Float16 {
  std::uint16_t bits;
};
struct BFloat16 {
  std::uint16_t bits;
};
float ToFloat(Float16 value);
float ToFloat(BFloat16 value);
Float16 ToFloat16(float value);    // to nearest even; overflow gives infinity
BFloat16 ToBFloat16(float value);  // to nearest even

template <typename T>
struct DTypeOfT;
template <>
struct DTypeOfT<float> {
  static constexpr DType value = DType::kFloat;
};
template <>
struct DTypeOfT<double> {
  static constexpr DType value = DType::kDouble;
};
template <>
struct DTypeOfT<Float16> {
  static constexpr DType value = DType::kFloat16;
};
template <>
struct DTypeOfT<BFloat16> {
  static constexpr DType value = DType::kBFloat16;
};
template <>
struct DTypeOfT<std::int8_t> {
  static constexpr DType value = DType::kInt8;
};
template <>
struct DTypeOfT<std::int16_t> {
  static constexpr DType value = DType::kInt16;
};
template <>
struct DTypeOfT<std::int32_t> {
  static constexpr DType value = DType::kInt32;
};
template <>
struct DTypeOfT<std::int64_t> {
  static constexpr DType value = DType::kInt64;
};
template <>
struct DTypeOfT<std::uint8_t> {
  static constexpr DType value = DType::kUInt8;
};
template <>
struct DTypeOfT<std::uint16_t> {
  static constexpr DType value = DType::kUInt16;
};
template <>
struct DTypeOfT<bool> {
  static constexpr DType value = DType::kBool;
};
template <>
struct DTypeOfT<std::string> {
  static constexpr DType value = DType::kString;
};
template <typename T>
inline constexpr DType kDTypeOf = DTypeOfT<T>::value;

const char* DTypeName(DType dtype);  // "float", "int32", …
std::optional<DType> DTypeNamed(std::string_view name);
std::int64_t DTypeBytes(DType dtype);  // of one element
std::ostream& operator<<(std::ostream& out, DType dtype);

// The memory of one or more tensors.
class Storage;

// A tensor without ownership, as kernels see it: valid while the kernel runs.
struct TensorView {
  void* data = nullptr;
  const Shape* shape = nullptr;
  DType dtype = DType::kFloat;

  std::int64_t size() const { return shape->size(); }
  std::int64_t size_bytes() const { return shape->size() * DTypeBytes(dtype); }
  std::int64_t dim(int i) const { return (*shape)[i]; }
  int rank() const { return shape->rank(); }
  // Throws kTypeMismatch when the elements are no T.
  template <typename T>
  T* As() const {
    if (dtype != kDTypeOf<T>) ThrowTypeMismatch(kDTypeOf<T>);
    return static_cast<T*>(data);
  }

 private:
  [[noreturn]] void ThrowTypeMismatch(DType wanted) const;
};

class Tensor {
 public:
  Tensor() = default;  // holds nothing; defined() is false
  // Uninitialised elements (empty strings for kString, which only the host has). Throws kOutOfMemory, kTypeMismatch.
  Tensor(DType dtype, const Shape& shape, Device device = {});
  // Elements in row-major order. Throws kShapeMismatch when there are not shape.size() of them.
  template <typename T>
  static Tensor Of(const Shape& shape, const std::vector<T>& values);
  template <typename T>
  static Tensor Of(const Shape& shape, std::initializer_list<T> values) {
    return Of<T>(shape, std::vector<T>(values));
  }
  static Tensor Zeros(DType dtype, const Shape& shape, Device device = {});
  // A tensor over memory that somebody else has lent, of the host or of `device`, which holds shape.size() elements in
  // row-major order, aligned as their dtype is. It is only read: blobs take other memory for what operators give them,
  // and an operator that would write in place throws. `release`, where given, is called once, when no tensor shows the
  // memory any more, by whichever thread lets go of the last; it must not throw. A device may still read its memory
  // then: DeviceRuntime::WhenDone tells when not. Lent memory is not counted. `data` may be null where there are no
  // elements. Throws kTypeMismatch for kString; then `release` is not called.
  static Tensor Wrap(const void* data, DType dtype, const Shape& shape, std::function<void()> release = {},
                     Device device = {});

  bool defined() const { return storage_ != nullptr; }
  DType dtype() const { return dtype_; }
  const Shape& shape() const { return shape_; }
  std::int64_t size() const { return shape_.size(); }
  std::int64_t size_bytes() const { return shape_.size() * DTypeBytes(dtype_); }
  std::int64_t dim(int i) const { return shape_[i]; }

  Device device() const { return device_; }
  // The address of the first element, for who works on this device. What asks for none works on the host. Throws
  // kInvalidArgument where the tensor lies elsewhere.
  void* raw(Device on = {}) const {
    if (on != device_) ThrowElsewhere(on);
    return data_;
  }
  // The first element. A tensor is a view: constness is of the view, not of the elements. Throws kTypeMismatch, and as
  // raw does.
  template <typename T>
  T* data() const {
    return View().As<T>();
  }
  TensorView View(Device on = {}) const { return {raw(on), &shape_, dtype_}; }  // valid while *this lives unchanged

  // Rows [begin, end) along dimension 0, sharing storage. Throws kShapeMismatch when out of range.
  Tensor Slice(std::int64_t begin, std::int64_t end) const;
  // The same elements under another shape of as many elements, sharing storage. Throws kShapeMismatch.
  Tensor Reshaped(const Shape& shape) const;
  Tensor Clone() const;  // a copy with storage of its own, on the same device
  // The same values on a device: itself where they lie there. The host waits for what is copied to it.
  Tensor To(Device device) const;

  // True when no other tensor shares the storage and it may be written, so that overwriting it surprises nobody.
  bool OwnsStorageAlone() const;
  // Whether the memory is somebody else's (Wrap).
  bool IsLent() const;
  // Promises that nobody writes to the elements of the storage any more, whoever holds it. Runs then keep for later
  // runs what they compute of such tensors alone: weights that are laid out for products, weights side by side. Blobs
  // take other memory for what operators give them then; an operator that would write in place throws. It cannot be
  // taken back: other values are another tensor.
  void SetConstant() const;
  // A number that no other storage of the process has; 0 where it is not constant.
  std::uint64_t ConstantId() const;
  bool SharesStorageWith(const Tensor& other) const { return defined() && storage_ == other.storage_; }
  // Number of bytes from the first element to the end of the storage.
  std::int64_t CapacityBytes() const;
  // A tensor over the start of this one's memory with another dtype and shape. Throws kShapeMismatch when it does not
  // fit. kString only as kString.
  Tensor Reinterpreted(DType dtype, const Shape& shape) const { return At(0, dtype, shape); }

  // A tensor over memory that starts `byte_offset` bytes after this one's first element, sharing storage. Throws
  // kShapeMismatch when it does not fit. kString only over kString.
  Tensor At(std::int64_t byte_offset, DType dtype, const Shape& shape) const;

  std::string Description() const;  // "float [32, 64]", and on which device where it is not the host

 private:
  friend class BlobState;
  [[noreturn]] void ThrowElsewhere(Device wanted) const;

  DType dtype_ = DType::kFloat;
  Device device_ = {};
  Shape shape_;
  std::shared_ptr<Storage> storage_;
  void* data_ = nullptr;
};

// Dtype and shape of a tensor that need not exist yet, with its value where that is known already: sizes that one
// operator computes (Shape, the split info of Concat) and another needs to infer its own shapes.
struct TensorInfo {
  DType dtype = DType::kFloat;
  Shape shape = {};
  Tensor value = {};  // undefined when unknown

  std::int64_t size_bytes() const { return shape.size() * DTypeBytes(dtype); }
  std::string Description() const;
  friend bool operator==(const TensorInfo& a, const TensorInfo& b) { return a.dtype == b.dtype && a.shape == b.shape; }
};

// Copies elements (memcpy, or string by string). REQUIRES the same dtype and number of elements.
void CopyElements(const TensorView& from, const TensorView& to);

// The same between tensors that may lie on different devices. Those of a device are copied in the order of its queue;
// the host waits for what is copied to it.
void CopyTensor(const Tensor& from, const Tensor& to);

// Memory of the host that tensors of this process hold.
MemoryUse TensorMemory();
// Allocations beyond `bytes` in all throw kOutOfMemory. The default is the machine's physical memory.
void SetTensorMemoryLimit(std::int64_t bytes);
void ResetPeakTensorMemory();

template <typename T>
Tensor Tensor::Of(const Shape& shape, const std::vector<T>& values) {
  Tensor source(kDTypeOf<T>, Shape({static_cast<std::int64_t>(values.size())}));
  T* data = source.data<T>();
  for (size_t i = 0; i < values.size(); ++i) data[i] = values[i];
  return source.Reshaped(shape);
}

}  // namespace stepnet

#include "stepnet/core/tensor.h"

#include <atomic>
#include <bit>
#include <cmath>
#include <cstring>
#include <new>
#include <ostream>

#include "stepnet/core/cancellation.h"
#include "stepnet/core/error.h"
#include "stepnet/core/memory_fill.h"
#include "stepnet/core/memory_limit_text.h"
#include "stepnet/core/spare_memory.h"
#include "stepnet/core/strings.h"
#include "stepnet/core/system_memory.h"
#include "stepnet/core/target.h"

namespace stepnet {
namespace {

// Cache line and the widest vector: kernels may use aligned loads at the start of a storage.
constexpr std::align_val_t kAlignment{kLineBytes};

struct Accounting {
  std::atomic<std::int64_t> current{0};
  std::atomic<std::int64_t> peak{0};
  std::atomic<std::int64_t> limit{SystemMemory()};
};

Accounting& Memory() {
  static Accounting accounting;
  return accounting;
}

void Charge(std::int64_t bytes, DType dtype, const Shape& shape) {
  Accounting& memory = Memory();
  const std::int64_t limit = memory.limit.load(std::memory_order_relaxed);
  std::int64_t before = memory.current.load(std::memory_order_relaxed);
  do {
    // What is freed may be in use again at once, by others.
    while (bytes > limit - before && bytes <= limit && FreeSpareMemory()) before = memory.current.load();
    if (bytes > limit - before) {
      throw Error(ErrorCode::kOutOfMemory, StrCat("a tensor ", dtype, " ", shape, " needs ", bytes, " bytes; ", before,
                                                  " of the allowed ", limit, " are in use ", kRaiseMemoryLimit));
    }
  } while (!memory.current.compare_exchange_weak(before, before + bytes, std::memory_order_relaxed));
  const std::int64_t now = before + bytes;
  std::int64_t peak = memory.peak.load(std::memory_order_relaxed);
  while (now > peak && !memory.peak.compare_exchange_weak(peak, now, std::memory_order_relaxed)) {
  }
}

}  // namespace

class Storage {
 public:
  Storage(DType dtype, const Shape& shape, Device device) : dtype_(dtype), count_(shape.size()) {
    if (__builtin_mul_overflow(count_, DTypeBytes(dtype), &bytes_)) {
      throw Error(ErrorCode::kOutOfMemory, StrCat("a tensor ", dtype, " ", shape, " needs more than 2^63 bytes"));
    }
    if (!device.IsHost()) {
      if (dtype == DType::kString) {
        throw Error(ErrorCode::kTypeMismatch, StrCat("a tensor string ", shape, " cannot lie on ", device));
      }
      runtime_ = &RuntimeOf(device);
      data_ = runtime_->Allocate(bytes_);
      return;
    }
    Charge(bytes_, dtype, shape);
    // Never null, so that views of no elements have an address like any other.
    data_ = ::operator new(static_cast<size_t>(bytes_ > 0 ? bytes_ : 1), kAlignment, std::nothrow);
    if (data_ == nullptr) {
      Memory().current -= bytes_;
      throw Error(ErrorCode::kOutOfMemory,
                  StrCat("the system refused ", bytes_, " bytes for a tensor ", dtype, " ", shape));
    }
    if (bytes_ >= kCpuTarget.min_large_page_bytes) AskForLargePages(data_, bytes_);
    if (dtype_ == DType::kString) {
      for (std::int64_t i = 0; i < count_; ++i) new (static_cast<std::string*>(data_) + i) std::string();
    } else {
      FillUnwritten(data_, bytes_);
    }
  }
  // Memory that somebody else has lent.
  Storage(const void* lent, DType dtype, const Shape& shape, std::function<void()> release)
      : dtype_(dtype),
        count_(shape.size()),
        bytes_(shape.size() * DTypeBytes(dtype)),
        data_(const_cast<void*>(lent)),
        is_lent_(true),
        release_(std::move(release)) {}
  ~Storage() {
    if (is_lent_) {
      if (release_) release_();
      return;
    }
    if (runtime_ != nullptr) {
      runtime_->Free(data_, bytes_);
      return;
    }
    if (dtype_ == DType::kString) {
      for (std::int64_t i = 0; i < count_; ++i) std::destroy_at(static_cast<std::string*>(data_) + i);
    }
    ::operator delete(data_, kAlignment);
    Memory().current -= bytes_;
  }
  Storage(const Storage&) = delete;
  Storage& operator=(const Storage&) = delete;

  void* data() const { return data_; }
  std::int64_t bytes() const { return bytes_; }
  bool is_lent() const { return is_lent_; }
  std::atomic<std::uint64_t>& constant_id() { return constant_id_; }

 private:
  DType dtype_;
  DeviceRuntime* runtime_ = nullptr;  // of the device that the memory is of; null: the host's
  std::int64_t count_;
  std::int64_t bytes_ = 0;
  void* data_ = nullptr;
  bool is_lent_ = false;
  std::function<void()> release_;  // of lent memory
  std::atomic<std::uint64_t> constant_id_ = 0;
};

const char* DTypeName(DType dtype) {
  switch (dtype) {
    case DType::kFloat: return "float";
    case DType::kDouble: return "double";
    case DType::kFloat16: return "float16";
    case DType::kBFloat16: return "bfloat16";
    case DType::kInt8: return "int8";
    case DType::kInt16: return "int16";
    case DType::kInt32: return "int32";
    case DType::kInt64: return "int64";
    case DType::kUInt8: return "uint8";
    case DType::kUInt16: return "uint16";
    case DType::kBool: return "bool";
    case DType::kString: return "string";
  }
  return "unknown";
}

std::optional<DType> DTypeNamed(std::string_view name) {
  for (int number = 0; number <= static_cast<int>(DType::kString); ++number) {
    if (name == DTypeName(static_cast<DType>(number))) return static_cast<DType>(number);
  }
  return {};
}

std::int64_t DTypeBytes(DType dtype) {
  switch (dtype) {
    case DType::kFloat:
    case DType::kInt32: return 4;
    case DType::kDouble:
    case DType::kInt64: return 8;
    case DType::kFloat16:
    case DType::kBFloat16:
    case DType::kInt16:
    case DType::kUInt16: return 2;
    case DType::kInt8:
    case DType::kUInt8:
    case DType::kBool: return 1;
    case DType::kString: return sizeof(std::string);
  }
  return 0;
}

std::ostream& operator<<(std::ostream& out, DType dtype) { return out << DTypeName(dtype); }

float ToFloat(Float16 value) {
  const std::uint32_t sign = (value.bits & 0x8000u) << 16;
  const std::uint32_t exponent = (value.bits >> 10) & 0x1fu;
  const std::uint32_t fraction = value.bits & 0x3ffu;
  if (exponent == 0) {  // zero and subnormal: fraction * 2^-24
    const float magnitude = std::ldexp(static_cast<float>(fraction), -24);
    return sign != 0 ? -magnitude : magnitude;
  }
  const std::uint32_t wide = exponent == 0x1f ? 0xffu : exponent + 112;  // 112 = 127 - 15, the biases
  return std::bit_cast<float>(sign | (wide << 23) | (fraction << 13));
}

float ToFloat(BFloat16 value) { return std::bit_cast<float>(static_cast<std::uint32_t>(value.bits) << 16); }

Float16 ToFloat16(float value) {
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(value);
  const auto sign = static_cast<std::uint16_t>((bits >> 16) & 0x8000u);
  const float magnitude = std::fabs(value);
  if (std::isnan(value)) return {static_cast<std::uint16_t>(sign | 0x7e00u)};
  if (magnitude >= 65520.0f) return {static_cast<std::uint16_t>(sign | 0x7c00u)};
  if (magnitude < 6.103515625e-05f) {  // 2^-14: subnormal, in units of 2^-24
    const auto units = static_cast<std::uint16_t>(std::nearbyint(std::ldexp(magnitude, 24)));
    return {static_cast<std::uint16_t>(sign | units)};
  }
  std::uint32_t rounded = (bits & 0x7fffffffu) + 0xfffu + ((bits >> 13) & 1u);
  return {static_cast<std::uint16_t>(sign | ((rounded >> 13) - (112u << 10)))};
}

BFloat16 ToBFloat16(float value) {
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(value);
  if (std::isnan(value)) return {static_cast<std::uint16_t>((bits >> 16) | 0x40u)};
  return {static_cast<std::uint16_t>((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16)};
}

void TensorView::ThrowTypeMismatch(DType wanted) const {
  throw Error(ErrorCode::kTypeMismatch, StrCat("a tensor is ", dtype, " ", *shape, " where ", wanted, " is needed"));
}

Tensor::Tensor(DType dtype, const Shape& shape, Device device)
    : dtype_(dtype),
      device_(device),
      shape_(shape),
      storage_(std::make_shared<Storage>(dtype, shape, device)),
      data_(storage_->data()) {}

Tensor Tensor::Zeros(DType dtype, const Shape& shape, Device device) {
  Tensor tensor(dtype, shape, device);
  if (!device.IsHost()) {
    RuntimeOf(device).queue().Fill(tensor.data_, 0, tensor.size_bytes());
  } else if (dtype != DType::kString) {
    std::memset(tensor.data_, 0, static_cast<size_t>(tensor.size_bytes()));
  }
  return tensor;
}

Tensor Tensor::Wrap(const void* data, DType dtype, const Shape& shape, std::function<void()> release, Device device) {
  if (dtype == DType::kString) {
    throw Error(ErrorCode::kTypeMismatch, StrCat("strings ", shape, " of somebody else cannot be a tensor"));
  }
  // Views of no elements have an address like any other.
  alignas(64) static constexpr std::byte kNothing[64] = {};
  const void* const start = data == nullptr && shape.size() == 0 ? kNothing : data;
  Tensor tensor;
  tensor.dtype_ = dtype;
  tensor.device_ = device;
  tensor.shape_ = shape;
  tensor.storage_ = std::make_shared<Storage>(start, dtype, shape, std::move(release));
  tensor.data_ = tensor.storage_->data();
  return tensor;
}

void Tensor::ThrowElsewhere(Device wanted) const {
  throw Error(ErrorCode::kInvalidArgument,
              StrCat("a tensor ", Description(), " is needed on ", wanted, "; Tensor::To gives a copy there"));
}

Tensor Tensor::Slice(std::int64_t begin, std::int64_t end) const {
  if (shape_.rank() == 0 || begin < 0 || end < begin || end > shape_[0]) {
    throw Error(ErrorCode::kShapeMismatch, StrCat("rows [", begin, ", ", end, ") of a tensor ", Description()));
  }
  Tensor slice = *this;
  slice.shape_ = shape_.With(0, end - begin);
  slice.data_ = static_cast<std::byte*>(data_) + begin * shape_.SizeFrom(1) * DTypeBytes(dtype_);
  return slice;
}

Tensor Tensor::Reshaped(const Shape& shape) const {
  if (shape.size() != size()) {
    throw Error(ErrorCode::kShapeMismatch, StrCat("a tensor ", Description(), " has ", size(),
                                                  " elements and cannot be seen as ", shape, " with ", shape.size()));
  }
  Tensor view = *this;
  view.shape_ = shape;
  return view;
}

Tensor Tensor::Clone() const {
  if (!defined()) return {};
  Tensor copy(dtype_, shape_, device_);
  CopyTensor(*this, copy);
  return copy;
}

Tensor Tensor::To(Device device) const {
  if (!defined() || device == device_) return *this;
  Tensor copy(dtype_, shape_, device);
  CopyTensor(*this, copy);
  return copy;
}

bool Tensor::OwnsStorageAlone() const {
  return storage_ != nullptr && storage_.use_count() == 1 && ConstantId() == 0 && !IsLent();
}

bool Tensor::IsLent() const { return storage_ != nullptr && storage_->is_lent(); }

void Tensor::SetConstant() const {
  static std::atomic<std::uint64_t> last_id = 0;
  if (storage_ == nullptr || ConstantId() != 0) return;
  std::uint64_t none = 0;
  storage_->constant_id().compare_exchange_strong(none, ++last_id);
}

std::uint64_t Tensor::ConstantId() const { return storage_ == nullptr ? 0 : storage_->constant_id().load(); }

std::int64_t Tensor::CapacityBytes() const {
  if (!defined()) return 0;
  return storage_->bytes() - (static_cast<std::byte*>(data_) - static_cast<std::byte*>(storage_->data()));
}

Tensor Tensor::At(std::int64_t byte_offset, DType dtype, const Shape& shape) const {
  const std::int64_t room = byte_offset < 0 ? -1 : CapacityBytes() - byte_offset;
  const bool strings_differ = (dtype == DType::kString) != (dtype_ == DType::kString);
  const bool within_a_string = dtype == DType::kString && byte_offset % DTypeBytes(dtype) != 0;
  if (strings_differ || within_a_string || room < 0 || shape.size() > room / DTypeBytes(dtype)) {
    throw Error(ErrorCode::kShapeMismatch,
                StrCat("a tensor ", dtype, " ", shape, " does not fit, ", byte_offset, " bytes in, into the ",
                       CapacityBytes(), " bytes of one that is ", Description()));
  }
  Tensor view = *this;
  view.dtype_ = dtype;
  view.shape_ = shape;
  view.data_ = static_cast<std::byte*>(data_) + byte_offset;
  return view;
}

std::string Tensor::Description() const {
  if (!defined()) return "nothing";
  return device_.IsHost() ? StrCat(dtype_, " ", shape_) : StrCat(dtype_, " ", shape_, " on ", device_);
}
std::string TensorInfo::Description() const { return StrCat(dtype, " ", shape); }

void CopyElements(const TensorView& from, const TensorView& to) {
  if (from.dtype == DType::kString) {
    const auto* source = static_cast<const std::string*>(from.data);
    InBlocks(from.size(), kWorkOfString, [&](std::int64_t begin, std::int64_t end) {
      std::copy(source + begin, source + end, static_cast<std::string*>(to.data) + begin);
    });
  } else if (from.data != to.data) {
    const auto* source = static_cast<const std::byte*>(from.data);
    auto* target = static_cast<std::byte*>(to.data);
    InBlocks(from.size_bytes(), 1, [&](std::int64_t begin, std::int64_t end) {
      std::memcpy(target + begin, source + begin, static_cast<size_t>(end - begin));
    });
  }
}

void CopyTensor(const Tensor& from, const Tensor& to) {
  const Device source = from.device(), target = to.device();
  if (source == target && from.raw(source) == to.raw(target)) return;
  if (source.IsHost() && target.IsHost()) return CopyElements(from.View(), to.View());
  if (source == target) {
    RuntimeOf(target).queue().Copy(from.raw(source), to.raw(target), to.size_bytes());
  } else if (source.IsHost()) {
    RuntimeOf(target).queue().CopyFromHost(from.raw(), to.raw(target), to.size_bytes());
  } else if (target.IsHost()) {
    RuntimeOf(source).queue().CopyToHost(from.raw(source), to.raw(), to.size_bytes());
  } else {
    CopyTensor(from.To({}), to);
  }
}

MemoryUse TensorMemory() { return {Memory().current, Memory().peak, Memory().limit}; }
void SetTensorMemoryLimit(std::int64_t bytes) { Memory().limit = bytes; }
void ResetPeakTensorMemory() { Memory().peak = Memory().current.load(); }

}  // namespace stepnet

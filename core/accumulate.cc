#include "stepnet/core/accumulate.h"

#include <algorithm>
#include <cstring>
#include <string>

namespace stepnet {
namespace {

template <typename T>
void AddElements(const T* from, T* to, std::int64_t n) {
  for (std::int64_t i = 0; i < n; ++i) to[i] += from[i];
}

// Views it as [n, size]. Throws kShapeMismatch where the elements are not n times as many.
Tensor ItemsOf(const Tensor& tensor, std::int64_t size) {
  return tensor.Reshaped(Shape({size == 0 ? 0 : tensor.size() / size, size}));
}

}  // namespace

void Accumulate(const TensorView& from, const TensorView& to) {
  if (from.dtype == DType::kDouble) {
    AddElements(from.As<double>(), to.As<double>(), from.size());
  } else {
    AddElements(from.As<float>(), to.As<float>(), from.size());
  }
}

void AddTensor(const Tensor& from, const Tensor& to) {
  const Device device = to.device();
  if (device.IsHost()) return Accumulate(from.View(), to.View());
  RuntimeOf(device).queue().Add(from.raw(device), to.raw(device), to.dtype(), to.size());
}

void CopyToEach(const Tensor& from, const Tensor& to) {
  const Tensor items = ItemsOf(to, from.size()), item = ItemsOf(from, from.size());
  const Device device = to.device();
  if (!device.IsHost() && from.device() == device) {
    return RuntimeOf(device).queue().CopyToEach(from.raw(device), to.raw(device), from.size_bytes(), items.dim(0));
  }
  for (std::int64_t k = 0; k < items.dim(0); ++k) CopyTensor(item, items.Slice(k, k + 1));
}

void AddEach(const Tensor& from, const Tensor& to) {
  const Tensor items = ItemsOf(from, to.size()), item = ItemsOf(to, to.size());
  const Device device = to.device();
  if (!device.IsHost()) {
    return RuntimeOf(device).queue().AddEach(from.raw(device), to.raw(device), to.dtype(), to.size(), items.dim(0));
  }
  for (std::int64_t k = 0; k < items.dim(0); ++k) AddTensor(items.Slice(k, k + 1), item);
}

void SetZero(const Tensor& tensor) {
  if (const Device device = tensor.device(); !device.IsHost()) {
    RuntimeOf(device).queue().Fill(tensor.raw(device), 0, tensor.size_bytes());
  } else if (tensor.dtype() == DType::kString) {
    std::fill_n(tensor.data<std::string>(), tensor.size(), std::string());
  } else {
    std::memset(tensor.raw(), 0, static_cast<size_t>(tensor.size_bytes()));
  }
}

}  // namespace stepnet

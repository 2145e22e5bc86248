#include "stepnet/core/tensor_home.h"

#include <algorithm>
#include <iterator>

namespace stepnet {

Tensor TensorHome::CopyOf(const Tensor& tensor) {
  const std::lock_guard lock(mutex_);
  const auto fits = [&](const Tensor& last) {
    return last.dtype() == tensor.dtype() && last.shape() == tensor.shape();
  };
  auto last = std::ranges::find_if(last_, fits);
  if (last != last_.end() && last->OwnsStorageAlone()) {
    CopyTensor(tensor, *last);
  } else {
    if (last == last_.end() && last_.size() == kMaxShapes) last = std::prev(last_.end());
    if (last != last_.end()) last_.erase(last);  // memory that it gives back may serve
    Tensor copy(tensor.dtype(), tensor.shape(), device_);
    CopyTensor(tensor, copy);
    last = last_.insert(last_.end(), std::move(copy));
  }
  std::rotate(last_.begin(), last, std::next(last));
  return last_.front();
}

}  // namespace stepnet

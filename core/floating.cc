#include "stepnet/core/floating.h"

#include <algorithm>

#include "stepnet/core/cancellation.h"

namespace stepnet {
namespace {

template <typename Stored>
void Widen(const Tensor& stored, const Tensor& wide) {
  const auto* const from = stored.data<Stored>();
  InBlocks(stored.size(), 1, [&](std::int64_t begin, std::int64_t end) {
    std::transform(from + begin, from + end, wide.data<float>() + begin, [](Stored value) { return ToFloat(value); });
  });
}

}  // namespace

Tensor Widened(const Tensor& tensor) {
  if (!IsStoredFloat(tensor.dtype())) return tensor;
  const Tensor stored = tensor.To({});
  Tensor wide(DType::kFloat, stored.shape());
  stored.dtype() == DType::kFloat16 ? Widen<Float16>(stored, wide) : Widen<BFloat16>(stored, wide);
  return wide;
}

}  // namespace stepnet

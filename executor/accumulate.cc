#include "stepnet/executor/accumulate.h"

namespace stepnet {
namespace {

template <typename T>
void AddElements(const T* from, T* to, std::int64_t n) {
  for (std::int64_t i = 0; i < n; ++i) to[i] += from[i];
}

}  // namespace

void Accumulate(const TensorView& from, const TensorView& to) {
  if (from.dtype == DType::kDouble) {
    AddElements(from.As<double>(), to.As<double>(), from.size());
  } else {
    AddElements(from.As<float>(), to.As<float>(), from.size());
  }
}

}  // namespace stepnet

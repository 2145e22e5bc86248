#pragma once

#include <random>

#include "stepnet/core/tensor.h"

namespace stepnet {

// float, uniform in [-0.1, 0.1).
inline Tensor Random(const Shape& shape, unsigned seed) {
  std::mt19937 rng(seed);
  std::uniform_real_distribution<float> uniform(-0.1f, 0.1f);
  Tensor tensor(DType::kFloat, shape);
  float* data = tensor.data<float>();
  for (std::int64_t i = 0; i < tensor.size(); ++i) data[i] = uniform(rng);
  return tensor;
}

}  // namespace stepnet

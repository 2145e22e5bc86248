// ProductKernel: a product of core/expansion.h by cuBLASLt.
#pragma once

#include <cuda_runtime_api.h>

#include <memory>

#include "stepnet/core/expansion.h"

namespace stepnet {

struct ProductPointers {
  const void* left = nullptr;
  const void* right = nullptr;
  const void* bias = nullptr;  // null: none
  void* out = nullptr;
  bool adds = false;  // to what `out` holds
};

// The algorithm is chosen when it first runs on pointers of such alignment, and stays. Any number of threads may use
// it.
class ProductKernel {
 public:
  // For the GPU `device`. REQUIRES: the product has a right factor and no problem (ProductProblem); `dtype` is float or
  // double.
  ProductKernel(const Product& product, DType dtype, int device);
  ~ProductKernel();

  // Whether a run adds a bias that it is given; otherwise the caller does.
  bool takes_bias() const;
  static constexpr std::int64_t kScratchBytes = 32 << 20;
  // `scratch` is of so many bytes.
  void Run(const ProductPointers& pointers, void* scratch, cudaStream_t stream) const;

 private:
  class Plan;

  std::unique_ptr<Plan> plan_;
};

}  // namespace stepnet

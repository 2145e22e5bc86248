// ProductKernel: a product of core/expansion.h, by a kernel of our own where it has few rows or is small, else by
// cuBLASLt.
#pragma once

#include <cuda_runtime_api.h>

#include <memory>

#include "stepnet/core/expansion.h"
#include "stepnet/core/run_options.h"
#include "stepnet/gpu/cuda/cuda_runtime.h"

namespace stepnet {

struct ProductPointers {
  const void* left = nullptr;
  const void* right = nullptr;
  const void* bias = nullptr;  // null: none
  void* out = nullptr;
  bool adds = false;  // to what `out` holds
};

// cuBLASLt's algorithm is chosen when it first runs on pointers of such alignment, and stays
// (gpu/cuda/product_choices.h). Any number of threads may use it.
class ProductKernel {
 public:
  // REQUIRES: the product has a right factor and no problem (ProductProblem); `dtype` is float or double, which is
  // always computed exactly.
  ProductKernel(const Product& product, DType dtype, Math math, const CudaRuntime& runtime);
  ~ProductKernel();

  // Whether a run adds a bias that it is given; otherwise the caller does.
  bool takes_bias() const;
  static constexpr std::int64_t kScratchBytes = 32 << 20;
  // `scratch` is of so many bytes.
  void Run(const ProductPointers& pointers, void* scratch, const CudaQueue& queue) const;

 private:
  class Plan;

  std::unique_ptr<Plan> plan_;
};

}  // namespace stepnet

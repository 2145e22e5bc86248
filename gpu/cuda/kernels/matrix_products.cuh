// MatrixProducts: products that a kernel computes of memory of its own.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "stepnet/core/expansion.h"
#include "stepnet/core/run_options.h"
#include "stepnet/gpu/cuda/kernels/elements.cuh"
#ifndef STEPNET_KERNELS_ON_HOST
#include "stepnet/gpu/cuda/product_kernel.h"
#endif

namespace stepnet {

// Keeps what was chosen for the last products. Any number of threads may use it.
class MatrixProducts {
 public:
  explicit MatrixProducts(Math math) : math_(math) {}

  // Memory that the products of a run use one after the other.
  static void* ScratchOf([[maybe_unused]] const OpRun& run) {
#ifdef STEPNET_KERNELS_ON_HOST
    return nullptr;
#else
    return run.ScratchOf<char>(ProductKernel::kScratchBytes);
#endif
  }

  // out = product of left and right, or is added to. Both factors are [batch, rows, columns], as the product says.
  template <typename T>
  void Run(const OpRun& run, const Product& product, const T* left, const T* right, T* out, bool adds,
           [[maybe_unused]] void* scratch) {
    if (product.left.columns() == 0 || product.NumElements() == 0) {
      if (!adds) FillBytes(run, out, 0, product.NumElements() * static_cast<std::int64_t>(sizeof(T)));
      return;
    }
#ifdef STEPNET_KERNELS_ON_HOST
    const auto at = [](const ProductFactor& factor, std::int64_t batch, std::int64_t row, std::int64_t column) {
      if (factor.transposed) std::swap(row, column);
      return (batch * factor.shape[-2] + row) * factor.shape[-1] + column;
    };
    const std::int64_t rows = product.left.rows(), columns = product.right->columns();
    for (std::int64_t i = 0; i < product.NumElements(); ++i) {
      const std::int64_t batch = i / (rows * columns);
      T sum = adds ? out[i] : T{0};
      for (std::int64_t k = 0; k < product.left.columns(); ++k) {
        sum += left[at(product.left, batch, i / columns % rows, k)] * right[at(*product.right, batch, k, i % columns)];
      }
      out[i] = sum;
    }
#else
    const CudaRuntime& runtime = static_cast<CudaQueue&>(run.queue()).runtime();
    const ProductPointers pointers{.left = left, .right = right, .out = out, .adds = adds};
    KernelOf(product, kDTypeOf<T>, runtime)->Run(pointers, scratch, static_cast<const CudaQueue&>(run.queue()));
#endif
  }

 private:
  [[maybe_unused]] const Math math_;  // on the host there is one
#ifndef STEPNET_KERNELS_ON_HOST
  struct Made {
    Product product;
    DType dtype;
    std::shared_ptr<const ProductKernel> kernel;
  };
  std::shared_ptr<const ProductKernel> KernelOf(const Product& product, DType dtype, const CudaRuntime& runtime) {
    constexpr size_t kMaxMade = 32;
    const std::lock_guard lock(mutex_);
    for (const Made& made : made_) {
      if (made.dtype == dtype && made.product == product) return made.kernel;
    }
    if (made_.size() == kMaxMade) made_.erase(made_.begin());
    return made_.emplace_back(product, dtype, std::make_shared<const ProductKernel>(product, dtype, math_, runtime))
        .kernel;
  }

  std::mutex mutex_;
  std::vector<Made> made_;  // the one that was made first comes first
#endif
};

}  // namespace stepnet

// FewRowsProduct: products of few rows in float, as the steps of a loop are made of, by kernels of our own: one that is
// exact, and one in TF32. cuBLASLt, which is made for large ones, takes longer for them.
//
// A block of eight warps computes a tile of the result. Each warp takes other elements of the depth, the dimension that
// is summed over, in chunks, and reads the next one while it multiplies; its lanes have elements of all rows of the
// tile. In the end the sums of the warps are added in their order and, where several blocks share a tile, those of the
// blocks, which are a cluster and read each other's. So equal sizes give equal bits.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <optional>
#include <string>

#include "stepnet/core/run_options.h"
#include "stepnet/gpu/cuda/cuda_runtime.h"
#include "stepnet/gpu/cuda_target.h"

namespace stepnet {

namespace few_rows {
struct TileKernel;
}

// out [rows, columns] = left [rows, depth] times right, which lies as [depth, columns] or, transposed, as
// [columns, depth].
struct ProductSizes {
  std::int64_t rows = 0;
  std::int64_t columns = 0;
  std::int64_t depth = 0;
  bool right_transposed = false;
};

// What the choice depends on.
struct ProductDevice {
  int num_processors = 0;
  std::int64_t max_shared_bytes = 0;  // of a block
  bool has_clusters = false;
};

class FewRowsProduct {
 public:
  // How the result is cut, so that it is likely to be fastest; nothing where cuBLASLt is, or where rows do not begin on
  // 16 bytes.
  static std::optional<FewRowsProduct> Make(const ProductSizes& sizes, Math math, const ProductDevice& device);
  // The thread's current GPU.
  static ProductDevice DeviceOf(int device);

  // To be called on each GPU before Launch.
  void Prepare() const;
  // out = left * right + bias (null: none), or is added to. All begin on 16 bytes.
  void Launch(const float* left, const float* right, const float* bias, float* out, bool adds,
              const CudaQueue& queue) const;

  // "tiles of 8 x 32, 4 blocks each".
  std::string Text() const;

 private:
  FewRowsProduct(const ProductSizes& sizes, const few_rows::TileKernel& kernel, int blocks)
      : sizes_(sizes), kernel_(&kernel), blocks_(blocks) {}
  ProductSizes sizes_;
  const few_rows::TileKernel* kernel_;
  int blocks_;  // that share a tile
};

}  // namespace stepnet

// FewRowsProduct: products of few rows in float, as the steps of a loop are made of, by a kernel of our own. cuBLASLt,
// which is made for large ones, takes longer for them.
//
// A block of eight warps computes a tile of the result. Each warp takes other elements of the depth, the dimension that
// is summed over, in chunks that it copies to shared memory while it computes the ones before; its lanes have a column
// or two each, for all rows of the tile. In the end the sums of the warps are added in their order and, where several
// blocks share a tile, those of the blocks, which are a cluster and read each other's. So equal sizes give equal bits.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <optional>
#include <string>

#include "stepnet/core/run_options.h"
#include "stepnet/gpu/cuda/cuda_runtime.h"
#include "stepnet/gpu/cuda_target.h"

namespace stepnet {

// out [rows, columns] = left [rows, depth] times right, which lies as [depth, columns] or, transposed, as
// [columns, depth].
struct ProductSizes {
  std::int64_t rows = 0;
  std::int64_t columns = 0;
  std::int64_t depth = 0;
  bool right_transposed = false;
};

// Whether a product of float is computed exactly, as FewRowsProduct does.
inline bool IsExact(const ProductSizes& sizes, Math math) {
  return math == Math::kFloat32 || sizes.rows * sizes.columns * sizes.depth <= kCudaProducts.max_exact_multiplications;
}

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
  static std::optional<FewRowsProduct> Make(const ProductSizes& sizes, const ProductDevice& device);
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
  struct Tile {
    int rows = 0;
    int columns_of_lane = 0;
    int blocks = 1;  // that share a tile
  };
  FewRowsProduct(const ProductSizes& sizes, const Tile& tile) : sizes_(sizes), tile_(tile) {}
  ProductSizes sizes_;
  Tile tile_;
};

}  // namespace stepnet

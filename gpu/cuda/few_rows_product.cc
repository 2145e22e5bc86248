#include "stepnet/gpu/cuda/few_rows_product.h"

#include "stepnet/core/strings.h"
#include "stepnet/gpu/cuda/cuda_call.h"
#include "stepnet/gpu/cuda/few_rows_kernels.h"

namespace stepnet {
namespace {

using few_rows::TileKernel;

constexpr std::int64_t kMaxTilesOfColumns = 65'535;  // blocks along the second dimension of a launch

std::int64_t Parts(std::int64_t size, std::int64_t of_part) { return (size + of_part - 1) / of_part; }

std::int64_t TilesOf(const ProductSizes& sizes, const TileKernel& kernel) {
  return Parts(sizes.rows, kernel.rows) * Parts(sizes.columns, kernel.columns);
}

double EstimateMicroseconds(const ProductSizes& sizes, const FewRowsSizes& times, const TileKernel& kernel, int blocks,
                            const ProductDevice& device) {
  const auto waves = static_cast<double>(Parts(TilesOf(sizes, kernel) * blocks, device.num_processors));
  const auto chunks =
      static_cast<double>(Parts(Parts(sizes.depth, few_rows::kChunk), std::int64_t{blocks} * few_rows::kWarps));
  const double of_chunk = times.chunk_time +
                          times.element_of_lane_time * kernel.rows * kernel.columns / few_rows::kLanes +
                          times.vector_of_lane_time * (kernel.rows + kernel.columns);
  const double of_cluster = blocks > 1 ? times.cluster_time + times.block_of_cluster_time * blocks : 0.0;
  return chunks * (times.chunk_wait + waves * of_chunk) + waves * times.wave_time + of_cluster;
}

bool IsForCublas(const ProductSizes& sizes, const FewRowsSizes& limits) {
  const std::int64_t min_rows = sizes.right_transposed ? limits.min_rows_of_transposed : limits.min_rows;
  const double max_products =
      sizes.right_transposed ? limits.max_multiplications_of_transposed : limits.max_multiplications;
  const double products =
      static_cast<double>(sizes.rows) * static_cast<double>(sizes.columns) * static_cast<double>(sizes.depth);
  const std::int64_t max_depth = sizes.right_transposed ? limits.max_depth_of_transposed : limits.max_depth;
  return sizes.rows < min_rows || sizes.rows > limits.max_rows || sizes.depth > max_depth || products > max_products;
}

// Clusters wait until all their blocks have a processor, of the same group of 16 or 18, where kernels before may hold
// some; blocks without a chunk only cost.
bool Fits(const ProductSizes& sizes, const TileKernel& kernel, int blocks, const ProductDevice& device) {
  const bool leaves_room = kernel.rows * kernel.columns <= kCudaProducts.max_tile_beside_others || blocks < 4;
  const std::int64_t processors = leaves_room ? device.num_processors : device.num_processors * 3 / 4;
  return TilesOf(sizes, kernel) * blocks <= processors &&
         std::int64_t{blocks - 1} * few_rows::kWarps < Parts(sizes.depth, few_rows::kChunk);
}

}  // namespace

std::optional<FewRowsProduct> FewRowsProduct::Make(const ProductSizes& sizes, Math math, const ProductDevice& device) {
  const FewRowsSizes& limits = math == Math::kTf32 ? kCudaProducts.tf32_few_rows : kCudaProducts.exact_few_rows;
  if (IsForCublas(sizes, limits) || sizes.depth == 0) return {};
  if (sizes.columns % few_rows::kVector != 0 || sizes.depth % few_rows::kVector != 0) return {};
  std::optional<FewRowsProduct> best;
  double least = 0;
  for (const TileKernel& kernel : math == Math::kTf32 ? few_rows::Tf32Kernels() : few_rows::ExactKernels()) {
    if (kernel.right_transposed != sizes.right_transposed || kernel.bytes > device.max_shared_bytes) continue;
    if (Parts(sizes.columns, kernel.columns) > kMaxTilesOfColumns) continue;
    for (int blocks = 1; blocks <= (device.has_clusters ? few_rows::kMaxBlocksOfTile : 1); blocks *= 2) {
      if (blocks > 1 && !Fits(sizes, kernel, blocks, device)) break;
      const double microseconds = EstimateMicroseconds(sizes, limits, kernel, blocks, device);
      if (best && microseconds >= least) continue;
      best = FewRowsProduct(sizes, kernel, blocks);
      least = microseconds;
    }
  }
  return best;
}

ProductDevice FewRowsProduct::DeviceOf(int device) {
  ProductDevice found;
  int shared_bytes = 0;
  cudaFuncAttributes code = {};
  static_cast<void>(cudaDeviceGetAttribute(&found.num_processors, cudaDevAttrMultiProcessorCount, device));
  static_cast<void>(cudaDeviceGetAttribute(&shared_bytes, cudaDevAttrMaxSharedMemoryPerBlockOptin, device));
  // A newer GPU may run code that was made for one without clusters.
  const auto* const kernel = reinterpret_cast<const void*>(few_rows::ExactKernels()[0].multiply);
  if (cudaFuncGetAttributes(&code, kernel) == cudaSuccess) found.has_clusters = code.ptxVersion >= 90;
  found.max_shared_bytes = shared_bytes;
  return found;
}

void FewRowsProduct::Prepare() const {
  CheckCuda(cudaFuncSetAttribute(reinterpret_cast<const void*>(kernel_->multiply),
                                 cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(kernel_->bytes)),
            "the memory of a product of few rows");
}

void FewRowsProduct::Launch(const float* left, const float* right, const float* bias, float* out, bool adds,
                            const CudaQueue& queue) const {
  few_rows::Factors factors{.left = left,
                            .right = right,
                            .bias = bias,
                            .out = out,
                            .rows = static_cast<int>(sizes_.rows),
                            .columns = static_cast<int>(sizes_.columns),
                            .depth = static_cast<int>(sizes_.depth),
                            .adds = adds};
  void* parameters[] = {&factors};
  const dim3 blocks(static_cast<unsigned>(blocks_), static_cast<unsigned>(Parts(sizes_.columns, kernel_->columns)),
                    static_cast<unsigned>(Parts(sizes_.rows, kernel_->rows)));
  LaunchEarly(reinterpret_cast<const void*>(kernel_->multiply),
              {.blocks = blocks, .threads = few_rows::kThreads, .shared_bytes = kernel_->bytes, .cluster = blocks_},
              parameters, queue, "a product of few rows");
}

std::string FewRowsProduct::Text() const {
  return StrCat("tiles of ", kernel_->rows, " x ", kernel_->columns, ", ", blocks_,
                blocks_ == 1 ? " block each" : " blocks each");
}

}  // namespace stepnet

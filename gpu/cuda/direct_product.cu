#include <algorithm>
#include <iterator>

#include "stepnet/core/strings.h"
#include "stepnet/gpu/cuda/direct_product.h"
#include "stepnet/gpu/cuda_target.h"
#include "stepnet/gpu/device_code.cuh"

namespace stepnet {
namespace {

constexpr int kThreads = 256;
constexpr int kWarp = 32;
constexpr int kWarps = kThreads / kWarp;
constexpr int kVector = 4;  // floats of one load
constexpr int kThreadsOfElement = 8;

constexpr int kThreadsOfBlock = 1024;  // where a block has columns
constexpr int kWarpsOfBlock = kThreadsOfBlock / kWarp;

constexpr const DirectProductSizes& kSizes = kCudaProducts.direct;

template <int kLanes, typename T>
__device__ T SumOfLanes(T sum) {
#pragma unroll
  for (int offset = kLanes / 2; offset > 0; offset /= 2) sum += __shfl_xor_sync(~0U, sum, offset);
  return sum;
}

__device__ float MulAdd(const float4& a, const float4& b, float sum) {
  return fmaf(a.w, b.w, fmaf(a.z, b.z, fmaf(a.y, b.y, fmaf(a.x, b.x, sum))));
}

struct RowsFactors {
  const float* left;
  const float* right;
  const float* bias;
  float* out;
  int columns, depth;
  bool adds;
};

template <int kRows, int kColumns, int kLoads>
__global__ void __launch_bounds__(kThreads) MultiplyByWarps(RowsFactors of) {
  device::LetNextKernelCome();
  device::WaitForKernelsBefore();
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const int first = (static_cast<int>(blockIdx.x) * kWarps + static_cast<int>(threadIdx.x) / kWarp) * kColumns;
  if (first >= of.columns) return;
  const float4* right[kColumns];
#pragma unroll
  for (int c = 0; c < kColumns; ++c) {  // beyond the last column: that one again
    right[c] = reinterpret_cast<const float4*>(of.right + std::int64_t{min(first + c, of.columns - 1)} * of.depth);
  }
  // The lane writes one sum. What is added to it is read while others are on their way.
  const int my_column = first + lane % kColumns;
  const bool writes = lane < kRows * kColumns && my_column < of.columns;
  float* const to = of.out + std::int64_t{lane / kColumns} * of.columns + my_column;
  const float bias = writes && of.bias != nullptr ? of.bias[my_column] : 0;
  const float before = writes && of.adds ? *to : 0;
  float sums[kRows][kColumns] = {};
  const int num_vectors = of.depth / kVector;
  for (int begin = lane; begin < num_vectors; begin += kWarp * kLoads) {
    float4 factors[kLoads][kColumns];
#pragma unroll
    for (int load = 0; load < kLoads; ++load) {
      const int v = begin + load * kWarp;
      if (v >= num_vectors) break;
#pragma unroll
      for (int c = 0; c < kColumns; ++c) factors[load][c] = __ldg(right[c] + v);
    }
#pragma unroll
    for (int load = 0; load < kLoads; ++load) {
      const int v = begin + load * kWarp;
      if (v >= num_vectors) break;
#pragma unroll
      for (int r = 0; r < kRows; ++r) {
        const float4 left = reinterpret_cast<const float4*>(of.left + std::int64_t{r} * of.depth)[v];
#pragma unroll
        for (int c = 0; c < kColumns; ++c) sums[r][c] = MulAdd(factors[load][c], left, sums[r][c]);
      }
    }
  }
  float mine = 0;
#pragma unroll
  for (int r = 0; r < kRows; ++r) {
#pragma unroll
    for (int c = 0; c < kColumns; ++c) {
      const float sum = SumOfLanes<kWarp>(sums[r][c]);
      if (lane == r * kColumns + c) mine = sum;
    }
  }
  if (!writes) return;
  if (of.bias != nullptr) mine += bias;
  *to = of.adds ? before + mine : mine;
}

// One row. Each warp has other elements of the depth, kAtOnce at a time, of which it reads four columns a lane.
template <int kAtOnce>
__global__ void __launch_bounds__(kThreadsOfBlock) MultiplyByBlocks(RowsFactors of) {
  device::LetNextKernelCome();
  device::WaitForKernelsBefore();
  constexpr int kLanes = kWarp / kAtOnce, kColumns = kLanes * kVector, kLoads = 8, kStride = kWarpsOfBlock * kAtOnce;
  __shared__ float4 shared[kWarpsOfBlock][kLanes];
  const int thread = static_cast<int>(threadIdx.x), lane = thread % kWarp, warp = thread / kWarp;
  const int first = static_cast<int>(blockIdx.x) * kColumns, my_column = first + thread;
  const bool writes = thread < kColumns && my_column < of.columns;
  const float bias = writes && of.bias != nullptr ? of.bias[my_column] : 0;
  const float before = writes && of.adds ? of.out[my_column] : 0;
  // Beyond the last column: the last four again.
  const float* const right = of.right + min(first + lane % kLanes * kVector, of.columns - kVector);
  float4 sum = {0, 0, 0, 0};
  for (int begin = warp * kAtOnce + lane / kLanes; begin < of.depth; begin += kStride * kLoads) {
    float4 factors[kLoads];
    float left[kLoads];
#pragma unroll
    for (int load = 0; load < kLoads; ++load) {
      const int d = begin + load * kStride;
      if (d >= of.depth) break;
      factors[load] = __ldg(reinterpret_cast<const float4*>(right + std::int64_t{d} * of.columns));
      left[load] = of.left[d];
    }
#pragma unroll
    for (int load = 0; load < kLoads; ++load) {
      if (begin + load * kStride >= of.depth) break;
      sum = {fmaf(factors[load].x, left[load], sum.x), fmaf(factors[load].y, left[load], sum.y),
             fmaf(factors[load].z, left[load], sum.z), fmaf(factors[load].w, left[load], sum.w)};
    }
  }
#pragma unroll
  for (int offset = kLanes; offset < kWarp; offset *= 2) {
    sum = {sum.x + __shfl_xor_sync(~0U, sum.x, offset), sum.y + __shfl_xor_sync(~0U, sum.y, offset),
           sum.z + __shfl_xor_sync(~0U, sum.z, offset), sum.w + __shfl_xor_sync(~0U, sum.w, offset)};
  }
  if (lane < kLanes) shared[warp][lane] = sum;
  __syncthreads();
  if (!writes) return;
  const float* const sums = reinterpret_cast<const float*>(shared) + thread;
  float mine = 0;
#pragma unroll
  for (int w = 0; w < kWarpsOfBlock; ++w) mine += sums[w * kColumns];
  if (of.bias != nullptr) mine += bias;
  of.out[my_column] = of.adds ? before + mine : mine;
}

template <typename T>
struct ElementFactors {
  const T* left;
  const T* right;
  const T* bias;
  T* out;
  int rows, columns, depth, num_elements;
  int left_row, left_depth, left_matrix;  // from one to the next
  int right_column, right_depth, right_matrix;
  bool adds;
};

template <typename T>
__global__ void __launch_bounds__(kThreads) MultiplyByElements(ElementFactors<T> of) {
  device::LetNextKernelCome();
  device::WaitForKernelsBefore();
  const int thread = static_cast<int>(blockIdx.x) * kThreads + static_cast<int>(threadIdx.x);
  const int lane = thread % kThreadsOfElement;
  const int element = min(thread / kThreadsOfElement, of.num_elements - 1);  // all lanes of a warp add up
  const int column = element % of.columns, of_rows = element / of.columns;
  const int row = of_rows % of.rows, matrix = of_rows / of.rows;
  const T* const left = of.left + matrix * of.left_matrix + row * of.left_row;
  const T* const right = of.right + matrix * of.right_matrix + column * of.right_column;
  const bool writes = lane == 0 && thread / kThreadsOfElement < of.num_elements;
  const T bias = writes && of.bias != nullptr ? of.bias[column] : 0;  // read while factors are on their way
  const T before = writes && of.adds ? of.out[element] : 0;
  T sum = 0;
#pragma unroll 4
  for (int d = lane; d < of.depth; d += kThreadsOfElement) {
    sum = fma(left[d * of.left_depth], right[d * of.right_depth], sum);
  }
  sum = SumOfLanes<kThreadsOfElement>(sum);
  if (!writes) return;
  if (of.bias != nullptr) sum += bias;
  of.out[element] = of.adds ? before + sum : sum;
}

struct RowsKernel {
  void (*multiply)(RowsFactors);
  bool right_transposed;
  int rows;
  int columns;  // of a block
  int threads;
  const char* text;
};
// One row has few sums, so that more of its factors can be on their way.
constexpr RowsKernel kRowsKernels[] = {
    {MultiplyByWarps<1, 1, 8>, true, 1, kWarps, kThreads, "a warp for 1 column"},
    {MultiplyByWarps<1, 4, 8>, true, 1, 4 * kWarps, kThreads, "a warp for 4 columns"},
    {MultiplyByWarps<2, 1, 4>, true, 2, kWarps, kThreads, "a warp for 1 column"},
    {MultiplyByWarps<3, 1, 4>, true, 3, kWarps, kThreads, "a warp for 1 column"},
    {MultiplyByWarps<4, 1, 4>, true, 4, kWarps, kThreads, "a warp for 1 column"},
    {MultiplyByBlocks<16>, false, 1, 8, kThreadsOfBlock, "a block for 8 columns"},
    {MultiplyByBlocks<8>, false, 1, 16, kThreadsOfBlock, "a block for 16 columns"},
    {MultiplyByBlocks<4>, false, 1, 32, kThreadsOfBlock, "a block for 32 columns"},
};

double ProductsOf(const DirectSizes& sizes) {
  return static_cast<double>(sizes.count) * static_cast<double>(sizes.rows) * static_cast<double>(sizes.columns) *
         static_cast<double>(sizes.depth);
}

bool IsOfRows(const DirectSizes& sizes, DType dtype) {
  if (dtype != DType::kFloat || sizes.count > 1 || sizes.left_transposed ||
      ProductsOf(sizes) > kSizes.max_multiplications_of_rows) {
    return false;
  }
  return sizes.right_transposed
             ? sizes.rows <= kSizes.max_rows && sizes.depth % kVector == 0 && sizes.depth <= kSizes.max_depth_of_warp
             : sizes.rows == 1 && sizes.columns % kVector == 0 && sizes.depth >= kSizes.min_depth_of_block;
}

// In kRowsKernels, or -1.
int RowsKernelFor(const DirectSizes& sizes, DType dtype) {
  if (!IsOfRows(sizes, dtype)) return -1;
  int columns = kWarps;
  if (!sizes.right_transposed) {
    while (columns < 32 && sizes.columns >= 2 * columns * kSizes.min_blocks) columns *= 2;
  } else if (sizes.rows == 1 && sizes.columns >= kSizes.min_columns_for_four) {
    columns *= 4;
  }
  const auto found = std::ranges::find_if(kRowsKernels, [&](const RowsKernel& kernel) {
    return kernel.right_transposed == sizes.right_transposed && kernel.rows == sizes.rows && kernel.columns == columns;
  });
  return static_cast<int>(found - std::begin(kRowsKernels));
}

dim3 BlocksOf(std::int64_t work, std::int64_t of_block) {
  return {static_cast<unsigned>((work + of_block - 1) / of_block)};
}

}  // namespace

std::optional<DirectProduct> DirectProduct::Make(const DirectSizes& sizes, DType dtype) {
  const double products = ProductsOf(sizes);
  if (products == 0) return std::nullopt;
  const bool is_small =
      products <= kSizes.max_multiplications_of_elements && sizes.depth <= kSizes.max_depth_of_element;
  const int kernel = RowsKernelFor(sizes, dtype);
  if (kernel < 0 && !is_small) return std::nullopt;
  return DirectProduct(sizes, dtype, kernel, is_small);
}

bool DirectProduct::RunsRows(const Pointers& pointers) const {
  constexpr std::uintptr_t kAlignment = kVector * sizeof(float);
  const auto is_aligned = [](const void* pointer) {
    return reinterpret_cast<std::uintptr_t>(pointer) % kAlignment == 0;
  };
  return rows_kernel_ >= 0 && is_aligned(pointers.left) && is_aligned(pointers.right);
}

bool DirectProduct::CanRun(const Pointers& pointers) const { return is_small_ || RunsRows(pointers); }

void DirectProduct::Launch(const Pointers& pointers, const CudaQueue& queue) const {
  if (RunsRows(pointers)) return LaunchRows(pointers, queue);
  dtype_ == DType::kDouble ? LaunchElements<double>(pointers, queue) : LaunchElements<float>(pointers, queue);
}

void DirectProduct::LaunchRows(const Pointers& pointers, const CudaQueue& queue) const {
  const RowsKernel& kernel = kRowsKernels[rows_kernel_];
  RowsFactors factors{.left = static_cast<const float*>(pointers.left),
                      .right = static_cast<const float*>(pointers.right),
                      .bias = static_cast<const float*>(pointers.bias),
                      .out = static_cast<float*>(pointers.out),
                      .columns = static_cast<int>(sizes_.columns),
                      .depth = static_cast<int>(sizes_.depth),
                      .adds = pointers.adds};
  void* parameters[] = {&factors};
  LaunchEarly(reinterpret_cast<const void*>(kernel.multiply),
              {.blocks = BlocksOf(sizes_.columns, kernel.columns), .threads = kernel.threads}, parameters, queue,
              "a product of up to four rows");
}

template <typename T>
void DirectProduct::LaunchElements(const Pointers& pointers, const CudaQueue& queue) const {
  const auto small = [](std::int64_t size) { return static_cast<int>(size); };
  const std::int64_t num_elements = sizes_.count * sizes_.rows * sizes_.columns;
  ElementFactors<T> factors{.left = static_cast<const T*>(pointers.left),
                            .right = static_cast<const T*>(pointers.right),
                            .bias = static_cast<const T*>(pointers.bias),
                            .out = static_cast<T*>(pointers.out),
                            .rows = small(sizes_.rows),
                            .columns = small(sizes_.columns),
                            .depth = small(sizes_.depth),
                            .num_elements = small(num_elements),
                            .left_row = small(sizes_.left_transposed ? 1 : sizes_.depth),
                            .left_depth = small(sizes_.left_transposed ? sizes_.rows : 1),
                            .left_matrix = small(sizes_.one_left ? 0 : sizes_.rows * sizes_.depth),
                            .right_column = small(sizes_.right_transposed ? sizes_.depth : 1),
                            .right_depth = small(sizes_.right_transposed ? 1 : sizes_.columns),
                            .right_matrix = small(sizes_.one_right ? 0 : sizes_.columns * sizes_.depth),
                            .adds = pointers.adds};
  void* parameters[] = {&factors};
  LaunchEarly(reinterpret_cast<const void*>(&MultiplyByElements<T>),
              {.blocks = BlocksOf(num_elements, kThreads / kThreadsOfElement), .threads = kThreads}, parameters, queue,
              "a small product");
}

std::string DirectProduct::Text() const {
  return rows_kernel_ >= 0 ? kRowsKernels[rows_kernel_].text : StrCat(kThreadsOfElement, " threads for an element");
}

}  // namespace stepnet

// DirectProduct: small products, and those of one to four rows, by kernels of our own that read the factors where they
// lie. cuBLASLt takes longer for them, on the GPU and on the host, and a process that multiplies nothing else need not
// have it load its kernels.
//
// - Up to four rows, float, right factor transposed, as where a step multiplies by weights [columns, depth]: a warp
//   computes a column for all rows, each lane with every 32nd four elements of the depth.
// - One row, float, right factor as it is, as in the gradient of that: a block computes a few columns, each warp with
//   other elements of the depth.
// - Small ones, of float and double, whichever way the factors lie, also several at once: eight threads compute an
//   element, each with every eighth element of the depth.
// The sums of lanes are then added in pairs. So equal sizes give equal bits.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "stepnet/core/tensor.h"
#include "stepnet/gpu/cuda/cuda_runtime.h"

namespace stepnet {

// `count` products out [rows, columns] = left [rows, depth] times right [depth, columns], which lie one behind the
// other. A transposed factor lies as [depth, rows], or [columns, depth].
struct DirectSizes {
  std::int64_t count = 1;
  std::int64_t rows = 0;
  std::int64_t columns = 0;
  std::int64_t depth = 0;
  bool left_transposed = false;
  bool right_transposed = false;
  bool one_left = false;  // for all of them
  bool one_right = false;
};

class DirectProduct {
 public:
  // Nothing where cuBLASLt, or FewRowsProduct, is faster.
  static std::optional<DirectProduct> Make(const DirectSizes& sizes, DType dtype);

  // They point to `dtype`; bias [columns], or null: none.
  struct Pointers {
    const void* left = nullptr;
    const void* right = nullptr;
    const void* bias = nullptr;
    void* out = nullptr;
    bool adds = false;  // to what `out` holds
  };
  // Where factors do not begin on 16 bytes only small products are computed.
  bool CanRun(const Pointers& pointers) const;
  // REQUIRES: CanRun.
  void Launch(const Pointers& pointers, const CudaQueue& queue) const;

  // "a warp for 1 column", "8 threads for an element": of factors that begin on 16 bytes.
  std::string Text() const;

 private:
  DirectProduct(const DirectSizes& sizes, DType dtype, int rows_kernel, bool is_small)
      : sizes_(sizes), dtype_(dtype), rows_kernel_(rows_kernel), is_small_(is_small) {}
  bool RunsRows(const Pointers& pointers) const;
  void LaunchRows(const Pointers& pointers, const CudaQueue& queue) const;
  template <typename T>
  void LaunchElements(const Pointers& pointers, const CudaQueue& queue) const;

  DirectSizes sizes_;
  DType dtype_;
  int rows_kernel_;  // of those for few rows, or -1
  bool is_small_;    // so that threads may compute its elements
};

}  // namespace stepnet

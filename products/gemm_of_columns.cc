#include "stepnet/products/gemm_of_columns.h"

#include <algorithm>
#include <memory>

#include "stepnet/core/error.h"
#include "stepnet/core/strings.h"
#include "stepnet/core/target.h"
#include "stepnet/core/unroll.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "stepnet/products/gemm_of_columns.cc"
#include <hwy/aligned_allocator.h>
#include <hwy/cache_control.h>
#include <hwy/foreach_target.h>  // IWYU pragma: keep
#include <hwy/highway.h>

#include "stepnet/core/partial_vectors-inl.h"

#ifndef STEPNET_OPERANDS_OF_COLUMNS
#define STEPNET_OPERANDS_OF_COLUMNS

namespace stepnet {
namespace {

// Sums of so many terms are added to all elements of C before the next ones are, which also keeps rounding errors
// small; and so many rows and columns of C are computed from what is packed at once: half a megabyte of A and up to 1.6
// MB of B, of which 77 KB are read in turn.
constexpr std::int64_t kMaxTerms = 400, kMaxRows = 256, kMaxColumns = 1024;

// What a product reads and writes, and memory for as much as is packed at once.
struct OperandsOfColumns {
  std::int64_t m, n, k;
  const float* a;
  std::int64_t a_stride;
  const float* b;
  std::int64_t b_stride;
  float* c;
  std::int64_t c_stride;
  bool accumulates;
  float* packed_a;
  float* packed_b;
};

}  // namespace
}  // namespace stepnet
#endif

HWY_BEFORE_NAMESPACE();
namespace stepnet {
namespace HWY_NAMESPACE {
namespace {
namespace hn = hwy::HWY_NAMESPACE;

// A tile of C is computed in registers: its sums, and beside them a row of B's panel and an element of A's.
#if HWY_MAX_BYTES >= 64
constexpr int kTileRows = 8;
#else
constexpr int kTileRows = 4;
#endif
constexpr int kTileVectors = 3;
using Tag = hn::ScalableTag<float>;

constexpr std::int64_t kRowsAhead = kCpuTarget.rows_fetched_to_pack;

void FetchRow(const float* row, std::int64_t columns) {
  for (std::int64_t j = 0; j < columns; j += kFloatsOfLine) hwy::Prefetch(row + j);
}

// Tiles of about as many rows each.
struct Tiles {
  std::int64_t count, rows, longer;  // so many have one row more

  explicit Tiles(std::int64_t of)
      : count((of + kTileRows - 1) / kTileRows), rows(of / count), longer(of - rows * count) {}
  std::int64_t Begin(std::int64_t tile) const { return tile * rows + std::min(tile, longer); }
};

// Packs k rows of A: for each tile its elements of one row, then of the next.
void PackA(std::int64_t k, std::int64_t rows, const float* a, std::int64_t stride, float* packed) {
  const hn::CappedTag<float, kTileRows> d;
  const Tiles tiles(rows);
  for (std::int64_t l = 0; l < k; ++l, a += stride) {
    if (l + kRowsAhead < k) FetchRow(a + kRowsAhead * stride, rows);
    for (std::int64_t tile = 0; tile < tiles.count; ++tile) {
      const std::int64_t begin = tiles.Begin(tile), size = tiles.Begin(tile + 1) - begin;
      float* const to = packed + begin * k + l * size;
      if (size == kTileRows) {
        for (size_t i = 0; i < kTileRows; i += hn::Lanes(d)) hn::StoreU(hn::LoadU(d, a + begin + i), d, to + i);
      } else {
        std::copy_n(a + begin, size, to);
      }
    }
  }
}

// Packs k rows of B, in panels of the columns of a tile; the last one has as many vectors as it needs.
void PackB(std::int64_t k, std::int64_t columns, const float* b, std::int64_t stride, float* packed) {
  const Tag d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  const std::int64_t width = kTileVectors * lanes, whole = columns / width * width;
  const std::int64_t last_width = (columns - whole + lanes - 1) / lanes * lanes;
  for (std::int64_t l = 0; l < k; ++l, b += stride) {
    if (l + kRowsAhead < k) FetchRow(b + kRowsAhead * stride, columns);
    std::int64_t j = 0;
    for (; j < whole; j += width) {
      float* const to = packed + j * k + l * width;
      for (std::int64_t v = 0; v < width; v += lanes) hn::Store(hn::LoadU(d, b + j + v), d, to + v);
    }
    for (float* to = packed + whole * k + l * last_width; j < columns; j += lanes, to += lanes) {
      hn::Store(j + lanes <= columns ? hn::LoadU(d, b + j) : LoadPart(d, b + j, columns - j), d, to);
    }
  }
}

// The part of C that a tile adds its sums to or writes, and the one that is next.
struct PartOfC {
  float* first;
  std::int64_t stride;
  std::int64_t last;  // columns that the last vector has
  bool accumulates;
  const float* next;
};

// A function of its own: inlined, addresses would be kept in vector registers.
template <int kRows, int kVectors>
HWY_NOINLINE void Tile(std::int64_t k, const float* HWY_RESTRICT a, const float* HWY_RESTRICT b, const PartOfC& of) {
  const Tag d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  hn::Vec<Tag> sums[kRows][kVectors];
  STEPNET_UNROLL
  for (int i = 0; i < kRows; ++i) {
    STEPNET_UNROLL
    for (int v = 0; v < kVectors; ++v) {
      hwy::Prefetch(of.next + i * of.stride + v * lanes);
      sums[i][v] = hn::Zero(d);
    }
  }
  for (std::int64_t l = 0; l < k; ++l, a += kRows, b += kVectors * lanes) {
    hn::Vec<Tag> factors[kVectors];
    STEPNET_UNROLL
    for (int v = 0; v < kVectors; ++v) factors[v] = hn::Load(d, b + v * lanes);
    STEPNET_UNROLL
    for (int i = 0; i < kRows; ++i) {
      const auto factor = hn::Set(d, a[i]);
      STEPNET_UNROLL
      for (int v = 0; v < kVectors; ++v) sums[i][v] = hn::MulAdd(factor, factors[v], sums[i][v]);
    }
  }
  STEPNET_UNROLL
  for (int i = 0; i < kRows; ++i) {
    STEPNET_UNROLL
    for (int v = 0; v < kVectors; ++v) {
      float* const to = of.first + i * of.stride + v * lanes;
      if (v + 1 == kVectors && of.last < lanes) {
        StorePart(d, of.accumulates ? hn::Add(LoadPart(d, to, of.last), sums[i][v]) : sums[i][v], to, of.last);
      } else {
        hn::StoreU(of.accumulates ? hn::Add(hn::LoadU(d, to), sums[i][v]) : sums[i][v], d, to);
      }
    }
  }
}

template <int kRows, int kVectors>
HWY_INLINE void TileOf(std::int64_t rows, std::int64_t vectors, std::int64_t k, const float* a, const float* b,
                       const PartOfC& of) {
  if constexpr (kVectors > 1) {
    if (vectors < kVectors) return TileOf<kRows, kVectors - 1>(rows, vectors, k, a, b, of);
  }
  if constexpr (kRows > 1) {
    if (rows < kRows) return TileOf<kRows - 1, kVectors>(rows, vectors, k, a, b, of);
  }
  Tile<kRows, kVectors>(k, a, b, of);
}

// Adds the terms of k rows to [rows, columns] of C, which all are packed. A panel of B stays in the first cache.
void MultiplyPacked(const OperandsOfColumns& of, std::int64_t k, std::int64_t rows, std::int64_t columns, float* c,
                    bool accumulates) {
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(Tag()));
  const std::int64_t width = kTileVectors * lanes;
  const Tiles tiles(rows);
  for (std::int64_t j = 0; j < columns; j += width) {
    const std::int64_t left = std::min(width, columns - j), vectors = (left + lanes - 1) / lanes;
    for (std::int64_t tile = 0, i = 0; tile < tiles.count; ++tile) {
      const std::int64_t end = tiles.Begin(tile + 1);
      float* const first = c + i * of.c_stride + j;
      const PartOfC part = {.first = first,
                            .stride = of.c_stride,
                            .last = left - (vectors - 1) * lanes,
                            .accumulates = accumulates,
                            .next = end < rows ? c + end * of.c_stride + j : c + j + width};
      TileOf<kTileRows, kTileVectors>(end - i, vectors, k, of.packed_a + i * k, of.packed_b + j * k, part);
      i = end;
    }
  }
}

void Multiply(const OperandsOfColumns& of) {
  const std::int64_t blocks = (of.k + kMaxTerms - 1) / kMaxTerms;
  for (std::int64_t block = 0, l = 0; block < blocks; ++block) {
    const std::int64_t k = of.k * (block + 1) / blocks - l;
    for (std::int64_t j = 0; j < of.n; j += kMaxColumns) {
      const std::int64_t columns = std::min(kMaxColumns, of.n - j);
      PackB(k, columns, of.b + l * of.b_stride + j, of.b_stride, of.packed_b);
      for (std::int64_t i = 0; i < of.m; i += kMaxRows) {
        const std::int64_t rows = std::min(kMaxRows, of.m - i);
        PackA(k, rows, of.a + l * of.a_stride + i, of.a_stride, of.packed_a);
        MultiplyPacked(of, k, rows, columns, of.c + i * of.c_stride + j, of.accumulates || l > 0);
      }
    }
    l += k;
  }
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace stepnet
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace stepnet {

HWY_EXPORT(Multiply);

void GemmOfColumns(std::int64_t m, std::int64_t n, std::int64_t k, const float* a, std::int64_t a_stride,
                   const float* b, std::int64_t b_stride, float* c, std::int64_t c_stride, bool accumulates) {
  if (k == 0 && !accumulates) {
    for (std::int64_t i = 0; i < m; ++i) std::fill_n(c + i * c_stride, n, 0.0f);
  }
  if (m == 0 || n == 0 || k == 0) return;
  constexpr std::int64_t kMaxLanes = 64;  // of any vector
  const std::int64_t terms = std::min(k, kMaxTerms), rows = std::min(m, kMaxRows);
  const std::int64_t columns = std::min(n, kMaxColumns) + kMaxLanes;
  const auto packed = hwy::AllocateAligned<float>(static_cast<size_t>(terms * (rows + columns)));
  if (packed == nullptr) {
    throw Error(ErrorCode::kOutOfMemory,
                StrCat("the system refused the memory for a product [", m, ", ", n, "] of sums of ", k, " terms"));
  }
  HWY_DYNAMIC_DISPATCH(Multiply)
  ({.m = m,
    .n = n,
    .k = k,
    .a = a,
    .a_stride = a_stride,
    .b = b,
    .b_stride = b_stride,
    .c = c,
    .c_stride = c_stride,
    .accumulates = accumulates,
    .packed_a = packed.get() + terms * columns,
    .packed_b = packed.get()});
}

}  // namespace stepnet
#endif  // HWY_ONCE

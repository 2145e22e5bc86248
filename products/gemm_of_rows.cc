#include "stepnet/products/gemm_of_rows.h"

#include <algorithm>
#include <type_traits>

#include "stepnet/core/cancellation.h"
#include "stepnet/core/unroll.h"
#include "stepnet/products/gemm.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "stepnet/products/gemm_of_rows.cc"
#include <hwy/cache_control.h>
#include <hwy/foreach_target.h>  // IWYU pragma: keep
#include <hwy/highway.h>

#include "stepnet/core/half_vectors-inl.h"

#ifndef STEPNET_OPERANDS_OF_ROWS
#define STEPNET_OPERANDS_OF_ROWS

namespace stepnet {
namespace {

// What a product reads and writes, from its first column on.
template <typename W>
struct OperandsOfRows {
  std::int64_t m, n, k;
  const float* a;
  std::int64_t a_stride;
  const W* b;
  std::int64_t b_stride;
  float* c;
  std::int64_t c_stride;
  bool accumulates;
  const float* bias;  // or null
  bool fetches;       // the next rows of B while some are multiplied
};

}  // namespace
}  // namespace stepnet
#endif

HWY_BEFORE_NAMESPACE();
namespace stepnet {
namespace HWY_NAMESPACE {
namespace {
namespace hn = hwy::HWY_NAMESPACE;

// A tile is computed in registers: its sums, and beside them a vector of each column, a row of B, and one of a row of
// A. All rows go through the columns of a tile, which stay in the first cache, before the next columns do.
#if HWY_MAX_BYTES >= 64
constexpr int kTileRows = 6;
#else
constexpr int kTileRows = 2;
#endif
constexpr int kTileColumns = 4;

// The sums of the lanes of each of four vectors.
template <class D>
HWY_INLINE void SumLanes([[maybe_unused]] D d, const hn::Vec<D>* of, float* sums) {
#if HWY_TARGET == HWY_SCALAR
  for (int i = 0; i < 4; ++i) sums[i] = hn::GetLane(of[i]);
#else
  const hn::RepartitionToWide<D> pairs;
  const auto sum_pairs = [&](hn::Vec<D> x, hn::Vec<D> y) HWY_ATTR {  // x y x y in each four lanes
    return hn::BitCast(pairs, hn::Add(hn::InterleaveLower(d, x, y), hn::InterleaveUpper(d, x, y)));
  };
  const auto first = sum_pairs(of[0], of[1]), last = sum_pairs(of[2], of[3]);
  const auto blocks = hn::Add(hn::BitCast(d, hn::InterleaveLower(pairs, first, last)),
                              hn::BitCast(d, hn::InterleaveUpper(pairs, first, last)));
  HWY_ALIGN float lanes[hn::MaxLanes(d)];
  hn::Store(blocks, d, lanes);
  const hn::FixedTag<float, 4> four;
  auto sum = hn::Load(four, lanes);
  for (size_t i = 4; i < hn::Lanes(d); i += 4) sum = hn::Add(sum, hn::Load(four, lanes + i));
  hn::StoreU(sum, four, sums);
#endif
}

// A function of its own: inlined, addresses would be kept in vector registers.
template <int kRows, int kColumns, typename W>
HWY_NOINLINE void Tile(const OperandsOfRows<W>& of, std::int64_t row, std::int64_t column) {
  const hn::ScalableTag<float> d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  const float* HWY_RESTRICT a = of.a + row * of.a_stride;
  const W* HWY_RESTRICT b = of.b + column * of.b_stride;
  hn::Vec<decltype(d)> sums[kRows][kTileColumns];
  STEPNET_UNROLL
  for (int i = 0; i < kRows; ++i) {
    STEPNET_UNROLL
    for (int j = 0; j < kTileColumns; ++j) sums[i][j] = hn::Zero(d);
  }
  const std::int64_t ahead = kTileColumns * of.b_stride;
  const auto add_terms = [&](std::int64_t l, const auto& load) HWY_ATTR {
    hn::Vec<decltype(d)> factors[kColumns];
    STEPNET_UNROLL
    for (int j = 0; j < kColumns; ++j) {
      factors[j] = load(b + j * of.b_stride + l);
      if (row == 0 && of.fetches) hwy::Prefetch(b + j * of.b_stride + l + ahead);
    }
    STEPNET_UNROLL
    for (int i = 0; i < kRows; ++i) {
      const auto factor = load(a + i * of.a_stride + l);
      STEPNET_UNROLL
      for (int j = 0; j < kColumns; ++j) sums[i][j] = hn::MulAdd(factor, factors[j], sums[i][j]);
    }
  };
  std::int64_t l = 0;
  for (; l + lanes <= of.k; l += lanes) {
    add_terms(l, [&](const auto* from) HWY_ATTR { return LoadElements(d, from); });
  }
  if (l < of.k) add_terms(l, [&](const auto* from) HWY_ATTR { return LoadPart(d, from, of.k - l); });
  STEPNET_UNROLL
  for (int i = 0; i < kRows; ++i) {
    float elements[kTileColumns];
    SumLanes(d, sums[i], elements);
    float* const c = of.c + (row + i) * of.c_stride + column;
    for (int j = 0; j < kColumns; ++j) {
      if (of.bias != nullptr) elements[j] += of.bias[column + j];
      c[j] = of.accumulates ? c[j] + elements[j] : elements[j];
    }
  }
}

template <int kRows, int kColumns, typename W>
HWY_INLINE void TileOfRows(int rows, const OperandsOfRows<W>& of, std::int64_t row, std::int64_t column) {
  if constexpr (kRows > 1) {
    if (rows < kRows) return TileOfRows<kRows - 1, kColumns>(rows, of, row, column);
  }
  Tile<kRows, kColumns>(of, row, column);
}

// All rows, divided into tiles of about as many each.
template <int kColumns, typename W>
HWY_INLINE void AllRows(const OperandsOfRows<W>& of, std::int64_t column) {
  const std::int64_t tiles = (of.m + kTileRows - 1) / kTileRows;
  for (std::int64_t tile = 0, row = 0; tile < tiles; ++tile) {
    const std::int64_t end = of.m * (tile + 1) / tiles;
    TileOfRows<kTileRows, kColumns>(static_cast<int>(end - row), of, row, column);
    row = end;
  }
}

template <typename W>
void Multiply(const OperandsOfRows<W>& of) {
  std::int64_t column = 0;
  for (; column + kTileColumns <= of.n; column += kTileColumns) AllRows<kTileColumns>(of, column);
  for (; column < of.n; ++column) AllRows<1>(of, column);
}

void MultiplyFloat(const OperandsOfRows<float>& of) { Multiply(of); }
void MultiplyBFloat16(const OperandsOfRows<BFloat16>& of) { Multiply(of); }

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace stepnet
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace stepnet {

HWY_EXPORT(MultiplyFloat);
HWY_EXPORT(MultiplyBFloat16);

template <typename W>
void GemmOfRows(std::int64_t m, std::int64_t n, std::int64_t k, const float* a, std::int64_t a_stride, const W* b,
                std::int64_t b_stride, float* c, std::int64_t c_stride, bool accumulates, const float* bias) {
  // Nobody looks within a call whether the run shall stop: it computes columns that are some milliseconds of work.
  constexpr std::int64_t kMaxProducts = 1 << 28;
  constexpr std::int64_t kMinBytesToFetch = 32 << 10;  // less than that the first cache may hold
  const std::int64_t max_columns = std::max<std::int64_t>(kMaxProducts / std::max<std::int64_t>(m * k, 1), 4);
  for (std::int64_t begin = 0; begin < n && m > 0; begin += max_columns) {
    const std::int64_t columns = std::min(max_columns, n - begin);
    CountWork(m * columns * k / kProductsOfWork);
    const OperandsOfRows<W> some = {.m = m,
                                    .n = columns,
                                    .k = k,
                                    .a = a,
                                    .a_stride = a_stride,
                                    .b = k == 0 ? b : b + begin * b_stride,
                                    .b_stride = b_stride,
                                    .c = c + begin,
                                    .c_stride = c_stride,
                                    .accumulates = accumulates,
                                    .bias = bias == nullptr ? bias : bias + begin,
                                    .fetches = n * k * static_cast<std::int64_t>(sizeof(W)) > kMinBytesToFetch};
    if constexpr (std::is_same_v<W, float>) {
      HWY_DYNAMIC_DISPATCH(MultiplyFloat)(some);
    } else {
      HWY_DYNAMIC_DISPATCH(MultiplyBFloat16)(some);
    }
  }
}

template void GemmOfRows(std::int64_t, std::int64_t, std::int64_t, const float*, std::int64_t, const float*,
                         std::int64_t, float*, std::int64_t, bool, const float*);
template void GemmOfRows(std::int64_t, std::int64_t, std::int64_t, const float*, std::int64_t, const BFloat16*,
                         std::int64_t, float*, std::int64_t, bool, const float*);

}  // namespace stepnet
#endif  // HWY_ONCE

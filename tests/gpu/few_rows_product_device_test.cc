// Products of few rows, against the same in double.
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <cstring>

#include "stepnet/core/strings.h"
#include "stepnet/gpu/cuda/cuda_runtime.h"
#include "stepnet/gpu/cuda/few_rows_product.h"
#include "stepnet/tests/executor/recurrent_case.h"

namespace stepnet {
namespace {

constexpr Device kCuda = {.kind = DeviceKind::kCuda};
constexpr ProductDevice kWithClusters = {.num_processors = 132, .max_shared_bytes = 227 << 10, .has_clusters = true};

// Element (k, column) of the right factor.
float RightAt(const ProductSizes& sizes, const float* right, std::int64_t k, std::int64_t column) {
  return sizes.right_transposed ? right[column * sizes.depth + k] : right[k * sizes.columns + column];
}

// bias and before may be null.
void ExpectProduct(const ProductSizes& sizes, const Tensor& left, const Tensor& right, const float* bias,
                   const float* before, const Tensor& out) {
  const auto *l = left.data<float>(), *r = right.data<float>(), *got = out.data<float>();
  for (std::int64_t row = 0; row < sizes.rows; ++row) {
    for (std::int64_t column = 0; column < sizes.columns; ++column) {
      double want = 0;
      for (std::int64_t k = 0; k < sizes.depth; ++k) {
        want += double{l[row * sizes.depth + k]} * RightAt(sizes, r, k, column);
      }
      if (bias != nullptr) want += bias[column];
      if (before != nullptr) want += before[row * sizes.columns + column];
      ASSERT_NEAR(got[row * sizes.columns + column], want, 1e-5 * std::sqrt(double(sizes.depth)) + 1e-6)
          << "row " << row << ", column " << column;
    }
  }
}

TEST(FewRowsProduct, LeavesToCublasWhatThatIsFasterWith) {
  const auto is_made = [](std::int64_t rows, std::int64_t columns, std::int64_t depth, bool right_transposed) {
    return FewRowsProduct::Make({rows, columns, depth, right_transposed}, kWithClusters).has_value();
  };
  EXPECT_TRUE(is_made(64, 1024, 256, true));
  EXPECT_TRUE(is_made(50, 128, 512, false));
  EXPECT_FALSE(is_made(1, 2048, 512, true));
  EXPECT_FALSE(is_made(1, 512, 2048, false));
  EXPECT_FALSE(is_made(128, 512, 128, true)) << "many rows";
  EXPECT_FALSE(is_made(64, 2048, 512, true)) << "large";
  EXPECT_FALSE(is_made(64, 256, 1024, false)) << "large";
  EXPECT_FALSE(is_made(8, 30, 16, true)) << "columns that begin on no vector";
  EXPECT_FALSE(is_made(8, 32, 18, true)) << "rows that begin on no vector";
  EXPECT_FALSE(FewRowsProduct::Make({8, 32, 0, true}, kWithClusters).has_value());
  EXPECT_FALSE(FewRowsProduct::Make({64, 2048, 512, true}, {.num_processors = 82, .max_shared_bytes = 48 << 10}))
      << "the memory of a block is too small";
}

TEST(FewRowsProduct, LeavesToTensorCoresWhatIsMuchWork) {
  for (const Math math : kMaths) {
    const bool is_exact = math == Math::kFloat32;
    EXPECT_TRUE(IsExact({.rows = 32, .columns = 1024, .depth = 256, .right_transposed = true}, math));
    EXPECT_EQ(IsExact({.rows = 64, .columns = 1024, .depth = 256, .right_transposed = true}, math), is_exact);
    EXPECT_EQ(IsExact({.rows = 64, .columns = 2048, .depth = 512, .right_transposed = true}, math), is_exact);
  }
}

TEST(FewRowsProduct, IsCutSoThatAllProcessorsWork) {
  const auto text = [](const ProductSizes& sizes, const ProductDevice& device) {
    return FewRowsProduct::Make(sizes, device)->Text();
  };
  EXPECT_EQ(text({64, 1024, 256, true}, kWithClusters), "tiles of 16 x 32, 1 block each");
  EXPECT_EQ(text({8, 256, 1024, false}, kWithClusters), "tiles of 8 x 32, 8 blocks each");
  ProductDevice without = kWithClusters;
  without.has_clusters = false;
  EXPECT_EQ(text({8, 256, 1024, false}, without), "tiles of 8 x 32, 1 block each");
}

TEST(FewRowsProduct, IsTheProduct) {
  try {
    RuntimeOf(kCuda);
  } catch (const Error& error) {
    GTEST_SKIP() << error.message();
  }
  auto& queue = static_cast<CudaQueue&>(RuntimeOf(kCuda).queue());
  const ProductDevice here = FewRowsProduct::DeviceOf(0);
  ProductDevice without_clusters = here;
  without_clusters.has_clusters = false;
  int num_cut_in_blocks = 0;
  unsigned seed = 0;
  for (const bool right_transposed : {true, false}) {
    for (const auto& [rows, columns, depth] : {std::array{2, 4, 4},
                                               {5, 4, 4},
                                               {7, 36, 20},
                                               {8, 1024, 256},
                                               {8, 256, 1024},
                                               {9, 68, 132},
                                               {16, 512, 508},
                                               {33, 100, 52},
                                               {50, 512, 128},
                                               {50, 128, 512},
                                               {64, 2048, 512},
                                               {64, 260, 1000}}) {
      const ProductSizes sizes{rows, columns, depth, right_transposed};
      for (const ProductDevice& device : {here, without_clusters}) {
        const std::optional<FewRowsProduct> product = FewRowsProduct::Make(sizes, device);
        if (!product) continue;
        SCOPED_TRACE(StrCat("[", rows, ", ", depth, "] * [", depth, ", ", columns, "]",
                            right_transposed ? ", transposed, " : ", ", product->Text()));
        num_cut_in_blocks += product->Text().ends_with("blocks each");
        const Tensor left = Random({rows, depth}, ++seed, DType::kFloat),
                     bias = Random({columns}, ++seed, DType::kFloat);
        const Tensor right =
            Random(right_transposed ? Shape({columns, depth}) : Shape({depth, columns}), ++seed, DType::kFloat);
        const Tensor before = Random({rows, columns}, ++seed, DType::kFloat);
        const Tensor l = left.To(kCuda), r = right.To(kCuda), b = bias.To(kCuda);
        product->Prepare();
        const auto run = [&](bool with_bias, bool adds) {
          const Tensor out = before.To(kCuda).Clone();
          const auto at = [](const Tensor& tensor) { return static_cast<float*>(tensor.raw(kCuda)); };
          product->Launch(at(l), at(r), with_bias ? at(b) : nullptr, at(out), adds, queue);
          return out.To({});
        };
        const Tensor added = run(false, true);
        ExpectProduct(sizes, left, right, nullptr, before.data<float>(), added);
        ExpectProduct(sizes, left, right, bias.data<float>(), nullptr, run(true, false));
        const Tensor again = run(false, true);
        EXPECT_EQ(std::memcmp(added.raw(), again.raw(), static_cast<size_t>(added.size_bytes())), 0);
      }
    }
  }
  EXPECT_EQ(num_cut_in_blocks > 4, here.has_clusters) << num_cut_in_blocks;
}

}  // namespace
}  // namespace stepnet

// Products of few rows, against the same in double.
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <cstring>
#include <map>
#include <set>
#include <string>

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

// How far a sum of products may be from the one in double, as a part of the sum of their magnitudes: each factor is
// rounded to 10 bits of mantissa in TF32; sums round in float.
double ErrorOf(Math math) { return (math == Math::kTf32 ? 2 * 0x1p-11 : 0) + 64 * 0x1p-24; }

// bias and before may be null.
void ExpectProduct(const ProductSizes& sizes, Math math, const Tensor& left, const Tensor& right, const float* bias,
                   const float* before, const Tensor& out) {
  const auto *l = left.data<float>(), *r = right.data<float>(), *got = out.data<float>();
  for (std::int64_t row = 0; row < sizes.rows; ++row) {
    for (std::int64_t column = 0; column < sizes.columns; ++column) {
      double want = 0, magnitude = 0;
      for (std::int64_t k = 0; k < sizes.depth; ++k) {
        const double product = double{l[row * sizes.depth + k]} * RightAt(sizes, r, k, column);
        want += product;
        magnitude += std::abs(product);
      }
      for (const double term :
           {bias != nullptr ? bias[column] : 0.0f, before != nullptr ? before[row * sizes.columns + column] : 0.0f}) {
        want += term;
        magnitude += std::abs(term);
      }
      ASSERT_NEAR(got[row * sizes.columns + column], want, ErrorOf(math) * magnitude)
          << "row " << row << ", column " << column;
    }
  }
}

bool IsMade(Math math, const ProductSizes& sizes) {
  return FewRowsProduct::Make(sizes, math, kWithClusters).has_value();
}

TEST(FewRowsProduct, LeavesToCublasWhatThatIsFasterWith) {
  const auto is_made = [](const auto&... sizes) { return IsMade(Math::kFloat32, {sizes...}); };
  EXPECT_TRUE(is_made(64, 1024, 256, true));
  EXPECT_TRUE(is_made(50, 128, 512, false));
  EXPECT_FALSE(is_made(1, 2048, 512, true));
  EXPECT_FALSE(is_made(1, 512, 2048, false));
  EXPECT_FALSE(is_made(128, 512, 128, true)) << "many rows";
  EXPECT_FALSE(is_made(64, 2048, 512, true)) << "large";
  EXPECT_FALSE(is_made(64, 256, 1024, false)) << "large";
  EXPECT_FALSE(is_made(8, 30, 16, true)) << "columns that begin on no vector";
  EXPECT_FALSE(is_made(8, 32, 18, true)) << "rows that begin on no vector";
  EXPECT_FALSE(FewRowsProduct::Make({8, 32, 0, true}, Math::kFloat32, kWithClusters).has_value());
  EXPECT_FALSE(
      FewRowsProduct::Make({64, 1024, 256, true}, Math::kFloat32, {.num_processors = 82, .max_shared_bytes = 48 << 10}))
      << "the memory of a block is too small";
}

TEST(FewRowsProduct, IsMoreWorkOnTensorCoresBeforeCublasIsFaster) {
  const auto is_made = [](const auto&... sizes) { return IsMade(Math::kTf32, {sizes...}); };
  EXPECT_TRUE(is_made(64, 2048, 512, true));
  EXPECT_TRUE(is_made(64, 256, 1024, false));
  EXPECT_FALSE(is_made(4, 1024, 256, true)) << "tensor cores take eight rows at once";
  EXPECT_TRUE(is_made(8, 1 << 20, 4, true));
  EXPECT_FALSE(is_made(8, 1 << 21, 4, true)) << "more tiles than a launch has blocks";
  EXPECT_FALSE(is_made(64, 4096, 1024, true)) << "large";
  EXPECT_FALSE(is_made(64, 1024, 4096, false)) << "large";
  EXPECT_FALSE(is_made(8, 1024, 4096, false)) << "deep";
  EXPECT_FALSE(is_made(256, 256, 256, true)) << "many rows";
}

TEST(FewRowsProduct, IsCutSoThatAllProcessorsWork) {
  const auto text = [](const ProductSizes& sizes, const ProductDevice& device) {
    return FewRowsProduct::Make(sizes, Math::kFloat32, device)->Text();
  };
  EXPECT_EQ(text({64, 1024, 256, true}, kWithClusters), "tiles of 16 x 32, 1 block each");
  EXPECT_EQ(text({8, 256, 1024, false}, kWithClusters), "tiles of 8 x 32, 8 blocks each");
  const auto text_in_tf32 = [](const ProductSizes& sizes) {
    return FewRowsProduct::Make(sizes, Math::kTf32, kWithClusters)->Text();
  };
  EXPECT_EQ(text_in_tf32({64, 2048, 512, true}), "tiles of 32 x 32, 1 block each");
  EXPECT_EQ(text_in_tf32({64, 512, 2048, false}), "tiles of 32 x 32, 4 blocks each");
  ProductDevice without = kWithClusters;
  without.has_clusters = false;
  EXPECT_EQ(text({8, 256, 1024, false}, without), "tiles of 8 x 32, 1 block each");
}

// The product with a bias, and added to what is there: twice, with the same bits.
void ExpectIsProduct(const FewRowsProduct& product, const ProductSizes& sizes, Math math) {
  auto& queue = static_cast<CudaQueue&>(RuntimeOf(kCuda).queue());
  SCOPED_TRACE(StrCat(MathName(math), ", [", sizes.rows, ", ", sizes.depth, "] * [", sizes.depth, ", ", sizes.columns,
                      "]", sizes.right_transposed ? ", transposed, " : ", ", product.Text()));
  const Shape right_shape =
      sizes.right_transposed ? Shape({sizes.columns, sizes.depth}) : Shape({sizes.depth, sizes.columns});
  const Tensor left = Random({sizes.rows, sizes.depth}, 1, DType::kFloat),
               right = Random(right_shape, 2, DType::kFloat);
  const Tensor bias = Random({sizes.columns}, 3, DType::kFloat);
  const Tensor before = Random({sizes.rows, sizes.columns}, 4, DType::kFloat);
  const Tensor l = left.To(kCuda), r = right.To(kCuda), b = bias.To(kCuda);
  product.Prepare();
  const auto run = [&](bool with_bias, bool adds) {
    const Tensor out = before.To(kCuda).Clone();
    const auto at = [](const Tensor& tensor) { return static_cast<float*>(tensor.raw(kCuda)); };
    product.Launch(at(l), at(r), with_bias ? at(b) : nullptr, at(out), adds, queue);
    return out.To({});
  };
  const Tensor added = run(false, true);
  ExpectProduct(sizes, math, left, right, nullptr, before.data<float>(), added);
  ExpectProduct(sizes, math, left, right, bias.data<float>(), nullptr, run(true, false));
  const Tensor again = run(false, true);
  EXPECT_EQ(std::memcmp(added.raw(), again.raw(), static_cast<size_t>(added.size_bytes())), 0);
}

TEST(FewRowsProduct, IsTheProduct) {
  try {
    RuntimeOf(kCuda);
  } catch (const Error& error) {
    GTEST_SKIP() << error.message();
  }
  const ProductDevice here = FewRowsProduct::DeviceOf(0);
  ProductDevice without_clusters = here;
  without_clusters.has_clusters = false;
  std::map<Math, std::set<std::string>> cuts;
  for (const bool right_transposed : {true, false}) {
    for (const auto& [rows, columns, depth] : {std::array{2, 4, 4},
                                               {5, 4, 4},
                                               {7, 36, 20},
                                               {8, 1024, 256},
                                               {8, 256, 1024},
                                               {9, 68, 132},
                                               {16, 512, 508},
                                               {17, 516, 2044},
                                               {33, 100, 52},
                                               {50, 512, 128},
                                               {50, 128, 512},
                                               {64, 2048, 512},
                                               {63, 516, 1020},
                                               {64, 260, 1000},
                                               {61, 2052, 520}}) {
      const ProductSizes sizes{rows, columns, depth, right_transposed};
      for (const Math math : kMaths) {
        for (const ProductDevice& device : {here, without_clusters}) {
          const std::optional<FewRowsProduct> product = FewRowsProduct::Make(sizes, math, device);
          if (!product) continue;
          cuts[math].insert(StrCat(right_transposed ? "transposed, " : "", product->Text()));
          ExpectIsProduct(*product, sizes, math);
        }
      }
    }
  }
  for (const Math math : kMaths) EXPECT_GE(cuts[math].size(), here.has_clusters ? 6 : 4) << MathName(math);
}

}  // namespace
}  // namespace stepnet

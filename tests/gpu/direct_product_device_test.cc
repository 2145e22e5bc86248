// Small products and those of up to four rows, against the same in double.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "stepnet/core/strings.h"
#include "stepnet/gpu/cuda/cuda_runtime.h"
#include "stepnet/gpu/cuda/direct_product.h"
#include "stepnet/tests/executor/recurrent_case.h"

namespace stepnet {
namespace {

constexpr Device kCuda = {.kind = DeviceKind::kCuda};

double At(const Tensor& tensor, std::int64_t i) {
  return tensor.dtype() == DType::kDouble ? tensor.data<double>()[i] : tensor.data<float>()[i];
}

// The sum for one element.
double ProductAt(const DirectSizes& sizes, const Tensor& left, const Tensor& right, std::int64_t matrix,
                 std::int64_t row, std::int64_t column) {
  const std::int64_t of_left = sizes.one_left ? 0 : matrix * sizes.rows * sizes.depth;
  const std::int64_t of_right = sizes.one_right ? 0 : matrix * sizes.depth * sizes.columns;
  double sum = 0;
  for (std::int64_t k = 0; k < sizes.depth; ++k) {
    const std::int64_t l = sizes.left_transposed ? k * sizes.rows + row : row * sizes.depth + k;
    const std::int64_t r = sizes.right_transposed ? column * sizes.depth + k : k * sizes.columns + column;
    sum += At(left, of_left + l) * At(right, of_right + r);
  }
  return sum;
}

TEST(DirectProduct, TakesWhatIsSmallOrHasFewRows) {
  const auto text = [](const DirectSizes& sizes, DType dtype = DType::kFloat) {
    const std::optional<DirectProduct> product = DirectProduct::Make(sizes, dtype);
    return product ? product->Text() : "none";
  };
  EXPECT_EQ(text({.rows = 1, .columns = 4096, .depth = 1024, .right_transposed = true}), "a warp for 4 columns");
  EXPECT_EQ(text({.rows = 4, .columns = 4096, .depth = 1024, .right_transposed = true}), "a warp for 1 column");
  EXPECT_EQ(text({.rows = 5, .columns = 4096, .depth = 1024, .right_transposed = true}), "none") << "rows";
  EXPECT_EQ(text({.rows = 1, .columns = 1024, .depth = 4096, .right_transposed = true}), "none") << "depth";
  EXPECT_EQ(text({.rows = 1, .columns = 1024, .depth = 1022, .right_transposed = true}), "none") << "no vectors";
  EXPECT_EQ(text({.rows = 1, .columns = 4096, .depth = 1024}), "a block for 32 columns");
  EXPECT_EQ(text({.rows = 1, .columns = 1024, .depth = 4096}), "a block for 8 columns");
  EXPECT_EQ(text({.rows = 1, .columns = 2048, .depth = 2048}), "a block for 16 columns");
  EXPECT_EQ(text({.rows = 2, .columns = 1024, .depth = 4096}), "none") << "rows in the other layout";
  EXPECT_EQ(text({.rows = 1, .columns = 1022, .depth = 4096}), "none") << "no vectors";
  EXPECT_EQ(text({.rows = 1, .columns = 64, .depth = 32}), "8 threads for an element");
  EXPECT_EQ(text({.rows = 1, .columns = 4096, .depth = 1024, .right_transposed = true}, DType::kDouble), "none");
  EXPECT_EQ(text({.rows = 64, .columns = 64, .depth = 64, .left_transposed = true}), "8 threads for an element");
  EXPECT_EQ(text({.count = 2, .rows = 64, .columns = 64, .depth = 64}), "none") << "several are not small";
  EXPECT_EQ(text({.rows = 8, .columns = 8, .depth = 1024}), "none") << "long sums";
  EXPECT_EQ(text({.rows = 8, .columns = 8, .depth = 0}), "none");
}

TEST(DirectProduct, OfFactorsThatBeginOnNoVectorMustBeSmall) {
  const auto can_run = [](std::int64_t columns, std::uintptr_t left, std::uintptr_t right) {
    const DirectSizes sizes{.rows = 3, .columns = columns, .depth = 16, .right_transposed = true};
    const auto at = [](std::uintptr_t address) { return reinterpret_cast<const void*>(address); };
    return DirectProduct::Make(sizes, DType::kFloat)->CanRun({at(left), at(right), at(4), nullptr});
  };
  EXPECT_TRUE(can_run(1 << 16, 64, 128));
  EXPECT_FALSE(can_run(1 << 16, 68, 128));
  EXPECT_FALSE(can_run(1 << 16, 64, 136));
  EXPECT_TRUE(can_run(6, 68, 136));
}

TEST(DirectProduct, IsTheProduct) {
  try {
    RuntimeOf(kCuda);
  } catch (const Error& error) {
    GTEST_SKIP() << error.message();
  }
  auto& queue = static_cast<CudaQueue&>(RuntimeOf(kCuda).queue());
  unsigned seed = 0;
  const auto expect = [&](const DirectSizes& sizes, DType dtype) {
    const std::optional<DirectProduct> product = DirectProduct::Make(sizes, dtype);
    ASSERT_TRUE(product.has_value());
    SCOPED_TRACE(StrCat(sizes.count, " of [", sizes.rows, ", ", sizes.depth, "] * [", sizes.depth, ", ", sizes.columns,
                        "] of ", dtype, sizes.left_transposed ? ", left transposed" : "",
                        sizes.right_transposed ? ", right transposed, " : ", ", product->Text()));
    const Tensor left = Random({sizes.one_left ? 1 : sizes.count, sizes.rows, sizes.depth}, ++seed, dtype),
                 right = Random({sizes.one_right ? 1 : sizes.count, sizes.depth, sizes.columns}, ++seed, dtype),
                 bias = Random({sizes.columns}, ++seed, dtype),
                 before = Random({sizes.count, sizes.rows, sizes.columns}, ++seed, dtype);
    const Tensor l = left.To(kCuda), r = right.To(kCuda), b = bias.To(kCuda);
    const auto run = [&](bool with_bias, bool adds) {
      const Tensor out = before.To(kCuda).Clone();
      product->Launch({l.raw(kCuda), r.raw(kCuda), with_bias ? b.raw(kCuda) : nullptr, out.raw(kCuda), adds}, queue);
      return out.To({});
    };
    EXPECT_TRUE(product->CanRun({l.raw(kCuda), r.raw(kCuda), nullptr, nullptr}));
    const double tolerance = dtype == DType::kDouble ? 1e-14 : 1e-5;
    for (const bool with_bias : {false, true}) {
      const Tensor got = run(with_bias, !with_bias), again = run(with_bias, !with_bias);
      for (std::int64_t e = 0; e < before.size(); ++e) {
        const std::int64_t column = e % sizes.columns, row = e / sizes.columns % sizes.rows;
        const double sum = ProductAt(sizes, left, right, e / sizes.columns / sizes.rows, row, column);
        ASSERT_NEAR(At(got, e), sum + (with_bias ? At(bias, column) : At(before, e)),
                    tolerance * (1 + std::sqrt(static_cast<double>(sizes.depth))))
            << "element " << e;
      }
      EXPECT_EQ(std::memcmp(got.raw(), again.raw(), static_cast<size_t>(got.size_bytes())), 0);
    }
  };
  for (const std::int64_t rows : {1, 2, 3, 4}) {
    for (const std::int64_t columns : {1, 30, 128, 4098}) {
      for (const std::int64_t depth : {4, 132, 1024, 1536}) {
        expect({.rows = rows, .columns = columns, .depth = depth, .right_transposed = true}, DType::kFloat);
      }
    }
  }
  for (const std::int64_t columns : {4, 36, 1024, 2060, 4100}) {
    for (const std::int64_t depth : {64, 77, 1000, 4096}) {
      expect({.rows = 1, .columns = columns, .depth = depth}, DType::kFloat);
    }
  }
  for (const DType dtype : {DType::kFloat, DType::kDouble}) {
    for (const int layout : {0, 1, 2, 3}) {
      const bool left_transposed = layout % 2 == 1, right_transposed = layout / 2 == 1;
      for (const std::int64_t rows : {1, 5, 64}) {
        for (const std::int64_t depth : {1, 7, 64}) {
          expect({.rows = rows,
                  .columns = 63,
                  .depth = depth,
                  .left_transposed = left_transposed,
                  .right_transposed = right_transposed},
                 dtype);
        }
      }
      for (const bool one_left : {false, true}) {
        expect({.count = 3,
                .rows = 5,
                .columns = 9,
                .depth = 33,
                .left_transposed = left_transposed,
                .right_transposed = right_transposed,
                .one_left = one_left,
                .one_right = !one_left},
               dtype);
      }
    }
  }
}

}  // namespace
}  // namespace stepnet

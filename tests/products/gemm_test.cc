#include "stepnet/products/gemm.h"

#include <gtest/gtest.h>
#include <sys/time.h>

#include <cmath>
#include <csignal>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <limits>
#include <random>
#include <string>
#include <thread>
#include <vector>

namespace stepnet {
namespace {

// One product with its operands, in rows longer than they need to be.
template <typename T>
struct Product {
  std::int64_t m, n, k, c_stride;
  std::vector<T> a, b, c, bias;
  MatrixView<T> a_view, b_view;
  bool accumulates, has_bias;

  Product(std::int64_t m, std::int64_t n, std::int64_t k, unsigned flags, unsigned seed) : m(m), n(n), k(k) {
    std::mt19937 random(seed);
    std::uniform_real_distribution<T> distribution(-1, 1);
    const auto fill = [&](std::vector<T>& values, std::int64_t size) {
      values.resize(size);
      for (T& value : values) value = distribution(random);
    };
    const bool a_transposed = flags & 1, b_transposed = flags & 2;
    accumulates = flags & 4;
    has_bias = flags & 8;
    const std::int64_t extra = flags & 16 ? 1 + random() % 20 : 0;
    const std::int64_t a_stride = (a_transposed ? m : k) + extra, b_stride = (b_transposed ? k : n) + extra;
    c_stride = n + extra;
    fill(a, (a_transposed ? k : m) * a_stride);
    fill(b, (b_transposed ? n : k) * b_stride);
    fill(c, m * c_stride);
    fill(bias, n);
    a_view = {a.data(), a_stride, a_transposed};
    b_view = {b.data(), b_stride, b_transposed};
  }

  static double At(MatrixView<T> view, std::int64_t row, std::int64_t column) {
    return view.transposed ? view.data[column * view.stride + row] : view.data[row * view.stride + column];
  }

  std::vector<T> Run() const {
    std::vector<T> out = c;
    if (!accumulates) {  // what is not read may be anything
      for (std::int64_t i = 0; i < m; ++i)
        std::fill_n(out.data() + i * c_stride, n, std::numeric_limits<T>::quiet_NaN());
    }
    Gemm(m, n, k, a_view, b_view, out.data(), c_stride, accumulates, has_bias ? bias.data() : nullptr);
    return out;
  }

  void Check() const {
    const std::vector<T> out = Run();
    SCOPED_TRACE(testing::Message() << "m " << m << ", n " << n << ", k " << k << ", transposed " << a_view.transposed
                                    << b_view.transposed << ", accumulates " << accumulates << ", bias " << has_bias
                                    << ", c_stride " << c_stride);
    const double tolerance = std::numeric_limits<T>::epsilon() * static_cast<double>(k + 4);
    for (std::int64_t i = 0; i < m; ++i) {
      for (std::int64_t j = 0; j < c_stride; ++j) {
        const double before = c[i * c_stride + j];
        double expected = before;
        if (j < n) {
          expected = (accumulates ? before : 0) + (has_bias ? bias[j] : 0);
          for (std::int64_t l = 0; l < k; ++l) expected += At(a_view, i, l) * At(b_view, l, j);
        }
        ASSERT_NEAR(out[i * c_stride + j], expected, j < n ? tolerance : 0) << "at " << i << ", " << j;
      }
    }
  }
};

template <typename T>
class GemmTest : public testing::Test {};
using FloatTypes = testing::Types<float, double>;
TYPED_TEST_SUITE(GemmTest, FloatTypes);

TYPED_TEST(GemmTest, FollowsItsFormula) {
  std::mt19937 random(1);
  for (unsigned i = 0; i < 160; ++i) {
    const auto size = [&] { return static_cast<std::int64_t>(random() % 2 == 0 ? random() % 5 : random() % 70); };
    const std::int64_t m = size(), n = size(), k = size();
    Product<TypeParam>(m, n, k, i % 32, i).Check();
  }
}

// By Gemv, where flags say that there are no gaps: eight vectors at a time, one, and one column.
TYPED_TEST(GemmTest, MultipliesARowByANarrowMatrix) {
  for (const std::int64_t n : {1, 3, 8, 31, 64, 65, 127, 128, 129, 300}) {
    for (const std::int64_t k : {1, 2, 3, 5, 130}) {
      for (unsigned flags = 0; flags < 32; ++flags) Product<TypeParam>(1, n, k, flags, flags).Check();
    }
  }
}

TYPED_TEST(GemmTest, MultipliesLargeMatrices) {
  for (unsigned flags = 0; flags < 32; flags += 5) Product<TypeParam>(33, 130, 300, flags, flags).Check();
}

TYPED_TEST(GemmTest, AcceptsNoElements) {
  for (unsigned flags = 0; flags < 32; ++flags) {
    Product<TypeParam>(0, 4, 3, flags, flags).Check();
    Product<TypeParam>(5, 0, 3, flags, flags).Check();
    Product<TypeParam>(5, 4, 0, flags, flags).Check();
  }
}

TYPED_TEST(GemmTest, GivesTheSameBitsAgain) {
  for (const std::int64_t m : {1, 7, 40}) {
    const Product<TypeParam> product(m, 200, 150, 2, 5);
    const std::vector<TypeParam> first = product.Run();
    EXPECT_EQ(std::memcmp(first.data(), product.Run().data(), first.size() * sizeof(TypeParam)), 0);
    std::vector<TypeParam> elsewhere;
    std::thread([&] { elsewhere = product.Run(); }).join();
    EXPECT_EQ(std::memcmp(first.data(), elsewhere.data(), first.size() * sizeof(TypeParam)), 0);
  }
}

#ifdef __linux__
int ThreadsOfThisProcess() {
  std::ifstream status("/proc/self/status");
  std::string word;
  while (status >> word && word != "Threads:") {
  }
  int threads = 0;
  status >> threads;
  return threads;
}

TEST(Gemm, StartsNoThreads) {
  int before = 0, after = 0;
  // In a new thread: an OpenMP runtime would give it workers of its own.
  std::thread([&] {
    before = ThreadsOfThisProcess();
    Product<float>(256, 256, 256, 2, 1).Run();
    after = ThreadsOfThisProcess();
  }).join();
  ASSERT_GT(before, 0);
  EXPECT_LE(after, before);
}
#endif

// A program may handle signals on the stack of its thread, as Python does.
TEST(Gemm, GoesOnAfterHandlersOfSignals) {
  const auto run = [] {
    std::signal(SIGALRM, [](int) {});
    const itimerval often = {.it_interval = {.tv_sec = 0, .tv_usec = 50}, .it_value = {.tv_sec = 0, .tv_usec = 50}};
    setitimer(ITIMER_REAL, &often, nullptr);
    const Product<float> product(256, 256, 512, /*flags=*/1, /*seed=*/1);
    const std::vector<float> first = product.Run();
    for (int i = 0; i < 200; ++i) {
      if (product.Run() != first) std::_Exit(1);
    }
    std::_Exit(0);
  };
  EXPECT_EXIT(run(), testing::ExitedWithCode(0), "");
}

TEST(GemmBlocks, OfColumnsAreOneOrAnEvenNumberOfWideOnes) {
  EXPECT_EQ(NumColumnBlocks(0, 256), 1);
  EXPECT_EQ(NumColumnBlocks(1, 256), 1);
  EXPECT_EQ(NumColumnBlocks(256, 64), 1) << "too little for a thread";
  EXPECT_EQ(NumColumnBlocks(512, 128), 2);
  EXPECT_EQ(NumColumnBlocks(128, 512), 2) << "few columns, long sums";
  EXPECT_EQ(NumColumnBlocks(1024, 256), 4);
  EXPECT_EQ(NumColumnBlocks(1024, 256, 128), 8);
  EXPECT_EQ(NumColumnBlocks(800, 256), 4) << "three would leave one of two threads idle for a third of the time";
}

TEST(GemmBlocks, OfManyRows) {
  EXPECT_FALSE(BlocksOfGemm(511, 512, 128).of_rows);
  EXPECT_TRUE(BlocksOfGemm(512, 512, 128).of_rows);
  EXPECT_EQ(BlocksOfGemm(512, 512, 128).count, 2);
  EXPECT_EQ(BlocksOfGemm(800, 512, 128).count, 4);
}

}  // namespace
}  // namespace stepnet

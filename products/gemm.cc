#include "stepnet/products/gemm.h"

#include <Eigen/Core>
#include <algorithm>
#include <array>
#include <type_traits>

#ifdef STEPNET_HAS_ONEDNN
#include <dlfcn.h>
#include <oneapi/dnnl/dnnl.h>
#endif

#include "stepnet/core/cancellation.h"
#include "stepnet/core/error.h"
#include "stepnet/core/signal_block.h"
#include "stepnet/core/strings.h"
#include "stepnet/core/system_memory.h"
#include "stepnet/products/gemm_of_columns.h"
#include "stepnet/products/gemm_of_rows.h"
#include "stepnet/products/gemv.h"
#include "stepnet/products/small_gemm.h"

namespace stepnet {
namespace {

#ifdef STEPNET_HAS_ONEDNN

// oneDNN takes as many threads as its OpenMP runtime would give the caller, a setting that each thread has for itself.
// The runtime is the one that oneDNN was linked with, whatever compiler built us, so it is looked up there.
struct OpenMp {
  int (*get_max_threads)() = nullptr;
  void (*set_num_threads)(int) = nullptr;

  static const OpenMp& OfOneDnn() {
    static const OpenMp runtime = Find();
    return runtime;
  }

 private:
  static OpenMp Find() {
    void* scope = RTLD_DEFAULT;
    // A library that was opened for itself alone, like a Python extension, has dependencies that the default scope does
    // not show.
    Dl_info library;
    if (dlsym(scope, "omp_set_num_threads") == nullptr && dladdr(reinterpret_cast<void*>(&dnnl_sgemm), &library) != 0) {
      scope = dlopen(library.dli_fname, RTLD_LAZY | RTLD_NOLOAD);
      if (scope == nullptr) return {};
    }
    OpenMp runtime;
    runtime.get_max_threads = reinterpret_cast<int (*)()>(dlsym(scope, "omp_get_max_threads"));
    runtime.set_num_threads = reinterpret_cast<void (*)(int)>(dlsym(scope, "omp_set_num_threads"));
    if (runtime.get_max_threads == nullptr || runtime.set_num_threads == nullptr) return {};
    return runtime;
  }
};

// While it lives, oneDNN runs on the calling thread alone, which handles no signals: some of oneDNN's code keeps data
// below the stack pointer, where a handler would write.
class OneThread {
 public:
  OneThread() {
    if (openmp_.set_num_threads == nullptr) return;
    before_ = openmp_.get_max_threads();
    if (before_ != 1) openmp_.set_num_threads(1);
  }
  ~OneThread() {
    if (before_ != 1) openmp_.set_num_threads(before_);
  }
  OneThread(const OneThread&) = delete;
  OneThread& operator=(const OneThread&) = delete;

 private:
  const SignalBlock no_signals_;
  const OpenMp& openmp_ = OpenMp::OfOneDnn();
  int before_ = 1;
};

// oneDNN makes the code of its kernels when it multiplies for the first time, and does not look whether it got the
// memory for that. So it multiplies once when there certainly is enough.
void PrepareOneDnn() {
  // Not std::call_once: the C library needs memory to pass an exception on from there.
  static const bool is_prepared = [] {
    RequireMemory(24 << 20, "oneDNN");  // version 2.6 takes 18 MB
    const OneThread one_thread;
    // Sizes that it has different code for: small products are computed where the matrices lie.
    constexpr std::int64_t kMaxSize = 16;
    const std::array<float, kMaxSize* kMaxSize> zeros = {};
    std::array<float, kMaxSize * kMaxSize> product;
    for (const auto& [m, n, k] : {std::array{kMaxSize, kMaxSize, kMaxSize}, std::array<std::int64_t, 3>{4, 6, 3}}) {
      for (const char a : {'N', 'T'}) {
        for (const char b : {'N', 'T'}) {
          dnnl_sgemm(a, b, m, n, k, 1, zeros.data(), a == 'N' ? k : m, zeros.data(), b == 'N' ? n : k, 0,
                     product.data(), n);
        }
      }
    }
    return true;
  }();
  static_cast<void>(is_prepared);
}

// False when oneDNN cannot do it. Throws kOutOfMemory.
bool MultiplyByOneDnn(std::int64_t m, std::int64_t n, std::int64_t k, MatrixView<float> a, MatrixView<float> b,
                      float* c, std::int64_t c_stride, bool accumulates) {
  PrepareOneDnn();
  const OneThread one_thread;
  const dnnl_status_t status = dnnl_sgemm(a.transposed ? 'T' : 'N', b.transposed ? 'T' : 'N', m, n, k, 1, a.data,
                                          a.stride, b.data, b.stride, accumulates ? 1 : 0, c, c_stride);
  // Eigen would round otherwise, so memory must not decide who multiplies.
  if (status == dnnl_out_of_memory) {
    throw Error(ErrorCode::kOutOfMemory,
                StrCat("the system refused the memory for a product [", m, ", ", n, "] of sums of ", k, " terms"));
  }
  return status == dnnl_success;
}

#endif

template <typename T>
void MultiplyByEigen(std::int64_t m, std::int64_t n, std::int64_t k, MatrixView<T> a, MatrixView<T> b, T* c,
                     std::int64_t c_stride, bool accumulates) {
  using Matrix = Eigen::Matrix<T, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
  using View = Eigen::Map<const Matrix, 0, Eigen::OuterStride<>>;
  const View in_a(a.data, a.transposed ? k : m, a.transposed ? m : k, Eigen::OuterStride<>(a.stride));
  const View in_b(b.data, b.transposed ? n : k, b.transposed ? k : n, Eigen::OuterStride<>(b.stride));
  Eigen::Map<Matrix, 0, Eigen::OuterStride<>> out(c, m, n, Eigen::OuterStride<>(c_stride));
  const auto assign = [&](const auto& product) {
    if (accumulates) {
      out.noalias() += product;
    } else {
      out.noalias() = product;
    }
  };
  if (a.transposed && b.transposed) {
    assign(in_a.transpose() * in_b.transpose());
  } else if (a.transposed) {
    assign(in_a.transpose() * in_b);
  } else if (b.transposed) {
    assign(in_a * in_b.transpose());
  } else {
    assign(in_a * in_b);
  }
}

// Writes what the product is added to.
template <typename T>
void Prepare(std::int64_t m, std::int64_t n, T* c, std::int64_t c_stride, bool accumulates, const T* bias) {
  for (std::int64_t i = 0; i < m; ++i) {
    T* row = c + i * c_stride;
    CountWork(n);
    if (bias == nullptr) {
      if (!accumulates) std::fill_n(row, n, T{0});
    } else if (accumulates) {
      for (std::int64_t j = 0; j < n; ++j) row[j] += bias[j];
    } else {
      std::copy_n(bias, n, row);
    }
  }
}

// Nobody can stop the library that multiplies, so no product that it is given takes long: some milliseconds on the
// widest vectors, and less than 50 on narrow ones. Sums of many terms are cut up first, then rows and columns are
// halved in turn, since products of few of them take longer. Where sums are cut decides how they round, so these are no
// figures of a Target.
constexpr std::int64_t kMaxTerms = 1 << 14;
#ifdef STEPNET_HAS_ONEDNN
template <typename T>
constexpr std::int64_t kMaxProducts = std::is_same_v<T, float> ? 1 << 29 : 1 << 27;
#else
template <typename T>
constexpr std::int64_t kMaxProducts = 1 << 27;
#endif

struct Blocks {
  std::int64_t m;
  std::int64_t n;
  std::int64_t k;
};

template <typename T>
Blocks BlocksOf(std::int64_t m, std::int64_t n, std::int64_t k) {
  constexpr std::int64_t kMultiple = 64;  // whole vectors and tiles
  const auto is_large = [](const Blocks& b) {
    return static_cast<double>(b.m) * static_cast<double>(b.n) * static_cast<double>(b.k) >
           static_cast<double>(kMaxProducts<T>);
  };
  Blocks blocks{.m = m, .n = n, .k = k};
  if (is_large(blocks)) blocks.k = std::min(k, kMaxTerms);
  while (is_large(blocks)) {
    std::int64_t& larger = blocks.m >= blocks.n ? blocks.m : blocks.n;
    larger = (larger / 2 + kMultiple - 1) / kMultiple * kMultiple;
  }
  return blocks;
}

// x B, false for matrices that others multiply faster.
template <typename T>
bool MultiplyRow(std::int64_t n, std::int64_t k, const T* x, MatrixView<T> b, T* c, bool accumulates) {
  if (b.transposed) {
    GemvOfRows(n, k, x, b.data, b.stride, c, accumulates);
    return true;
  }
  if (!IsGemv(n, k) || b.stride != n) return false;
  Gemv(n, k, x, b.data, c, accumulates);
  return true;
}

// A B where B and C are columns whose elements follow each other, as those of rows do: C^T = B^T A^T.
template <typename T>
bool MultiplyColumn(std::int64_t m, std::int64_t k, MatrixView<T> a, MatrixView<T> b, T* c, std::int64_t c_stride,
                    bool accumulates) {
  if (c_stride != 1 || (!b.transposed && b.stride != 1)) return false;
  a.transposed = !a.transposed;
  return MultiplyRow(m, k, b.data, a, c, accumulates);
}

template <typename T>
void MultiplyBlock(std::int64_t m, std::int64_t n, std::int64_t k, MatrixView<T> a, MatrixView<T> b, T* c,
                   std::int64_t c_stride, bool accumulates) {
  CountWork(m * n * k / kProductsOfWork);
  if (m == 1 && !a.transposed && MultiplyRow(n, k, a.data, b, c, accumulates)) return;
  if (IsSmallGemm(m, n, k, b.transposed)) {
    if (n == 1 && MultiplyColumn(m, k, a, b, c, c_stride, accumulates)) return;
    return SmallGemm(m, n, k, a, b, c, c_stride, accumulates);
  }
  if constexpr (std::is_same_v<T, float>) {
    if (a.transposed && !b.transposed && IsGemmOfColumns(m, n, k, a.stride)) {
      return GemmOfColumns(m, n, k, a.data, a.stride, b.data, b.stride, c, c_stride, accumulates);
    }
  }
#ifdef STEPNET_HAS_ONEDNN
  if constexpr (std::is_same_v<T, float>) {
    if (MultiplyByOneDnn(m, n, k, a, b, c, c_stride, accumulates)) return;
  }
#endif
  MultiplyByEigen(m, n, k, a, b, c, c_stride, accumulates);
}

}  // namespace

void PrepareGemm() {
#ifdef STEPNET_HAS_ONEDNN
  if (MayRefuseMemory()) PrepareOneDnn();
#endif
}

template <typename T>
void Gemm(std::int64_t m, std::int64_t n, std::int64_t k, MatrixView<T> a, MatrixView<T> b, T* c, std::int64_t c_stride,
          bool accumulates, const T* bias) {
  if (m == 0 || n == 0) return;
  if constexpr (std::is_same_v<T, float>) {
    if (!a.transposed && b.transposed && IsGemmOfRows(m, k)) {
      return GemmOfRows(m, n, k, a.data, a.stride, b.data, b.stride, c, c_stride, accumulates, bias);
    }
  }
  if (bias != nullptr || k == 0) {
    Prepare(m, n, c, c_stride, accumulates, bias);
    accumulates = true;
  }
  const Blocks max = BlocksOf<T>(m, n, k);
  for (std::int64_t i = 0; i < m; i += max.m) {
    for (std::int64_t j = 0; j < n; j += max.n) {
      for (std::int64_t l = 0; l < k; l += max.k) {
        MultiplyBlock(std::min(max.m, m - i), std::min(max.n, n - j), std::min(max.k, k - l), a.From(i, l),
                      b.From(l, j), c + i * c_stride + j, c_stride, accumulates || l > 0);
      }
    }
  }
}

template void Gemm(std::int64_t, std::int64_t, std::int64_t, MatrixView<float>, MatrixView<float>, float*, std::int64_t,
                   bool, const float*);
template void Gemm(std::int64_t, std::int64_t, std::int64_t, MatrixView<double>, MatrixView<double>, double*,
                   std::int64_t, bool, const double*);

}  // namespace stepnet

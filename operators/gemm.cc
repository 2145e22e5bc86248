#include "stepnet/operators/gemm.h"

#include <Eigen/Core>
#include <algorithm>
#include <type_traits>

#ifdef STEPNET_HAS_ONEDNN
#include <dlfcn.h>
#include <oneapi/dnnl/dnnl.h>
#endif

#include "stepnet/operators/gemv.h"

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

// While it lives, oneDNN runs on the calling thread alone.
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
  const OpenMp& openmp_ = OpenMp::OfOneDnn();
  int before_ = 1;
};

// False when oneDNN cannot do it.
bool MultiplyByOneDnn(std::int64_t m, std::int64_t n, std::int64_t k, MatrixView<float> a, MatrixView<float> b,
                      float* c, std::int64_t c_stride, bool accumulates) {
  const OneThread one_thread;
  return dnnl_sgemm(a.transposed ? 'T' : 'N', b.transposed ? 'T' : 'N', m, n, k, 1, a.data, a.stride, b.data, b.stride,
                    accumulates ? 1 : 0, c, c_stride) == dnnl_success;
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
    if (bias == nullptr) {
      if (!accumulates) std::fill_n(row, n, T{0});
    } else if (accumulates) {
      for (std::int64_t j = 0; j < n; ++j) row[j] += bias[j];
    } else {
      std::copy_n(bias, n, row);
    }
  }
}

}  // namespace

template <typename T>
void Gemm(std::int64_t m, std::int64_t n, std::int64_t k, MatrixView<T> a, MatrixView<T> b, T* c, std::int64_t c_stride,
          bool accumulates, const T* bias) {
  if (m == 0 || n == 0) return;
  if (bias != nullptr || k == 0) {
    Prepare(m, n, c, c_stride, accumulates, bias);
    accumulates = true;
  }
  if (k == 0) return;
  if (m == 1 && n <= kGemvColumns && b.stride == n && !b.transposed && !a.transposed) {
    Gemv(n, k, a.data, b.data, c, accumulates);
    return;
  }
#ifdef STEPNET_HAS_ONEDNN
  if constexpr (std::is_same_v<T, float>) {
    if (MultiplyByOneDnn(m, n, k, a, b, c, c_stride, accumulates)) return;
  }
#endif
  MultiplyByEigen(m, n, k, a, b, c, c_stride, accumulates);
}

template void Gemm(std::int64_t, std::int64_t, std::int64_t, MatrixView<float>, MatrixView<float>, float*, std::int64_t,
                   bool, const float*);
template void Gemm(std::int64_t, std::int64_t, std::int64_t, MatrixView<double>, MatrixView<double>, double*,
                   std::int64_t, bool, const double*);

}  // namespace stepnet

#include "stepnet/gpu/cuda/product_kernel.h"

#include <algorithm>
#include <limits>
#include <mutex>
#include <optional>
#include <vector>

#include "stepnet/core/strings.h"
#include "stepnet/gpu/cuda/cublas_lt.h"
#include "stepnet/gpu/cuda/direct_product.h"
#include "stepnet/gpu/cuda/few_rows_product.h"
#include "stepnet/gpu/cuda/product_choices.h"

namespace stepnet {
namespace {

// cuBLAS stores matrices by columns: what we store by rows it sees transposed. So it is asked for out^T, which is
// right^T · left^T, and both factors and the result lie as it wants them.

cudaDataType_t CudaType(DType dtype) { return dtype == DType::kDouble ? CUDA_R_64F : CUDA_R_32F; }

// One matrix, and how far the next of a batch is.
class Layout {
 public:
  Layout(DType dtype, std::int64_t rows, std::int64_t columns, std::int64_t count, std::int64_t stride) {
    const CublasLt& lt = TheCublasLt();
    CheckCublas(lt.layout_create(&layout_, CudaType(dtype), static_cast<std::uint64_t>(columns),
                                 static_cast<std::uint64_t>(rows), std::max<std::int64_t>(columns, 1)),
                "cublasLtMatrixLayoutCreate");
    const auto batch = static_cast<std::int32_t>(count);
    CheckCublas(lt.layout_set(layout_, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &batch, sizeof(batch)), "batch count");
    CheckCublas(lt.layout_set(layout_, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, &stride, sizeof(stride)),
                "batch stride");
  }
  ~Layout() { TheCublasLt().layout_destroy(layout_); }
  Layout(const Layout&) = delete;
  Layout& operator=(const Layout&) = delete;
  cublasLtMatrixLayout_t get() const { return layout_; }

 private:
  cublasLtMatrixLayout_t layout_ = nullptr;
};

struct DescDelete {
  void operator()(cublasLtMatmulDescOpaque_t* desc) const { TheCublasLt().desc_destroy(desc); }
};
using Desc = std::unique_ptr<cublasLtMatmulDescOpaque_t, DescDelete>;
struct PreferenceDelete {
  void operator()(cublasLtMatmulPreferenceOpaque_t* preference) const { TheCublasLt().preference_destroy(preference); }
};

template <typename Value>
void Set(const Desc& desc, cublasLtMatmulDescAttributes_t attribute, const Value& value) {
  CheckCublas(TheCublasLt().desc_set(desc.get(), attribute, &value, sizeof(value)), "cublasLtMatmulDescSetAttribute");
}

// The index of the batch in the memory of a factor whose dimensions of one element are repeated.
std::int64_t MatrixOf(const Shape& shape, const std::vector<std::int64_t>& batch, std::int64_t k) {
  std::int64_t matrix = 0, stride = 1;
  const int rank = shape.rank() - 2;
  for (int d = static_cast<int>(batch.size()) - 1, mine = rank - 1; d >= 0; --d, --mine) {
    const std::int64_t index = k % batch[d];
    k /= batch[d];
    if (mine < 0) continue;
    if (shape[mine] != 1) matrix += index * stride;
    stride *= shape[mine];
  }
  return matrix;
}

}  // namespace

class ProductKernel::Plan {
 public:
  Plan(const Product& product, DType dtype, Math math, const CudaRuntime& runtime)
      : dtype_(dtype),
        math_(dtype == DType::kFloat ? math : Math::kFloat32),
        runtime_(runtime),
        device_(runtime.index()),
        m_(product.left.rows()),
        n_(product.right->columns()),
        k_(product.left.columns()),
        left_(product.left),
        right_(*product.right) {
    const int rank = std::max(left_.shape.rank(), right_.shape.rank()) - 2;
    batch_.assign(rank, 1);
    for (const ProductFactor* factor : {&left_, &right_}) {
      const int own = factor->shape.rank() - 2;
      for (int d = 0; d < own; ++d) {
        if (factor->shape[d] != 1) batch_[rank - own + d] = factor->shape[d];
      }
    }
    for (const std::int64_t size : batch_) count_ *= size;
    constexpr std::int64_t kMaxCount = std::numeric_limits<std::int32_t>::max();  // as cuBLASLt counts them
    if (count_ > kMaxCount) {
      throw Error(ErrorCode::kInvalidArgument,
                  StrCat("a product of ", count_, " pairs of matrices; a GPU takes ", kMaxCount, " at once at most"));
    }
    strided_ = IsStrided(left_) && IsStrided(right_);
    if (dtype_ == DType::kFloat && count_ == 1 && !left_.transposed) PlanFewRows();
    if (strided_) PlanDirect();
  }

  bool takes_bias() const { return dtype_ == DType::kFloat; }
  bool is_empty() const { return m_ * n_ * count_ == 0; }

  void Run(const ProductPointers& pointers, void* scratch, const CudaQueue& queue) {
    UseCudaDevice(device_);
    if (few_rows_ && IsAligned(pointers)) return RunFewRows(pointers, queue);
    const DirectProduct::Pointers direct = {pointers.left, pointers.right, pointers.bias, pointers.out, pointers.adds};
    if (direct_ && direct_->CanRun(direct)) return direct_->Launch(direct, queue);
    const Calls& calls = CallsFor(pointers);
    if (strided_) return RunOne(calls, pointers, scratch, queue.stream());
    const std::int64_t bytes = DTypeBytes(dtype_);
    for (std::int64_t k = 0; k < count_; ++k) {
      ProductPointers of = pointers;
      of.left = static_cast<const std::byte*>(pointers.left) +
                MatrixOf(left_.shape, batch_, k) * left_.shape[-1] * left_.shape[-2] * bytes;
      of.right = static_cast<const std::byte*>(pointers.right) +
                 MatrixOf(right_.shape, batch_, k) * right_.shape[-1] * right_.shape[-2] * bytes;
      of.out = static_cast<std::byte*>(pointers.out) + k * m_ * n_ * bytes;
      RunOne(calls, of, scratch, queue.stream());
    }
  }

 private:
  struct Calls {
    bool has_bias = false;
    bool is_aligned = false;
    Desc desc;
    cublasLtMatmulAlgo_t algorithm;
  };

  void PlanFewRows() {
    const ProductSizes sizes{.rows = m_, .columns = n_, .depth = k_, .right_transposed = right_.transposed};
    UseCudaDevice(device_);
    few_rows_ = FewRowsProduct::Make(sizes, math_, FewRowsProduct::DeviceOf(device_));
    if (!few_rows_) return;
    few_rows_->Prepare();
    SharedProductChoices().Note(device_, TextOf({.is_aligned = true}), few_rows_->Text());
  }

  void PlanDirect() {
    if (math_ == Math::kTf32 && m_ * n_ * k_ > kCudaProducts.max_exact_multiplications) return;
    direct_ = DirectProduct::Make({.count = count_,
                                   .rows = m_,
                                   .columns = n_,
                                   .depth = k_,
                                   .left_transposed = left_.transposed,
                                   .right_transposed = right_.transposed,
                                   .one_left = MatricesOf(left_) == 1,
                                   .one_right = MatricesOf(right_) == 1},
                                  dtype_);
    if (!direct_ || few_rows_) return;  // which it stands in for where pointers are not aligned
    SharedProductChoices().Note(device_, TextOf({.is_aligned = true}), direct_->Text());
  }

  void RunFewRows(const ProductPointers& pointers, const CudaQueue& queue) const {
    few_rows_->Launch(static_cast<const float*>(pointers.left), static_cast<const float*>(pointers.right),
                      static_cast<const float*>(pointers.bias), static_cast<float*>(pointers.out), pointers.adds,
                      queue);
  }

  // All matrices of the batch, or one for all.
  bool IsStrided(const ProductFactor& factor) const {
    const std::int64_t matrices = MatricesOf(factor);
    return matrices == 1 || matrices == count_;
  }
  static std::int64_t MatricesOf(const ProductFactor& factor) {
    std::int64_t matrices = 1;
    for (int d = 0; d < factor.shape.rank() - 2; ++d) matrices *= factor.shape[d];
    return matrices;
  }
  std::int64_t StrideOf(const ProductFactor& factor) const {
    return MatricesOf(factor) == 1 ? 0 : factor.shape[-1] * factor.shape[-2];
  }

  // Vector loads need more than the alignment of an element, which rows within a tensor may not have.
  bool IsAligned(const ProductPointers& pointers) const {
    constexpr std::uintptr_t kAlignment = 16;
    const auto is = [](const void* pointer) { return reinterpret_cast<std::uintptr_t>(pointer) % kAlignment == 0; };
    return strided_ && is(pointers.left) && is(pointers.right) && is(pointers.out) && is(pointers.bias);
  }

  const Calls& CallsFor(const ProductPointers& pointers) {
    const bool has_bias = pointers.bias != nullptr, is_aligned = IsAligned(pointers);
    const std::lock_guard lock(mutex_);
    for (const std::unique_ptr<const Calls>& calls : calls_) {
      if (calls->has_bias == has_bias && calls->is_aligned == is_aligned) return *calls;
    }
    if (!c_) MakeLayouts();
    calls_.push_back(MakeCalls(has_bias, is_aligned));
    return *calls_.back();
  }

  // Opens cuBLASLt, which products of few rows alone do without.
  void MakeLayouts() {
    const std::int64_t at_once = strided_ ? count_ : 1;
    a_.emplace(dtype_, right_.shape[-2], right_.shape[-1], at_once, StrideOf(right_));
    b_.emplace(dtype_, left_.shape[-2], left_.shape[-1], at_once, StrideOf(left_));
    c_.emplace(dtype_, m_, n_, at_once, m_ * n_);
  }

  std::unique_ptr<const Calls> MakeCalls(bool has_bias, bool is_aligned) const {
    const CublasLt& lt = TheCublasLt();
    auto calls = std::make_unique<Calls>();
    calls->has_bias = has_bias;
    calls->is_aligned = is_aligned;
    cublasLtMatmulDesc_t desc = nullptr;
    CheckCublas(lt.desc_create(&desc, ComputeType(), CudaType(dtype_)), "cublasLtMatmulDescCreate");
    calls->desc.reset(desc);
    Set(calls->desc, CUBLASLT_MATMUL_DESC_TRANSA, right_.transposed ? CUBLAS_OP_T : CUBLAS_OP_N);
    Set(calls->desc, CUBLASLT_MATMUL_DESC_TRANSB, left_.transposed ? CUBLAS_OP_T : CUBLAS_OP_N);
    if (has_bias) Set(calls->desc, CUBLASLT_MATMUL_DESC_EPILOGUE, CUBLASLT_EPILOGUE_BIAS);
    calls->algorithm = SharedProductChoices().Get(device_, runtime_.description(), TextOf(*calls),
                                                  [&] { return BestAlgorithm(desc, is_aligned); });
    return calls;
  }

  // Exact: products and sums of float in float, without tensor cores.
  cublasComputeType_t ComputeType() const {
    if (dtype_ == DType::kDouble) return CUBLAS_COMPUTE_64F;
    return math_ == Math::kTf32 ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F;
  }

  // All that an algorithm is chosen by.
  std::string TextOf(const Calls& calls) const {
    const auto factor = [&](const ProductFactor& of) {
      const bool is_one = strided_ && MatricesOf(of) == 1 && count_ > 1;
      return StrCat("[", of.shape[-2], ", ", of.shape[-1], "]", of.transposed ? "^T" : "", is_one ? " (one)" : "");
    };
    return StrCat("product of ", dtype_, dtype_ == DType::kFloat ? StrCat(", ", MathName(math_)) : "", ": ",
                  strided_ && count_ > 1 ? StrCat(count_, " of ") : "", factor(left_), " x ", factor(right_),
                  calls.has_bias ? " + bias" : "", calls.is_aligned ? "" : ", unaligned");
  }

  cublasLtMatmulAlgo_t BestAlgorithm(cublasLtMatmulDesc_t desc, bool is_aligned) const {
    const CublasLt& lt = TheCublasLt();
    cublasLtMatmulPreference_t made = nullptr;
    CheckCublas(lt.preference_create(&made), "cublasLtMatmulPreferenceCreate");
    const std::unique_ptr<cublasLtMatmulPreferenceOpaque_t, PreferenceDelete> preference(made);
    const auto set = [&](cublasLtMatmulPreferenceAttributes_t attribute, const auto& value) {
      CheckCublas(lt.preference_set(made, attribute, &value, sizeof(value)), "cublasLtMatmulPreferenceSetAttribute");
    };
    const std::uint32_t alignment = is_aligned ? 16 : static_cast<std::uint32_t>(DTypeBytes(dtype_));
    set(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, static_cast<std::uint64_t>(kScratchBytes));
    set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, alignment);
    set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, alignment);
    set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, alignment);
    set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, alignment);
    cublasLtMatmulHeuristicResult_t found = {};
    int count = 0;
    CheckCublas(lt.heuristic(CublasLtHandle(device_), desc, a_->get(), b_->get(), c_->get(), c_->get(), made, 1, &found,
                             &count),
                "cublasLtMatmulAlgoGetHeuristic");
    if (count == 0) {
      throw Error(ErrorCode::kFailed, StrCat("cuBLASLt has no algorithm for a product of [", m_, ", ", k_, "] and [",
                                             k_, ", ", n_, "] of ", dtype_));
    }
    return found.algo;
  }

  void RunOne(const Calls& calls, const ProductPointers& pointers, void* scratch, cudaStream_t stream) const {
    const auto run = [&](cublasLtMatmulDesc_t desc) {
      const float one = 1, zero = 0;
      const double one_double = 1, zero_double = 0;
      const bool is_double = dtype_ == DType::kDouble;
      const void* alpha = is_double ? static_cast<const void*>(&one_double) : &one;
      const void* beta = pointers.adds ? alpha : is_double ? static_cast<const void*>(&zero_double) : &zero;
      CheckCublas(TheCublasLt().matmul(CublasLtHandle(device_), desc, alpha, pointers.right, a_->get(), pointers.left,
                                       b_->get(), beta, pointers.out, c_->get(), pointers.out, c_->get(),
                                       &calls.algorithm, scratch, kScratchBytes, stream),
                  "cublasLtMatmul");
    };
    if (!calls.has_bias) return run(calls.desc.get());
    // The bias is an attribute of what is called; other threads may run with another one.
    cublasLtMatmulDescOpaque_t own = *calls.desc;
    CheckCublas(TheCublasLt().desc_set(&own, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &pointers.bias, sizeof(pointers.bias)),
                "the bias of cublasLtMatmul");
    run(&own);
  }

  const DType dtype_;
  const Math math_;
  const CudaRuntime& runtime_;
  const int device_;
  const std::int64_t m_, n_, k_;
  const ProductFactor left_, right_;
  std::vector<std::int64_t> batch_;
  std::int64_t count_ = 1;
  bool strided_ = false;
  std::optional<Layout> a_, b_, c_;  // made when cuBLASLt is first called
  std::optional<FewRowsProduct> few_rows_;
  std::optional<DirectProduct> direct_;
  std::mutex mutex_;
  std::vector<std::unique_ptr<const Calls>> calls_;
};

ProductKernel::ProductKernel(const Product& product, DType dtype, Math math, const CudaRuntime& runtime)
    : plan_(std::make_unique<Plan>(product, dtype, math, runtime)) {}
ProductKernel::~ProductKernel() = default;

bool ProductKernel::takes_bias() const { return plan_->takes_bias(); }

void ProductKernel::Run(const ProductPointers& pointers, void* scratch, const CudaQueue& queue) const {
  if (!plan_->is_empty()) plan_->Run(pointers, scratch, queue);
}

}  // namespace stepnet

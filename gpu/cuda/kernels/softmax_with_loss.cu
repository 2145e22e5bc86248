// SoftmaxWithLoss and its gradient on a GPU.
#include "stepnet/gpu/cuda/kernels/elements.cuh"

namespace stepnet {
namespace {

enum Requirement { kLabel, kNotNegative, kAddsUp };

std::vector<Expr> Requirements(std::int64_t classes, DType dtype) {
  return {
      RequirementOf(StrCat("label {} is {}; there are classes 0 to ", classes - 1), {DType::kInt64, DType::kInt64}),
      RequirementOf("label [{}, {}] is {}; probabilities are not negative", {DType::kInt64, DType::kInt64, dtype}),
      RequirementOf("the labels of row {} add up to {}; probabilities add up to 1", {DType::kInt64, DType::kFloat})};
}

// x seen as a matrix, and what is known of its rows.
template <typename T>
struct LossRows {
  std::int64_t rows;
  std::int64_t classes;
  Ints labels;             // one of the two
  const T* probabilities;  // null: there are labels
  const T* weights;        // null: all 1
  device::FaultSlot fault;

  __device__ double Weight(std::int64_t row) const {
    return weights == nullptr ? 1.0 : static_cast<double>(weights[row]);
  }
  // -1: none of the classes.
  __device__ std::int64_t Label(std::int64_t row) const {
    const std::int64_t label = labels[row];
    return label >= 0 && label < classes ? label : -1;
  }
  __device__ void CheckLabel(std::int64_t row) const {
    if (Label(row) >= 0) return;
    device::NoteFault(fault, row, kLabel, device::Bits(static_cast<long long>(row)), device::Bits(labels[row]));
  }
  __device__ void CheckProbabilities(std::int64_t row) const {
    double sum = 0;
    for (std::int64_t j = 0; j < classes; ++j) {
      const T label = probabilities[row * classes + j];
      if (!(label >= 0)) {
        device::NoteFault(fault, row * classes + j, kNotNegative, device::Bits(static_cast<long long>(row)),
                          device::Bits(static_cast<long long>(j)), device::Bits(label));
        return;
      }
      sum += label;
    }
    if (device::FloatAbs(sum - 1) < 1e-5) return;
    device::NoteFault(fault, row * classes, kAddsUp, device::Bits(static_cast<long long>(row)),
                      device::Bits(static_cast<float>(sum)));
  }
};
template <typename T>
LossRows<T> RowsOf(const OpRun& run, const Shape& x, std::int64_t axis, bool label_prob, bool has_weights,
                   const KernelFault* fault) {
  const int first = x.CanonicalAxis(axis);
  return {.rows = x.SizeTo(first),
          .classes = x.SizeFrom(first),
          .labels = label_prob ? Ints() : Ints(run.In(1)),
          .probabilities = label_prob ? run.In(1).As<T>() : nullptr,
          .weights = has_weights ? run.In(2).As<T>() : nullptr,
          .fault = fault == nullptr ? device::FaultSlot() : SlotOf(*fault)};
}

constexpr std::int64_t kPartsOfRow = 32;

// The greatest of elements p, p + 32, … of a row; NaN does not count, as on the CPU.
template <typename T>
struct GreatestInParts {
  const T* x;
  std::int64_t classes;
  T* greatest;

  __device__ void operator()(std::int64_t i) const {
    const T* row = x + i / kPartsOfRow * classes;
    T most = device::Lowest<T>();
    for (std::int64_t j = i % kPartsOfRow; j < classes; j += kPartsOfRow) most = most < row[j] ? row[j] : most;
    greatest[i] = most;
  }
};
template <typename T>
struct GreatestOfRow {
  const T* parts;
  T* greatest;

  __device__ void operator()(std::int64_t row) const {
    T most = device::Lowest<T>();
    for (std::int64_t p = row * kPartsOfRow; p < (row + 1) * kPartsOfRow; ++p) most = most < parts[p] ? parts[p] : most;
    greatest[row] = most;
  }
};
template <typename T>
struct ExpOfElement {
  const T* x;
  const T* greatest;
  std::int64_t classes;
  T* p;

  __device__ void operator()(std::int64_t i) const { p[i] = device::Exp(x[i] - greatest[i / classes]); }
};
template <typename T>
struct ElementOf {
  const T* x;
  std::int64_t classes;

  __device__ double operator()(std::int64_t row, std::int64_t j) const { return x[row * classes + j]; }
};
template <typename T>
struct DivideByRow {
  T* p;
  const double* sums;
  std::int64_t classes;

  __device__ void operator()(std::int64_t i) const { p[i] /= static_cast<T>(sums[i / classes]); }
};

// The logit that the labels pick, less the greatest of the row.
template <typename T>
struct PickedLogit {
  LossRows<T> of;
  const T* x;
  const T* greatest;

  __device__ double operator()(std::int64_t row, std::int64_t j) const {
    const double logit = static_cast<double>(x[row * of.classes + j]) - greatest[row];
    if (of.probabilities == nullptr) return of.Label(row) == j ? logit : 0;
    const T label = of.probabilities[row * of.classes + j];
    return label != 0 ? static_cast<double>(label) * logit : 0;
  }
};
template <typename T>
struct CheckRow {
  LossRows<T> of;

  __device__ void operator()(std::int64_t row) const {
    of.probabilities == nullptr ? of.CheckLabel(row) : of.CheckProbabilities(row);
  }
};
// Sums over all rows their losses (k = 0) and their weights (1). Rows of weight 0 count for nothing, whatever
// they hold, NaN included.
template <typename T>
struct LossOfRow {
  LossRows<T> of;
  const double* sums;
  const double* picked;

  __device__ double operator()(std::int64_t k, std::int64_t row) const {
    const double weight = of.Weight(row);
    if (k == 1 || weight == 0) return weight;
    return weight * (static_cast<double>(device::Log(static_cast<T>(sums[row]))) - static_cast<T>(picked[row]));
  }
};
template <typename T>
struct WriteLoss {
  const double* totals;
  double scale;
  T* loss;

  __device__ void operator()(std::int64_t) const {
    *loss = totals[1] != 0 ? static_cast<T>(totals[0] * scale / totals[1]) : T{0};
  }
};

template <typename T>
void RunForward(const OpRun& run, const OperatorCall& op, const KernelFault& fault) {
  const auto of = RowsOf<T>(run, *run.In(0).shape, op.Int("axis"), op.Bool("label_prob"), run.num_inputs() > 2, &fault);
  const T* x = run.In(0).As<T>();
  T* p = run.Out(0).As<T>();
  const std::int64_t elements = of.rows * of.classes;
  T* parts = run.ScratchOf<T>(of.rows * kPartsOfRow);
  T* greatest = run.ScratchOf<T>(of.rows);
  ForEach(run, of.rows, CheckRow<T>{of});
  ForEach(run, of.rows * kPartsOfRow, GreatestInParts<T>{x, of.classes, parts});
  ForEach(run, of.rows, GreatestOfRow<T>{parts, greatest});
  const double* picked = SumsOf(run, of.rows, of.classes, PickedLogit<T>{of, x, greatest});
  ForEach(run, elements, ExpOfElement<T>{x, greatest, of.classes, p});
  const double* sums = SumsOf(run, of.rows, of.classes, ElementOf<T>{p, of.classes});
  ForEach(run, elements, DivideByRow<T>{p, sums, of.classes});
  const double* totals = SumsOf(run, 2, of.rows, LossOfRow<T>{of, sums, picked});
  ForEach(run, 1, WriteLoss<T>{totals, op.Number("scale"), run.Out(1).As<T>()});
}

template <typename T>
struct WeightOfRow {
  LossRows<T> of;
  __device__ double operator()(std::int64_t, std::int64_t row) const { return of.Weight(row); }
};
// dx = (p - label) * w_i * scale * dloss / sum of w.
template <typename T>
struct LossGradient {
  LossRows<T> of;
  const T* p;
  const T* dloss;
  const double* total_weight;
  double scale;
  T* dx;

  __device__ void operator()(std::int64_t i) const {
    const std::int64_t row = i / of.classes;
    const double weight = of.Weight(row);
    const std::int64_t label = of.probabilities == nullptr ? of.Label(row) : 0;
    if (weight == 0 || *total_weight == 0 || label < 0) {
      dx[i] = 0;
      return;
    }
    const T factor = static_cast<T>(weight * scale * static_cast<double>(*dloss) / *total_weight);
    if (of.probabilities != nullptr) {
      dx[i] = (p[i] - of.probabilities[i]) * factor;
    } else {
      dx[i] = (i % of.classes == label ? p[i] - 1 : p[i]) * factor;
    }
  }
};
template <typename T>
struct CheckLabelOfRow {
  LossRows<T> of;
  __device__ void operator()(std::int64_t row) const { of.CheckLabel(row); }
};

template <typename T>
void RunBackward(const OpRun& run, const OperatorCall& op, const KernelFault& fault) {
  const int last = run.num_inputs() - 1;
  const auto of = RowsOf<T>(run, *run.In(0).shape, op.Int("axis"), op.Bool("label_prob"), last == 4, &fault);
  if (of.probabilities == nullptr) ForEach(run, of.rows, CheckLabelOfRow<T>{of});
  const double* total = SumsOf(run, 1, of.rows, WeightOfRow<T>{of});
  ForEach(run, run.Out(0).size(),
          LossGradient<T>{of, run.In(last - 1).As<T>(), run.In(last).As<T>(), total, op.Number("scale"),
                          run.Out(0).As<T>()});
}

RunFn MakeLoss(const OperatorCall& op, bool is_gradient) {
  return [op, is_gradient](const OpRun& run) {
    const Shape& x = *run.In(0).shape;
    const int first = x.CanonicalAxis(op.Int("axis"));
    const KernelFault fault(run, Requirements(x.SizeFrom(first), run.In(0).dtype), run.In(1).size());
    ForFloats(run.In(0).dtype, [&](auto zero) {
      using T = decltype(zero);
      is_gradient ? RunBackward<T>(run, op, fault) : RunForward<T>(run, op, fault);
    });
    fault.Report();
  };
}

const GpuKernel loss("SoftmaxWithLoss",
                     {.make = [](const OperatorCall& op) { return MakeLoss(op, false); }, .checks_values = true});
const GpuKernel gradient("SoftmaxWithLossGradient",
                         {.make = [](const OperatorCall& op) { return MakeLoss(op, true); }, .checks_values = true});

}  // namespace
}  // namespace stepnet

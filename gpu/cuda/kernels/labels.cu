// Losses of labels, and Accuracy, on a GPU.
#include "stepnet/core/class_labels.h"
#include "stepnet/gpu/cuda/kernels/elements.cuh"

namespace stepnet {
namespace {

// Which of the classes each row belongs to; others are faults.
struct Labels {
  Ints labels;
  std::int64_t classes;
  device::FaultSlot fault;

  __device__ std::int64_t At(std::int64_t row) const {
    const std::int64_t label = labels[row];
    return label >= 0 && label < classes ? label : kNoClass;
  }
  __device__ std::int64_t Checked(std::int64_t row) const {
    const std::int64_t label = At(row);
    if (label == kNoClass) {
      device::NoteFault(fault, row, 0, device::Bits(static_cast<long long>(row)), device::Bits(labels[row]));
    }
    return label;
  }
  __device__ void operator()(std::int64_t row) const { Checked(row); }
};

Expr LabelRequirement(std::int64_t classes) {
  return RequirementOf(StrCat("label {} is {}; there are classes 0 to ", classes - 1), {DType::kInt64, DType::kInt64});
}
Labels LabelsOf(const TensorView& labels, std::int64_t classes, const KernelFault& fault) {
  return {Ints(labels), classes, SlotOf(fault)};
}

template <typename T>
__device__ T AtLeast(T x) {
  return x < static_cast<T>(kLeastProbability) ? static_cast<T>(kLeastProbability) : x;
}

template <typename T>
struct CrossEntropyOfRow {
  Labels labels;
  const T* x;
  T* y;

  __device__ void operator()(std::int64_t row) const {
    const std::int64_t label = labels.Checked(row);
    y[row] = -device::Log(label == kNoClass ? T{1} : AtLeast(x[row * labels.classes + label]));
  }
};

template <typename T>
struct CrossEntropyGradient {
  Labels labels;
  const T* x;
  const T* dy;
  T* dx;

  __device__ void operator()(std::int64_t i) const {
    const std::int64_t row = i / labels.classes;
    dx[i] = i % labels.classes == labels.At(row) ? -dy[row] / AtLeast(x[i]) : T{0};
  }
};

RunFn MakeCrossEntropy(const OperatorCall&) {
  return [](const OpRun& run) {
    const std::int64_t rows = run.Out(0).size(), classes = rows > 0 ? run.In(0).size() / rows : 0;
    const KernelFault fault(run, {LabelRequirement(classes)}, rows);
    ForFloats(run.Out(0).dtype, [&](auto zero) {
      using T = decltype(zero);
      ForEach(run, rows,
              CrossEntropyOfRow<T>{LabelsOf(run.In(1), classes, fault), run.In(0).As<T>(), run.Out(0).As<T>()});
    });
    fault.Report();
  };
}

RunFn MakeCrossEntropyGradient(const OperatorCall&) {
  return [](const OpRun& run) {
    const std::int64_t rows = run.In(2).size(), classes = rows > 0 ? run.In(0).size() / rows : 0;
    const KernelFault fault(run, {LabelRequirement(classes)}, rows);
    const Labels labels = LabelsOf(run.In(1), classes, fault);
    ForEach(run, rows, labels);
    ForFloats(run.Out(0).dtype, [&](auto zero) {
      using T = decltype(zero);
      ForEach(run, run.Out(0).size(),
              CrossEntropyGradient<T>{labels, run.In(0).As<T>(), run.In(2).As<T>(), run.Out(0).As<T>()});
    });
    fault.Report();
  };
}

// ---- Accuracy

// Whether a prediction comes before that of the label, of two equal ones the first; NaN before all numbers.
template <typename T>
__device__ bool IsGreater(T a, std::int64_t i, T b, std::int64_t j) {
  if (a != a || b != b) return a != a && (b == b || i < j);
  return a > b || (a == b && i < j);
}

template <typename T>
struct CountOfGreater {
  Labels labels;
  const T* x;

  // Parts of the place of the row's label.
  __device__ double operator()(std::int64_t row, std::int64_t j) const {
    const std::int64_t label = labels.At(row);
    const T* of_row = x + row * labels.classes;
    return label != kNoClass && IsGreater(of_row[j], j, of_row[label], label) ? 1 : 0;
  }
};
struct IsCorrect {
  Labels labels;
  const double* places;
  double top_k;

  __device__ double operator()(std::int64_t, std::int64_t row) const {
    return labels.Checked(row) != kNoClass && places[row] < top_k ? 1 : 0;
  }
};
template <typename T>
struct ShareOfRows {
  const double* correct;
  std::int64_t rows;
  T* y;

  __device__ void operator()(std::int64_t) const {
    *y = rows > 0 ? static_cast<T>(*correct) / static_cast<T>(rows) : T{0};
  }
};

RunFn MakeAccuracy(const OperatorCall& op) {
  return [top_k = static_cast<double>(op.Int("top_k"))](const OpRun& run) {
    const std::int64_t rows = run.In(0).dim(0), classes = run.In(0).dim(1);
    const KernelFault fault(run, {LabelRequirement(classes)}, rows);
    const Labels labels = LabelsOf(run.In(1), classes, fault);
    ForFloats(run.Out(0).dtype, [&](auto zero) {
      using T = decltype(zero);
      const double* places = SumsOf(run, rows, classes, CountOfGreater<T>{labels, run.In(0).As<T>()});
      const double* correct = SumsOf(run, 1, rows, IsCorrect{labels, places, top_k});
      ForEach(run, 1, ShareOfRows<T>{correct, rows, run.Out(0).As<T>()});
    });
    fault.Report();
  };
}

const GpuKernel cross_entropy("LabelCrossEntropy", {.make = MakeCrossEntropy, .checks_values = true});
const GpuKernel cross_entropy_gradient("LabelCrossEntropyGradient",
                                       {.make = MakeCrossEntropyGradient, .checks_values = true});
const GpuKernel accuracy("Accuracy", {.make = MakeAccuracy, .checks_values = true});

}  // namespace
}  // namespace stepnet

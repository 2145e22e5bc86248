// ScatterElements and its gradient on a GPU: one thread takes all updates of an element, in their order, as on the CPU.
#include "stepnet/core/move.h"
#include "stepnet/gpu/cuda/kernels/sorted_rows.cuh"
#include "stepnet/operators/scatter.h"

namespace stepnet {
namespace {

// Indices that name elements of data; others are faults.
struct ElementIndices {
  ScatterPlaces elements;
  Ints indices;
  std::int64_t rows;  // elements of data
  device::FaultSlot fault;

  static constexpr std::int64_t kNoRow = ScatterPlaces::kNone;
  __device__ std::int64_t At(std::int64_t i) const { return elements.At(i, indices[i]); }
};

// Sorts the updates by the elements that they are for, and calls `fn` with them. Indices of none are faults.
template <typename Fn>
void ForSortedUpdates(const OpRun& run, std::int64_t axis, const Fn& fn) {
  const TensorView &data = run.In(0), &indices = run.In(1);
  const ScatterPlaces places(*data.shape, *indices.shape, axis);
  const std::string message = StrCat("ScatterElements: element {} of the indices is {}; dimension ", places.axis,
                                     " of the data has size ", places.axis_size);
  const KernelFault fault(run, {RequirementOf(message, {DType::kInt64, DType::kInt64})}, indices.size());
  if (indices.size() > 0) {
    const ElementIndices elements{places, Ints(indices), data.size(), SlotOf(fault)};
    fn(SortRows(run, elements, indices.size(), "ScatterElements"));
  }
  fault.Report();
}

template <typename T, typename Reduction>
struct ScatterElement {
  SortedRows sorted;
  const T* updates;
  T* y;

  __device__ void operator()(std::int64_t first) const {
    if (!sorted.IsFirst(first)) return;
    T& element = y[sorted.rows[first]];
    const std::int64_t end = sorted.EndOf(first);
    for (std::int64_t k = first; k < end; ++k) element = Reduction::Result(element, updates[sorted.places[k]]);
  }
};

template <typename Fn>
void ForNumbers(DType dtype, const Fn& fn) {
  switch (dtype) {
    case DType::kInt32: return fn(std::int32_t{});
    case DType::kInt64: return fn(std::int64_t{});
    default: return ForFloats(dtype, fn);
  }
}

RunFn MakeScatter(const OperatorCall& op) {
  return [axis = op.Int("axis"), name = op.String("reduction")](const OpRun& run) {
    CopyInput(run);
    ForSortedUpdates(run, axis, [&](const SortedRows& sorted) {
      ForReduction(name, [&](auto reduction) {
        using Reduction = decltype(reduction);
        const auto scatter = [&](auto zero) {
          using T = decltype(zero);
          const auto* updates = static_cast<const T*>(run.In(2).data);
          ForEach(run, sorted.count, ScatterElement<T, Reduction>{sorted, updates, static_cast<T*>(run.Out(0).data)});
        };
        if constexpr (std::is_same_v<Reduction, ReplaceBy>) {
          ForBits(run.In(0).dtype, scatter);
        } else {
          ForNumbers(run.In(0).dtype, scatter);
        }
      });
    });
  };
}

// Forward each update notes what it found; back from the last one, the gradient of what it gave is shared between both.
template <typename T, typename Reduction>
struct ScatterGradientElement {
  SortedRows sorted;
  const T* data;
  const T* updates;
  T* ddata;
  T* dupdates;

  __device__ void operator()(std::int64_t first) const {
    if (!sorted.IsFirst(first)) return;
    const std::int64_t end = sorted.EndOf(first), row = sorted.rows[first];
    T element = data[row], gradient = ddata[row];
    for (std::int64_t k = first; k < end; ++k) {
      const std::int64_t i = sorted.places[k];
      dupdates[i] = element;
      element = Reduction::Result(element, updates[i]);
    }
    for (std::int64_t k = end - 1; k >= first; --k) {
      const std::int64_t i = sorted.places[k];
      element = dupdates[i];
      dupdates[i] = Reduction::OfUpdate(element, updates[i], gradient);
      gradient = Reduction::OfElement(element, updates[i], gradient);
    }
    ddata[row] = gradient;
  }
};

template <typename T>
struct CopyElement {
  const T* from;
  T* to;

  __device__ void operator()(std::int64_t i) const { to[i] = from[i]; }
};

RunFn MakeScatterGradient(const OperatorCall& op) {
  return [axis = op.Int("axis"), name = op.String("reduction")](const OpRun& run) {
    ClearOutput(run, 1);
    ForFloats(run.In(3).dtype, [&](auto zero) {
      using T = decltype(zero);
      T* const ddata = run.Out(0).As<T>();
      ForEach(run, run.Out(0).size(), CopyElement<T>{run.In(3).As<T>(), ddata});
      ForSortedUpdates(run, axis, [&](const SortedRows& sorted) {
        ForReduction(name, [&](auto reduction) {
          using Body = ScatterGradientElement<T, decltype(reduction)>;
          ForEach(run, sorted.count, Body{sorted, run.In(0).As<T>(), run.In(2).As<T>(), ddata, run.Out(1).As<T>()});
        });
      });
    });
  };
}

const GpuKernel scatter("ScatterElements", {.make = MakeScatter, .checks_values = true});
const GpuKernel scatter_gradient("ScatterElementsGradient", {.make = MakeScatterGradient, .checks_values = true});

}  // namespace
}  // namespace stepnet

// ScatterElements changes elements of a tensor by index, one update after the other. It is no formula, whose elements
// lie where shapes say.
#include "stepnet/operators/scatter.h"

#include <algorithm>

#include "stepnet/core/cancellation.h"
#include "stepnet/core/declared_gradient.h"
#include "stepnet/core/input_checks.h"
#include "stepnet/core/move.h"
#include "stepnet/core/operator.h"
#include "stepnet/operators/dtypes.h"
#include "stepnet/operators/elementwise.h"

namespace stepnet {
namespace {

// Sizes of data and updates in which the dimension is left out.
bool AreRowsOf(const Shape& data, const Shape& updates, int axis) {
  if (updates.rank() != data.rank()) return false;
  for (int d = 0; d < data.rank(); ++d) {
    if (d != axis && updates[d] > data[d]) return false;
  }
  return true;
}

void CheckScatter(const ShapeQuery& query) {
  const TensorInfo &data = query.In(0), &indices = query.In(1);
  ExpectSameType(query, 0, 2);
  if (query.op().String("reduction") != "none") {
    ExpectType(query, 0, {DType::kFloat, DType::kDouble, DType::kInt32, DType::kInt64});
  }
  const bool fits = data.shape.rank() > 0 && query.In(2).shape == indices.shape &&
                    AreRowsOf(data.shape, indices.shape, data.shape.CanonicalAxis(query.op().Int("axis")));
  if (fits) return;
  throw WrongInputs(query, {0, 1, 2},
                    "needs indices and updates of one shape, whose sizes beside that of the axis are at most those of "
                    "data");
}

// The element of data that update i is for. An index of none is a fault of the run.
std::int64_t PlaceAt(const OpRun& run, const ScatterPlaces& places, std::int64_t i) {
  const std::int64_t index = IntAt(run.In(1), i), place = places.At(i, index);
  if (place != ScatterPlaces::kNone) return place;
  run.Fault(1, i, [&](std::int64_t element) {
    return Error(ErrorCode::kInvalidArgument,
                 StrCat("ScatterElements: element ", element, " of the indices is ", index, "; dimension ", places.axis,
                        " of the data has size ", places.axis_size));
  });
  return ScatterPlaces::kNone;
}

template <typename T, typename Reduction>
void Scatter(const OpRun& run, std::int64_t axis, Reduction) {
  CopyInput(run);
  const ScatterPlaces places(*run.In(0).shape, *run.In(1).shape, axis);
  const T* const updates = run.In(2).As<T>();
  T* const y = run.Out(0).As<T>();
  const std::int64_t count = run.In(1).size();
  CountWork(count);
  for (std::int64_t i = 0; i < count; ++i) {
    const std::int64_t place = PlaceAt(run, places, i);
    if (place != ScatterPlaces::kNone) y[place] = Reduction::Result(y[place], updates[i]);
  }
}

RunFn MakeScatter(const OperatorCall& op) {
  return [axis = op.Int("axis"), name = op.String("reduction")](const OpRun& run) {
    ForReduction(name, [&](auto reduction) {
      const auto scatter = [&]<typename T>(T) { Scatter<T>(run, axis, reduction); };
      if constexpr (std::is_same_v<decltype(reduction), ReplaceBy>) {
        ForDType(run.In(0).dtype, scatter);
      } else if (const DType dtype = run.In(0).dtype; dtype == DType::kInt32 || dtype == DType::kInt64) {
        ForIndexType(dtype, "data of ScatterElements", scatter);
      } else {
        ForFloatType(dtype, "ScatterElements", scatter);
      }
    });
  };
}

const Registration scatter_elements =
    Operator("ScatterElements")
        .Doc(
            "Changes elements of data by index along one dimension, in the order of the updates: with axis=0 of three "
            "dimensions, y[indices[i, j, k], j, k] = updates[i, j, k]. Where indices repeat, the last update stays, or "
            "reduction takes all of them together with the element of data. An index that the dimension does not have "
            "is "
            "an error.")
        .Input("data", "[…, A, …], any dtype; with a reduction float, double, int32 or int64")
        .Input("indices",
               OfTypes({DType::kInt32, DType::kInt64},
                       "int32 or int64 of as many dimensions, from -A to A-1, where negative ones count from the end; "
                       "other sizes than that of the axis are at most those of data"))
        .Input("updates", "the shape of indices, the dtype of data")
        .Output("y", Like("data"))
        .Arg("axis", 0, "the dimension of the indices; negative counts from the end")
        .Arg("reduction", "none", "what an element becomes by an update: the update, or its sum, product, … with it",
             OneOf({std::begin(kReductionNames), std::end(kReductionNames)}))
        .CheckShapes(CheckScatter)
        .Gradient("ScatterElementsGradient", {"data", "indices", "updates", "dy"}, {"ddata", "dupdates"})
        .Cpu({.make = MakeScatter, .checks_values = true});

// Forward each update notes what it found; back from the last one, the gradient of what it gave is shared between both.
template <typename T, typename Reduction>
void ScatterGradient(const OpRun& run, std::int64_t axis, Reduction) {
  const TensorView &data = run.In(0), &dy = run.In(3);
  const ScatterPlaces places(*data.shape, *run.In(1).shape, axis);
  const T* const updates = run.In(2).As<T>();
  T* const ddata = run.Out(0).As<T>();
  T* const dupdates = run.Out(1).As<T>();
  T* const elements = run.ScratchOf<T>(data.size());
  const std::int64_t count = run.In(1).size();
  CountWork(2 * count);
  std::copy_n(data.As<T>(), data.size(), elements);
  std::copy_n(dy.As<T>(), dy.size(), ddata);
  for (std::int64_t i = 0; i < count; ++i) {
    const std::int64_t place = PlaceAt(run, places, i);
    dupdates[i] = place == ScatterPlaces::kNone ? T{0} : elements[place];
    if (place != ScatterPlaces::kNone) elements[place] = Reduction::Result(elements[place], updates[i]);
  }
  for (std::int64_t i = count - 1; i >= 0; --i) {
    const std::int64_t place = places.At(i, IntAt(run.In(1), i));
    if (place == ScatterPlaces::kNone) continue;
    const T element = dupdates[i], gradient = ddata[place];
    ddata[place] = Reduction::OfElement(element, updates[i], gradient);
    dupdates[i] = Reduction::OfUpdate(element, updates[i], gradient);
  }
}

const Registration scatter_elements_gradient =
    GradientOf(
        "ScatterElements",
        "An update that another one has replaced has the gradient 0. Where max and min find equal numbers, each of "
        "them has the whole gradient.")
        .CheckShapes([](const ShapeQuery& query) { ExpectFloat(query, 0); })
        .Cpu({.make = [](const OperatorCall& op) -> RunFn {
                return FloatKernel(
                    op, [axis = op.Int("axis"), name = op.String("reduction")]<typename T>(const OpRun& run) {
                      ForReduction(name, [&](auto reduction) { ScatterGradient<T>(run, axis, reduction); });
                    });
              },
              .checks_values = true});

}  // namespace
}  // namespace stepnet

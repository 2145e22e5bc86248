// The greatest elements: TopK, ArgMax, ArgMin, and Accuracy, which counts labels among them. They are no formulas:
// values say where elements go. The first of equal elements counts as greater. NaN counts as greater than all numbers,
// so that it shows.
#include <algorithm>
#include <cmath>
#include <numeric>

#include "stepnet/core/cancellation.h"
#include "stepnet/core/declared_gradient.h"
#include "stepnet/core/input_checks.h"
#include "stepnet/core/operator.h"
#include "stepnet/operators/dtypes.h"
#include "stepnet/operators/elementwise.h"
#include "stepnet/operators/labels.h"

namespace stepnet {
namespace {

// Element i of a row comes before element j.
template <typename T>
bool Greater(T a, std::int64_t i, T b, std::int64_t j) {
  if (std::isnan(a) || std::isnan(b)) return std::isnan(a) && (!std::isnan(b) || i < j);
  return a > b || (a == b && i < j);
}

// Rows along a dimension: element j of row (b, a) stands at (b * size + j) * after + a.
struct Lines {
  Lines(const Shape& x, std::int64_t axis_argument) {
    const int axis = x.CanonicalAxis(axis_argument);
    before = x.SizeTo(axis);
    size = x[axis];
    after = x.SizeFrom(axis + 1);
  }
  std::int64_t before;
  std::int64_t size;
  std::int64_t after;
};

std::vector<TensorInfo> TopKShapes(const ShapeQuery& query) {
  const TensorInfo& x = query.In(0);
  const Shape shape = x.shape.With(x.shape.CanonicalAxis(query.op().Int("axis")), query.op().Int("k"));
  return {{.dtype = x.dtype, .shape = shape},
          {.dtype = DType::kInt64, .shape = shape},
          {.dtype = DType::kInt64, .shape = Shape({shape.size()})}};
}

constexpr std::int64_t kWorkOfComparison = 4;
constexpr std::int64_t kWorkOfFreshMemory = 4;  // the first write to a page of scratch takes long

template <typename T>
void RunTopK(const OpRun& run, std::int64_t axis, std::int64_t k) {
  const Lines lines(*run.In(0).shape, axis);
  const T* x = run.In(0).As<T>();
  T* values = run.Out(0).As<T>();
  auto* indices = run.Out(1).As<std::int64_t>();
  std::int64_t* flat = run.num_outputs() > 2 ? run.Out(2).As<std::int64_t>() : nullptr;
  auto* order = run.ScratchOf<std::int64_t>(lines.size);
  const std::int64_t found = std::min(k, lines.size);
  for (std::int64_t b = 0; b < lines.before; ++b) {
    for (std::int64_t a = 0; a < lines.after; ++a) {
      const auto at = [&](std::int64_t j) { return (b * lines.size + j) * lines.after + a; };
      InBlocks(lines.size, kWorkOfFreshMemory,
               [&](std::int64_t begin, std::int64_t end) { std::iota(order + begin, order + end, begin); });
      std::partial_sort(order, order + found, order + lines.size, [&](std::int64_t i, std::int64_t j) {
        CountWork(kWorkOfComparison);
        return Greater(x[at(i)], i, x[at(j)], j);
      });
      for (std::int64_t j = 0; j < k; ++j) {
        const std::int64_t to = (b * k + j) * lines.after + a;
        values[to] = j < found ? x[at(order[j])] : T{0};
        indices[to] = j < found ? order[j] : -1;
        if (flat != nullptr) flat[to] = j < found ? at(order[j]) : -1;
      }
    }
  }
}

constexpr const char* kAxisDoc = "dimension; negative counts from the end";

const Registration top_k =
    Operator("TopK")
        .Doc(
            "The k greatest elements along a dimension, greatest first, and where they stand. Where there are fewer "
            "than k, the rest is 0 at index -1.")
        .Input("x", OfFloats("[…, A, …], float or double"))
        .Output("values", "[…, k, …]")
        .Output("indices", "int64 [..., k, …], from 0 to A-1, or -1 for none")
        .OptionalOutput("flat_indices", "int64 [number of values]: positions in x as a whole, row by row")
        .RequiredArg("k", ArgumentType::kInt, "how many", AtLeast(1))
        .Arg("axis", -1, kAxisDoc)
        .Shapes(TopKShapes)
        .Gradient("TopKGradient", {"dvalues", "indices", "x"}, {"dx"})
        .Cpu([](const OperatorCall& op) -> RunFn {
          return FloatKernel(
              op, [axis = op.Int("axis"), k = op.Int("k")]<typename T>(const OpRun& run) { RunTopK<T>(run, axis, k); });
        });

void CheckTopKGradient(const ShapeQuery& query) {
  ExpectSameType(query, 0, 2);
  const Shape& x = query.In(2).shape;
  const Shape picked = x.With(x.CanonicalAxis(query.op().Int("axis")), query.op().Int("k"));
  if (query.In(1).dtype == DType::kInt64 && query.In(0).shape == picked && query.In(1).shape == picked) return;
  throw WrongInputs(query, {0, 1, 2}, StrCat("needs dvalues and int64 indices ", picked));
}

template <typename T>
void RunTopKGradient(const OpRun& run, std::int64_t axis, std::int64_t k) {
  const Lines lines(*run.Out(0).shape, axis);
  const T* dvalues = run.In(0).As<T>();
  const auto* indices = run.In(1).As<std::int64_t>();
  T* dx = run.Out(0).As<T>();
  std::fill_n(dx, run.Out(0).size(), T{0});
  for (std::int64_t i = 0; i < run.In(0).size(); ++i) {
    const std::int64_t j = indices[i];
    if (j < -1 || j >= lines.size) {
      run.Fault(1, i, [&](std::int64_t element) {
        return Error(ErrorCode::kInvalidArgument,
                     StrCat("element ", element, " of the indices is ", j, "; the dimension is of size ", lines.size));
      });
      continue;
    }
    const std::int64_t b = i / (k * lines.after);
    if (j >= 0) dx[(b * lines.size + j) * lines.after + i % lines.after] = dvalues[i];
  }
}

const Registration top_k_gradient =
    GradientOf("TopK", "dx = dvalues where TopK found its values, 0 elsewhere. Elements of x are not read.")
        .ReadsShapes({2})
        .CheckShapes(CheckTopKGradient)
        .Cpu({.make = [](const OperatorCall& op) -> RunFn {
                return FloatKernel(op, [axis = op.Int("axis"), k = op.Int("k")]<typename T>(const OpRun& run) {
                  RunTopKGradient<T>(run, axis, k);
                });
              },
              .checks_values = true});

// `comes_first(a, i, b, j)`: element i, which is a, is to be found rather than element j, which is b.
template <typename ComesFirst>
Operator ArgOperator(const char* type, const char* doc, ComesFirst comes_first) {
  return Operator(type)
      .Doc(doc)
      .Input("x", OfFloats("[…, A, …], float or double, A at least 1"))
      .Output("indices", "int64 [..., 1, …], or [..., …] without keepdims")
      .Arg("axis", -1, kAxisDoc)
      .Arg("keepdims", true, "the dimension stays, with size 1")
      .Shapes([](const ShapeQuery& query) -> std::vector<TensorInfo> {
        const Shape& x = query.In(0).shape;
        const int axis = x.CanonicalAxis(query.op().Int("axis"));
        const Shape shape = query.op().Bool("keepdims") ? x.With(axis, 1) : x.Without(axis);
        if (x[axis] == 0 && shape.size() > 0) {
          throw WrongInputs(query, {0}, StrCat("finds nothing along dimension ", axis, " of size 0"));
        }
        return {{.dtype = DType::kInt64, .shape = shape}};
      })
      .StopsGradient()
      .Cpu([comes_first](const OperatorCall& op) -> RunFn {
        return [comes_first, axis = op.Int("axis"), type = op.type()](const OpRun& run) {
          ForFloatType(run.In(0).dtype, type, [&](auto zero) {
            const Lines lines(*run.In(0).shape, axis);
            const auto* x = run.In(0).As<decltype(zero)>();
            auto* indices = run.Out(0).As<std::int64_t>();
            for (std::int64_t i = 0; i < run.Out(0).size(); ++i) {
              const auto* row = x + i / lines.after * lines.size * lines.after + i % lines.after;
              CountWork(lines.size);
              std::int64_t best = 0;
              for (std::int64_t j = 1; j < lines.size; ++j) {
                if (comes_first(row[j * lines.after], j, row[best * lines.after], best)) best = j;
              }
              indices[i] = best;
            }
          });
        };
      });
}

const Registration arg_max = ArgOperator("ArgMax", "Where the greatest element along a dimension stands.",
                                         [](auto a, auto i, auto b, auto j) { return Greater(a, i, b, j); });
const Registration arg_min =
    ArgOperator("ArgMin", "Where the least element along a dimension stands.", [](auto a, auto i, auto b, auto j) {
      return std::isnan(a) || std::isnan(b) ? Greater(a, i, b, j) : Greater(-a, i, -b, j);
    });

const Registration accuracy =
    Operator("Accuracy")
        .Doc("The share of rows whose label is among the top_k classes of greatest prediction.")
        .Input("x", OfFloats("[N, D] predictions, float or double"))
        .Input("labels", "int32 or int64 [N], from 0 to D-1")
        .Output("accuracy", "[]; 0 where there are no rows")
        .Arg("top_k", 1, "how many guesses are allowed", AtLeast(1))
        .Shapes([](const ShapeQuery& query) -> std::vector<TensorInfo> {
          const Shape& x = query.In(0).shape;
          if (x.rank() != 2) {
            throw WrongInputs(query, {0}, "needs x [N, D]");
          }
          CheckLabelsInfo(query, 1, {x[0], x[1]});
          return {{.dtype = query.In(0).dtype, .shape = {}}};
        })
        .StopsGradient()
        .Cpu({.make = [](const OperatorCall& op) -> RunFn {
                return FloatKernel(op, [top_k = op.Int("top_k")]<typename T>(const OpRun& run) {
                  const std::int64_t rows = run.In(0).dim(0);
                  const std::int64_t classes = run.In(0).dim(1);
                  std::int64_t correct = 0;
                  for (std::int64_t i = 0; i < rows; ++i) {
                    const T* x = run.In(0).As<T>() + i * classes;
                    const std::int64_t label = LabelAt(run, 1, i, classes);
                    if (label == kNoClass) continue;
                    CountWork(classes);
                    std::int64_t place = 0;
                    for (std::int64_t j = 0; j < classes; ++j) place += Greater(x[j], j, x[label], label) ? 1 : 0;
                    correct += place < top_k ? 1 : 0;
                  }
                  run.Out(0).As<T>()[0] = rows > 0 ? static_cast<T>(correct) / static_cast<T>(rows) : T{0};
                });
              },
              .checks_values = true});

}  // namespace
}  // namespace stepnet

// Gather takes rows of a table by index; SparseToDense, its gradient in dense form, adds rows up by index. They are no
// formulas, whose elements lie where shapes say.
#include <algorithm>
#include <compare>
#include <span>

#include "stepnet/core/cancellation.h"
#include "stepnet/core/input_checks.h"
#include "stepnet/core/operator.h"
#include "stepnet/operators/dtypes.h"
#include "stepnet/operators/elementwise.h"

namespace stepnet {
namespace {

Error NoSuchRow(const char* op, std::int64_t i, std::int64_t row, std::int64_t rows) {
  const std::string what = StrCat(op, ": element ", i, " of the indices is ", row);
  return Error(ErrorCode::kInvalidArgument,
               rows == INT64_MAX ? what + "; the least is 0" : StrCat(what, "; the data have ", rows, " rows"));
}

// The row that element i of an input names. One of no row is a fault of the run.
constexpr std::int64_t kNoRow = -1;
std::int64_t RowAt(const OpRun& run, int input, std::int64_t i, std::int64_t rows, const char* op) {
  const std::int64_t row = IntAt(run.In(input), i);
  if (row >= 0 && row < rows) return row;
  run.Fault(input, i, [&](std::int64_t element) { return NoSuchRow(op, element, row, rows); });
  return kNoRow;
}

std::vector<TensorInfo> GatherShapes(const ShapeQuery& query) {
  const TensorInfo& data = query.In(0);
  if (data.shape.rank() == 0) {
    throw WrongInputs(query, {0}, "needs data [N, …]");
  }
  std::vector<std::int64_t> sizes = query.In(1).shape.ToVector();
  for (int i = 1; i < data.shape.rank(); ++i) sizes.push_back(data.shape[i]);
  return {{.dtype = data.dtype, .shape = Shape(sizes)}};
}

void RunGather(const OpRun& run) {
  const TensorView& data = run.In(0);
  const TensorView& indices = run.In(1);
  const TensorView& out = run.Out(0);
  const std::int64_t row_size = data.shape->SizeFrom(1);
  for (std::int64_t i = 0; i < indices.size(); ++i) {
    const std::int64_t row = RowAt(run, 1, i, data.dim(0), "Gather");
    if (row == kNoRow) {
      ClearElements(out.dtype, At(out, i * row_size), row_size);
    } else {
      CopyRuns(data.dtype, At(data, row * row_size), row_size, At(out, i * row_size), row_size, row_size, 1);
    }
  }
}

const Registration gather =
    Operator("Gather")
        .Doc("Rows of a table: y[i, …] = data[indices[i], …]. An index that names no row is an error.")
        .Input("data", "[N, …], any dtype")
        .Input("indices", OfTypes({DType::kInt32, DType::kInt64}, "int32 or int64, any shape, from 0 to N-1"))
        .Output("y", "the shape of indices, then that of a row")
        .Arg("dense_gradient", false, "the gradient of data is a tensor of the shape of data, and not sparse")
        .Shapes(GatherShapes)
        .Gradient([](GradientBuilder& g) {
          if (!g.op().Bool("dense_gradient")) return g.SetSparse(0, g.I(1), g.GO(0));
          g.Add({.type = "SparseToDense", .inputs = {g.I(1), g.GO(0), g.I(0)}, .outputs = {g.GI(0)}});
        })
        .Cpu({.make = [](const OperatorCall&) -> RunFn { return RunGather; }, .checks_values = true});

// One more than the largest index, which names the last row.
std::int64_t RowsNeeded(const std::vector<std::int64_t>& indices) {
  std::int64_t rows = 0;
  for (size_t i = 0; i < indices.size(); ++i) {
    if (indices[i] < 0 || indices[i] == INT64_MAX) {
      throw NoSuchRow("SparseToDense", static_cast<std::int64_t>(i), indices[i], INT64_MAX);
    }
    rows = std::max(rows, indices[i] + 1);
  }
  return rows;
}

std::vector<TensorInfo> SparseToDenseShapes(const ShapeQuery& query) {
  const TensorInfo& indices = query.In(0);
  const TensorInfo& values = query.In(1);
  bool fits = values.shape.rank() >= indices.shape.rank();
  for (int i = 0; fits && i < indices.shape.rank(); ++i) fits = values.shape[i] == indices.shape[i];
  std::vector<std::int64_t> sizes = {0};
  for (int i = indices.shape.rank(); fits && i < values.shape.rank(); ++i) sizes.push_back(values.shape[i]);
  const bool has_like = query.num_inputs() > 2;
  if (fits && has_like) {
    const Shape& like = query.In(2).shape;
    fits = like.rank() > 0 && like.Tail() == Shape(sizes).Tail();
    if (fits) sizes[0] = like[0];
  }
  if (!fits) {
    throw Error(ErrorCode::kShapeMismatch,
                StrCat("indices are ", indices.Description(), " and values ", values.Description(),
                       has_like ? StrCat(", like is ", query.In(2).Description()) : "",
                       "; SparseToDense needs indices [I…], values [I…, R…] and like [N, R…]"));
  }
  if (!has_like) sizes[0] = RowsNeeded(query.IntsOf(0));
  return {{.dtype = values.dtype, .shape = Shape(sizes)}};
}

// The rows that indices name, in the order of both; those of no row are left out. Memory of the run.
struct NamedRow {
  std::int64_t row;
  std::int64_t place;
  auto operator<=>(const NamedRow&) const = default;
};
std::span<const NamedRow> SortedRows(const OpRun& run) {
  const std::int64_t count = run.In(0).size();
  NamedRow* const rows = run.ScratchOf<NamedRow>(count);
  NamedRow* end = rows;
  for (std::int64_t i = 0; i < count; ++i) {
    const std::int64_t row = RowAt(run, 0, i, run.Out(0).dim(0), "SparseToDense");
    if (row != kNoRow) *end++ = {row, i};
  }
  std::sort(rows, end);
  return {rows, end};
}

template <typename T>
void AddRow(const T* from, std::int64_t size, T* to) {
  CountWork(size);
  for (std::int64_t k = 0; k < size; ++k) to[k] += from[k];
}

template <typename T>
void WriteSums(const OpRun& run) {
  const TensorView& out = run.Out(0);
  const std::int64_t row_size = out.shape->SizeFrom(1);
  ClearElements(out.dtype, At(out, 0), out.size());
  for (std::int64_t i = 0; i < run.In(0).size(); ++i) {
    const std::int64_t row = RowAt(run, 0, i, out.dim(0), "SparseToDense");
    if (row != kNoRow) AddRow(run.In(1).As<T>() + i * row_size, row_size, out.As<T>() + row * row_size);
  }
}

// Adds what WriteSums writes to what is there: rows that meet are summed up before.
template <typename T>
void AddSums(const OpRun& run) {
  const std::int64_t row_size = run.Out(0).shape->SizeFrom(1);
  const T* const values = run.In(1).As<T>();
  T* const sum = run.ScratchOf<T>(row_size);
  const std::span<const NamedRow> rows = SortedRows(run);
  for (size_t first = 0, end = 0; first < rows.size(); first = end) {
    std::copy_n(values + rows[first].place * row_size, row_size, sum);
    for (end = first + 1; end < rows.size() && rows[end].row == rows[first].row; ++end) {
      AddRow(values + rows[end].place * row_size, row_size, sum);
    }
    AddRow(sum, row_size, run.Out(0).As<T>() + rows[first].row * row_size);
  }
}

const Registration sparse_to_dense =
    Operator("SparseToDense")
        .Doc("Adds up rows by index: y[indices[i], …] += values[i, …], starting from 0.")
        .Input("indices", OfTypes({DType::kInt32, DType::kInt64}, "int32 or int64 [I…], at least 0"))
        .Input("values", OfFloats("[I…, R…], float or double"))
        .OptionalInput("like", "[N, R…]: its shape is that of y. Without it, N is one more than the largest index")
        .Output("y", "[N, R…]")
        .Arg("dense_gradient", false, "copied from Gather to its gradient, where it says nothing")
        .ShapesReadValues({0})
        .Shapes(SparseToDenseShapes)
        // As in the loop of a step net, which adds to what is there: rows are read and written. Elsewhere y is cleared.
        .CostIs([](const ShapeQuery& query, std::span<const TensorInfo>) -> Cost {
          const TensorInfo& values = query.In(1);
          const std::int64_t bytes = query.In(0).size_bytes() + 3 * values.size_bytes();
          return {.flops = static_cast<double>(values.shape.size()), .bytes = static_cast<double>(bytes)};
        })
        .Gradient([](GradientBuilder& g) {
          g.Add({.type = "Gather", .inputs = {g.GO(0), g.I(0)}, .outputs = {g.GI(1)}, .copies_arguments = false});
        })
        .Cpu({.make = [](const OperatorCall& op) -> RunFn {
                return FloatKernel(
                    op, []<typename T>(const OpRun& run) { run.Adds(0) ? AddSums<T>(run) : WriteSums<T>(run); });
              },
              .can_add = {0},
              .checks_values = true});

}  // namespace
}  // namespace stepnet

// FCOfParts: several FC of one x as one, whose weights stay where they are: what the pass merge_products makes of them
// where weights change from run to run, so that to lay them side by side would be a copy in each.
#include <algorithm>

#include "stepnet/core/cost.h"
#include "stepnet/operators/elementwise.h"
#include "stepnet/operators/fc_parts.h"
#include "stepnet/operators/input_checks.h"
#include "stepnet/products/gemm.h"
#include "stepnet/products/gemv.h"
#include "stepnet/products/panel_product.h"

namespace stepnet {
namespace {

constexpr int kX = 0, kBias = 1;

// x [M, K], and the weights [n, K] of each part, which are the inputs from `first` on.
struct Parts {
  std::int64_t m, k, n = 0;  // n of all parts

  template <typename ShapeOfInput>
  Parts(int first, int end, const ShapeOfInput& shape_of) {
    const Shape& x = shape_of(kX);
    m = x.SizeTo(x.rank() - 1);
    k = x[-1];
    for (int i = first; i < end; ++i) n += shape_of(i)[0];
  }
};

Parts PartsOf(const ShapeQuery& query, int first) {
  return {first, query.num_inputs(), [&](int i) -> const Shape& { return query.In(i).shape; }};
}

bool IsOneRow(const Parts& parts) { return parts.m == 1; }

ShapeRule ShapesOf(int first) {
  return [first](const ShapeQuery& query) {
    ExpectFloats(query);
    const Shape& x = query.In(kX).shape;
    const auto refuse = [&](const std::string& needs, int input) {
      throw Error(ErrorCode::kShapeMismatch, StrCat(query.op().type(), " needs ", needs, "; ", InputText(query, kX),
                                                    ", ", InputText(query, input)));
    };
    std::int64_t n = 0;
    for (int i = first; i < query.num_inputs(); ++i) {
      const Shape& w = query.In(i).shape;
      if (x.rank() < 2 || w.rank() != 2 || w[1] != x[-1]) refuse("x [M, K] and weights [n, K] of each part", i);
      n += w[0];
    }
    if (first > kBias && query.In(kBias).shape != Shape({n})) {
      refuse(StrCat("a bias of ", n, " elements, one an output of all parts"), kBias);
    }
    return std::vector<TensorInfo>{{.dtype = query.In(kX).dtype, .shape = x.With(-1, n)}};
  };
}

CostRule CostOf(int first) {
  return [first](const ShapeQuery& query, std::span<const TensorInfo> outputs) {
    const auto [m, k, n] = PartsOf(query, first);
    return Cost{.flops = 2.0 * static_cast<double>(m) * static_cast<double>(n) * static_cast<double>(k),
                .bytes = BytesMoved(query, outputs)};
  };
}

PartsRule MaxParts(int first) {
  return [first](const ShapeQuery& query, std::span<const TensorInfo>) {
    const Parts parts = PartsOf(query, first);
    if (IsOneRow(parts)) return NumUnitParts(parts.n, parts.k);
    std::int64_t blocks = 0;
    for (int i = first; i < query.num_inputs(); ++i) {
      blocks += BlocksOfGemm(parts.m, query.In(i).shape[0], parts.k).count;
    }
    return static_cast<int>(blocks);
  };
}

// One row and weights that lie by rows: the run's share of the columns.
template <typename T>
void MultiplyRow(const OpRun& run, int first, const Parts& parts, const T* b) {
  const PanelColumns columns = ShareOfColumns(run, parts.n);
  if (columns.begin >= columns.end) return;
  CountWork((columns.end - columns.begin) * (columns.n / columns.group) * parts.k / kProductsOfWork);
  T* const y = run.Out(0).As<T>();
  for (std::int64_t at = 0; at < columns.n; at += columns.group) {
    std::int64_t column = 0;  // of the part
    for (int i = first; i < run.num_inputs(); ++i) {
      const std::int64_t end_of_part = column + (*run.In(i).shape)[0];
      const std::int64_t begin = std::max(at + columns.begin, column), end = std::min(at + columns.end, end_of_part);
      if (begin < end) {
        GemvOfRows(end - begin, parts.k, run.In(kX).As<T>(), run.In(i).As<T>() + (begin - column) * parts.k, parts.k,
                   y + begin, run.Adds(0), b == nullptr ? b : b + begin);
      }
      column = end_of_part;
    }
  }
}

// Several rows: the run's share of the blocks of all parts.
template <typename T>
void MultiplyRows(const OpRun& run, int first, const Parts& parts, int num_blocks, const T* b) {
  const auto [begin_of_share, end_of_share] = run.Share(num_blocks);
  std::int64_t number = 0, column = 0;  // of the block, and of the part
  for (int i = first; i < run.num_inputs(); ++i) {
    const std::int64_t n = (*run.In(i).shape)[0];
    const auto [of_rows, blocks] = BlocksOfGemm(parts.m, n, parts.k);
    const MatrixView<T> x{.data = run.In(kX).As<T>(), .stride = parts.k};
    const MatrixView<T> w{.data = run.In(i).As<T>(), .stride = parts.k, .transposed = true};
    for (std::int64_t block = 0; block < blocks; ++block, ++number) {
      if (number < begin_of_share || number >= end_of_share) continue;
      const std::int64_t size = of_rows ? parts.m : n;
      const std::int64_t begin = size * block / blocks, end = size * (block + 1) / blocks;
      const std::int64_t row = of_rows ? begin : 0, of_part = of_rows ? 0 : begin;
      Gemm<T>(of_rows ? end - begin : parts.m, of_rows ? n : end - begin, parts.k, x.From(row, 0), w.From(0, of_part),
              run.Out(0).As<T>() + row * parts.n + column + of_part, parts.n, run.Adds(0),
              b == nullptr ? b : b + column + of_part);
    }
    column += n;
  }
}

RunFn MakeKernel(const OperatorCall& op, int first) {
  PrepareGemm();
  return FloatKernel(op, [first]<typename T>(const OpRun& run) {
    const Parts parts(first, run.num_inputs(), [&](int i) -> const Shape& { return *run.In(i).shape; });
    const T* const b = first > kBias ? run.In(kBias).As<T>() : nullptr;
    if (run.packed() != nullptr) {
      PanelProduct(parts.m, ShareOfColumns(run, parts.n), parts.k, run.In(kX).As<T>(), parts.k,
                   static_cast<const T*>(run.packed()), run.Out(0).As<T>(), parts.n, run.Adds(0), b);
    } else if (IsOneRow(parts)) {
      MultiplyRow(run, first, parts, b);
    } else {
      std::int64_t blocks = 0;
      for (int i = first; i < run.num_inputs(); ++i) {
        blocks += BlocksOfGemm(parts.m, (*run.In(i).shape)[0], parts.k).count;
      }
      MultiplyRows(run, first, parts, static_cast<int>(blocks), b);
    }
  });
}

// The run's share of the weights, which are its inputs, side by side in panels.
template <typename T>
void PackWeights(const OpRun& run) {
  const std::int64_t k = (*run.In(0).shape)[1];
  std::int64_t n = 0;
  for (const TensorView& w : run.inputs()) n += (*w.shape)[0];
  const auto [first, last] = run.Share(NumPanels(n));
  std::int64_t column = 0;
  for (const TensorView& w : run.inputs()) {
    const PanelPart part{.rows = k, .column = column, .columns = (*w.shape)[0]};
    PackPartOfPanels<T>(n, k, {.data = w.As<T>(), .stride = k, .transposed = true}, part, first, last,
                        static_cast<T*>(run.Out(0).data));
    column += part.columns;
  }
}

// The weights side by side in panels, where those of an FC would be.
Packing WeightsInPanels(int first) {
  return {.input = first,
          .bytes = [first](const ShapeQuery& query, std::span<const TensorInfo>) -> std::int64_t {
            const Parts parts = PartsOf(query, first);
            const Target& target = *query.op().options().target;
            const std::int64_t bytes = parts.n * parts.k * DTypeBytes(query.In(kX).dtype);
            if (IsOneRow(parts) && bytes > target.max_bytes_to_pack_for_row) return 0;
            if (parts.m > target.max_rows_to_pack) return 0;
            return PanelElements(parts.n, parts.k) * DTypeBytes(query.In(kX).dtype);
          },
          .pack = [](const OperatorCall& op) -> RunFn {
            return [type = op.type()](const OpRun& run) {
              ForFloatType(run.In(0).dtype, type, [&](auto zero) { PackWeights<decltype(zero)>(run); });
            };
          },
          .max_parts =
              [first](const ShapeQuery& query, std::span<const TensorInfo>) {
                const Parts parts = PartsOf(query, first);
                return NumUnitParts(parts.n, parts.k);
              }};
}

Operator OfParts(const char* type, bool has_bias) {
  const int first = has_bias ? 2 : 1;
  Operator op(type);
  op.Private()
      .Doc(StrCat("Several FC of one x: y = x w^T of each part, side by side", has_bias ? ", and a bias." : "."))
      .Input("x", "[M, K], M being any number of sizes, one or more");
  if (has_bias) op.Input("b", "[N], bias of all parts");
  return std::move(op.Inputs("weights", "[n, K] of each part")
                       .Output("y", "[M, N], where N are the columns of all parts")
                       .Shapes(ShapesOf(first))
                       .CostIs(CostOf(first))
                       .Rows([](const ShapeQuery&) { return RowOperands{.inputs = {kX}, .outputs = {0}}; })
                       .Cpu({.make = [first](const OperatorCall& op) { return MakeKernel(op, first); },
                             .max_parts = MaxParts(first),
                             .can_add = {0},
                             .can_part_units = true,
                             .packing = WeightsInPanels(first)}));
}

const Registration fc_of_parts = OfParts("FCOfParts", /*has_bias=*/false);
const Registration fc_of_parts_with_bias = OfParts("FCOfPartsWithBias", /*has_bias=*/true);

}  // namespace
}  // namespace stepnet

// FCGradientOfParts: the gradients of several FC of one x as those of one: what the pass merge_gradients makes of them.
// Only the gradients of what they gave lie side by side. Each weight is read, and its gradient written, where it lies.
#include <algorithm>
#include <numeric>

#include "stepnet/core/cost.h"
#include "stepnet/core/input_checks.h"
#include "stepnet/operators/elementwise.h"
#include "stepnet/operators/fc_parts.h"
#include "stepnet/products/gemm.h"
#include "stepnet/products/panel_product.h"
#include "stepnet/products/stored_weights.h"

namespace stepnet {
namespace {

constexpr int kX = 0, kDy = 1, kWeights = 2;

// Outputs are the gradients of the weights of all parts, then those of their biases, then that of x.
struct Parts {
  std::vector<std::int64_t> columns;  // of dy, by part
  bool has_bias;

  explicit Parts(const OperatorCall& op) : columns(op.Ints("parts")), has_bias(!op.Bool("no_bias")) {}

  int count() const { return static_cast<int>(columns.size()); }
  int DxOutput() const { return has_bias ? 2 * count() : count(); }
  std::int64_t NumColumns() const { return std::accumulate(columns.begin(), columns.end(), std::int64_t{0}); }
};

std::int64_t RowsOf(const Shape& shape) { return shape.SizeTo(shape.rank() - 1); }

std::vector<TensorInfo> InferShapes(const ShapeQuery& query) {
  ExpectFloats(query);
  const Parts parts(query.op());
  const Shape &x = query.In(kX).shape, &dy = query.In(kDy).shape;
  const auto refuse = [&](const std::string& needs, const std::string& beside = "") {
    throw Error(ErrorCode::kShapeMismatch, StrCat(query.op().type(), " needs ", needs, "; ", InputText(query, kX), ", ",
                                                  InputText(query, kDy), beside));
  };
  if (x.rank() < 2 || dy.rank() != x.rank() || dy.With(-1, 1) != x.With(-1, 1) || dy[-1] != parts.NumColumns()) {
    refuse(StrCat("x [M, K] and dy [M, N], where N are the ", parts.NumColumns(), " columns of all parts"));
  }
  const bool has_dx = query.num_inputs() > kWeights;
  for (int p = 0; has_dx && p < parts.count(); ++p) {
    const Shape needed = {parts.columns[p], x[-1]};
    if (query.In(kWeights + p).shape != needed)
      refuse(StrCat("weights ", needed, " of part ", p), ", " + InputText(query, kWeights + p));
  }
  const DType dtype = query.In(kX).dtype;
  std::vector<TensorInfo> outputs;
  for (const std::int64_t n : parts.columns) outputs.push_back({.dtype = dtype, .shape = Shape({n, x[-1]})});
  for (size_t p = 0; parts.has_bias && p < parts.columns.size(); ++p) {
    outputs.push_back({.dtype = dtype, .shape = Shape({parts.columns[p]})});
  }
  if (has_dx) outputs.push_back({.dtype = dtype, .shape = x});
  return outputs;
}

Cost CostOf(const ShapeQuery& query, std::span<const TensorInfo> outputs) {
  const Parts parts(query.op());
  const auto multiplied = static_cast<double>(query.In(kX).shape.size());  // M K
  double columns = 0;
  for (int p = 0; p < parts.count(); ++p) {
    if (outputs[p].shape.size() > 0) columns += static_cast<double>(parts.columns[p]);
  }
  const auto dx = static_cast<size_t>(parts.DxOutput());
  if (dx < outputs.size() && outputs[dx].shape.size() > 0) columns += static_cast<double>(parts.NumColumns());
  return {.flops = 2 * multiplied * columns, .bytes = BytesMoved(query, outputs)};
}

// Blocks of the columns of a part: the same whatever other parts there are, so that bits do not depend on which
// gradients somebody asks for. Blocks decide how dw rounds, so their sizes are no figures of a Target.
std::int64_t BlocksOfPart(const Parts& parts, int part, std::int64_t k) {
  constexpr std::int64_t kMinColumns = 512;  // fewer are one block, as there are several parts
  const std::int64_t columns = parts.columns[part];
  return columns < kMinColumns ? 1 : NumColumnBlocks(columns, k);
}

std::int64_t NumBlocks(const Parts& parts, std::int64_t k) {
  std::int64_t blocks = 0;
  for (int p = 0; p < parts.count(); ++p) blocks += BlocksOfPart(parts, p, k);
  return blocks;
}

bool GivesDx(const Parts& parts, std::span<const TensorInfo> outputs) {
  const auto dx = static_cast<size_t>(parts.DxOutput());
  return dx < outputs.size() && outputs[dx].shape.size() > 0;
}

int NumParts(const ShapeQuery& query, std::span<const TensorInfo> outputs) {
  const Parts parts(query.op());
  const Shape& x = query.In(kX).shape;
  const bool has_sums = std::any_of(outputs.begin(), outputs.begin() + parts.DxOutput(),
                                    [](const auto& o) { return o.shape.size() > 0; });
  const std::int64_t sums = has_sums ? NumBlocks(parts, x[-1]) : 1;
  const std::int64_t rows =
      GivesDx(parts, outputs) ? BlocksOfGemm(RowsOf(x), x[-1], parts.NumColumns()).count : std::int64_t{1};
  return static_cast<int>(std::max(sums, rows));
}

bool WantsSums(const OpRun& run, const Parts& parts) {
  for (int output = 0; output < parts.DxOutput(); ++output) {
    if (run.Wants(output)) return true;
  }
  return false;
}

// dw = dy^T x and db of each part, those that are wanted: the run's share of blocks of columns of dy.
template <typename T>
void SumGradients(const OpRun& run, const Parts& parts) {
  const std::int64_t k = (*run.In(kX).shape)[-1], n = parts.NumColumns(), m = RowsOf(*run.In(kX).shape);
  const T *x = run.In(kX).As<T>(), *dy = run.In(kDy).As<T>();
  const auto [first, last] = run.Share(NumBlocks(parts, k));
  std::int64_t number = 0;  // of the block
  for (int p = 0; p < parts.count(); ++p) {
    const std::int64_t columns = parts.columns[p], blocks = BlocksOfPart(parts, p, k);
    for (std::int64_t block = 0; block < blocks; ++block, ++number) {
      if (number < first || number >= last) continue;
      const std::int64_t begin = columns * block / blocks, end = columns * (block + 1) / blocks;
      if (run.Wants(p)) {
        Gemm<T>(end - begin, k, m, {dy + begin, n, true}, {x, k}, run.Out(p).As<T>() + begin * k, k, run.Adds(p));
      }
      const int db = parts.count() + p;
      if (parts.has_bias && run.Wants(db)) SumRows(dy, m, n, begin, end, run.Out(db).As<T>(), run.Adds(db));
    }
    dy += columns;
  }
}

// dx = dy w, the sum of the products of all parts: the run's share.
template <typename T>
void InputGradient(const OpRun& run, const Parts& parts) {
  const std::int64_t k = (*run.In(kX).shape)[-1], n = parts.NumColumns(), m = RowsOf(*run.In(kX).shape);
  const int dx = parts.DxOutput();
  const T* const dy = run.In(kDy).As<T>();
  T* const to = run.Out(dx).As<T>();
  if (run.packed() != nullptr) {
    PanelProduct(m, ShareOfColumns(run, k), n, dy, n, static_cast<const T*>(run.packed()), to, k, run.Adds(dx));
    return;
  }
  ForEachBlock(run, m, k, n, [&](std::int64_t row, std::int64_t column, std::int64_t rows, std::int64_t columns) {
    std::int64_t at = 0;  // column of dy
    for (int p = 0; p < parts.count(); ++p) {
      const MatrixView<T> of_dy{.data = dy + at, .stride = n}, w{.data = run.In(kWeights + p).As<T>(), .stride = k};
      Gemm<T>(rows, columns, parts.columns[p], of_dy.From(row, 0), w.From(0, column), to + row * k + column, k,
              run.Adds(dx) || p > 0);
      at += parts.columns[p];
    }
  });
}

RunFn MakeKernel(const OperatorCall& op) {
  PrepareGemm();
  return [parts = Parts(op), type = op.type()](const OpRun& run) {
    ForFloatType(run.In(kX).dtype, type, [&](auto zero) {  // outputs may be left out
      using T = decltype(zero);
      if (WantsSums(run, parts)) SumGradients<T>(run, parts);
      const bool has_dx = run.num_inputs() > kWeights;
      if (has_dx && run.Wants(parts.DxOutput())) InputGradient<T>(run, parts);
    });
  };
}

// The weights one below the other in panels, for the gradient of x.
Packing WeightsInPanels() {
  return {.input = kWeights,
          .bytes = [](const ShapeQuery& query, std::span<const TensorInfo> outputs) -> std::int64_t {
            const Parts parts(query.op());
            const Shape& x = query.In(kX).shape;
            if (!GivesDx(parts, outputs) || RowsOf(x) > query.op().options().target->max_rows_to_pack) return 0;
            return PanelElements(x[-1], parts.NumColumns()) * DTypeBytes(query.In(kX).dtype);
          },
          .pack = [](const OperatorCall& op) -> RunFn {
            return [parts = Parts(op), type = op.type()](const OpRun& run) {
              ForFloatType(run.In(0).dtype, type, [&](auto zero) {
                using T = decltype(zero);
                const std::int64_t n = parts.NumColumns(), k = (*run.In(0).shape)[1];
                const auto [first, last] = run.Share(NumPanels(k));
                std::int64_t row = 0;
                for (int p = 0; p < parts.count(); ++p) {
                  const MatrixView<T> w{.data = run.In(p).As<T>(), .stride = k};
                  const PanelPart part{.row = row, .rows = parts.columns[p], .columns = k};
                  PackPartOfPanels<T>(k, n, w, part, first, last, static_cast<T*>(run.Out(0).data));
                  row += parts.columns[p];
                }
              });
            };
          },
          .max_parts =
              [](const ShapeQuery& query, std::span<const TensorInfo>) {
                return NumUnitParts(query.In(kX).shape[-1], query.In(kDy).shape[-1]);
              }};
}

std::vector<int> UpTo(int end) {
  std::vector<int> numbers(end);
  std::iota(numbers.begin(), numbers.end(), 0);
  return numbers;
}

const Registration fc_gradient_of_parts =
    Operator("FCGradientOfParts")
        .Private()
        .Doc(
            "The gradients of several FC of one x: dw = dy^T x and db, the sum of the rows of dy, of each part of the "
            "columns of dy; and dx, the sum of dy w over the parts.")
        .Input("x", "[M, K], M being any number of sizes, one or more")
        .Input("dy", "[M, N], the gradients of what the parts give side by side")
        .OptionalInputs("weights", "[n, K] of each part; absent where dx is")
        .Outputs("gradients",
                 "dw of each part, [n, K]; without no_bias db of each part, [n]; with weights dx, the shape of x")
        .RequiredArg("parts", ArgumentType::kInts, "the columns of each part, n")
        .Arg("no_bias", false, "there is no db")
        .Check([](const OperatorCall& op, std::vector<NetProblem>* problems) {
          const Parts parts(op);
          const int weights = op.num_inputs() - kWeights;
          if (weights > 0 && weights != parts.count()) {
            problems->push_back(
                {.message = StrCat(op.type(), " has ", weights, " weights, and there are ", parts.count(), " parts")});
          }
          const int count = parts.DxOutput() + (weights > 0 ? 1 : 0);
          if (op.num_outputs() == count) return;
          problems->push_back(
              {.message = StrCat(op.type(), " gives ", count, " gradients here, not ", op.num_outputs())});
        })
        .Shapes(InferShapes)
        .CostIs(CostOf)
        .Rows([](const ShapeQuery& query) -> std::optional<RowOperands> {
          const bool has_dx = query.num_inputs() > kWeights;
          return RowOperands{.inputs = {kX, kDy},
                             .outputs = has_dx ? std::vector{Parts(query.op()).DxOutput()} : std::vector<int>()};
        })
        .Cpu({.make = MakeKernel,
              .max_parts = NumParts,
              .can_add = UpTo(64),
              .can_leave_out = true,
              .packing = WeightsInPanels()});

}  // namespace
}  // namespace stepnet

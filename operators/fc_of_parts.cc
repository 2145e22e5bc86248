// FCOfParts: several FC of one x as one, whose weights stay where they are: what the pass merge_products makes of them
// where weights change from run to run, so that to lay them side by side would be a copy in each.
#include "stepnet/core/cost.h"
#include "stepnet/core/input_checks.h"
#include "stepnet/operators/elementwise.h"
#include "stepnet/operators/fc_parts.h"

namespace stepnet {
namespace {

constexpr int kX = 0, kBias = 1;

// Those with x [M, K] and the weights [n, K] of each part, which are the inputs [first, end).
template <typename ShapeOfInput>
FCSizes SizesOf(int first, int end, const ShapeOfInput& shape_of) {
  const Shape& x = shape_of(kX);
  FCSizes sizes{.m = x.SizeTo(x.rank() - 1), .k = x[-1], .n = 0};
  for (int i = first; i < end; ++i) sizes.n += shape_of(i)[0];
  return sizes;
}
FCSizes SizesOf(const ShapeQuery& query, int first) {
  return SizesOf(first, query.num_inputs(), [&](int i) -> const Shape& { return query.In(i).shape; });
}

ShapeRule ShapesOf(int first) {
  return [first](const ShapeQuery& query) {
    ExpectFloats(query);
    const Shape& x = query.In(kX).shape;
    const auto refuse = [&](const std::string& needs, int input) {
      throw WrongInputs(query, {kX, input}, StrCat("needs ", needs));
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
    const auto [m, k, n] = SizesOf(query, first);
    return Cost{.flops = 2.0 * static_cast<double>(m) * static_cast<double>(n) * static_cast<double>(k),
                .bytes = BytesMoved(query, outputs)};
  };
}

PartsRule MaxParts(int first) {
  return [first](const ShapeQuery& query, std::span<const TensorInfo>) {
    const FCSizes sizes = SizesOf(query, first);
    if (sizes.m == 1) return NumUnitParts(sizes.n, sizes.k);
    std::int64_t blocks = 0;
    for (int i = first; i < query.num_inputs(); ++i) {
      blocks += BlocksOfGemm(sizes.m, query.In(i).shape[0], sizes.k).count;
    }
    return static_cast<int>(blocks);
  };
}

template <typename T>
struct WeightsOfPart {
  MatrixView<T> matrix;
  std::int64_t n;
};

RunFn MakeKernel(const OperatorCall& op, int first) {
  PrepareGemm();
  return FloatKernel(op, [first]<typename T>(const OpRun& run) {
    const FCSizes sizes = SizesOf(first, run.num_inputs(), [&](int i) -> const Shape& { return *run.In(i).shape; });
    const auto part_of = [&](int part) {
      const TensorView& w = run.In(first + part);
      return WeightsOfPart<T>{.matrix = {w.As<T>(), sizes.k, /*transposed=*/true}, .n = w.dim(0)};
    };
    const T* const b = first > kBias ? run.In(kBias).As<T>() : nullptr;
    MultiplyByParts(run, sizes, run.num_inputs() - first, part_of, run.In(kX).As<T>(), run.Out(0).As<T>(), b);
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
            const FCSizes sizes = SizesOf(query, first);
            if (!ArePanelsFaster(query, sizes, /*is_of_rows=*/sizes.m == 1)) return 0;
            return PanelElements(sizes.n, sizes.k) * DTypeBytes(query.In(kX).dtype);
          },
          .pack = [](const OperatorCall& op) -> RunFn {
            return [type = op.type()](const OpRun& run) {
              ForFloatType(run.In(0).dtype, type, [&](auto zero) { PackWeights<decltype(zero)>(run); });
            };
          },
          .max_parts =
              [first](const ShapeQuery& query, std::span<const TensorInfo>) {
                const FCSizes sizes = SizesOf(query, first);
                return NumUnitParts(sizes.n, sizes.k);
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

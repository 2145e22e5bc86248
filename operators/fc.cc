// FC: y = x w^T + b, where x is a matrix [M, K] of its sizes before and from `axis`, and w one [N, K]; b may be absent.
// FCTransposed keeps its weights the other way around, w [K, N]: y = x w + b.
#include <algorithm>

#include "stepnet/core/cost.h"
#include "stepnet/core/expansion.h"
#include "stepnet/core/input_checks.h"
#include "stepnet/operators/elementwise.h"
#include "stepnet/operators/fc_parts.h"
#include "stepnet/products/gemm.h"

namespace stepnet {
namespace {

// Says where the sizes of x and w divide, and which way round w is.
struct Layout {
  std::int64_t axis, axis_w;
  bool transposed;

  Layout(const OperatorCall& op, bool transposed)
      : axis(op.Int("axis")), axis_w(op.Int("axis_w")), transposed(transposed) {}

  // The k of w; that of x is the same once shapes have been checked.
  FCSizes SizesOf(const Shape& x, const Shape& w) const {
    const int i = x.CanonicalAxis(axis);
    const int j = w.CanonicalAxis(axis_w, "axis_w");
    const std::int64_t rows = w.SizeTo(j), columns = w.SizeFrom(j);
    return {.m = x.SizeTo(i), .k = transposed ? rows : columns, .n = transposed ? columns : rows};
  }
};

// [sizes of x before axis, N]. Throws unless x and w, inputs 0 and 1, fit together.
Shape ProductShape(const ShapeQuery& query, bool transposed) {
  ExpectFloats(query);
  const Shape& x = query.In(0).shape;
  const Shape& w = query.In(1).shape;
  const Layout layout(query.op(), transposed);
  const char* const w_text = transposed ? "[K, N]" : "[N, K]";
  if (layout.axis_w < -w.rank() || layout.axis_w >= w.rank()) {
    throw WrongInputs(query, {1}, StrCat("needs w ", w_text, ", divided before axis_w = ", layout.axis_w));
  }
  const FCSizes sizes = layout.SizesOf(x, w);
  const int axis = x.CanonicalAxis(layout.axis);
  if (x.SizeFrom(axis) != sizes.k) {
    throw WrongInputs(query, {0, 1},
                      StrCat("needs x [M, K] and w ", w_text, ", where K are the sizes of x from axis ", axis, " on"));
  }
  std::vector<std::int64_t> dims = x.ToVector();
  dims.resize(axis);
  dims.push_back(sizes.n);
  return Shape(dims);
}

ShapeRule FcShapes(bool transposed) {
  return [transposed](const ShapeQuery& query) {
    const Shape y = ProductShape(query, transposed);
    if (query.num_inputs() == 3 && query.In(2).shape != Shape({y[-1]})) {
      throw WrongInputs(query, {2}, StrCat("needs a bias of ", y[-1], " elements, one an output"));
    }
    return std::vector<TensorInfo>{{.dtype = query.In(0).dtype, .shape = y}};
  };
}

ShapeRule FcGradientShapes(bool transposed) {
  return [transposed](const ShapeQuery& query) {
    if (query.In(1).dtype == DType::kBFloat16) {
      throw WrongInputs(query, {1},
                        StrCat("computes no gradients with weights in bfloat16, which are for inference; ",
                               "to train, keep them in float"),
                        ErrorCode::kTypeMismatch);
    }
    const Shape y = ProductShape(query, transposed);
    if (query.In(2).shape != y) {
      throw WrongInputs(query, {2}, StrCat("needs a gradient of the shape of y, ", y));
    }
    const DType dtype = query.In(0).dtype;
    std::vector<TensorInfo> outputs = {{.dtype = dtype, .shape = query.In(1).shape}};
    if (!query.op().Bool("no_bias")) outputs.push_back({.dtype = dtype, .shape = Shape({y[-1]})});
    outputs.push_back({.dtype = dtype, .shape = query.In(0).shape});
    outputs.resize(query.op().num_outputs());
    for (const std::int64_t output : query.op().Ints("without")) outputs.at(output).shape = Shape({0});
    return outputs;
  };
}

CostRule FcCost(bool transposed, bool is_gradient) {
  return [transposed, is_gradient](const ShapeQuery& query, std::span<const TensorInfo> outputs) {
    const auto [m, k, n] = Layout(query.op(), transposed).SizesOf(query.In(0).shape, query.In(1).shape);
    const size_t db = is_gradient && !query.op().Bool("no_bias") ? 1 : outputs.size();
    double products = 0;
    for (size_t i = 0; i < outputs.size(); ++i) {
      if (i != db && outputs[i].shape.size() > 0) ++products;
    }
    return Cost{.flops = 2.0 * products * static_cast<double>(m) * static_cast<double>(n) * static_cast<double>(k),
                .bytes = BytesMoved(query, outputs)};
  };
}

// A row times weights that lie by rows, of which each gives an element.
bool IsRowTimesRows(std::int64_t m, bool transposed) { return m == 1 && !transposed; }

PartsRule FcParts(bool transposed) {
  return [transposed](const ShapeQuery& query, std::span<const TensorInfo>) {
    const auto [m, k, n] = Layout(query.op(), transposed).SizesOf(query.In(0).shape, query.In(1).shape);
    if (IsRowTimesRows(m, transposed)) return NumUnitParts(n, k);
    return static_cast<int>(BlocksOfGemm(m, n, k).count);
  };
}

// Among the outputs of a gradient.
int NumberOfInputGradient(const OperatorCall& op) { return op.Bool("no_bias") ? 1 : 2; }
bool GivesInputGradient(const OperatorCall& op, std::span<const TensorInfo> outputs) {
  const auto dx = static_cast<size_t>(NumberOfInputGradient(op));
  return outputs.size() > dx && outputs[dx].shape.size() > 0;
}

// In how many blocks of columns of dy dw is computed. Of many rows, products of short ones are worth a thread, too,
// where blocks of half the columns are not narrow. Blocks decide how dw rounds, so their sizes are no figures of a
// Target.
std::int64_t NumSumBlocks(std::int64_t m, std::int64_t k, std::int64_t n) {
  constexpr std::int64_t kManyRows = 8, kMinColumns = 192;
  return NumColumnBlocks(n, m >= kManyRows && n / 2 >= kMinColumns ? kManyRows * k : k);
}

PartsRule FcGradientParts(bool transposed) {
  return [transposed](const ShapeQuery& query, std::span<const TensorInfo> outputs) {
    const auto [m, k, n] = Layout(query.op(), transposed).SizesOf(query.In(0).shape, query.In(1).shape);
    const bool wants_dx = GivesInputGradient(query.op(), outputs);
    const std::int64_t sums = outputs[0].shape.size() > 0 ? NumSumBlocks(m, k, n) : 1;
    return static_cast<int>(std::max(sums, wants_dx ? BlocksOfGemm(m, k, n).count : 1));
  };
}

// Sizes before `axis` count rows; with axis 0 there are none, and x is one row.
RowsRule FcRows(bool is_gradient) {
  return [is_gradient](const ShapeQuery& query) -> std::optional<RowOperands> {
    const OperatorCall& op = query.op();
    if (query.In(0).shape.CanonicalAxis(op.Int("axis")) == 0) return std::nullopt;
    if (!is_gradient) return RowOperands{.inputs = {0}, .outputs = {0}};
    const int dx = NumberOfInputGradient(op);
    return RowOperands{.inputs = {0, 2}, .outputs = dx < op.num_outputs() ? std::vector{dx} : std::vector<int>()};
  };
}

// x [M, K] and w as the products read them, and dy [M, N].
struct FcFactors {
  ProductFactor x, w, dy;

  FcFactors(const Expansion& e, bool transposed) {
    const auto [m, k, n] = Layout(e.op(), transposed).SizesOf(e.In(0).shape, e.In(1).shape);
    x = {.input = 0, .shape = {m, k}};
    w = {.input = 1, .shape = transposed ? Shape({k, n}) : Shape({n, k}), .transposed = !transposed};
    dy = {.input = 2, .shape = {m, n}};
  }
};

ProductFactor Transposed(ProductFactor factor) {
  factor.transposed = !factor.transposed;
  return factor;
}

ExpansionRule FcExpansion(bool transposed) {
  return [transposed](Expansion& e) {
    const FcFactors of(e, transposed);
    e.Product(0, {.left = of.x, .right = of.w, .bias = e.num_inputs() == 3 ? 2 : -1});
  };
}

// dw = dy^T x, or its transpose; db, the sum of the rows of dy; dx = dy w.
ExpansionRule FcGradientExpansion(bool transposed) {
  return [transposed](Expansion& e) {
    const FcFactors of(e, transposed);
    const bool has_bias = !e.op().Bool("no_bias");
    const auto give = [&](int output, const Product& product) {
      if (std::ranges::count(e.op().Ints("without"), output) == 0) e.Product(output, product);
    };
    give(0, transposed ? Product{.left = Transposed(of.x), .right = of.dy}
                       : Product{.left = Transposed(of.dy), .right = of.x});
    if (has_bias) give(1, {.left = of.dy});
    give(has_bias ? 2 : 1, {.left = of.dy, .right = Transposed(of.w)});
  };
}

// The matrix that multiplies rows: the weights, [K, N] or its transpose, or for the gradient of x the other way around.
template <typename W>
struct Weights {
  std::int64_t n, k;  // of the product, whose sums have k terms
  MatrixView<W> matrix;

  Weights(const Layout& layout, const W* w, const Shape& shape, bool is_gradient) {
    const int cut = shape.CanonicalAxis(layout.axis_w, "axis_w");
    const std::int64_t rows = shape.SizeTo(cut), columns = shape.SizeFrom(cut);
    const bool transposed = layout.transposed == is_gradient;
    n = transposed ? rows : columns;
    k = transposed ? columns : rows;
    matrix = {.data = w, .stride = columns, .transposed = transposed};
  }
};

// Weights in panels, for products of rows with them.
Packing WeightsInPanels(bool transposed, bool is_gradient) {
  const auto weights_of = [=](const OperatorCall& op, const Shape& w) {
    return Weights<float>(Layout(op, transposed), nullptr, w, is_gradient);
  };
  return {.input = 1,
          .bytes = [=](const ShapeQuery& query, std::span<const TensorInfo> outputs) -> std::int64_t {
            const FCSizes sizes = Layout(query.op(), transposed).SizesOf(query.In(0).shape, query.In(1).shape);
            const bool is_given = !is_gradient || GivesInputGradient(query.op(), outputs);
            const bool is_of_rows = !is_gradient && IsRowTimesRows(sizes.m, transposed);
            if (!is_given || !ArePanelsFaster(query, sizes, is_of_rows)) return 0;
            const auto weights = weights_of(query.op(), query.In(1).shape);
            return PanelElements(weights.n, weights.k) * DTypeBytes(query.In(1).dtype);
          },
          .pack = [=](const OperatorCall& op) -> RunFn {
            return [layout = Layout(op, transposed), type = op.type(), is_gradient](const OpRun& run) {
              const auto pack = [&](const auto* w) {
                using W = std::remove_cvref_t<decltype(*w)>;
                const Weights<W> weights(layout, w, *run.In(0).shape, is_gradient);
                const auto [first, last] = run.Share(NumPanels(weights.n));
                PackPanels<W>(weights.n, weights.k, weights.matrix, first, last, static_cast<W*>(run.Out(0).data));
              };
              if (run.In(0).dtype == DType::kBFloat16) return pack(run.In(0).As<BFloat16>());
              ForFloatType(run.In(0).dtype, type, [&](auto zero) { pack(run.In(0).As<decltype(zero)>()); });
            };
          },
          .max_parts =
              [=](const ShapeQuery& query, std::span<const TensorInfo> outputs) {
                const auto weights = weights_of(query.op(), query.In(1).shape);
                const int parts = NumUnitParts(weights.n, weights.k);
                if (!is_gradient || outputs[0].shape.size() == 0) return parts;
                // Half of the work is dw, which has its own blocks: with fewer of them than parts, some would wait.
                const auto [m, k, n] = Layout(query.op(), transposed).SizesOf(query.In(0).shape, query.In(1).shape);
                return std::min(parts, static_cast<int>(NumSumBlocks(m, k, n)));
              }};
}

RunFn FcKernel(const OperatorCall& op, bool transposed) {
  PrepareGemm();
  return FloatKernel(op, [layout = Layout(op, transposed)]<typename T>(const OpRun& run) {
    const FCSizes sizes = layout.SizesOf(*run.In(0).shape, *run.In(1).shape);
    const T *x = run.In(0).As<T>(), *b = run.num_inputs() == 3 ? run.In(2).As<T>() : nullptr;
    ForWeights<T>(run.In(1), [&](const auto* w) {
      const Weights weights(layout, w, *run.In(1).shape, /*is_gradient=*/false);
      MultiplyByParts(
          run, sizes, 1, [&](int) { return weights; }, x, run.Out(0).As<T>(), b);
    });
  });
}

// dw and db, those that are wanted, in blocks of columns of dy.
template <typename T>
void SumGradients(const OpRun& run, const FCSizes& sizes, bool transposed, bool wants_dw, bool wants_db) {
  const auto [m, k, n] = sizes;
  const T* x = run.In(0).As<T>();
  const T* dy = run.In(2).As<T>();
  T* dw = wants_dw ? run.Out(0).As<T>() : nullptr;
  const std::int64_t blocks = NumSumBlocks(m, k, n);
  const auto [first, last] = run.Share(blocks);
  for (std::int64_t block = first; block < last; ++block) {
    const std::int64_t begin = n * block / blocks, end = n * (block + 1) / blocks;
    if (dw != nullptr && transposed) {
      Gemm<T>(k, end - begin, m, {x, k, true}, {dy + begin, n}, dw + begin, n, run.Adds(0));
    } else if (dw != nullptr) {
      Gemm<T>(end - begin, k, m, {dy + begin, n, true}, {x, k}, dw + begin * k, k, run.Adds(0));
    }
    if (wants_db) SumRows(dy, m, n, begin, end, run.Out(1).As<T>(), run.Adds(1));
  }
}

// dx = dy w^T.
template <typename T>
void InputGradient(const OpRun& run, const FCSizes& sizes, const Layout& layout, int dx) {
  const std::int64_t m = sizes.m;
  const Weights<T> weights(layout, run.In(1).As<T>(), *run.In(1).shape, /*is_gradient=*/true);
  const T* const dy = run.In(2).As<T>();
  T* const to = run.Out(dx).As<T>();
  if (run.packed() != nullptr) {
    return PanelProduct(m, ShareOfColumns(run, weights.n), weights.k, dy, weights.k,
                        static_cast<const T*>(run.packed()), to, weights.n, run.Adds(dx));
  }
  MultiplyInBlocks<T, T>(run, m, weights.n, weights.k, {dy, weights.k}, weights.matrix, to, run.Adds(dx));
}

RunFn FcGradientKernel(const OperatorCall& op, bool transposed) {
  PrepareGemm();
  const int dx = NumberOfInputGradient(op);
  const auto is_given = [&](int output) { return std::ranges::count(op.Ints("without"), output) == 0; };
  const bool gives_dw = is_given(0), gives_db = dx == 2 && is_given(1), gives_dx = is_given(dx);
  return [=, layout = Layout(op, transposed), type = op.type()](const OpRun& run) {
    ForFloatType(run.In(0).dtype, type, [&](auto zero) {  // outputs may be left out
      using T = decltype(zero);
      const FCSizes sizes = layout.SizesOf(*run.In(0).shape, *run.In(1).shape);
      const bool dw = gives_dw && run.Wants(0), db = gives_db && run.Wants(1);
      if (dw || db) SumGradients<T>(run, sizes, layout.transposed, dw, db);
      if (gives_dx && run.Wants(dx)) InputGradient<T>(run, sizes, layout, dx);
    });
  };
}

Operator WithAxes(Operator op) {
  return std::move(
      op.Arg("axis", 1, "sizes of x from here on make K, those before make M; negative counts from the end")
          .Arg("axis_w", 1, "where the sizes of w divide in the same way"));
}

// dw, db and dx; dw and dx where there is no bias.
void FcGradientRule(GradientBuilder& g) {
  GradientOp op{.type = g.op().type() + "Gradient", .inputs = {g.I(0), g.I(1), g.GO(0)}, .outputs = {g.GI(1)}};
  if (g.op().num_inputs() == 3) {
    op.outputs.push_back(g.GI(2));
  } else {
    op.arguments["no_bias"] = {.i = 1};
  }
  op.outputs.push_back(g.GI(0));
  g.Add(std::move(op));
}

Operator Fc(const char* type, bool transposed, const char* doc) {
  Kernel kernel = {.make = [transposed](const OperatorCall& op) { return FcKernel(op, transposed); },
                   .max_parts = FcParts(transposed),
                   .can_add = {0},
                   .can_part_units = !transposed,
                   .packing = WeightsInPanels(transposed, /*is_gradient=*/false),
                   .bfloat16_weights = {1}};
  return std::move(WithAxes(Operator(type))
                       .Doc(StrCat(doc, " On the CPU w may be bfloat16 where the others are float."))
                       .Input("x", "[M, K], each of them any number of sizes")
                       .Input("w", transposed ? "[K, N], weights" : "[N, K], weights")
                       .OptionalInput("b", "[N], bias")
                       .Output("y", "[M, N], with the sizes of x that make M")
                       .Shapes(FcShapes(transposed))
                       .CostIs(FcCost(transposed, false))
                       .Rows(FcRows(false))
                       .Expands(FcExpansion(transposed))
                       .Gradient(FcGradientRule)
                       .Cpu(std::move(kernel)));
}

void CheckFcGradient(const OperatorCall& op, std::vector<NetProblem>* problems) {
  const int max_outputs = op.Bool("no_bias") ? 2 : 3;
  for (const std::int64_t output : op.Ints("without")) {
    if (output < op.num_outputs()) continue;
    problems->push_back({.message = StrCat("without names output ", output, "; there are ", op.num_outputs())});
  }
  if (op.num_outputs() == max_outputs || op.num_outputs() == max_outputs - 1) return;
  problems->push_back({.message = StrCat(op.type(), " gives ", max_outputs - 1, " or ", max_outputs,
                                         " gradients here, not ", op.num_outputs())});
}

Operator FcGradient(const char* type, bool transposed, const char* doc) {
  return std::move(
      WithAxes(Operator(type))
          .Doc(doc)
          .Input("x", "[M, K]")
          .Input("w", transposed ? "[K, N]" : "[N, K]")
          .Input("dy", "[M, N]")
          .Output("dw", "the shape of w")
          .OptionalOutput("db", "[N]; absent with no_bias")
          .OptionalOutput("dx", "the shape of x")
          .Arg("no_bias", false, "the layer has no bias: the outputs are dw and dx")
          .Arg("without", std::vector<std::int64_t>{}, "outputs that stay empty, as nobody needs them", AtLeast(0))
          .Check(CheckFcGradient)
          .Shapes(FcGradientShapes(transposed))
          .CostIs(FcCost(transposed, true))
          .Rows(FcRows(true))
          .Expands(FcGradientExpansion(transposed))
          .Cpu({.make = [transposed](const OperatorCall& op) { return FcGradientKernel(op, transposed); },
                .max_parts = FcGradientParts(transposed),
                .can_add = {0, 1, 2},
                .can_leave_out = true,
                .packing = WeightsInPanels(transposed, /*is_gradient=*/true)}));
}

const Registration fc = Fc("FC", false, "Fully connected layer: y = x w^T + b. Without b, y = x w^T.");
const Registration fc_gradient =
    FcGradient("FCGradient", false, "dw = dy^T x, db = the sum of the rows of dy, dx = dy w.");
const Registration fc_transposed =
    Fc("FCTransposed", true, "Fully connected layer with weights kept as [K, N]: y = x w + b. Without b, y = x w.");
const Registration fc_transposed_gradient =
    FcGradient("FCTransposedGradient", true, "dw = x^T dy, db = the sum of the rows of dy, dx = dy w^T.");

}  // namespace
}  // namespace stepnet

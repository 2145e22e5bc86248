// MatMul: y = a b of two matrices. BatchMatMul: the same for every pair of the last two dimensions of two tensors.
#include <algorithm>
#include <array>

#include "stepnet/core/cost.h"
#include "stepnet/core/expansion.h"
#include "stepnet/core/input_checks.h"
#include "stepnet/operators/elementwise.h"
#include "stepnet/products/gemm.h"
#include "stepnet/products/stored_weights.h"

namespace stepnet {
namespace {

// A matrix of a product, as it lies in memory, and whether the product reads its transpose.
struct Factor {
  std::int64_t rows, columns;
  bool transposed;

  // They count rows and columns as the product reads them.
  std::int64_t rows_read() const { return transposed ? columns : rows; }
  std::int64_t columns_read() const { return transposed ? rows : columns; }
};

template <typename T>
MatrixView<T> View(const Factor& factor, const T* data) {
  return {data, std::max<std::int64_t>(factor.columns, 1), factor.transposed};
}

[[noreturn]] void ThrowMismatch(const ShapeQuery& query, const char* needs) {
  const bool trans_a = query.op().Bool("trans_a"), trans_b = query.op().Bool("trans_b");
  throw Error(ErrorCode::kShapeMismatch,
              StrCat(query.op().type(), " needs ", needs, "; ", InputText(query, 0), trans_a ? " (transposed)" : "",
                     " and ", InputText(query, 1), trans_b ? " (transposed)" : ""));
}

Cost ProductCost(const ShapeQuery& query, std::span<const TensorInfo> outputs, std::int64_t k) {
  return {.flops = 2.0 * static_cast<double>(outputs[0].shape.size()) * static_cast<double>(k),
          .bytes = BytesMoved(query, outputs)};
}

// The gradients of y = a b as products of the same type: da = dy b^T, db = a^T dy, and the like for transposes. Where
// matrices are repeated, they are then summed.
void AddProductGradients(GradientBuilder& g, bool is_repeated = false) {
  const bool trans_a = g.op().Bool("trans_a"), trans_b = g.op().Bool("trans_b");
  const auto add = [&](std::string left, bool trans_left, std::string right, bool trans_right, std::string output) {
    ArgumentMap arguments;
    if (is_repeated) arguments["broadcast"].i = arguments["matrices"].i = 1;
    if (trans_left) arguments["trans_a"].i = 1;
    if (trans_right) arguments["trans_b"].i = 1;
    g.Add({.type = g.op().type(),
           .inputs = {std::move(left), std::move(right)},
           .outputs = {std::move(output)},
           .arguments = std::move(arguments),
           .copies_arguments = false});
  };
  const std::string of_a = g.GI(0), of_b = g.GI(1);
  const std::string a = is_repeated ? of_a + "_repeated" : of_a, b = is_repeated ? of_b + "_repeated" : of_b;
  if (trans_a) {
    add(g.I(1), trans_b, g.GO(0), true, a);
  } else {
    add(g.GO(0), false, g.I(1), !trans_b, a);
  }
  if (trans_b) {
    add(g.GO(0), true, g.I(0), trans_a, b);
  } else {
    add(g.I(0), !trans_a, g.GO(0), false, b);
  }
  if (!is_repeated) return;
  g.Add({.type = "SumReduceLike", .inputs = {a, g.I(0)}, .outputs = {of_a}, .copies_arguments = false});
  g.Add({.type = "SumReduceLike", .inputs = {b, g.I(1)}, .outputs = {of_b}, .copies_arguments = false});
}

// MatMul.

Factor MatrixOf(const Shape& shape, std::int64_t axis, const char* what, bool transposed) {
  const int cut = shape.CanonicalAxis(axis, what);
  return {.rows = shape.SizeTo(cut), .columns = shape.SizeFrom(cut), .transposed = transposed};
}

struct MatMulArguments {
  std::int64_t axis_a, axis_b;
  bool trans_a, trans_b;

  explicit MatMulArguments(const OperatorCall& op)
      : axis_a(op.Int("axis_a")), axis_b(op.Int("axis_b")), trans_a(op.Bool("trans_a")), trans_b(op.Bool("trans_b")) {}
  Factor A(const Shape& a) const { return MatrixOf(a, axis_a, "axis_a", trans_a); }
  Factor B(const Shape& b) const { return MatrixOf(b, axis_b, "axis_b", trans_b); }
};

std::vector<TensorInfo> MatMulShapes(const ShapeQuery& query) {
  ExpectFloats(query);
  const MatMulArguments arguments(query.op());
  const Factor a = arguments.A(query.In(0).shape), b = arguments.B(query.In(1).shape);
  if (a.columns_read() != b.rows_read()) ThrowMismatch(query, "a [M, K] and b [K, N]");
  return {{.dtype = query.In(0).dtype, .shape = {a.rows_read(), b.columns_read()}}};
}

void MatMulGradient(GradientBuilder& g) {
  // The products below are matrices; without shapes at hand, only rank 2 is sure to be the shape of the inputs.
  if (g.op().Int("axis_a") != 1 || g.op().Int("axis_b") != 1) {
    throw Error(ErrorCode::kInvalidNet, "MatMul has a gradient for axis_a = 1 and axis_b = 1 only");
  }
  AddProductGradients(g);
}

int MatMulParts(const ShapeQuery& query, std::span<const TensorInfo>) {
  const MatMulArguments arguments(query.op());
  const Factor a = arguments.A(query.In(0).shape), b = arguments.B(query.In(1).shape);
  return static_cast<int>(BlocksOfGemm(a.rows_read(), b.columns_read(), a.columns_read()).count);
}

// Rows of a are rows of y. What multiplies the rows of two matrices with each other, the gradient of weights, sums over
// them.
std::optional<RowOperands> MatMulRows(const ShapeQuery& query) {
  const MatMulArguments arguments(query.op());
  const bool counts_a = query.In(0).shape.CanonicalAxis(arguments.axis_a, "axis_a") > 0;
  const bool counts_b = query.In(1).shape.CanonicalAxis(arguments.axis_b, "axis_b") > 0;
  if (!arguments.trans_a && counts_a) return RowOperands{.inputs = {0}, .outputs = {0}};
  if (arguments.trans_a && !arguments.trans_b && counts_a && counts_b)
    return RowOperands{.inputs = {0, 1}, .outputs = {}};
  return std::nullopt;
}

RunFn MatMulKernel(const OperatorCall& op) {
  PrepareGemm();
  return FloatKernel(op, [arguments = MatMulArguments(op)]<typename T>(const OpRun& run) {
    const Factor a = arguments.A(*run.In(0).shape), b = arguments.B(*run.In(1).shape);
    ForWeights<T>(run.In(1), [&](const auto* right) {
      MultiplyInBlocks(run, a.rows_read(), b.columns_read(), a.columns_read(), View(a, run.In(0).As<T>()),
                       View(b, right), run.Out(0).As<T>(), run.Adds(0));
    });
  });
}

// BatchMatMul.

// Sizes and strides of a batch of products: outer dimensions with, for each, how far the factors move.
struct Batch {
  int rank = 0;
  std::array<std::int64_t, Shape::kMaxRank> sizes = {};
  std::array<std::int64_t, Shape::kMaxRank> a_steps = {};  // in matrices; 0 where a is repeated
  std::array<std::int64_t, Shape::kMaxRank> b_steps = {};
};

struct BatchFactors {
  Factor a, b;
};

// The last two dimensions of both; a vector is a row of a or a column of b.
BatchFactors FactorsOf(const Shape& a, const Shape& b, bool trans_a, bool trans_b) {
  BatchFactors factors;
  factors.a = {.rows = a.rank() == 1 ? 1 : a[-2], .columns = a[-1], .transposed = trans_a};
  factors.b = {.rows = b.rank() == 1 ? b[-1] : b[-2], .columns = b.rank() == 1 ? 1 : b[-1], .transposed = trans_b};
  return factors;
}

int OuterRank(const Shape& shape) { return std::max(shape.rank() - 2, 0); }

// False when the outer dimensions cannot be broadcast together.
bool MakeBatch(const Shape& a, const Shape& b, Batch* batch) {
  batch->rank = std::max(OuterRank(a), OuterRank(b));
  std::int64_t a_step = 1, b_step = 1;
  for (int i = batch->rank - 1; i >= 0; --i) {
    const int in_a = i - batch->rank + OuterRank(a), in_b = i - batch->rank + OuterRank(b);
    const std::int64_t a_size = in_a < 0 ? 1 : a[in_a], b_size = in_b < 0 ? 1 : b[in_b];
    if (a_size != b_size && a_size != 1 && b_size != 1) return false;
    batch->sizes[i] = a_size == 1 ? b_size : a_size;
    batch->a_steps[i] = a_size == 1 ? 0 : a_step;
    batch->b_steps[i] = b_size == 1 ? 0 : b_step;
    a_step *= a_size;
    b_step *= b_size;
  }
  return true;
}

std::vector<TensorInfo> BatchMatMulShapes(const ShapeQuery& query) {
  ExpectFloats(query);
  const OperatorCall& op = query.op();
  const bool broadcasts = op.Bool("broadcast"), trans_a = op.Bool("trans_a"), trans_b = op.Bool("trans_b");
  const Shape& a = query.In(0).shape;
  const Shape& b = query.In(1).shape;
  if (!broadcasts && (a.rank() != b.rank() || a.rank() < 2)) {
    ThrowMismatch(query, "a [..., M, K] and b [..., K, N] of one rank, or broadcast = 1");
  }
  if (op.Bool("matrices") && std::min(a.rank(), b.rank()) < 2) ThrowMismatch(query, "matrices, as it says");
  if (a.rank() == 0 || b.rank() == 0 || (a.rank() == 1 && trans_a) || (b.rank() == 1 && trans_b)) {
    ThrowMismatch(query, "matrices, or vectors that are not transposed");
  }
  const auto [left, right] = FactorsOf(a, b, trans_a, trans_b);
  if (left.columns_read() != right.rows_read()) ThrowMismatch(query, "a [..., M, K] and b [..., K, N]");
  Batch batch;
  if (!MakeBatch(a, b, &batch)) ThrowMismatch(query, "outer dimensions that are equal or 1");
  std::vector<std::int64_t> dims(batch.sizes.begin(), batch.sizes.begin() + batch.rank);
  for (int i = 0; i < batch.rank; ++i) {
    if (!broadcasts && a[i] != b[i]) ThrowMismatch(query, "equal outer dimensions, or broadcast = 1");
  }
  if (a.rank() > 1) dims.push_back(left.rows_read());
  if (b.rank() > 1) dims.push_back(right.columns_read());
  if (a.rank() == 1 && b.rank() == 1) dims.push_back(1);
  return {{.dtype = query.In(0).dtype, .shape = Shape(dims)}};
}

template <typename T>
void MultiplyBatch(const Shape& a_shape, const Shape& b_shape, const BatchFactors& factors, const T* a, const T* b,
                   T* y, bool adds) {
  const Factor& left = factors.a;
  const Factor& right = factors.b;
  const std::int64_t m = left.rows_read(), n = right.columns_read(), k = left.columns_read();
  Batch batch;
  MakeBatch(a_shape, b_shape, &batch);
  std::int64_t count = 1, b_count = 1;
  for (int i = 0; i < batch.rank; ++i) count *= batch.sizes[i];
  for (int i = 0; i < OuterRank(b_shape); ++i) b_count *= b_shape[i];
  if (b_count == 1 && !left.transposed && a_shape.SizeTo(OuterRank(a_shape)) == count) {
    Gemm<T>(count * m, n, k, View<T>(left, a), View<T>(right, b), y, n, adds);  // the rows of all a's are one matrix
    return;
  }
  std::array<std::int64_t, Shape::kMaxRank> index = {};
  std::int64_t a_at = 0, b_at = 0;
  for (std::int64_t at = 0; at < count; ++at) {
    Gemm<T>(m, n, k, View<T>(left, a + a_at * m * k), View<T>(right, b + b_at * k * n), y + at * m * n, n, adds);
    for (int i = batch.rank - 1; i >= 0; --i) {
      a_at += batch.a_steps[i];
      b_at += batch.b_steps[i];
      if (++index[i] < batch.sizes[i]) break;
      index[i] = 0;
      a_at -= batch.a_steps[i] * batch.sizes[i];
      b_at -= batch.b_steps[i] * batch.sizes[i];
    }
  }
}

RunFn BatchMatMulKernel(const OperatorCall& op) {
  PrepareGemm();
  return FloatKernel(op, [trans_a = op.Bool("trans_a"), trans_b = op.Bool("trans_b")]<typename T>(const OpRun& run) {
    const Shape& a = *run.In(0).shape;
    const Shape& b = *run.In(1).shape;
    MultiplyBatch<T>(a, b, FactorsOf(a, b, trans_a, trans_b), run.In(0).As<T>(), run.In(1).As<T>(), run.Out(0).As<T>(),
                     run.Adds(0));
  });
}

Cost MatMulCost(const ShapeQuery& query, std::span<const TensorInfo> outputs) {
  return ProductCost(query, outputs, MatMulArguments(query.op()).A(query.In(0).shape).columns_read());
}

Cost BatchMatMulCost(const ShapeQuery& query, std::span<const TensorInfo> outputs) {
  const OperatorCall& op = query.op();
  const BatchFactors factors = FactorsOf(query.In(0).shape, query.In(1).shape, op.Bool("trans_a"), op.Bool("trans_b"));
  return ProductCost(query, outputs, factors.a.columns_read());
}

ProductFactor FactorOf(int input, const Factor& matrix) {
  return {.input = input, .shape = {matrix.rows, matrix.columns}, .transposed = matrix.transposed};
}

void ExpandMatMul(Expansion& e) {
  const MatMulArguments arguments(e.op());
  e.Product(0, {.left = FactorOf(0, arguments.A(e.In(0).shape)), .right = FactorOf(1, arguments.B(e.In(1).shape))});
}

void ExpandBatchMatMul(Expansion& e) {
  const auto [left, right] = FactorsOf(e.In(0).shape, e.In(1).shape, e.op().Bool("trans_a"), e.op().Bool("trans_b"));
  const auto with_batch = [&](ProductFactor factor) {
    const Shape& shape = e.In(factor.input).shape;
    for (int i = OuterRank(shape); i-- > 0;) factor.shape = factor.shape.Inserted(0, shape[i]);
    return factor;
  };
  e.Product(0, {.left = with_batch(FactorOf(0, left)), .right = with_batch(FactorOf(1, right))});
}

const Registration mat_mul =
    Operator("MatMul")
        .Doc(
            "Product of two matrices. Tensors of other ranks are read as matrices of their sizes before and from an "
            "axis. On the CPU b may be bfloat16 where a is float.")
        .Input("a", "[M, K], or [K, M] with trans_a")
        .Input("b", "[K, N], or [N, K] with trans_b")
        .Output("y", "[M, N]")
        .Arg("trans_a", false, "a is the transpose of what is multiplied")
        .Arg("trans_b", false, "b is the transpose of what is multiplied")
        .Arg("axis_a", 1, "where the sizes of a divide; negative counts from the end")
        .Arg("axis_b", 1, "where the sizes of b divide; negative counts from the end")
        .Shapes(MatMulShapes)
        .CostIs(MatMulCost)
        .Rows(MatMulRows)
        .Expands(ExpandMatMul)
        .Gradient(MatMulGradient)
        .Cpu({.make = MatMulKernel, .max_parts = MatMulParts, .can_add = {0}, .bfloat16_weights = {1}});

const Registration batch_mat_mul =
    Operator("BatchMatMul")
        .Doc(
            "Products of the matrices that the last two dimensions of both inputs hold. With broadcast, outer "
            "dimensions of 1 or that one input lacks are repeated, and a vector is one row of a or one column of b, "
            "whose dimension y then lacks.")
        .Input("a", "[..., M, K], or [..., K, M] with trans_a")
        .Input("b", "[..., K, N], or [..., N, K] with trans_b")
        .Output("y", "[..., M, N]")
        .Arg("trans_a", false, "a holds the transposes of what is multiplied")
        .Arg("trans_b", false, "b holds the transposes of what is multiplied")
        .Arg("broadcast", false,
             "outer dimensions may differ; there is no gradient then, unless with matrices, which cells say by "
             "themselves")
        .Arg("matrices", false, "neither input is a vector")
        .Shapes(BatchMatMulShapes)
        .CostIs(BatchMatMulCost)
        .Expands(ExpandBatchMatMul)
        .Gradient([](GradientBuilder& g) {
          const bool broadcasts = g.op().Bool("broadcast");
          if (broadcasts && !g.op().Bool("matrices")) {
            throw Error(
                ErrorCode::kInvalidNet,
                "BatchMatMul has no gradient with broadcast = 1, unless matrices = 1 says that it multiplies no "
                "vectors; ExpandDims makes a matrix of a vector");
          }
          AddProductGradients(g, broadcasts);
        })
        .Cpu({.make = BatchMatMulKernel, .can_add = {0}});

}  // namespace
}  // namespace stepnet

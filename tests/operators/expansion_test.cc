// What operators say that they are made of is what their kernels compute.
#include "stepnet/core/expansion.h"

#include <random>

#include "op_test.h"
#include "stepnet/core/formulas/formula_cache.h"
#include "stepnet/core/regions/region_program.h"
#include "stepnet/core/strings.h"
#include "stepnet/nets/net.h"
#include "stepnet/tests/executor/recurrent_case.h"

namespace stepnet {
namespace {

struct Run {
  std::shared_ptr<const OperatorCall> call;
  std::vector<TensorInfo> infos;  // of inputs
  std::vector<Tensor> inputs;
  std::vector<Tensor> outputs;
};

// Runs the operator on random inputs, of integers where that is wanted, so that sums are exact in any order.
Run RunOf(const OperatorDef& def, const std::vector<Shape>& shapes, bool integers) {
  Run run{.call = std::make_shared<const OperatorCall>(def)};
  Workspace workspace;
  std::mt19937 random(3);
  for (size_t i = 0; i < shapes.size(); ++i) {
    Tensor& input = run.inputs.emplace_back(DType::kDouble, shapes[i]);
    for (std::int64_t k = 0; k < input.size(); ++k) {
      input.data<double>()[k] = integers ? static_cast<double>(random() % 19) - 9 : std::sin(static_cast<double>(k));
    }
    run.infos.push_back({.dtype = input.dtype(), .shape = input.shape()});
    workspace.SetTensor(def.input(static_cast<int>(i)), input);
  }
  NetDef net;
  *net.add_op() = def;
  RunNetOnce(net, workspace);
  for (const std::string& output : def.output()) run.outputs.push_back(workspace.GetTensor(output));
  return run;
}

// Element (row, column) of matrix `index` of the batch [sizes].
double ElementOf(const Run& run, const ProductFactor& factor, const std::vector<std::int64_t>& index, std::int64_t row,
                 std::int64_t column) {
  std::int64_t matrix = 0;
  const int rank = factor.shape.rank() - 2;
  for (int d = 0; d < rank; ++d) {
    const std::int64_t i = index[index.size() - static_cast<size_t>(rank - d)];
    matrix = matrix * factor.shape[d] + (factor.shape[d] == 1 ? 0 : i);
  }
  if (factor.transposed) std::swap(row, column);
  const std::int64_t rows = factor.shape[-2], columns = factor.shape[-1];
  return run.inputs[factor.input].data<double>()[(matrix * rows + row) * columns + column];
}

std::vector<double> Computed(const Run& run, const Product& product) {
  std::vector<double> elements;
  if (!product.right) {
    for (std::int64_t n = 0; n < product.left.columns(); ++n) {
      double& sum = elements.emplace_back(0);
      for (std::int64_t m = 0; m < product.left.rows(); ++m) sum += ElementOf(run, product.left, {}, m, n);
    }
    return elements;
  }
  const std::int64_t rows = product.left.rows(), columns = product.right->columns(), depth = product.left.columns();
  std::vector<std::int64_t> sizes(
      static_cast<size_t>(std::max(product.left.shape.rank(), product.right->shape.rank()) - 2));
  for (const ProductFactor* factor : {&product.left, &*product.right}) {
    for (int d = 0; d < factor->shape.rank() - 2; ++d) {
      std::int64_t& size = sizes[sizes.size() - static_cast<size_t>(factor->shape.rank() - 2 - d)];
      size = std::max(size, factor->shape[d]);
    }
  }
  std::vector<std::int64_t> index(sizes.size(), 0);
  for (std::int64_t e = 0; e < product.NumElements(); ++e) {
    const std::int64_t n = e % columns, m = e / columns % rows;
    std::int64_t batch = e / columns / rows;
    for (size_t d = sizes.size(); d-- > 0; batch /= sizes[d]) index[d] = batch % sizes[d];
    double& sum = elements.emplace_back(0);
    for (std::int64_t k = 0; k < depth; ++k) {
      sum += ElementOf(run, product.left, index, m, k) * ElementOf(run, *product.right, index, k, n);
    }
    if (product.bias >= 0) sum += run.inputs[product.bias].data<double>()[n];
  }
  return elements;
}

void ExpectProducts(const OperatorDef& def, const std::vector<Shape>& shapes, int num_products) {
  const Run run = RunOf(def, shapes, /*integers=*/true);
  const ShapeQuery query(*run.call, run.infos);
  const Expansion expansion(query);
  SCOPED_TRACE(def.ShortDebugString());
  ASSERT_EQ(static_cast<int>(expansion.products().size()), num_products);
  for (size_t o = 0; o < run.outputs.size(); ++o) {
    const TensorInfo info{.dtype = run.outputs[o].dtype(), .shape = run.outputs[o].shape()};
    EXPECT_EQ(ProductProblem(*expansion.products()[o], run.infos, info), "");
    EXPECT_EQ(Computed(run, *expansion.products()[o]), ToDoubles(run.outputs[o])) << "output " << o;
  }
}

OperatorDef WithInts(const std::string& op, const std::vector<std::pair<const char*, int>>& arguments) {
  OperatorDef def = ParseOp(op);
  for (const auto& [name, value] : arguments) AddInt(&def, name, value);
  return def;
}

TEST(Expansion, ProductsAreThoseThatKernelsCompute) {
  ExpectProducts(ParseOp("y = FC(x, w)"), {{2, 4}, {3, 4}}, 1);
  ExpectProducts(WithInts("y = FC(x, w, b)", {{"axis", 2}}), {{2, 5, 4}, {3, 2, 2}, {3}}, 1);
  ExpectProducts(WithInts("y = FC(x, w, b)", {{"axis", 0}}), {{2, 2}, {3, 4}, {3}}, 1);
  ExpectProducts(ParseOp("y = FCTransposed(x, w, b)"), {{2, 4}, {4, 3}, {3}}, 1);
  ExpectProducts(ParseOp("dw, db, dx = FCGradient(x, w, dy)"), {{2, 4}, {3, 4}, {2, 3}}, 3);
  ExpectProducts(ParseOp("dw, db = FCGradient(x, w, dy)"), {{2, 4}, {3, 4}, {2, 3}}, 2);
  ExpectProducts(WithInts("dw, dx = FCGradient(x, w, dy)", {{"no_bias", 1}}), {{2, 4}, {3, 4}, {2, 3}}, 2);
  ExpectProducts(ParseOp("dw, db, dx = FCTransposedGradient(x, w, dy)"), {{2, 4}, {4, 3}, {2, 3}}, 3);
  for (const int trans_a : {0, 1}) {
    for (const int trans_b : {0, 1}) {
      const Shape a = trans_a ? Shape({4, 2}) : Shape({2, 4}), b = trans_b ? Shape({3, 4}) : Shape({4, 3});
      const std::vector<std::pair<const char*, int>> arguments = {{"trans_a", trans_a}, {"trans_b", trans_b}};
      ExpectProducts(WithInts("y = MatMul(a, b)", arguments), {a, b}, 1);
      ExpectProducts(WithInts("y = BatchMatMul(a, b)", arguments),
                     {a.Inserted(0, 5).Inserted(0, 2), b.Inserted(0, 5).Inserted(0, 2)}, 1);
      auto with_broadcast = arguments;
      with_broadcast.emplace_back("broadcast", 1);
      const OperatorDef repeated = WithInts("y = BatchMatMul(a, b)", with_broadcast);
      ExpectProducts(repeated, {a.Inserted(0, 5), b}, 1);
      ExpectProducts(repeated, {a.Inserted(0, 1).Inserted(0, 2), b.Inserted(0, 5).Inserted(0, 1)}, 1);
      if (trans_b == 0) ExpectProducts(repeated, {a.Inserted(0, 5), {4}}, 1);
      if (trans_a == 0) ExpectProducts(repeated, {{4}, b.Inserted(0, 5)}, 1);
    }
  }
  ExpectProducts(WithInts("y = MatMul(a, b)", {{"axis_a", 2}}), {{2, 3, 4}, {4, 5}}, 1);
}

std::vector<double> Computed(const Run& run, const DimSum& sum) {
  std::int64_t kept = 1;
  for (size_t d = 0; d < sum.sizes.size(); ++d) kept *= sum.summed[d] ? 1 : sum.sizes[d];
  std::vector<double> elements(static_cast<size_t>(kept));
  const Tensor& x = run.inputs[sum.input];
  for (std::int64_t e = 0; e < x.size(); ++e) {
    std::int64_t rest = e, place = 0, stride = 1;
    for (size_t d = sum.sizes.size(); d-- > 0; rest /= sum.sizes[d]) {
      if (sum.summed[d]) continue;
      place += rest % sum.sizes[d] * stride;
      stride *= sum.sizes[d];
    }
    elements[static_cast<size_t>(place)] += x.data<double>()[e];
  }
  for (double& element : elements) element *= sum.factor;
  return elements;
}

void ExpectSum(const OperatorDef& def, const std::vector<Shape>& shapes) {
  const Run run = RunOf(def, shapes, /*integers=*/true);
  const ShapeQuery query(*run.call, run.infos);
  const Expansion expansion(query);
  SCOPED_TRACE(def.ShortDebugString());
  ASSERT_EQ(expansion.sums().size(), 1U);
  EXPECT_EQ(Computed(run, *expansion.sums()[0]), ToDoubles(run.outputs[0]));
}

TEST(Expansion, SumsAreThoseThatKernelsCompute) {
  for (const int axis : {0, 1, -1}) {
    ExpectSum(WithInts("dx = TileGradient(dy)", {{"tiles", 2}, {"axis", axis}}), {{6, 4, 10}});
  }
  ExpectSum(WithInts("dx = TileGradient(dy)", {{"tiles", 3}, {"axis", 1}}), {{0, 6}});
  ExpectSum(ParseOp("y = SumElements(x)"), {{3, 5}});
  for (const std::vector<std::int64_t>& axes : std::vector<std::vector<std::int64_t>>{{0}, {1}, {2}, {0, 2}, {}}) {
    OperatorDef def = ParseOp("y = ReduceSum(x)");
    AddInts(&def, "axes", axes);
    ExpectSum(def, {{2, 3, 4}});
  }
}

// The parts give all outputs, bit for bit.
void ExpectParts(const OperatorDef& def, const std::vector<Shape>& shapes) {
  const Run run = RunOf(def, shapes, /*integers=*/false);
  const std::shared_ptr<const OperatorParts> made = FindParts(ShapeQuery(*run.call, run.infos));
  SCOPED_TRACE(def.ShortDebugString());
  ASSERT_FALSE(made->parts.empty());
  std::vector<Tensor> tensors = run.inputs;
  for (const Tensor& output : run.outputs) {
    Tensor& tensor = tensors.emplace_back(output.dtype(), output.shape());
    std::fill_n(static_cast<char*>(tensor.View().data), tensor.size_bytes(), '\x5a');
  }
  for (const RegionPart& part : made->parts) {
    std::vector<const void*> from;
    std::vector<void*> to;
    for (const int input : part.inputs) from.push_back(tensors[input].View().data);
    for (const int output : part.outputs) to.push_back(tensors[output].View().data);
    RegionProgram(part.region).Run(from, to);
  }
  for (size_t o = 0; o < run.outputs.size(); ++o) {
    ExpectSame(tensors[run.inputs.size() + o], run.outputs[o], StrCat("output ", o));
  }
}

TEST(Expansion, CopiesAndFillsAreThoseThatKernelsMake) {
  ExpectParts(ParseOp("a, b = Split(x)"), {{3, 4}});
  ExpectParts(ParseOp("a, b, c = Split(x)"), {{2, 3, 2}});
  OperatorDef split = WithInts("a, b = Split(x)", {{"axis", -1}});
  AddInts(&split, "split", {3, 1});
  ExpectParts(split, {{2, 3, 4}});
  ExpectParts(WithInts("a, b = Split(x)", {{"axis", 1}, {"add_axis", 1}}), {{3, 2, 5}});
  ExpectParts(WithInts("y, i = Concat(a, b, c)", {{"axis", -1}}), {{2, 3}, {2, 1}, {2, 4}});
  ExpectParts(WithInts("y, i = Concat(a, b)", {{"axis", 0}}), {{2, 3}, {1, 3}});
  for (const int axis : {0, 1, 2}) {
    ExpectParts(WithInts("y, i = Concat(a, b)", {{"axis", axis}, {"add_axis", 1}}), {{2, 3}, {2, 3}});
  }
  const auto slice = [](const std::vector<std::int64_t>& starts, const std::vector<std::int64_t>& ends) {
    OperatorDef def = ParseOp("y = Slice(x)");
    AddInts(&def, "starts", starts);
    AddInts(&def, "ends", ends);
    return def;
  };
  ExpectParts(slice({1}, {3}), {{4, 3, 5}});
  ExpectParts(slice({0, 1}, {-1, 2}), {{4, 3, 5}});
  ExpectParts(slice({1, 1, 2}, {3, 3, -2}), {{4, 3, 5}});
  ExpectParts(slice({1, 0, 2, 0, 1}, {2, -1, 3, 1, 3}), {{2, 3, 4, 2, 3}});
  ExpectParts(slice({}, {}), {{4, 3}});
  OperatorDef with_steps = slice({0, 1}, {9, 9});
  AddInts(&with_steps, "steps", {3, 2});
  ExpectParts(with_steps, {{4, 6, 5}});
  OperatorDef backward = slice({9}, {-9});  // regions have no strides below 0
  AddInts(&backward, "steps", {-1});
  const auto run = RunOf(backward, {{4, 3}}, /*integers=*/false);
  EXPECT_TRUE(FindParts(ShapeQuery(*run.call, run.infos))->parts.empty());
  const auto slice_gradient = [](const std::vector<std::int64_t>& starts, const std::vector<std::int64_t>& ends) {
    OperatorDef def = ParseOp("dx = SliceGradient(x, dy)");
    AddInts(&def, "starts", starts);
    AddInts(&def, "ends", ends);
    return def;
  };
  ExpectParts(slice_gradient({1}, {3}), {{4, 3, 5}, {2, 3, 5}});
  ExpectParts(slice_gradient({0, 1}, {-1, 2}), {{4, 3, 5}, {4, 1, 5}});
  ExpectParts(slice_gradient({1, 1, 2}, {3, 3, -2}), {{4, 3, 5}, {2, 2, 2}});
  ExpectParts(slice_gradient({1, 2, 0, 1}, {2, 3, 1, 3}), {{3, 4, 2, 3}, {1, 1, 1, 2}});
  ExpectParts(slice_gradient({2}, {2}), {{4, 3}, {0, 3}});
  ExpectParts(slice_gradient({}, {}), {{4, 3}, {4, 3}});
  // A box in each of five dimensions, and elements between those that the slice took.
  const auto num_parts = [](const OperatorDef& gradient, const std::vector<Shape>& shapes) {
    const auto run = RunOf(gradient, shapes, /*integers=*/false);
    return FindParts(ShapeQuery(*run.call, run.infos))->parts.size();
  };
  EXPECT_EQ(num_parts(slice_gradient({1, 1, 1, 1, 1}, {3, 3, 3, 3, 3}), {{4, 4, 4, 4, 4}, {2, 2, 2, 2, 2}}), 0);
  OperatorDef every_second = slice_gradient({0}, {4});
  AddInts(&every_second, "steps", {2});
  EXPECT_EQ(num_parts(every_second, {{4, 3}, {2, 3}}), 0);
  for (const int axis : {0, 1, 2}) ExpectParts(WithInts("y = Tile(x)", {{"tiles", 3}, {"axis", axis}}), {{2, 3, 4}});
  ExpectParts(ParseOp("y = Transpose(x)"), {{2, 3, 4}});
  const auto with = [](const std::string& op, const char* name, const std::vector<std::int64_t>& values) {
    OperatorDef def = ParseOp(op);
    AddInts(&def, name, values);
    return def;
  };
  ExpectParts(with("y = Squeeze(x)", "dims", {0, 2}), {{1, 3, 1, 2}});
  ExpectParts(with("y = ExpandDims(x)", "dims", {0, 2}), {{3, 0}});
  ExpectParts(with("y, old = Reshape(x)", "shape", {3, -1}), {{2, 3, 2}});
  ExpectParts(ParseOp("y = Flatten(x)"), {{2, 3, 2}});
  ExpectParts(ParseOp("y = FlattenToVec(x)"), {{2, 3}});
  ExpectParts(ParseOp("y = ResizeLike(x, like)"), {{2, 3}, {6}});
  for (const char* type : {"ReduceSumGradient", "ReduceMeanGradient"}) {
    const auto reduced = [&](const std::vector<std::int64_t>& axes, const Shape& y, const Shape& x) {
      ExpectParts(with(StrCat("dx = ", type, "(dy, x, y)"), "axes", axes), {y, x, y});
    };
    reduced({1}, {2, 1, 4}, {2, 3, 4});
    reduced({0, 2}, {1, 3, 1, 2}, {2, 3, 4, 2});
    reduced({-1}, {2, 3, 1}, {2, 3, 7});
    reduced({}, {1, 1}, {2, 3});
  }
  OperatorDef fill = ParseOp("y = ConstantFill(x)");
  AddInt(&fill, "value", 0);
  fill.mutable_arg(0)->clear_i();
  fill.mutable_arg(0)->set_f(0.1f);
  ExpectParts(fill, {{2, 3}});
}

TEST(Expansion, PartsOfTheParametersOfAnRnnAreThoseThatKernelsCut) {
  const auto sized = [](const std::string& op) {
    OperatorDef def = WithInts(op, {{"state_size", 3}, {"num_layers", 2}, {"projection_size", 2}});
    AddString(&def, "mode", "lstm");
    return def;
  };
  ExpectParts(sized("w0, u0, p0, b0, c0, w1, u1, p1, b1, c1 = RNNWeights(x, parameters, h, c)"),
              {{1, 1, 5}, {192}, {2, 1, 2}, {2, 1, 3}});
  ExpectParts(sized("w0, u0, p0, b0, c0, w1, u1, p1, b1, c1 = RNNWeights(x, parameters, h, c)"),
              {{1, 1, 0}, {132}, {2, 1, 2}, {2, 1, 3}});
  const std::vector<Shape> above = {{12, 2}, {12, 2}, {2, 3}, {12}, {12}};
  std::vector<Shape> shapes = {{12, 5}, {12, 2}, {2, 3}, {12}, {12}};
  shapes.insert(shapes.end(), above.begin(), above.end());
  ExpectParts(sized("d = RNNWeightsGradient(w0, u0, p0, b0, c0, w1, u1, p1, b1, c1)"), shapes);
}

// Sums of rows, of neighbours before them, and of both, each within what the first dimension has apart.
TEST(Expansion, SumsWithinRowsAreThoseThatKernelsCompute) {
  const OperatorDef like = ParseOp("c = SumReduceLike(a, b)");
  ExpectParts(like, {{3, 5, 37}, {3, 5, 1}});
  ExpectParts(like, {{3, 5, 37}, {3, 1, 37}});
  ExpectParts(like, {{3, 5, 37}, {3, 1, 1}});
  ExpectParts(like, {{1, 2, 3, 4, 37}, {1, 2, 3, 1, 37}});
  ExpectParts(like, {{1, 2, 3, 4, 37}, {1, 2, 3, 1, 1}});
  ExpectParts(like, {{1, 2, 3, 4, 1}, {1, 2, 3, 1, 1}});
  OperatorDef sum = ParseOp("y = ReduceSum(x)");
  AddInts(&sum, "axes", {1});
  ExpectParts(sum, {{4, 70, 33}});
}

TEST(Expansion, OtherSumsStayCalls) {
  const auto num_parts = [](const std::string& op, const std::vector<Shape>& shapes) {
    const auto run = RunOf(ParseOp(op), shapes, /*integers=*/true);
    return FindParts(ShapeQuery(*run.call, run.infos))->parts.size();
  };
  const std::string like = "c = SumReduceLike(a, b)";
  EXPECT_EQ(num_parts(like, {{3, 5, 7}, {7}}), 0) << "over all rows";
  EXPECT_EQ(num_parts(like, {{3, 5, 7}, {1}}), 0);
  EXPECT_EQ(num_parts(like, {{2, 3, 2, 3, 2}, {2, 1, 2, 1, 2}}), 0) << "others lie between";
  EXPECT_EQ(num_parts(like, {{2, 0, 2}, {2, 1, 2}}), 0);
  OperatorDef mean = ParseOp("y = ReduceMean(x)");
  AddInts(&mean, "axes", {1});
  const OperatorCall call(mean);
  const TensorInfo x{.dtype = DType::kFloat, .shape = {2, 3, 4}};
  EXPECT_TRUE(FindParts(ShapeQuery(call, {&x, 1}))->parts.empty()) << "the whole sum is what is divided";
}

TEST(Expansion, GradientsOfReductionsStayCallsWhereARegionCannotSayThem) {
  OperatorDef def = ParseOp("dx = ReduceSumGradient(dy, x, y)");
  AddInts(&def, "axes", {1, 3});
  const OperatorCall call(def);
  const auto num_parts = [&](const Shape& y, const Shape& x) {
    std::vector<TensorInfo> infos;
    for (const Shape& shape : {y, x, y}) infos.push_back({.dtype = DType::kFloat, .shape = shape});
    return FindParts(ShapeQuery(call, infos))->parts.size();
  };
  EXPECT_EQ(num_parts({2, 1, 3, 1}, {2, 3, 3, 2}), 1);
  EXPECT_EQ(num_parts({2, 1, 3, 1, 2}, {2, 3, 3, 2, 2}), 0);  // of five dimensions that do not join
  EXPECT_EQ(num_parts({0, 1, 3, 1}, {0, 3, 3, 2}), 0);
}

}  // namespace
}  // namespace stepnet

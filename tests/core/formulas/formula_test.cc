#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <thread>

#include "stepnet/core/broadcast_rule.h"
#include "stepnet/core/formulas/formula_cache.h"
#include "stepnet/tests/operators/op_test.h"

namespace stepnet {
namespace {

Operator TestOperator(const char* type) {
  Operator op(type);
  op.Private();
  return op;
}

const Registration add = TestOperator("test.FormulaAdd")
                             .Input("a", "any shape")
                             .Input("b", "repeated over a")
                             .Output("c", "the shape of both")
                             .InPlace({{0, 0}})
                             .Formula([](Formula& f) { f.Out({f.In("a") + f.In("b")}); });

// With Caffe2's arguments, and names of its own.
const Registration scale_by = TestOperator("test.FormulaScaleBy")
                                  .Input("data", "any shape")
                                  .Input("scale", "a run of its dimensions")
                                  .Output("y", "the shape of data")
                                  .Args(BroadcastArguments())
                                  .Formula([](Formula& f) { f.Out({f.In("data") * f.In("scale")}); });

// A cell as in the design: gates side by side, rows that have ended keep their state.
const Registration cell = TestOperator("test.FormulaCell")
                              .Input("c_prev", "[N, H]")
                              .Input("gates", "[N, 2 * H]")
                              .OptionalInput("lengths", "[N] int32")
                              .OptionalInput("timestep", "[1] int32")
                              .Output("h", "[N, H]")
                              .Output("c", "[N, H]")
                              .Arg("bias", 0.5f, "added to the first gate")
                              .InPlace({{0, 1}})
                              .Formula([](Formula& f) {
                                const std::vector<Expr> gate = f.Blocks("gates", 2);
                                const Expr c_prev = f.In("c_prev");
                                const Expr c = Sigmoid(gate[0] + f.Number("bias")) * c_prev + gate[1];
                                const Expr h = Tanh(c);
                                if (!f.Has("lengths")) return f.Out({h, c});
                                const Expr ended = f.Scalar("timestep") >= f.Row("lengths");
                                f.Out({Where(ended, 0, h), Where(ended, c_prev, c)});
                              });

const Registration moments = TestOperator("test.FormulaMoments")
                                 .Input("x", "[N, C]")
                                 .Input("weight", "[C]")
                                 .Output("y", "[N, C]")
                                 .OptionalOutput("sum", "[N]")
                                 .OptionalOutput("dweight", "[C]")
                                 .OptionalOutput("pairs", "[N, 2 * C]")
                                 .Formula([](Formula& f) {
                                   const Expr x = f.In("x");
                                   const Expr weighted = x * f.Column("weight");
                                   const Expr sum = RowSum(x);
                                   f.Out({weighted - sum, OfRows(sum), SumOverRows(x), SideBySide({x, weighted})});
                                 });

const Registration divide =
    TestOperator("test.FormulaDivide")
        .Input("a", "int32")
        .Input("b", "int32")
        .Output("c", "int32")
        .Formula(
            [](Formula& f) {
              const Expr a = f.In("a");
              const Expr b = f.In("b");
              f.Check(NotEqual(b, 0), "test.FormulaDivide of {} by 0: {element} of a, {element} of b", a);
              f.Out({a / b});
            },
            {.checks_values = true});

const Registration row_add = TestOperator("test.FormulaRowAdd")
                                 .Input("x", "[N, C]")
                                 .Input("row", "[N]")
                                 .Input("one", "[1]")
                                 .Output("y", "[N, C]")
                                 .Formula([](Formula& f) { f.Out({f.In("x") + f.Row("row") + f.Scalar("one")}); });

// In x [B, R, C, K], element j of row i is kept where lengths[i] says so.
const Registration masked = TestOperator("test.FormulaMasked")
                                .Input("x", "[B, R, C, K]")
                                .Input("lengths", "[R] int32")
                                .Input("scale", "[C, B]")
                                .Output("y", "the shape of x")
                                .Shapes(SameAsInput(0))
                                .Formula(
                                    [](Formula& f) {
                                      f.Over(f.ShapeOf("x"));
                                      const Expr length = f.Along("lengths", {1});
                                      f.Check(length >= 0, "element {} is {}", Index(1), length);
                                      const Expr is_kept = Index(2) < Cast(DType::kInt64, length);
                                      f.Out({Where(is_kept, f.In("x") * f.Along("scale", {2, 0}), 0)});
                                    },
                                    {.checks_values = true});

FormulaRule bad_rule;  // of test.FormulaBad, which each test sets
Operator BadOperator(const char* type) {
  return TestOperator(type)
      .Input("a", "any shape")
      .Input("b", "any shape")
      .Output("y", "whatever")
      .Formula([](Formula& f) { bad_rule(f); });
}
const Registration bad = BadOperator("test.FormulaBad");
const Registration bad_random = BadOperator("test.FormulaBadRandom").DrawsRandomNumbers();

OperatorCall CallOf(const std::string& type, const std::vector<std::string>& inputs,
                    const std::vector<std::string>& outputs) {
  OperatorDef def;
  def.set_type(type);
  for (const std::string& input : inputs) def.add_input(input);
  for (const std::string& output : outputs) def.add_output(output);
  return OperatorCall(def);
}

FormulaRegion RegionOf(const OperatorCall& call, const std::vector<TensorInfo>& inputs) {
  return MakeFormulaRegion(ShapeQuery(call, inputs));
}

// What the formula says of two inputs of these shapes.
void ExpectBad(FormulaRule rule, const TensorInfo& a, const TensorInfo& b, const std::string& text,
               const char* type = "test.FormulaBad") {
  bad_rule = std::move(rule);
  const OperatorCall call = CallOf(type, {"first", "second"}, {"y"});
  ExpectError([&] { call.schema().shapes(ShapeQuery(call, std::vector<TensorInfo>{a, b})); }, text);
}

TEST(Formula, RepeatsInputsAsNumPy) {
  std::vector<double> a(6), b(4), sum;
  for (int i = 0; i < 6; ++i) a[i] = i;
  for (int i = 0; i < 4; ++i) b[i] = 10 * i;
  for (int i = 0; i < 2; ++i) {
    for (int j = 0; j < 4; ++j) {
      for (int k = 0; k < 3; ++k) sum.push_back(a[i * 3 + k] + b[j]);
    }
  }
  OpTest("test.FormulaAdd").Input("a", {2, 1, 3}, a).Input("b", {4, 1}, b).Gives({2, 4, 3}, sum);
  OpTest("test.FormulaAdd").Input("a", {2}, {1, 2}).Input("b", {}, {5}).Gives({2}, {6, 7});
  OpTest("test.FormulaAdd").Input("a", {0, 3}, {}).Input("b", {3}, {1, 2, 3}).Gives({0, 3}, {});
}

TEST(Formula, RepeatsWhatIsBehindTheFirstInputAsCaffe2DoesIt) {
  OpTest("test.FormulaScaleBy")
      .Arg("broadcast", 1)
      .Arg("axis", 0)
      .Input("data", {2, 3}, {1, 2, 3, 4, 5, 6})
      .Input("scale", {2}, {10, 100})
      .Gives({2, 3}, {10, 20, 30, 400, 500, 600});
}

TEST(Formula, TakesGatesRowsAndScalars) {
  const auto test = [](bool has_lengths) {
    OpTest op("test.FormulaCell", 2);
    op.Input("c_prev", {2, 3}, {1, 2, 3, 4, 5, 6})
        .Input("gates", {2, 6}, {.1, .2, .3, 1, 2, 3, .4, .5, .6, 4, 5, 6})
        .InPlace(0, 1);
    if (has_lengths) {
      op.Input("lengths", Tensor::Of<std::int32_t>({2}, {3, 2})).Input("timestep", Tensor::Of<std::int32_t>({1}, {2}));
    }
    return op;
  };
  std::vector<double> c, h;
  for (int i = 0; i < 6; ++i) {
    c.push_back(1 / (1 + std::exp(-((i + 1) / 10.0 + 0.5))) * (i + 1) + (i + 1));
    h.push_back(std::tanh(c.back()));
  }
  test(false).Gives({2, 3}, h, 0);
  test(false).Gives({2, 3}, c, 1);
  test(true).Gives({2, 3}, {h[0], h[1], h[2], 0, 0, 0}, 0);
  test(true).Gives({2, 3}, {c[0], c[1], c[2], 4, 5, 6}, 1);
}

TEST(Formula, GivesRowsSumsAndBlocks) {
  OpTest op("test.FormulaMoments", 4);
  op.Input("x", {2, 3}, {1, 2, 3, 4, 5, 6}).Input("weight", {3}, {1, 10, 100});
  op.Gives({2, 3}, {-5, 14, 294, -11, 35, 585}, 0);
  op.Gives({2}, {6, 15}, 1);
  op.Gives({3}, {5, 7, 9}, 2);
  op.Gives({2, 6}, {1, 2, 3, 1, 20, 300, 4, 5, 6, 4, 50, 600}, 3);
}

TEST(Formula, LeavesOutOutputsThatTheOperatorDoesNotHave) {
  OpTest("test.FormulaMoments", 1).Input("x", {1, 2}, {1, 2}).Input("weight", {2}, {3, 4}).Gives({1, 2}, {0, 5});
}

TEST(Formula, RowsMayHaveALastDimensionOfOne) {
  const auto test = [](const Shape& row) {
    OpTest("test.FormulaRowAdd")
        .Input("x", {2, 2}, {1, 2, 3, 4})
        .Input("row", row, {10, 20})
        .Input("one", {1}, {100})
        .Gives({2, 2}, {111, 112, 123, 124});
  };
  test({2});
  test({2, 1});
  test({1, 2});
}

TEST(Formula, ComputesOverAShapeOfItsOwn) {
  for (const Shape& shape : {Shape({2, 3, 4, 5}), Shape({1, 3, 4, 1}), Shape({2, 1, 1, 1}), Shape({2, 3, 0, 5})}) {
    const std::int64_t b = shape[0], r = shape[1], c = shape[2], k = shape[3];
    std::vector<std::int32_t> lengths;
    for (std::int64_t i = 0; i < r; ++i) lengths.push_back(static_cast<std::int32_t>(2 * i));
    OpTest op("test.FormulaMasked");
    op.Random("x", shape, 1).Input("lengths", Tensor::Of<std::int32_t>({r}, lengths)).Random("scale", {c, b}, 2);
    op.Follows([&](const std::vector<std::vector<double>>& in) {
      std::vector<double> y;
      for (std::int64_t e = 0; e < shape.size(); ++e) {
        const std::int64_t column = e / k % c;
        const bool is_kept = column < lengths[static_cast<size_t>(e / k / c % r)];
        const double scale = in[2][static_cast<size_t>(column * b + e / k / c / r)];
        y.push_back(is_kept ? in[0][static_cast<size_t>(e)] * scale : 0);
      }
      return y;
    });
  }
  OpTest bad("test.FormulaMasked");
  bad.Random("x", {1, 3, 1, 2}, 1).Input("lengths", Tensor::Of<std::int32_t>({3}, {0, -4, -5})).Random("scale", {1}, 2);
  ExpectError([&] { bad.Run(); }, "…invalid argument: element 1 is -4\n  at op 0");
}

TEST(Formula, RefusesShapesOfItsOwnThatDoNotFit) {
  const auto over = [](const std::function<Expr(Formula&)>& value) {
    return [value](Formula& f) {
      f.Over(f.ShapeOf("a"));
      f.Out({value(f)});
    };
  };
  const TensorInfo a = {.shape = Shape({2, 3})}, b = {.shape = Shape({3})};
  ExpectBad(over([](Formula& f) { return f.Along("b", {0}); }), a, b,
            "…test.FormulaBad needs second to have an element for each index of [2]; its inputs are");
  ExpectBad(over([](Formula& f) { return f.In("b"); }), a, b,
            "…test.FormulaBad needs second to have an element for each index of [2, 3]; its inputs are");
  ExpectBad(over([](Formula& f) { return f.Along("b", {2}); }), a, b,
            "internal error: the formula of test.FormulaBad reads \"b\" along dimensions that it has not said it "
            "computes over");
  ExpectBad(over([](Formula& f) { return f.Column("b"); }), a, b,
            "internal error: the formula of test.FormulaBad says what it computes over, and reads rows or columns");
  ExpectBad(
      [](Formula& f) {
        f.Over(Shape({1, 1, 1, 1, 2}));
      },
      a, b, "internal error: the formula of test.FormulaBad computes over [1, 1, 1, 1, 2], of more than 4 dimensions");
  const auto draws = [](Formula& f) { f.Out({f.In("a") * f.Uniform(DType::kFloat)}); };
  ExpectBad(
      draws, a, b,
      "shape mismatch: test.FormulaBadRandom draws random numbers for [2, 3] elements, which are not one row: its "
      "formula can make them one by RowsFrom from 0 on, or by Over of one dimension; its inputs are first float "
      "[2, 3], second float [3]",
      "test.FormulaBadRandom");
  ExpectBad(draws, a, b,
            "internal error: the formula of test.FormulaBad draws random numbers and its declaration does not say so "
            "(Operator::DrawsRandomNumbers)");
}

TEST(Formula, ReportsAFault) {
  OpTest op("test.FormulaDivide");
  op.Input("a", Tensor::Of<std::int32_t>({3}, {6, 7, 8})).Input("b", Tensor::Of<std::int32_t>({3}, {2, 0, 0}));
  ExpectError([&] { op.Run(); }, "…invalid argument: test.FormulaDivide of 7 by 0: 1 of a, 1 of b\n  at op 0");
}

TEST(Formula, RefusesNamesThatTheOperatorDoesNotDeclare) {
  const TensorInfo x = {.shape = Shape({2})};
  ExpectBad([](Formula& f) { f.Out({f.In("x")}); }, x, x,
            "internal error: the formula of test.FormulaBad names an input \"x\" that the operator does not declare");
  ExpectBad([](Formula& f) { f.Out({f.Number("alpha") * f.In("a")}); }, x, x,
            "internal error: the formula of test.FormulaBad asks for an argument \"alpha\" that the operator does not "
            "declare");
  ExpectBad(
      [](Formula& f) {
        f.Out({SideBySide({f.In("a"), Cast(DType::kDouble, f.In("a"))})});
      },
      x, x,
      "type mismatch: test.FormulaBad gives y as float and double side by side by its formula; its inputs are first "
      "float [2], second float [2]");
  ExpectBad(
      [](Formula& f) {
        f.Out({f.In("a"), f.In("b")});
      },
      x, x, "internal error: the formula of test.FormulaBad gives 2 outputs, its declaration has 1");
  ExpectBad([](Formula& f) { f.Out({Expr()}); }, x, x,
            "internal error: the formula of test.FormulaBad gives an undefined expression for output 0");
  ExpectBad([](Formula& f) { f.Blocks("a", 2); }, {.dtype = DType::kInt8, .shape = Shape({2})}, x, "…input a ");
  ExpectBad([](Formula& f) { f.Blocks("a", 0); }, x, x,
            "internal error: the formula of test.FormulaBad reads \"a\" in 0 blocks");
  ExpectBad([](Formula&) { throw std::out_of_range("boo"); }, x, x,
            "internal error: the formula of test.FormulaBad threw boo");
  ExpectBad([](Formula& f) { f.Out({SideBySide({})}); }, x, x,
            "internal error: the formula of test.FormulaBad gives no value for y");
  ExpectBad([](Formula&) {}, x, x, "internal error: the formula of test.FormulaBad says nothing of outputs");
  ExpectBad([](Formula& f) { f.Out({}); }, x, x,
            "internal error: the formula of test.FormulaBad gives 0 outputs, the operator has 1");
}

TEST(Formula, RefusesShapesThatDoNotMeet) {
  ExpectBad([](Formula& f) { f.Out({f.In("a") + f.In("b")}); }, {.shape = Shape({2, 3})}, {.shape = Shape({2})},
            "shape mismatch: test.FormulaBad cannot repeat second, of [2], over [2, 3]; its inputs are first float "
            "[2, 3], second float [2]");
  for (const bool column_first : {false, true}) {
    ExpectBad(
        [column_first](Formula& f) {
          const Expr first = column_first ? f.Column("a") : f.In("a");
          f.Out({first + (column_first ? f.In("a") : f.Column("a"))});
        },
        {.shape = Shape({2, 4})}, {},
        "…test.FormulaBad needs first, of [2, 4], to have an element for each column of [2, 4]; its inputs are");
  }
  ExpectBad([](Formula& f) { f.Out({f.Blocks("a", 2)[0]}); }, {.shape = Shape({2, 3})}, {},
            "…test.FormulaBad needs first to have 2 blocks of one size in its last dimension; its inputs are");
  ExpectBad([](Formula& f) { f.Out({f.In("a") + f.Row("b")}); }, {.shape = Shape({2, 3})}, {.shape = Shape({3})},
            "…test.FormulaBad needs second to have an element for each row of [2, 3]; its inputs are");
  ExpectBad([](Formula& f) { f.Out({f.In("a") + f.Scalar("b")}); }, {.shape = Shape({2, 3})}, {.shape = Shape({3})},
            "…test.FormulaBad needs second to have one element; its inputs are");
  ExpectBad([](Formula& f) { f.Out({f.In("a") + f.In("b")}); }, {.shape = Shape({2, 1, 2, 1, 2})},
            {.shape = Shape({1, 2, 1, 2, 1})},
            "…test.FormulaBad repeats its inputs along more than 4 dimensions of [2, 2, 2, 2, 2]: repeat one of them "
            "first, as Tile does; its inputs are");
}

TEST(Formula, RefusesTypesThatDoNotMeet) {
  ExpectBad([](Formula& f) { f.Out({f.In("a") + f.In("b")}); }, {.shape = Shape({2})},
            {.dtype = DType::kInt32, .shape = Shape({2})}, "…type mismatch: test.FormulaBad: ");
  ExpectBad([](Formula& f) { f.Out({Tanh(f.In("a"))}); }, {.dtype = DType::kInt64, .shape = Shape({2})}, {},
            "…type mismatch: test.FormulaBad: ");
  ExpectBad([](Formula& f) { f.Out({f.In("a")}); }, {.dtype = DType::kInt8, .shape = Shape({2})}, {},
            "…type mismatch: test.FormulaBad: ");
}

TEST(Formula, RefusesToOverwriteWhatItReadsAgain) {
  const OperatorCall call = CallOf("test.FormulaAdd", {"x", "y"}, {"y"});
  const std::vector<TensorInfo> inputs = {{.shape = Shape({2, 3})}, {.shape = Shape({3})}};
  ExpectError([&] { RegionOf(call, inputs); },
              "invalid net: test.FormulaAdd cannot overwrite y, whose elements are read for several of the output; its "
              "inputs are x float [2, 3], y float [3]");
}

TEST(Formula, KnowsWhatIsElementwiseAndHasRows) {
  const TensorInfo x = {.shape = Shape({2, 3})};
  const OperatorCall sum = CallOf("test.FormulaAdd", {"a", "b"}, {"c"});
  EXPECT_TRUE(IsElementwise(ShapeQuery(sum, std::vector<TensorInfo>{x, x})));
  EXPECT_FALSE(sum.schema().rows(ShapeQuery(sum, std::vector<TensorInfo>{x, x})));

  const OperatorCall cell = CallOf("test.FormulaCell", {"c_prev", "gates", "lengths", "timestep"}, {"h", "c"});
  const std::vector<TensorInfo> inputs = {x,
                                          {.shape = Shape({2, 6})},
                                          {.dtype = DType::kInt32, .shape = Shape({2})},
                                          {.dtype = DType::kInt32, .shape = Shape({1})}};
  EXPECT_FALSE(IsElementwise(ShapeQuery(cell, inputs)));
  const std::optional<RowOperands> rows = cell.schema().rows(ShapeQuery(cell, inputs));
  ASSERT_TRUE(rows);
  EXPECT_EQ(rows->inputs.size(), 3u);
  EXPECT_EQ(std::ranges::count(rows->inputs, 3), 0);  // the timestep, which all rows share
  EXPECT_EQ(rows->outputs, (std::vector<int>{0, 1}));

  const OperatorCall sums = CallOf("test.FormulaMoments", {"x", "weight"}, {"y", "sum", "dweight"});
  EXPECT_FALSE(sums.schema().rows(ShapeQuery(sums, std::vector<TensorInfo>{x, {.shape = Shape({3})}})));
}

// Runs a kernel of two inputs in parts.
Tensor RunInParts(const RunFn& kernel, const Tensor& a, const Tensor& b, int parts) {
  Tensor out(a.dtype(), a.shape());
  RunContext context;
  const TensorView inputs[] = {a.View(), b.View()};
  const TensorView outputs[] = {out.View()};
  for (int part = 0; part < parts; ++part) {
    OpRun run(inputs, outputs, context);
    run.SetPart(part, parts);
    kernel(run);
  }
  return out;
}

Tensor Numbers(const Shape& shape, float factor) {
  Tensor tensor(DType::kFloat, shape);
  for (std::int64_t i = 0; i < tensor.size(); ++i) tensor.data<float>()[i] = factor * static_cast<float>(i + 1);
  return tensor;
}

int times_asked = 0;  // of the formula below

const Registration asked = Operator("test.FormulaAsked")
                               .Private()
                               .Input("x", "any shape")
                               .Output("y", "as x")
                               .Shapes(SameAsInput(0))
                               .Formula([](Formula& f) {
                                 ++times_asked;
                                 f.Out({f.In("x") + 1});
                               });

TEST(Formula, IsAskedOnceByAllThatAskOfEqualInputs) {
  const OperatorCall call = CallOf("test.FormulaAsked", {"a"}, {"c"});
  const OperatorSchema& schema = call.schema();
  const std::vector<TensorInfo> inputs = {{.shape = Shape({7, 11})}};
  const ShapeQuery query(call, inputs);
  const int before = times_asked;
  const std::vector<TensorInfo> outputs = schema.shapes(query);
  EXPECT_EQ(outputs, inputs);
  EXPECT_EQ(FindParts(query)->outputs, inputs);
  EXPECT_FALSE(schema.rows(query));
  EXPECT_EQ(schema.cost(query, outputs).flops, 77);
  const Kernel& kernel = *schema.FindKernel(DeviceKind::kCpu);
  EXPECT_EQ(kernel.max_parts(query, outputs), 1);
  const Tensor x = Numbers({7, 11}, 1);
  Tensor y(DType::kFloat, x.shape());
  RunContext context;
  const TensorView from[] = {x.View()}, to[] = {y.View()};
  OpRun run(from, to, context);
  kernel.make(call)(run);
  EXPECT_EQ(y.data<float>()[76], 78);
  EXPECT_EQ(times_asked, before + 1);
}

TEST(Formula, RunsInPartsOnAnyShapesFromManyThreads) {
  const OperatorCall call = CallOf("test.FormulaAdd", {"a", "b"}, {"c"});
  const RunFn kernel = call.schema().FindKernel(DeviceKind::kCpu)->make(call);
  // More shapes than are kept, each met again and again.
  const auto run = [&] {
    for (int i = 0; i < 200; ++i) {
      const std::int64_t rows = i * 7 % 61;
      const Tensor a = Numbers({rows, 5}, 0.5f);
      const Tensor b = Numbers({5}, 3);
      const Tensor c = RunInParts(kernel, a, b, 1 + i % 3);
      for (std::int64_t k = 0; k < c.size(); ++k) {
        ASSERT_EQ(c.data<float>()[k], a.data<float>()[k] + b.data<float>()[k % 5]) << rows << " rows, element " << k;
      }
    }
  };
  std::vector<std::thread> threads;
  for (int i = 0; i < 3; ++i) threads.emplace_back(run);
  run();
  for (std::thread& thread : threads) thread.join();
}

}  // namespace
}  // namespace stepnet

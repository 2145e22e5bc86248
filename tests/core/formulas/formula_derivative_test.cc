// Gradient operators whose formula is the derivative of the forward operator's.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <tuple>

#include "stepnet/core/formulas/formula_sample.h"
#include "stepnet/tests/core/filled_memory.h"
#include "stepnet/tests/operators/op_test.h"

namespace stepnet {
namespace {

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

Operator TestOperator(const char* type) {
  Operator op(type);
  op.Private();
  return op;
}

// Gates side by side, a column of peepholes, a rate for each row, a scalar; rows that have ended keep their state.
Operator& AddCellInputs(Operator& op) {
  return op.Input("c_prev", "[N, H]")
      .Input("gates", "[N, 2 * H]")
      .Input("peephole", "[H]")
      .Input("rate", "[N]")
      .OptionalInput("lengths", "[N] int32")
      .Input("timestep", "[1] int32")
      .Arg("bias", 0.5f, "of the first gate");
}

Operator Cell() {
  Operator op = TestOperator("test.DerivedCell");
  AddCellInputs(op)
      .Output("h", "[N, H]")
      .Output("c", "[N, H]")
      .Gradient([](GradientBuilder& g) {
        std::vector<std::string> inputs = g.op().inputs();
        inputs.insert(inputs.end(), {g.O(1), g.GO(0)});
        if (g.HasGO(1)) inputs.push_back(g.GO(1));
        g.Add({.type = "test.DerivedCellGradient",
               .inputs = std::move(inputs),
               .outputs = {g.GI(0), g.GI(1), g.GI(2), g.GI(3)}});
      })
      .Formula([](Formula& f) {
        const std::vector<Expr> gate = f.Blocks("gates", 2);
        const Expr c_prev = f.In("c_prev");
        const Expr keep = Sigmoid(gate[0] + f.Column("peephole") * c_prev + f.Number("bias"));
        const Expr c = MulAdd(keep, c_prev, f.Row("rate") * gate[1]);
        const Expr h = Tanh(c);
        if (!f.Has("lengths")) return f.Out({h, c});
        const Expr ended = f.Scalar("timestep") >= f.Row("lengths");
        f.Out({Where(ended, 0, h), Where(ended, c_prev, c)});
      });
  return op;
}

Operator CellGradient() {
  Operator op = TestOperator("test.DerivedCellGradient");
  AddCellInputs(op)
      .Input("c", "[N, H]")
      .Input("dh", "[N, H]")
      .OptionalInput("dc", "[N, H]")
      .Output("dc_prev", "[N, H]")
      .Output("dgates", "[N, 2 * H]")
      .Output("dpeephole", "[H]")
      .Output("drate", "[N]")
      .Formula(DerivativeOf("test.DerivedCell"));
  return op;
}

const Registration cell = Cell();
const Registration cell_gradient = CellGradient();

constexpr std::int64_t kRows = 4;

// Rows 0 and 2 have ended at step 3.
OpTest CellTest(bool has_lengths, const Shape& rate = {kRows}) {
  OpTest test("test.DerivedCell", 2);
  test.Random("c_prev", {kRows, 5}, 1)
      .Random("gates", {kRows, 10}, 2)
      .Random("peephole", {5}, 3)
      .Random("rate", rate, 4);
  if (has_lengths) test.Input("lengths", Tensor::Of<std::int32_t>({kRows}, {3, 4, -7, 9}));
  return test.Input("t", Tensor::Of<std::int32_t>({1}, {3}));
}

// Without lengths also without gradient of c: of optional inputs the first ones are there.
TEST(DerivativeOf, IsCentralDifferencesOfBlocksColumnsRowsAndScalars) {
  for (const Shape& rate : {Shape{kRows}, Shape{kRows, 1}}) {
    CellTest(/*has_lengths=*/true, rate).GradientMatches();
    CellTest(/*has_lengths=*/false, rate).GradientMatches(/*outputs=*/{0});
  }
}

TEST(DerivativeOf, GetsNothingFromAnOutputWithoutGradient) {
  CellTest(/*has_lengths=*/true).GradientMatches(/*outputs=*/{0});
}

// NaN stands in all of the row that has ended but in what is passed on.
TEST(DerivativeOf, KeepsNaNOutOfRowsThatDoNotReadIt) {
  OpTest op("test.DerivedCellGradient", 4);
  op.Input("c_prev", {2, 1}, {kNaN, 0.25})
      .Input("gates", {2, 2}, {kNaN, kNaN, -0.5, 2})
      .Input("peephole", {1}, {0})
      .Input("rate", {2}, {kNaN, 3})
      .Input("lengths", Tensor::Of<std::int32_t>({2}, {3, 4}))
      .Input("t", Tensor::Of<std::int32_t>({1}, {3}))
      .Input("c", {2, 1}, {kNaN, 0})
      .Input("dh", {2, 1}, {kNaN, 8})
      .Input("dc", {2, 1}, {5, 0});
  op.Gives({2, 1}, {5, 4}, 0);
  op.Gives({2, 2}, {0, 0, 0.5, 24}, 1);
  op.Gives({1}, {0.125}, 2);
  op.Gives({2}, {0, 16}, 3);
}

// The cell state that is stored stands for the one that is computed, though it is one of two in each row; of two
// optional inputs here is the first.
TEST(DerivativeOf, ReadsStoredOutputs) {
  OpTest op("test.DerivedCellGradient", 4);
  op.Input("c_prev", {1, 1}, {0})
      .Input("gates", {1, 2}, {0, 0})
      .Input("peephole", {1}, {0})
      .Input("rate", {1}, {2})
      .Input("lengths", Tensor::Of<std::int32_t>({1}, {4}))
      .Input("t", Tensor::Of<std::int32_t>({1}, {3}))
      .Input("c", {1, 1}, {std::atanh(0.5)})
      .Input("dh", {1, 1}, {1});
  op.Gives({1}, {0}, 3);
  op.Gives({1, 2}, {0, 1.5}, 1);
}

Operator Scale(const char* type) { return TestOperator(type).Input("x", "any shape").Input("s", "repeated over x"); }
const Registration scale = Scale("test.DerivedScale")
                               .Output("y", "the shape of x")
                               .Gradient("test.DerivedScaleGradient", {"x", "s", "dy"}, {"dx", "ds"})
                               .Formula([](Formula& f) {
                                 const Expr x = f.In("x");
                                 f.Out({x * x * f.In("s")});
                               });
const Registration scale_gradient = Scale("test.DerivedScaleGradient")
                                        .Input("dy", "the shape of y")
                                        .Output("dx", "the shape of x")
                                        .Output("ds", "the shape of s")
                                        .Formula(DerivativeOf("test.DerivedScale"));

TEST(DerivativeOf, SumsOverWhatAnInputIsRepeatedOver) {
  const FilledMemory filled(kFills[0]);
  const Shape x = {2, 4, 3};
  for (const Shape& s :
       {Shape{2, 4, 3}, Shape{3}, Shape{4, 3}, Shape{2, 1, 3}, Shape{2, 4, 1}, Shape{1, 1, 1}, Shape{1}, Shape{}}) {
    OpTest("test.DerivedScale").Random("x", x, 1).Random("s", s, 2).GradientMatches();
  }
  for (const Shape& column : {Shape{4, 1}, Shape{1, 1}, Shape{4}}) {
    OpTest("test.DerivedScale").Random("x", column, 1).Random("s", column, 2).GradientMatches();
    OpTest("test.DerivedScale").Random("x", column, 1).Random("s", {1}, 2).GradientMatches();
  }
  for (const Shape& s : {Shape{3}, Shape{1}, Shape{1, 1}}) {
    OpTest("test.DerivedScale").Input("x", {0, 3}, {}).Random("s", s, 2).GradientMatches();
  }
  for (const Shape& s : {Shape{4, 1}, Shape{1, 4, 1}}) {  // along a row, and over some of the rows
    OpTest("test.DerivedScale").Random("x", x, 1).Random("s", s, 2).GradientMatches();
    OpTest("test.DerivedScale").Input("x", {0, 4, 3}, {}).Random("s", s, 2).GradientMatches();
  }
}

// Repeated over x, or x over it, it would be the gradient of something else.
TEST(DerivativeOf, RefusesAGradientOfAnotherShape) {
  const auto run = [](const Shape& x, const Shape& s, const Shape& dy) {
    OpTest("test.DerivedScaleGradient", 2).Random("x", x, 1).Random("s", s, 2).Random("dy", dy, 3).Run();
  };
  for (const auto& [x, s, dy] :
       {std::tuple{Shape{3, 4}, Shape{4}, Shape{1, 4}}, std::tuple{Shape{3, 4}, Shape{4}, Shape{4}},
        std::tuple{Shape{3, 4}, Shape{3, 1}, Shape{1}}, std::tuple{Shape{4}, Shape{3, 1}, Shape{2, 3, 4}}}) {
    ExpectError([&] { run(x, s, dy); },
                "…shape mismatch: test.DerivedScaleGradient needs dy of the shape that test.DerivedScale gives, an "
                "element for each of [3, 4]; its inputs are x float ");
  }
  run({4}, {3, 1}, {3, 4});
  run({0, 4}, {4}, {0, 4});
  run({}, {}, {});
}

Operator ScaleRows(const char* type) {
  return TestOperator(type).Input("x", "[N, C]").Input("r", "[N]").Input("s", "[1]");
}
const Registration scale_rows =
    ScaleRows("test.DerivedScaleRows")
        .Output("y", "the shape of x")
        .Gradient("test.DerivedScaleRowsGradient", {"x", "r", "s", "dy"}, {"dx", "dr", "ds"})
        .Formula([](Formula& f) {
          const Expr scaled = f.In("x") * f.Scalar("s");
          f.Out({Tanh(scaled) * f.Row("r") - RowSum(scaled) * f.Scalar("s")});
        });
const Registration scale_rows_gradient = ScaleRows("test.DerivedScaleRowsGradient")
                                             .Input("dy", "the shape of y")
                                             .Output("dx", "the shape of x")
                                             .Output("dr", "the shape of r")
                                             .Output("ds", "the shape of s")
                                             .Formula(DerivativeOf("test.DerivedScaleRows"));

// A number that is repeated along rows and over them, beside what is of a row and what is computed of it.
TEST(DerivativeOf, AddsUpWhatRowsHave) {
  const FilledMemory filled(kFills[0]);
  for (const Shape& x : {Shape{4, 3}, Shape{1, 5}, Shape{3, 1}, Shape{70, 40}, Shape{3, 300}, Shape{1}}) {
    const Shape r = {x.rank() == 1 ? 1 : x[0]};
    OpTest("test.DerivedScaleRows").Random("x", x, 1).Random("r", r, 2).Random("s", {1}, 3).GradientMatches();
  }
  OpTest("test.DerivedScaleRows").Input("x", {0, 3}, {}).Input("r", {0}, {}).Random("s", {1}, 3).GradientMatches();
}

Operator Moments(const char* type) {
  return TestOperator(type).Input("x", "[N, C]").Input("weight", "[C]").Input("bias", "[2 * C]").Input("shift", "[1]");
}
const Registration moments =
    Moments("test.DerivedMoments")
        .Output("y", "[N, C]")
        .Output("sum", "[N]")
        .Output("total", "[C]")
        .Output("pairs", "[N, 2 * C]")
        .Gradient("test.DerivedMomentsGradient",
                  {"x", "weight", "bias", "shift", "sum", "dy", "dsum", "dtotal", "dpairs"}, {"dx", "dweight", "dbias"})
        .Formula([](Formula& f) {
          const Expr x = f.In("x");
          const Expr weighted = x * f.Column("weight");
          const std::vector<Expr> bias = f.Blocks("bias", 2);
          const Expr sum = RowSum(x * x);
          f.Out({weighted - sum + f.Scalar("shift"), OfRows(sum), SumOverRows(x * x * x),
                 SideBySide({x * bias[0], weighted * bias[1]})});
        });
const Registration moments_gradient = Moments("test.DerivedMomentsGradient")
                                          .Input("sum", "[N]")
                                          .Input("dy", "[N, C]")
                                          .Input("dsum", "[N]")
                                          .Input("dtotal", "[C]")
                                          .Input("dpairs", "[N, 2 * C]")
                                          .Output("dx", "[N, C]")
                                          .Output("dweight", "[C]")
                                          .Output("dbias", "[2 * C]")
                                          .Formula(DerivativeOf("test.DerivedMoments"));

TEST(DerivativeOf, TakesGradientsOfRowsSumsAndBlocks) {
  for (const Shape& x : {Shape{4, 5}, Shape{1, 5}, Shape{4, 1}}) {
    OpTest("test.DerivedMoments", 4)
        .Random("x", x, 1)
        .Random("weight", {x[1]}, 2)
        .Random("bias", {2 * x[1]}, 3)
        .Random("shift", {1}, 4)
        .GradientMatches({}, {0, 1, 2});
  }
}

Operator Inverse(const char* type) { return TestOperator(type).Input("y", "any shape").Input("dy", "the shape of y"); }
const Registration squash = TestOperator("test.Squash")
                                .Input("x", "any shape")
                                .Output("y", "the shape of x")
                                .Gradient("test.SquashGradient", {"y", "dy"}, {"dx"})
                                .Formula([](Formula& f) { f.Out({Tanh(f.In("x"))}); });
const Registration squash_gradient =
    Inverse("test.SquashGradient").Output("dx", "the shape of y").Formula(DerivativeOf("test.Squash"));
const Registration square = TestOperator("test.Square")
                                .Input("x", "any shape")
                                .Output("y", "the shape of x")
                                .Gradient("test.SquareGradient", {"y", "dy"}, {"dx"})
                                .Formula([](Formula& f) { f.Out({f.In("x") * f.In("x")}); });
const Registration square_gradient =
    Inverse("test.SquareGradient").Output("dx", "the shape of y").Formula(DerivativeOf("test.Square"));

TEST(DerivativeOf, NeedsNoInputThatItDoesNotRead) {
  OpTest("test.Squash").Random("x", {2, 3}, 1).GradientMatches();
  OpTest("test.Squash").Input("x", Shape{0, 3}, {}).GradientMatches();
}

// What the formula of a gradient operator that is declared wrongly says.
void ExpectWrong(const std::string& type, const std::string& text) {
  OpTest op(type);
  op.Random("a", {2, 3}, 1).Random("b", {2, 3}, 2);
  ExpectError([&] { op.Run(); }, text);
}

const Registration wrong_input = TestOperator("test.WrongInput")
                                     .Input("x", "")
                                     .Input("grad", "")
                                     .Output("dx", "")
                                     .Formula(DerivativeOf("test.Square"));
const Registration wrong_output = Inverse("test.WrongOutput").Output("dz", "").Formula(DerivativeOf("test.Square"));
const Registration misspelt = Inverse("test.Misspelt").Output("dx", "").Formula(DerivativeOf("test.Sqare"));
const Registration opaque = Inverse("test.Opaque").Output("dx", "").Formula(DerivativeOf("Gather"));
const Registration second = TestOperator("test.Second")
                                .Input("y", "")
                                .Input("ddx", "")
                                .Output("dy", "")
                                .Formula(DerivativeOf("test.SquashGradient"));
const Registration twice = TestOperator("test.ReadTwice").Input("x", "").Output("y", "").Formula([](Formula& f) {
  f.Out({f.In("x") * f.Row("x")});
});
const Registration twice_gradient = TestOperator("test.ReadTwiceGradient")
                                        .Input("x", "")
                                        .Input("dy", "")
                                        .Output("dx", "")
                                        .Formula(DerivativeOf("test.ReadTwice"));
const Registration factor =
    TestOperator("test.Factor").Input("x", "").Output("y", "").Arg("factor", 2.0f, "").Formula([](Formula& f) {
      f.Out({f.Number("factor") * f.In("x")});
    });
const Registration factor_gradient =
    Inverse("test.FactorGradient").Output("dx", "").Formula(DerivativeOf("test.Factor"));

TEST(DerivativeOf, RefusesNamesThatSayNothing) {
  ExpectWrong("test.WrongInput",
              "…invalid net: test.WrongInput is declared as the derivative of test.Square, and its input \"grad\" is "
              "no input (x), output (y) or gradient of an output (dy) of that: name it as what it is\n");
  ExpectWrong("test.WrongOutput",
              "…invalid net: test.WrongOutput is declared as the derivative of test.Square, and its output \"dz\" is "
              "no gradient of an input (dx) of that: name it as what it is\n");
}

TEST(DerivativeOf, RefusesWhatHasNoFormula) {
  ExpectWrong("test.Misspelt",
              "…invalid net: test.Misspelt is declared as the derivative of test.Sqare, which is no operator type; "
              "did you mean \"test.Square\"?\n");
  ExpectWrong("test.Opaque",
              "…invalid net: test.Opaque is declared as the derivative of Gather, which has no formula: declare one "
              "there, or say here what the gradient is\n");
  ExpectWrong(
      "test.Second",
      "…invalid net: test.Second is declared as the derivative of test.SquashGradient, which is one itself: say "
      "here what the gradient is\n");
}

TEST(DerivativeOf, RefusesWhatItIsNotGiven) {
  ExpectWrong(
      "test.SquareGradient",
      "…invalid net: test.SquareGradient is declared as the derivative of test.Square, and its formula reads "
      "\"x\", which it is not given: declare .Input(\"x\", …) here, and name it where test.Square says what its "
      "gradient is\n");
  ExpectWrong("test.FactorGradient",
              "…invalid net: the formula of test.FactorGradient asks for an argument \"factor\" that the operator does "
              "not declare");
  ExpectWrong(
      "test.ReadTwiceGradient",
      "…invalid net: test.ReadTwiceGradient is declared as the derivative of test.ReadTwice, whose formula reads "
      "\"x\" in two ways: read it in one, or say here what the gradient is\n");
}

TEST(SampleFormula, FindsShapesThatFit) {
  for (const char* type : {"test.DerivedCell", "test.DerivedCellGradient", "test.DerivedMomentsGradient", "LSTMUnit",
                           "LSTMUnitGradient", "GRUUnitGradient"}) {
    EXPECT_TRUE(SampleFormula(GetOperator(type))) << type;
  }
}

}  // namespace
}  // namespace stepnet

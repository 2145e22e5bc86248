// Formulas whose rows are several dimensions: Formula::RowsFrom.
#include <algorithm>

#include "stepnet/core/formulas/formula_cache.h"
#include "stepnet/tests/operators/op_test.h"

namespace stepnet {
namespace {

std::vector<TensorInfo> CenterShapes(const ShapeQuery& query) {
  const TensorInfo& x = query.In(0);
  return {x, {.dtype = x.dtype, .shape = Shape({query.In(1).shape.size()})}};
}

// y = (x - mean of the row) * column + row, where a row is what `axis` says.
Operator Center(const char* type) {
  Operator op(type);
  op.Private()
      .Input("x", "any shape")
      .Input("row", "an element for each row")
      .Input("column", "an element for each element of a row")
      .Output("y", "the shape of x")
      .Output("sum", "[N]")
      .Arg("axis", 1, "where a row begins")
      .Shapes(CenterShapes)
      .Formula([](Formula& f) {
        const std::int64_t count = f.RowsFrom("x", f.Int("axis"));
        const Expr x = f.In("x");
        const Expr sum = RowSum(x);
        f.Out({(x - sum / std::max<std::int64_t>(count, 1)) * f.Column("column") + f.Row("row"), OfRows(sum)});
      });
  return op;
}
const Registration center = Center("test.FormulaCenter");

// dx = dy / the number of elements: of x that is all that is asked.
const Registration share = Operator("test.FormulaShare")
                               .Private()
                               .Input("x", "any shape")
                               .Input("dy", "[]")
                               .Output("dx", "the shape of x")
                               .Shapes(SameAsInput(0))
                               .Formula([](Formula& f) { f.Out({f.Scalar("dy") / f.RowsFrom("x", 0)}); });

std::vector<double> Counting(std::int64_t n, double first) {
  std::vector<double> values;
  for (std::int64_t i = 0; i < n; ++i) values.push_back(first + static_cast<double>(i * i % 7));
  return values;
}

struct RowsCase {
  Shape x;
  int axis;
  std::int64_t rows;
  std::int64_t columns;
};

OpTest TestOf(const RowsCase& c) {
  OpTest op("test.FormulaCenter", 2);
  op.Arg("axis", c.axis).Input("x", c.x, Counting(c.x.size(), 3));
  op.Input("row", Shape({c.rows}), Counting(c.rows, 10)).Input("column", Shape({c.columns}), Counting(c.columns, 2));
  return op;
}

TEST(FormulaRows, AreTheDimensionsFromAnAxis) {
  const std::vector<RowsCase> cases = {
      {{2, 3, 4}, 1, 2, 12}, {{2, 3, 4}, 2, 6, 4}, {{2, 3, 4}, -1, 6, 4}, {{2, 3, 4}, 0, 1, 24}, {{2, 3, 4}, 3, 24, 1},
      {{5}, 1, 5, 1},        {{5}, 0, 1, 5},       {{}, 0, 1, 1},         {{}, -1, 1, 1},        {{2, 1, 3}, 1, 2, 3},
      {{1, 2, 1}, 2, 2, 1},  {{2, 0, 3}, 1, 2, 0}, {{0, 2}, 1, 0, 2},     {{2, 3, 0}, 2, 6, 0}};
  for (const RowsCase& c : cases) {
    SCOPED_TRACE(StrCat(c.x, " from ", c.axis));
    const std::vector<double> x = Counting(c.x.size(), 3), row = Counting(c.rows, 10), column = Counting(c.columns, 2);
    std::vector<double> y, sums(static_cast<size_t>(c.rows));
    for (std::int64_t i = 0; i < c.x.size(); ++i) sums[i / c.columns] += x[i];
    for (std::int64_t i = 0; i < c.x.size(); ++i) {
      const std::int64_t r = i / c.columns;
      y.push_back((x[i] - sums[r] / static_cast<double>(c.columns)) * column[i % c.columns] + row[r]);
    }
    TestOf(c).Gives(c.x, y, 0);
    TestOf(c).Gives(Shape({c.rows}), sums, 1);
  }
}

// Where no element comes out, nobody counts to them.
TEST(FormulaRows, MayBeVeryManyOfNoElements) {
  constexpr std::int64_t kHuge = std::int64_t{1} << 50;
  OpTest("Softmax").Input("x", {kHuge, 0}, {}).Gives({kHuge, 0}, {});
  OpTest("SoftmaxGradient").Input("y", {kHuge, 0}, {}).Input("dy", {kHuge, 0}, {}).Gives({kHuge, 0}, {});
}

// What `ask` says of an operator that is given such inputs.
template <typename Ask>
auto Asked(const std::string& type, const std::vector<Shape>& shapes, int outputs, int axis, const Ask& ask) {
  OperatorDef def;
  def.set_type(type);
  std::vector<TensorInfo> inputs;
  for (const Shape& shape : shapes) {
    def.add_input(StrCat("in", inputs.size()));
    inputs.push_back({.shape = shape});
  }
  for (int i = 0; i < outputs; ++i) def.add_output(StrCat("out", i));
  if (type == "test.FormulaCenter") {
    Argument* argument = def.add_arg();
    argument->set_name("axis");
    argument->set_i(axis);
  }
  const OperatorCall call(def);
  return ask(ShapeQuery(call, inputs));
}

std::optional<RowOperands> RowsOf(const std::string& type, const std::vector<Shape>& shapes, int outputs, int axis) {
  return Asked(type, shapes, outputs, axis, [&](const ShapeQuery& query) {
    EXPECT_FALSE(IsElementwise(query)) << type;
    return query.op().schema().rows(query);
  });
}

TEST(FormulaRows, AreThoseOfTheFirstDimensionWhereTheyLieInOne) {
  const auto rows = RowsOf("test.FormulaCenter", {{2, 3, 4}, {2}, {12}}, 2, 1);
  ASSERT_TRUE(rows);
  EXPECT_EQ(rows->inputs, (std::vector<int>{0, 1}));
  EXPECT_EQ(rows->outputs, (std::vector<int>{0, 1}));
  EXPECT_FALSE(RowsOf("test.FormulaCenter", {{2, 3, 4}, {1}, {24}}, 2, 0));
  EXPECT_FALSE(RowsOf("test.FormulaCenter", {{1, 3, 4}, {1}, {12}}, 2, 0));
  // More of x would make another number of it.
  EXPECT_FALSE(RowsOf("test.FormulaShare", {{2, 3}, {}}, 1, 0));
}

// Formulas that ask for shapes, or say them, may compute otherwise where there are fewer rows.
TEST(FormulaRows, OfOutputsAreFewerWhereInputsHaveFewer) {
  const auto follow = [](const std::string& type, const std::vector<Shape>& shapes, int outputs) {
    return Asked(type, shapes, outputs, /*axis=*/1, FollowsInputs);
  };
  EXPECT_TRUE(follow("Tanh", {{2, 3}}, 1));
  EXPECT_TRUE(follow("DivGradient", {{4}, {2, 4}, {2, 4}}, 2));
  EXPECT_FALSE(follow("test.FormulaCenter", {{2, 3, 4}, {2}, {12}}, 2));
  EXPECT_FALSE(follow("test.FormulaShare", {{2, 3}, {}}, 1));
  EXPECT_FALSE(follow("FC", {{2, 3}, {4, 3}, {4}}, 1)) << "it has no formula";
}

// A sum over one row has a row, too; over the rows of many steps it has still one.
TEST(FormulaRows, AreNotThoseOfTheGradientOfWhatAllRowsShare) {
  for (const std::int64_t rows : {1, 2}) {
    EXPECT_FALSE(RowsOf("DivGradient", {{1}, {rows, 4}, {rows, 4}}, 2, 0)) << rows;
  }
}

}  // namespace
}  // namespace stepnet

// What is wrong with declarations by themselves is found when they are registered, and stops every use of them.
#include "stepnet/core/formulas/formula.h"
#include "stepnet/proto/net.pb.h"
#include "stepnet/tests/operators/op_test.h"

namespace stepnet {
namespace {

Operator OfX(const char* type) {
  Operator op(type);
  op.Private().Input("x", "any shape").Output("y", "the shape of x");
  return op;
}

void Twice(Formula& f) { f.Out({f.In("x") * 2}); }
void ByRowSum(Formula& f) {
  const Expr x = f.In("x");
  f.Out({x / RowSum(x * x)});
}
RowsRule Rows(RowOperands rows) {
  return [rows](const ShapeQuery&) { return std::optional(rows); };
}
std::string Here(const char* file = __builtin_FILE()) { return file; }
RunFn Nothing(const OperatorCall&) {
  return [](const OpRun&) {};
}

const Registration wrong[] = {
    OfX("test.RowsBesideFormula").Rows(Rows({{0}, {0}})).Formula(ByRowSum),
    OfX("test.ElementwiseBesideFormula").Elementwise().Formula(ByRowSum),
    OfX("test.WhereAlone").Formula(FormulaWhere{[](const OperatorCall&, DType, const Shape&) { return false; }, Twice}),
    OfX("test.DoubledInputs").Input("x", "again").Formula(Twice),
    OfX("test.DoubledOutputs").Output("y", "again").Formula(Twice),
    OfX("test.DoubledArguments").Arg("a", 1, "a").Arg("a", 2.0f, "a").Formula(Twice),
    OfX("test.DerivedOfNothing").DerivedGradient({"x", "dy"}, {"dx"}).Shapes(SameAsInput(0)).Cpu(Nothing),
    OfX("test.LikeNothing").Input("w", Like("v")).Formula(Twice),
    OfX("test.InPlaceOutput").InPlace({{0, 3}}).Formula(Twice),
    OfX("test.InPlaceInput").InPlace({{0, 0}, {5, 0}}).Formula(Twice),
    OfX("test.EnforcedInPlace").EnforceInPlace({{-1, 0}}).Formula(Twice),
    OfX("test.ReadsValues").Shapes(SameAsInput(0)).ShapesReadValues({1}).Cpu(Nothing),
    OfX("test.CanAdd").Shapes(SameAsInput(0)).Cpu({.make = Nothing, .can_add = {1}}),
    OfX("test.Line\nFeed\xff").Formula(Twice),
    OfX("test.odd type").Formula(Twice),
    OfX("test.EmptyName").Input("", "no name").Formula(Twice),
    OfX("test.OddOutput").Output("w;\x1b[31m", "no name").Formula(Twice),
    OfX("test.OddArgument").Arg("7th", 1, "no name").Formula(Twice),
    OfX("test.VariadicFirst").Inputs("more", "").Input("last", "").Shapes(SameAsInput(0)).Cpu(Nothing)};

TEST(Declarations, ThatCannotBeMeantAreRegistrationProblems) {
  const std::string rule = "\": a name is letters, digits, \"_\" and \".\", and starts with a letter or \"_\"";
  const std::map<std::string, std::string> expected = {
      {"test.RowsBesideFormula",
       "test.RowsBesideFormula declares .Rows beside .Formula, from which that follows: leave out .Rows"},
      {"test.ElementwiseBesideFormula",
       "test.ElementwiseBesideFormula declares .Elementwise beside .Formula, from which that follows: leave out "
       ".Elementwise"},
      {"test.WhereAlone",
       "test.WhereAlone declares a FormulaWhere, and no kernel for where that does not apply: add .Cpu"},
      {"test.DoubledInputs", "test.DoubledInputs declares two inputs named \"x\": give each a name of its own"},
      {"test.DoubledOutputs", "test.DoubledOutputs declares two outputs named \"y\": give each a name of its own"},
      {"test.DoubledArguments",
       "test.DoubledArguments declares two arguments named \"a\": give each a name of its own"},
      {"test.DerivedOfNothing",
       "test.DerivedOfNothing declares a gradient that follows from its formula, and no formula: add .Formula, or "
       "declare the gradient operator by .Gradient and a registration of its own"},
      {"test.LikeNothing", "test.LikeNothing says that \"w\" is like \"v\", which is no input: name one of its inputs"},
      {"test.InPlaceOutput", "test.InPlaceOutput names output 3 in .InPlace, its declaration has 1, counted from 0"},
      {"test.InPlaceInput", "test.InPlaceInput names input 5 in .InPlace, its declaration has 1, counted from 0"},
      {"test.EnforcedInPlace",
       "test.EnforcedInPlace names input -1 in .EnforceInPlace, its declaration has 1, counted from 0"},
      {"test.ReadsValues",
       "test.ReadsValues names input 1 in .ShapesReadValues, its declaration has 1, counted from 0"},
      {"test.CanAdd", "test.CanAdd names output 1 in .can_add, its declaration has 1, counted from 0"},
      {"test.Line\nFeed\xff", "an operator in " + Here() + " has the type \"test.Line\\x0aFeed\\xff" + rule},
      {"test.odd type", "an operator in " + Here() + " has the type \"test.odd type" + rule},
      {"test.EmptyName", "test.EmptyName declares an input named \"" + rule},
      {"test.OddOutput", "test.OddOutput declares an output named \"w;\\x1b[31m" + rule},
      {"test.OddArgument", "test.OddArgument declares an argument named \"7th" + rule},
      {"test.VariadicFirst",
       "test.VariadicFirst declares \"more\", of which there may be any number, before others: declare it last"}};
  const std::map<std::string, std::string> problems = RegistrationProblems();
  for (const auto& [type, message] : expected) {
    ASSERT_TRUE(problems.contains(type)) << type;
    EXPECT_EQ(problems.at(type), message);
    ExpectError([&] { GetOperator(type); }, "invalid net: " + message);
  }
}

// A kernel of its own may run dtypes of which the formula says nothing; of others it must not say otherwise.
const Registration elementwise_beside_both =
    OfX("test.ElementwiseBesideBoth").Elementwise().Formula(ByRowSum).Cpu(Nothing);
const Registration rows_beside_both = OfX("test.RowsBesideBoth").Rows(Rows({{0}, {0}})).Formula(Twice).Cpu(Nothing);
RunFn DoTwice(const OperatorCall&) {
  return [](const OpRun& run) {
    for (std::int64_t i = 0; i < run.Out(0).size(); ++i) run.Out(0).As<float>()[i] = 2 * run.In(0).As<float>()[i];
  };
}
const Registration fits_both = OfX("test.FitsBoth").Elementwise().Formula(Twice).Cpu(DoTwice);

TEST(Declarations, BesideAFormulaAndAKernelAreComparedWithTheFormula) {
  for (const char* said : {"Elementwise", "Rows"}) {
    const std::string type = StrCat("test.", said, "BesideBoth");
    ExpectError(
        [&] {
          OpTest(type).Random("x", {2, 3}, 1).Run();
        },
        StrCat("…invalid net: ", type, " declares .", said, ", and its formula says otherwise: leave out .", said,
               ", or make it say what the formula does\n"));
  }
  OpTest("test.FitsBoth").Random("x", {2, 3}, 1).Run();
}

const Registration rows_of_none = OfX("test.RowsOfNone").Shapes(SameAsInput(0)).Rows(Rows({{0, 4}, {0}})).Cpu(Nothing);

TEST(Declarations, RowsRulesNameOperandsThatAreThere) {
  OperatorDef def;
  def.set_type("test.RowsOfNone");
  def.add_input("x");
  def.add_output("y");
  const OperatorCall call(def);
  const std::vector<TensorInfo> inputs = {{.dtype = DType::kFloat, .shape = Shape({2, 3})}};
  ExpectError([&] { call.schema().rows(ShapeQuery(call, inputs)); },
              "internal error: the rows rule of test.RowsOfNone names input 4, the operator has 1, counted from 0");
}

}  // namespace
}  // namespace stepnet

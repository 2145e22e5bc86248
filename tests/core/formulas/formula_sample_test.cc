// Formulas are asked before shapes are known: what is wrong with them whatever they are given is found by the check of
// a net.
#include "stepnet/core/formulas/formula_sample.h"

#include <algorithm>
#include <chrono>
#include <stdexcept>

#include "stepnet/core/cancellation.h"
#include "stepnet/nets/net_check.h"
#include "stepnet/operators/elementwise.h"
#include "stepnet/proto/net.pb.h"
#include "stepnet/tests/core/error_of.h"
#include "stepnet/tests/executor/recurrent_case.h"
#include "stepnet/tests/operators/op_test.h"

namespace stepnet {
namespace {

Operator OfX(const char* type) {
  Operator op(type);
  op.Private().Input("x", "any shape").OptionalInput("z", "any shape").Output("y", "any shape").Arg("k", 3, "a number");
  return op;
}

std::vector<TensorInfo> OneElement(const ShapeQuery& query) { return {{.dtype = query.In(0).dtype, .shape = {}}}; }

const Registration broken[] = {
    OfX("test.NoBlocks").Formula([](Formula& f) { f.Out({f.Blocks("x", 0)[0]}); }),
    OfX("test.UnknownInput").Formula([](Formula& f) { f.Out({f.In("nope")}); }),
    OfX("test.UnknownArgument").Formula([](Formula& f) { f.Out({f.In("x") * f.Number("nope")}); }),
    OfX("test.TwoDTypes").Formula([](Formula& f) { f.Out({f.In("x") + (f.In("x") < 0)}); }),
    OfX("test.TwoResults").Formula([](Formula& f) {
      f.Out({f.In("x"), f.In("x")});
    }),
    OfX("test.NoResults").Formula([](Formula&) {}),
    OfX("test.Undefined").Formula([](Formula& f) { f.Out({f.In("x") + Expr()}); }),
    OfX("test.ThrowsAtAll").Formula([](Formula&) { throw std::runtime_error("no more ink"); }),
    OfX("test.ReadsUnasked").Formula([](Formula& f) { f.Out({f.In("x") * f.In("z")}); }),
    OfX("test.ChecksUnsaid").Formula([](Formula& f) {
      f.Check(f.In("x") > 0, "x is {}", f.In("x"));
      f.Out({f.In("x")});
    }),
    OfX("test.ShowsMore")
        .Formula(
            [](Formula& f) {
              f.Check(f.In("x") > 0, "x is {} and {}", f.In("x"));
              f.Out({f.In("x")});
            },
            {.checks_values = true}),
    OfX("test.FifthIndex").Formula([](Formula& f) { f.Out({f.In("x") + Cast(f.TypeOf("x"), Index(4))}); }),
    OfX("test.SumOfOne").Formula([](Formula& f) {
      const Expr x = f.In("x");
      f.Out({MakeExpr(ExprOp::kAdd, {&x, 1})});
    }),
    OfX("test.OverTwice").Formula([](Formula& f) {
      f.Over(f.ShapeOf("x"));
      f.Over({1});
      f.Out({f.In("x")});
    }),
    OfX("test.RowsTwice").Formula([](Formula& f) {
      f.RowsFrom("x", 0);
      f.RowsFrom("x", 1);
      f.Out({f.In("x")});
    }),
    OfX("test.RowsBeforeOver").Shapes(SameAsInput(0)).Formula([](Formula& f) {
      f.RowsFrom("x", 0);
      f.Over(f.ShapeOf("x"));
      f.Out({f.In("x")});
    }),
    OfX("test.RowsBehindOver").Shapes(SameAsInput(0)).Formula([](Formula& f) {
      f.Over(f.ShapeOf("x"));
      f.RowsFrom("x", 0);
      f.Out({f.In("x")});
    }),
    OfX("test.ThrowsANumber").Formula([](Formula&) { throw 3; }),
    OfX("test.IsOfNoRows").Formula([](Formula& f) { f.Out({OfRows(f.In("x"))}); }),
    OfX("test.IsOfAnotherShape").Shapes(OneElement).Formula([](Formula& f) { f.Out({f.In("x")}); }),
    OfX("test.DerivesGather").Formula(DerivativeOf("Gather")),
    // Shapes that are tried have fewer dimensions than these read.
    OfX("test.UnknownBesideColumns").Shapes(SameAsInput(0)).Formula([](Formula& f) {
      const Shape& x = f.ShapeOf("x");
      f.Over(Shape({x[0], x[1]}));
      f.Out({f.In("nope")});
    }),
    OfX("test.TwoResultsOfColumns").Formula([](Formula& f) {
      const Expr x = f.In("x") * static_cast<double>(f.ShapeOf("x")[1]);
      f.Out({x, x});
    }),
    OfX("test.UnknownBesideSixth").Formula([](Formula& f) {
      f.Out({f.In("x") * static_cast<double>(f.ShapeOf("x")[5]) + f.In("nope")});
    }),
    OfX("test.DTypesBesideThird").Formula([](Formula& f) {
      const Expr x = f.In("x") * f.ShapeOf("x")[2];
      f.Out({x + (x < 0)});
    }),
    OfX("test.AlongFourthOfTwo").Shapes(SameAsInput(0)).Formula([](Formula& f) {
      const Shape& x = f.ShapeOf("x");
      f.Over(Shape({x[0], x[1]}));
      f.Out({f.In("x") + f.Along("x", {3})});
    }),
    OfX("test.SecondIndexOfTwo").Shapes(SameAsInput(0)).Formula([](Formula& f) {
      const Shape& x = f.ShapeOf("x");
      f.Over(Shape({x[0], x[1]}));
      f.Out({f.In("x") + Cast(f.TypeOf("x"), Index(1))});
    }),
    OfX("test.SecondIndexOfRows").Formula([](Formula& f) { f.Out({f.In("x") + Cast(f.TypeOf("x"), Index(1))}); }),
    OfX("test.IsOfAnotherDType").Shapes(SameAsInput(0)).Formula([](Formula& f) {
      f.Out({Cast(DType::kInt64, f.In("x"))});
    })};

// More values than a check shows are an error of the compiler.
template <typename... Values>
concept IsCheck = requires(Formula& f, const Expr& x, const Values&... values) {
  f.Check(x, "", values...);
  Require(x, "", values...);
};
static_assert(IsCheck<Expr, int, int, Expr> && !IsCheck<Expr, int, int, Expr, int>);

// What is wrong with a net of one operator, y of x.
std::vector<std::string> ProblemsOf(const std::string& type) {
  NetDef net;
  OperatorDef* op = net.add_op();
  op->set_type(type);
  op->add_input("x");
  op->add_output("y");
  std::vector<std::string> texts;
  for (const NetProblem& problem : CheckNet(net)) texts.push_back(problem.message);
  return texts;
}

TEST(FormulaFault, IsFoundByTheCheckOfANet) {
  const std::map<std::string, std::string> expected = {
      {"test.NoBlocks", "the formula of test.NoBlocks reads \"x\" in 0 blocks"},
      {"test.UnknownInput",
       "the formula of test.UnknownInput names an input \"nope\" that the operator does not declare"},
      {"test.UnknownArgument",
       "the formula of test.UnknownArgument asks for an argument \"nope\" that the operator does not declare"},
      {"test.TwoDTypes", "test.TwoDTypes: x + (x < 0): x < 0 is bool, must be numbers"},
      {"test.TwoResults", "the formula of test.TwoResults gives 2 outputs, its declaration has 1"},
      {"test.NoResults", "the formula of test.NoResults says nothing of outputs"},
      {"test.Undefined", "test.Undefined: + has an undefined operand"},
      {"test.ThrowsAtAll", "the formula of test.ThrowsAtAll threw no more ink"},
      {"test.ReadsUnasked", "the formula of test.ReadsUnasked reads \"z\" without asking whether the operator has it"},
      {"test.ChecksUnsaid",
       "the formula of test.ChecksUnsaid checks values and its declaration does not say so "
       "(FormulaOptions::checks_values)"},
      {"test.ShowsMore",
       "the formula of test.ShowsMore checks with the message \"x is {} and {}\", which has 2 places {} for 1 value"},
      {"test.FifthIndex", "test.FifthIndex: index of dimension 4; a region has 0 to 3"},
      {"test.SumOfOne", "test.SumOfOne: +(x) has 1 operand, must have 2"},
      {"test.OverTwice", "the formula of test.OverTwice says twice what it computes over"},
      {"test.RowsTwice",
       "the formula of test.RowsTwice makes a row of the dimensions from 0 on, and of those from 1 on"},
      {"test.RowsBeforeOver",
       "the formula of test.RowsBeforeOver asks for RowsFrom and Over: in what it computes over, the last dimension is "
       "a row"},
      {"test.RowsBehindOver",
       "the formula of test.RowsBehindOver asks for RowsFrom and Over: in what it computes over, the last dimension is "
       "a row"},
      {"test.ThrowsANumber", "the formula of test.ThrowsANumber threw what is no std::exception"},
      {"test.IsOfNoRows", "test.IsOfNoRows: output 0 is of rows, and x differs between columns"},
      {"test.IsOfAnotherShape",
       "test.IsOfAnotherShape gives y as float [1009, 1013] by its formula and as float [] by its shape rule"},
      {"test.DerivesGather",
       "test.DerivesGather is declared as the derivative of Gather, which has no formula: declare one there, or say "
       "here what the gradient is"},
      {"test.UnknownBesideColumns",
       "the formula of test.UnknownBesideColumns names an input \"nope\" that the operator does not declare"},
      {"test.TwoResultsOfColumns", "the formula of test.TwoResultsOfColumns gives 2 outputs, its declaration has 1"},
      {"test.UnknownBesideSixth",
       "the formula of test.UnknownBesideSixth names an input \"nope\" that the operator does not declare"},
      {"test.DTypesBesideThird",
       "test.DTypesBesideThird: x * 1013 + (x * 1013 < 0): x * 1013 < 0 is bool, must be "
       "numbers"},
      {"test.AlongFourthOfTwo",
       "the formula of test.AlongFourthOfTwo reads \"x\" along dimensions that it has not said it computes over"},
      {"test.SecondIndexOfTwo",
       "the formula of test.SecondIndexOfTwo asks for Index(1) and computes over [1009, 1013], whose last index is "
       "Index(3) and whose first one Index(2)"},
      {"test.SecondIndexOfRows",
       "the formula of test.SecondIndexOfRows asks for Index(1) and has rows and places in them, whose last index is "
       "Index(3) and whose first one Index(2)"},
      {"test.IsOfAnotherDType",
       "test.IsOfAnotherDType gives y as int64 [1009, 1013] by its formula and as float [1009, 1013] by its shape "
       "rule"}};
  for (const auto& [type, message] : expected) {
    EXPECT_EQ(ProblemsOf(type), std::vector{message});
  }
}

TEST(FormulaFault, IsFoundInStepNets) {
  RecurrentCase net;
  net.Sequence("x", "x_t").State("h", "h0", "h_prev", "h").Step("h = test.UnknownInput(h_prev)").Output("hs", "h", 1);
  const std::vector<NetProblem> problems = CheckNet(net.Build());
  ASSERT_FALSE(problems.empty());
  EXPECT_EQ(problems[0].op_text, "h = test.UnknownInput(h_prev)");
}

// What some inputs fit is no fault, whichever these are.
const Registration sound[] = {
    OfX("test.OnInt64").Formula([](Formula& f) { f.Out({f.In("x") + Index(3)}); }),
    OfX("test.OnRank4").Shapes(SameAsInput(0)).Formula([](Formula& f) {
      if (f.ShapeOf("x").rank() != 4) throw Error(ErrorCode::kInternal, "test.OnRank4 needs four dimensions");
      f.Out({f.In("x")});
    }),
    OfX("test.OnTwo").Shapes(SameAsInput(0)).Formula([](Formula& f) {
      if (f.ShapeOf("x").size() != 2) throw Error(ErrorCode::kShapeMismatch, "test.OnTwo needs two elements");
      f.Out({f.In("x")});
    }),
    // It computes over more dimensions than there may be, where it would take no shape.
    OfX("test.OverTwo").Shapes(SameAsInput(0)).Formula([](Formula& f) {
      f.Over(f.ShapeOf("x"));
      if (f.ShapeOf("x").size() != 2) throw Error(ErrorCode::kShapeMismatch, "test.OverTwo needs two elements");
      f.Out({f.In("x")});
    }),
    // The shape rule says what is missing.
    OfX("test.WithZ")
        .Shapes([](const ShapeQuery& query) -> std::vector<TensorInfo> {
          if (query.num_inputs() < 2) throw Error(ErrorCode::kInvalidArgument, "test.WithZ needs z");
          return {query.In(0)};
        })
        .Formula([](Formula& f) { f.Out({f.In("x") * f.In("z")}); }),
    OfX("test.OnThird").Formula([](Formula& f) { f.Out({f.In("x") / static_cast<double>(f.ShapeOf("x")[2])}); })};

TEST(FormulaFault, IsNoneWhereInputsFit) {
  for (const char* type :
       {"test.OnInt64", "test.OnRank4", "test.OnTwo", "test.OverTwo", "test.WithZ", "test.OnThird"}) {
    EXPECT_EQ(ProblemsOf(type), std::vector<std::string>()) << type;
  }
  for (const std::string& type : OperatorTypes()) {
    if (type.starts_with("test.")) continue;
    EXPECT_FALSE(FormulaFault(GetOperator(type))) << type << ": " << FormulaFault(GetOperator(type))->what();
  }
}

// What a net asks of formulas by an argument.
const Registration asked[] = {
    OfX("test.InBlocks").Formula([](Formula& f) { f.Out({f.Blocks("x", f.Int("k")).back()}); }),
    OfX("test.OfTerms").Formula([](Formula& f) {
      Expr y = f.In("x");
      for (std::int64_t i = 0; i < f.Int("k"); ++i) y = y * f.In("x") + i;
      f.Out({y});
    })};

OperatorDef WithK(const char* type, std::int64_t k) {
  OperatorDef op;
  op.set_type(type);
  op.add_input("x");
  op.add_output("y");
  Argument* argument = op.add_arg();
  argument->set_name("k");
  argument->set_i(k);
  return op;
}

TEST(FormulaFault, IsMoreBlocksThanAKernelHas) {
  EXPECT_FALSE(FormulaFault(WithK("test.InBlocks", Formula::kMaxBlocks)));
  for (const std::int64_t k : {std::int64_t{1025}, (std::int64_t{1} << 32) + 2}) {
    const std::optional<Error> fault = FormulaFault(WithK("test.InBlocks", k));
    ASSERT_TRUE(fault) << k;
    EXPECT_EQ(fault->code(), ErrorCode::kInvalidArgument);
    EXPECT_EQ(fault->message(), StrCat("the formula of test.InBlocks reads \"x\" in ", k,
                                       " blocks, more than 1024; its argument \"k\" is ", k));
  }
}

TEST(FormulaFault, IsLookedForAsLongAsTimeIsLeft) {
  const Cancellation over(std::chrono::seconds(0));
  const CancellationScope scope(&over);
  EXPECT_EQ(ErrorOf([] { FormulaFault(WithK("test.OfTerms", 300'000)); }),
            "cancelled: the run took longer than its limit of 0 s");
}

}  // namespace
}  // namespace stepnet

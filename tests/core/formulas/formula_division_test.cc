// Whole numbers in formulas that are divided by 0, of which the authors say nothing.
#include <gtest/gtest.h>

#include <limits>

#include "stepnet/core/formulas/formula_cache.h"
#include "stepnet/core/formulas/formula_sample.h"
#include "stepnet/core/regions/region_program.h"
#include "stepnet/core/strings.h"
#include "stepnet/nets/net_check.h"
#include "stepnet/nets/op_builder.h"
#include "stepnet/nets/side_effects.h"
#include "stepnet/tests/core/for_each_target.h"
#include "stepnet/tests/executor/recurrent_case.h"
#include "stepnet/tests/operators/op_test.h"

namespace stepnet {
namespace {

Operator TestOperator(const char* type) {
  Operator op(type);
  op.Private().Doc("For tests.");
  return op;
}

const Registration of_two[] = {
    TestOperator("test.Ratio").Input("a", "any").Input("b", "any").Output("c", "any").Formula([](Formula& f) {
      f.Out({f.In("a") / f.In("b")});
    }),
    TestOperator("test.Rest").Input("a", "any").Input("b", "any").Output("c", "any").Formula([](Formula& f) {
      f.Out({Mod(f.In("a"), f.In("b"))});
    }),
    TestOperator("test.RatioOrNone").Input("a", "any").Input("b", "any").Output("c", "any").Formula([](Formula& f) {
      f.Out({Where(Equal(f.In("b"), 0), 0, f.In("a") / f.In("b"))});
    }),
    // Divides the lengths, whatever x is, behind a check that the author wrote.
    TestOperator("test.ShareOfRow")
        .Input("x", "[N, C]")
        .Input("lengths", "[N] int32")
        .Output("y", "[N, C]")
        .Formula(
            [](Formula& f) {
              const Expr length = f.Row("lengths");
              f.Check(length >= 0, "length {} is {}", Index(2), length);
              f.Out({f.In("x") * Cast(DType::kFloat, 100 / length)});
            },
            {.checks_values = true}),
    TestOperator("test.SumOfShares")
        .Input("x", "[N, C]")
        .Input("parts", "[N]")
        .Output("y", "[N]")
        .Formula([](Formula& f) { f.Out({OfRows(RowSum(f.In("x")) / f.Row("parts"))}); }),
    TestOperator("test.RatioOfFloats")
        .Input("a", "float")
        .Input("b", "float")
        .Output("c", "float")
        .Shapes([](const ShapeQuery& query) -> std::vector<TensorInfo> {
          if (query.In(0).dtype != DType::kFloat) throw Error(ErrorCode::kTypeMismatch, "works on float");
          return {query.In(0)};
        })
        .Formula([](Formula& f) { f.Out({f.In("a") / f.In("b")}); }),
};

// Divides where an argument says so, and by an argument that is required.
const Registration by_mode[] = {
    TestOperator("test.Gate")
        .Input("a", "any")
        .Input("b", "any")
        .Output("c", "any")
        .Arg("divides", false, "or multiplies")
        .Formula([](Formula& f) {
          const Expr a = f.In("a"), b = f.In("b");
          f.Out({f.Bool("divides") ? a / b : a * b});
        }),
    TestOperator("test.ByPart")
        .Input("a", "any")
        .Input("b", "any")
        .Output("c", "any")
        .RequiredArg("m", ArgumentType::kInt, "a factor of b")
        .Formula([](Formula& f) { f.Out({f.In("a") / (f.In("b") * f.Int("m"))}); }),
};

const Registration by_argument = TestOperator("test.Part")
                                     .Input("n", "int32 or int64")
                                     .Output("y", "as n")
                                     .Arg("by", 3, "what n is divided by")
                                     .Shapes([](const ShapeQuery& query) -> std::vector<TensorInfo> {
                                       const DType dtype = query.In(0).dtype;
                                       if (dtype != DType::kInt32 && dtype != DType::kInt64) {
                                         throw Error(ErrorCode::kTypeMismatch, "works on int32 and int64");
                                       }
                                       return {query.In(0)};
                                     })
                                     .Formula([](Formula& f) { f.Out({f.In("n") / f.Int("by")}); });

// What a derivative reads of it.
const Registration of_quotient =
    TestOperator("test.WhereManyFit")
        .Input("x", "[N]")
        .Input("a", "[N] int32")
        .Input("b", "[N] int32")
        .Output("y", "[N]")
        .Formula([](Formula& f) { f.Out({Where(f.In("a") / f.In("b") > 1, f.In("x") * 3, 0)}); })
        .DerivedGradient({"dy", "a", "b"}, {"dx"});

template <typename T>
Tensor Numbers(const std::vector<T>& values) {
  return Tensor::Of<T>({static_cast<std::int64_t>(values.size())}, values);
}

template <typename T>
Tensor OfTwo(const char* type, const std::vector<T>& a, const std::vector<T>& b) {
  return OpTest(type).Input("a", Numbers(a)).Input("b", Numbers(b)).Run()[0];
}

TEST(FormulaDivision, ByZeroIsAFaultThatNamesOperatorAndExpression) {
  ExpectError(
      [] {
        OfTwo<std::int32_t>("test.Ratio", {6, 7, 8}, {2, 0, 0});
      },
      "…invalid argument: test.Ratio of the integer 7 by 0 for element 1 of the output, in a / b\n  at op 0");
  ExpectError(
      [] {
        OfTwo<std::int64_t>("test.Rest", {6, 7, -8}, {2, 1, 0});
      },
      "…invalid argument: test.Rest of the integer -8 by 0 for element 2 of the output, in a % b\n  at op 0");
  ExpectError(
      [] {
        OfTwo<std::int32_t>("Div", {6, 7, 8}, {2, 0, 0});
      },
      "…invalid argument: Div of the integer 7 by 0 for element 1 of the output, in a / b\n  at op 0");
  EXPECT_EQ(ToDoubles(OfTwo<std::int32_t>("test.Rest", {-7, 7}, {3, -3})), (std::vector<double>{-1, 1}));
}

// As other checks, also where the quotient is not used: who wants that divides by something else.
TEST(FormulaDivision, IsCheckedWhereItIsNotSelected) {
  ExpectError([] { OfTwo<std::int32_t>("test.RatioOrNone", {6, 7}, {2, 0}); }, "…in a / b\n");
  EXPECT_EQ(ToDoubles(OfTwo<std::int32_t>("test.RatioOrNone", {6, 7}, {2, 7})), (std::vector<double>{3, 1}));
}

TEST(FormulaDivision, OfFloatsIsNoFault) {
  OpTest("test.Ratio").Input("a", {2}, {3, 1}).Input("b", {2}, {2, 0}).Gives({2}, {1.5, HUGE_VAL});
  OpTest op("test.ShareOfRow");
  op.Input("x", Tensor::Of<float>({2, 1}, {1, 2}));
  ExpectError(
      [&] {
        OpTest(op).Input("l", Numbers<std::int32_t>({5, 0})).Run();
      },
      "…test.ShareOfRow of the integer 100 by 0 for element 1 of the output, in 100 / lengths\n");
  ExpectError([&] { OpTest(op).Input("l", Numbers<std::int32_t>({5, -1})).Run(); }, "…length 1 is -1\n");
  EXPECT_EQ(ToDoubles(OpTest(op).Input("l", Numbers<std::int32_t>({5, 30})).Run()[0]), (std::vector<double>{20, 6}));
}

TEST(FormulaDivision, ByAConstantCostsNothing) {
  const TensorInfo n{.dtype = DType::kInt64, .shape = Shape({4})};
  NetDef net;
  AddOp(&net, "test.Part", {"n"}, {"y"});
  const OperatorCall call(net.op(0));
  EXPECT_TRUE(FindFormula(ShapeQuery(call, {&n, 1}))->formula().region.requirements.empty());
  EXPECT_FALSE(MayDivideByZero(GetOperator("test.Part")));
}

TEST(FormulaDivision, ByTheConstantZeroIsRefusedByTheCheckOfTheNet) {
  NetDef net;
  AddOp(&net, "test.Part", {"n"}, {"y"});
  OpBuilder(net.mutable_op(0)).Int("by", 0);
  const std::vector<NetProblem> problems = CheckNet(net);
  ASSERT_EQ(problems.size(), 1u);
  EXPECT_EQ(problems[0].message, "the formula of test.Part divides whole numbers by 0: n / 0");
}

TEST(FormulaDivision, OfADerivativeIsCheckedAsWell) {
  const auto gradient = [](std::int32_t divisor) {
    return OpTest("test.WhereManyFitGradient")
        .Input("dy", {2}, {5, 7})
        .Input("a", Numbers<std::int32_t>({8, 6}))
        .Input("b", Numbers<std::int32_t>({4, divisor}))
        .Run()[0];
  };
  EXPECT_EQ(ToDoubles(gradient(6)), (std::vector<double>{15, 0}));
  ExpectError([&] { gradient(0); },
              "…test.WhereManyFitGradient of the integer 6 by 0 for element 1 of the output, in a / b\n");
  EXPECT_TRUE(MayDivideByZero(GetOperator("test.WhereManyFitGradient")));
}

// Expressions keep it, so that whoever puts them together does not lose the fault.
TEST(FormulaDivision, OfTwoConstantsByZeroIsNoConstant) {
  const Expr five = Expr::Constant(DType::kInt32, 5), none = Expr::Constant(DType::kInt32, 0);
  EXPECT_EQ((five / none)->op, ExprOp::kDivide);
  EXPECT_EQ(Mod(five, none)->op, ExprOp::kMod);
  EXPECT_TRUE((five / Expr::Constant(DType::kInt32, 2)).Is(Expr::Constant(DType::kInt32, 2)));
  EXPECT_TRUE((Expr(5.0) / Expr::Constant(DType::kFloat, 0)).IsConstant());
  const RegionOperand one{.dtype = DType::kInt32, .size = 1};
  const Region region{.outputs = {{.value = five / none, .memory = one}}};
  std::int32_t result = 9;
  void* outputs[] = {&result};
  EXPECT_FALSE(RegionProgram(region).Run({}, outputs));
  EXPECT_EQ(result, 0);
}

TEST(FormulaDivision, IsKnownOfAnOperatorByItsArguments) {
  const auto may_fail = [](const char* type, const char* argument, int value) {
    OperatorDef op = ParseOp(StrCat("c = ", type, "(a, b)"));
    OpBuilder(&op).Int(argument, value);
    return MayFindFaults(OperatorCall(op), DeviceKind::kCpu);
  };
  EXPECT_TRUE(may_fail("test.Gate", "divides", 1));
  EXPECT_FALSE(may_fail("test.Gate", "divides", 0));
  EXPECT_TRUE(may_fail("test.ByPart", "m", 2));
}

TEST(FormulaDivision, IsKnownOfTheType) {
  for (const char* type : {"Div", "test.Ratio", "test.Rest", "test.ShareOfRow"}) {
    EXPECT_TRUE(MayDivideByZero(GetOperator(type))) << type;
  }
  for (const char* type : {"Add", "Softsign", "Mod", "test.RatioOfFloats", "DivGradient", "LayerNorm"}) {
    EXPECT_FALSE(MayDivideByZero(GetOperator(type))) << type;
  }
}

TEST(FormulaDivision, ElementsAreCountedInWhatIsComputedWhereOutputsAreOthers) {
  OpTest op("test.SumOfShares");
  op.Input("x", Tensor::Of<std::int32_t>({3, 4}, {1, 1, 1, 1, 1, 1, 1, 1, 6, 6, 6, 6}));
  ExpectError(
      [&] {
        OpTest(op).Input("parts", Numbers<std::int32_t>({1, 1, 0})).Run();
      },
      "…test.SumOfShares of the integer 24 by 0 for element 8 of [3, 4], over which it computes, in row_sum(x) / "
      "parts\n");
  EXPECT_EQ(ToDoubles(OpTest(op).Input("parts", Numbers<std::int32_t>({1, 2, 4})).Run()[0]),
            (std::vector<double>{4, 2, 6}));
}

// The smallest step, then operator, then element: also where parts and blocks of steps find several.
TEST(FormulaDivision, TheFirstFaultOfAStepNetIsReported) {
  for (const char* type : {"test.Ratio", "test.Rest"}) {
    for (const int level : {0, 1, 2}) {
      for (const int threads : {1, 2}) {
        RecurrentCase net;
        net.Sequence("a", "a_t").Sequence("b", "b_t").State("h", "h0", "h_prev", "h_next");
        net.Step(StrCat("q = ", type, "(a_t, b_t)")).Step("h_next = Add(q, h_prev)").Output("h_all", "h", 1);
        std::vector<std::int64_t> a(3 * 5000, 8), b(3 * 5000, 3);
        for (const int bad : {9001, 7003, 6999, 14000}) b[bad] = 0;
        a[6999] = 77;
        net.Feed("a", Tensor::Of<std::int64_t>({3, 1, 5000}, a));
        net.Feed("b", Tensor::Of<std::int64_t>({3, 1, 5000}, b));
        net.Feed("h0", Tensor::Of<std::int64_t>({1, 5000}, std::vector<std::int64_t>(5000)));
        const auto made = Net::Create(net.Build(), net.workspace(), {.threads = threads, .opt_level = level});
        ExpectError([&] { made->Run(); }, StrCat("…", type, " of the integer 77 by 0 for element 1999 of the output"));
        ExpectError([&] { made->Run(); }, "…step 1");
      }
    }
  }
}

// The lowest number by -1 would be one too many; in vectors, in what is left behind them, and by a constant.
template <typename T>
void ExpectLowestByMinusOne() {
  constexpr T kLowest = std::numeric_limits<T>::min();
  constexpr DType kDType = kDTypeOf<T>;
  const Expr a = Expr::Input(0, "a", kDType), b = Expr::Input(1, "b", kDType);
  EXPECT_TRUE((Expr::Constant(kDType, kLowest) / Expr::Constant(kDType, -1)).Is(Expr::Constant(kDType, kLowest)));
  EXPECT_TRUE(Mod(Expr::Constant(kDType, kLowest), Expr::Constant(kDType, -1)).Is(Expr::Constant(kDType, 0)));
  ForEachTarget([&] {
    for (const std::int64_t n : {1, 4, 67}) {
      const RegionOperand all{.dtype = kDType, .size = n, .strides = {0, 0, 0, 1}};
      const Region region{
          .sizes = {1, 1, 1, n},
          .inputs = {all, all},
          .outputs = {
              {.value = a / b, .memory = all}, {.value = Mod(a, b), .memory = all}, {.value = a / -1, .memory = all}}};
      const std::vector<T> lowest(n, kLowest), minus_one(n, -1);
      std::vector<T> quotients(n, 5), rests(n, 5), by_constant(n, 5);
      const void* inputs[] = {lowest.data(), minus_one.data()};
      void* outputs[] = {quotients.data(), rests.data(), by_constant.data()};
      RegionProgram(region).Run(inputs, outputs);
      EXPECT_EQ(quotients, lowest);
      EXPECT_EQ(rests, std::vector<T>(n));
      EXPECT_EQ(by_constant, lowest);
    }
  });
}

TEST(FormulaDivision, OfTheLowestNumberByMinusOneIsItself) {
  ExpectLowestByMinusOne<std::int32_t>();
  ExpectLowestByMinusOne<std::int64_t>();
}

}  // namespace
}  // namespace stepnet

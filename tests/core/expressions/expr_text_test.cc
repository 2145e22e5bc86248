#include "stepnet/core/expressions/expr_text.h"

#include <gtest/gtest.h>

#include <cmath>
#include <string>

#include "random_exprs.h"
#include "stepnet/core/error.h"
#include "stepnet/core/strings.h"
#include "stepnet/tests/core/error_of.h"

namespace stepnet {
namespace {

const Expr x = Expr::Input(0, "x", DType::kFloat);
const Expr c = Expr::Input(1, "c/prev", DType::kFloat);
const Expr n = Expr::Input(2, "n", DType::kInt64);
const Expr flag = Expr::Input(3, "flag", DType::kBool);

std::string ErrorOfText(const std::string& text) {
  return ErrorOf([&] { ParseExprs(text); });
}

TEST(ExprText, ShowsWhatIsShared) {
  const Expr a = Tanh(x);
  const Expr roots[] = {Where(flag, 0, a * a + c), a};
  EXPECT_EQ(PrintExprs(roots),
            "in 3 flag: bool\n"
            "in 0 x: float\n"
            "in 1 \"c/prev\": float\n"
            "t0 = tanh(x)\n"
            "out where(flag, 0, t0 * t0 + $2)\n"
            "out t0\n");
}

TEST(ExprText, PrintsLongNamesOnce) {
  const std::string name(1000, 'x');
  const Expr a = Expr::Input(0, name, DType::kFloat);
  EXPECT_EQ(PrintExpr(a + a * a), "in 0 \"" + name + "\": float\nout $0 + $0 * $0\n");
}

TEST(ExprText, PrintsPrecedenceAndNumbers) {
  const auto text = [](const Expr& expr) {
    const std::string all = PrintExpr(expr);
    return all.substr(all.rfind("out ") + 4, all.size() - all.rfind("out ") - 5);
  };
  EXPECT_EQ(text((x + 1) * (x - (2 - x))), "(x + 1) * (x - (2 - x))");
  EXPECT_EQ(text(x / (x * 3) * -x), "x / (x * 3) * -x");
  EXPECT_EQ(text(-(x * -0.0)), "-(x * -0.0)");
  EXPECT_EQ(text(0.1 * x - 1e20), "0.1 * x - 1e+20");
  EXPECT_EQ(text(Or(And(flag, x < 1), Equal(x >= 2, flag))), "flag && x < 1 || (2 <= x) == flag");
  EXPECT_EQ(text(Where(flag, Expr::Constant(DType::kInt32, 1), Expr::Constant(DType::kInt32, 0))),
            "where(flag, int32(1), int32(0))");
  EXPECT_EQ(text(Cast(DType::kDouble, x) * std::nan("")), "double(x) * nan");
  EXPECT_EQ(text(Require(n < 5, "label {} is \"big\"\n", n)), "require(n < 5, \"label {} is \\\"big\\\"\\x0a\", n)");
  EXPECT_EQ(text(Require(n < 5, "{} of {}", Index(3), n, 7)), "require(n < 5, \"{} of {}\", index(3), n, int64(7))");
  EXPECT_EQ(text(Uniform(DType::kFloat, 1, 2, 3, n, Index(3))), "uniform(float, 1, 2, 3, n, index(3))");
  EXPECT_EQ(text(RowMax(Pow(x, 2.5))), "row_max(pow(x, 2.5))");
  EXPECT_EQ(text(Cast(DType::kFloat16, x)), "float16(x)");
  EXPECT_EQ(text(Expr::Constant(DType::kBFloat16, -1.5)), "bfloat16(-1.5)");
}

TEST(ExprText, ReadsWhatPeopleWrite) {
  const std::vector<Expr> roots = ParseExprs(
      "# a comment\n"
      "in 0 x: float   # another\n"
      "\n"
      "half = 0.5 *\tx\n"
      "out max(half,\n"
      "        - 3)\n"
      "out x > 0 == !(x >= 1)");
  ASSERT_EQ(roots.size(), 2u);
  EXPECT_TRUE(roots[0].Is(Max(0.5 * x, -3)));
  EXPECT_TRUE(roots[1].Is(Not(x >= 1)) || roots[1].Is(Equal(x > 0, Not(x >= 1))));
}

TEST(ExprText, RefusesBadTextsAndSaysWhere) {
  const std::string in = "in 0 x: float\nin 1 n: int32\n";
  EXPECT_EQ(ErrorOfText(in + "out x + n"), "type mismatch: 3:7: x + n: x is float and n int32; Cast makes them alike");
  EXPECT_EQ(ErrorOfText(in + "out 1"), "syntax error: 3:1: nothing says of what dtype the number is; write float(1)");
  EXPECT_EQ(ErrorOfText(in + "out tahn(x)"), "syntax error: 3:5: there is no function tahn; did you mean \"tanh\"?");
  EXPECT_EQ(ErrorOfText(in + "out x +"), "syntax error: 3:8: expected an expression");
  EXPECT_EQ(ErrorOfText(in + "out x x"), "syntax error: 3:7: expected the end of the line");
  EXPECT_EQ(ErrorOfText(in + "out y"), "syntax error: 3:5: nothing is named y");
  EXPECT_EQ(ErrorOfText(in + "x = n"), "syntax error: 3:1: there is a x already");
  for (const std::string number : {"inf", "nan", "true", "false"}) {
    const std::string what = number + " is a number; an input of that name has it in quotes";
    EXPECT_EQ(ErrorOfText(in + number + " = x\nout x"), "syntax error: 3:1: " + what);
    EXPECT_EQ(ErrorOfText("in 0 " + number + ": float\nout $0"), "syntax error: 1:6: " + what);
    EXPECT_EQ(ErrorOfText("in 0 \"" + number + "\": float\nout $0"), "no error");
  }
  EXPECT_EQ(ErrorOfText(in + "in 0 y: float"),
            "syntax error: 3:6: there is an input 0 of another name or dtype already");
  EXPECT_EQ(ErrorOfText(in + "in 0 \"x\": double"),
            "syntax error: 3:6: there is an input 0 of another name or dtype already");
  EXPECT_EQ(ErrorOfText(in + "in 0 \"x\": float\nout $2"), "no error");
  EXPECT_EQ(ErrorOfText(in + "out (x"), "syntax error: 3:7: expected \")\"");
  EXPECT_EQ(ErrorOfText(in + "out $7"), "syntax error: 3:5: there is no input line 7");
  EXPECT_EQ(ErrorOfText(in + "out tanh(x, x)"), "invalid argument: 3:5: tanh(x, x) has 2 operands, must have 1");
  EXPECT_EQ(ErrorOfText(in + "out tanh()"), "syntax error: 3:10: expected an expression");
  EXPECT_EQ(ErrorOfText(in + "out uniform(int32, 1, 2, 3, 4, 5)"),
            "type mismatch: 3:5: uniform gives float or double, not int32");
  EXPECT_EQ(ErrorOfText("in 0 x: real"),
            "syntax error: 1:9: expected float, double, int32, int64, bool, float16 or bfloat16");
  EXPECT_EQ(ErrorOfText("in 9999999999 x: bool"), "syntax error: 1:4: expected a number below 2147483648");
  EXPECT_EQ(ErrorOfText("in 0 \"x"), "syntax error: 1:8: expected \"\"\"");
  EXPECT_EQ(ErrorOfText(in + "out x * 1e999"), "syntax error: 3:9: the number is beyond the range of double");
  EXPECT_EQ(ErrorOfText(in + "out index(9)"), "invalid argument: 3:5: index of dimension 9; a region has 0 to 3");
  for (const std::string nested : {"(", "-", "tanh(", "!", "where(x,"}) {
    std::string text = in + "out ";
    for (int i = 0; i < 100'000; ++i) text += nested;
    EXPECT_NE(ErrorOfText(text).find("nested too deeply"), std::string::npos) << nested;
  }
}

TEST(ExprText, GivesEveryExpressionBack) {
  for (unsigned seed = 0; seed < 1000; ++seed) {
    std::mt19937 random(seed);
    std::vector<Expr> leaves = {Expr::Input(7, "t0", DType::kFloat), Expr::Input(8, "same", DType::kFloat),
                                Expr::Input(9, "same", DType::kDouble), Expr::Input(10, "out", DType::kInt32)};
    for (int i = 0; i < 5; ++i) leaves.push_back(Expr::Input(i, StrCat("x", i), kExprTypes[i]));
    const auto steps =
        RandomExprSteps(leaves, {.steps = 40, .reductions = true, .requires_too = true, .stored_too = true}, random);
    std::vector<Expr> roots;
    for (size_t i = 0; i < steps.size(); i += 7) roots.push_back(steps[steps.size() - 1 - i].result);
    const std::string text = PrintExprs(roots);
    const std::vector<Expr> again = ParseExprs(text);
    ASSERT_EQ(again.size(), roots.size()) << text;
    for (size_t i = 0; i < roots.size(); ++i) ASSERT_TRUE(again[i].Is(roots[i])) << "seed " << seed << "\n" << text;
    ASSERT_EQ(PrintExprs(again), text);
  }
}

TEST(ExprText, GivesDeepAndSharedExpressionsBack) {
  Expr deep = x;
  for (int i = 0; i < 20'000; ++i) deep = i % 2 == 0 ? Tanh(deep) : 1 / (deep - x);
  Expr shared = x;
  for (int i = 0; i < 100; ++i) shared = shared * shared + shared;
  for (const Expr& expr : {deep, shared}) EXPECT_TRUE(ParseExprs(PrintExpr(expr))[0].Is(expr));
}

// Damaged texts are refused or read; nothing else happens.
TEST(ExprText, SurvivesDamage) {
  const Expr a = Sigmoid(x + Cast(DType::kFloat, n));
  const Expr roots[] = {Where(flag, MulAdd(a, c, 1.5), RowSum(a)), Require(n < 5, "{} of {} is {}", Index(3), 7, n)};
  const std::string text = PrintExprs(roots);
  int read = 0;
  for (unsigned seed = 0; seed < 20'000; ++seed) {
    std::mt19937 random(seed);
    std::string damaged = text;
    for (unsigned k = 0; k <= random() % 4; ++k) {
      const size_t at = random() % damaged.size();
      switch (random() % 4) {
        case 0: damaged.erase(at, 1 + random() % 5); break;
        case 1: damaged.insert(at, 1, static_cast<char>(random())); break;
        case 2: damaged[at] = "()+-*/%<>=!&|,\"$#\n 09exint"[random() % 26]; break;
        default: damaged.insert(at, damaged.substr(random() % damaged.size(), random() % 20));
      }
      if (damaged.empty()) damaged = text;
    }
    try {
      const std::vector<Expr> parsed = ParseExprs(damaged);
      ++read;
      const std::vector<Expr> again = ParseExprs(PrintExprs(parsed));
      ASSERT_EQ(again.size(), parsed.size()) << damaged;
      for (size_t i = 0; i < parsed.size(); ++i) ASSERT_TRUE(again[i].Is(parsed[i])) << damaged;
    } catch (const Error& error) {
      ASSERT_NE(error.code(), ErrorCode::kInternal) << damaged;
    }
  }
  EXPECT_GT(read, 500);
}

}  // namespace
}  // namespace stepnet

#include "stepnet/core/strings.h"
#include "unit_gradient.h"

namespace stepnet {
namespace {

// The gradient dw of a weight w [4, 3], which a step gives as a sum over its two rows.
constexpr char kMoves[] = "  before the first step:\n  ^dp at 4 = zero\n";
constexpr char kValues[] = R"(  x: float [2, 3] at 0[24 * t]
  e: float [2, 4] at 1[32 * t]
  w: float [4, 3] at 2
  m: float [4, 3] at 3
)";
const std::string kGiven = StrCat(kMoves, kValues);
// What the pass adds: the sum is cleared.
std::string WithSum(const std::string& sum) { return StrCat(kMoves, "  ", sum, " = zero\n", kValues); }
constexpr char kProduct[] =
    "product e [2, 4]^T * x [2, 3] by FCGradient(x, w, e) @0 {arg { name: \"no_bias\" i: 1 }}\n";
constexpr char kEnd[] = "  at the end: no dp, no dw\n";

std::string Gradient(const std::string& home) { return StrCat("  dw.1: float [4, 3]", home, " = ", kProduct); }
std::string InStep() { return "  in each step:\n"; }
std::string Behind() { return "  once behind all steps:\n"; }
std::string AddTo(const std::string& term) { return StrCat("  ^dp: float [4, 3] added at 4 from zero = ", term, "\n"); }
std::string AfterLines(const std::string& lines) { return After("sum_before_linear", Backward(kGiven + lines)); }

// What turns dw into the gradient dp of the parameter, as an operator that is linear in dw.
void ExpectMoved(const std::string& operators, const std::string& end = kEnd) {
  const std::string lines = operators + AddTo("dp.1");
  EXPECT_EQ(AfterLines(Gradient("") + lines),
            Backward(StrCat(WithSum("dw.1"), InStep(), Gradient(" added summed"), Behind(), lines, end)))
      << operators;
}

void ExpectKept(const std::string& lines) { EXPECT_EQ(AfterLines(lines), Backward(kGiven + lines)); }
void ExpectKeptBehindProduct(const std::string& operators) { ExpectKept(Gradient("") + operators + AddTo("dp.1")); }

TEST(SumBeforeLinear, MovesWhatIsLinearBehindTheSteps) {
  for (const char* const call : {
           "TanhGradient(m, dw.1)",  // dw (1 - m m)
           "SigmoidGradient(m, dw.1)",
           "ReluGradient(m, dw.1)",     // where a condition does not depend on dw
           "SoftmaxGradient(m, dw.1)",  // with the sum of a row
           "Mul(dw.1, m)",
           "Div(dw.1, m)",
           "Negative(dw.1)",
           "Sum(dw.1, dw.1)",
           "Sub(dw.1, dw.1)",
       }) {
    ExpectMoved(StrCat("  dp.1: float [4, 3] = region ", call, " @1 {}\n"));
  }
}

TEST(SumBeforeLinear, MovesMovesOfElementsProductsAndSums) {
  ExpectMoved(
      "  q.1: float [3, 4] = region Transpose(dw.1) @1 {}\n  dp.1: float [4, 3] = region Transpose(q.1) @2 {}\n",
      "  at the end: no dp, no dw, no q\n");
  // That of rows of a larger parameter.
  const std::string q = "  q: float [5, 3] at 5\n";
  const std::string of_rows =
      "  q.1: float [5, 3] = region SliceGradient(q, dw.1) @1 "
      "{arg { name: \"starts\" ints: 1 } arg { name: \"ends\" ints: -1 }}\n"
      "  ^dq: float [5, 3] added at 6 = q.1\n";
  EXPECT_EQ(AfterLines(q + Gradient("") + of_rows),
            Backward(StrCat(WithSum("dw.1"), q, InStep(), Gradient(" added summed"), Behind(), of_rows,
                            "  at the end: no dw, no q\n")));
  // The gradient of a factor of w = m u^T.
  const std::string of_factor =
      "  dp.1: float [4, 3] = product dw.1 [4, 3] * u [3, 3] by MatMul(dw.1, u) @1 {}\n" + AddTo("dp.1");
  const std::string u = "  u: float [3, 3] at 5\n";
  EXPECT_EQ(AfterLines(u + Gradient("") + of_factor),
            Backward(StrCat(WithSum("dw.1"), u, InStep(), Gradient(" added summed"), Behind(), of_factor, kEnd)));
  // That of a scale for each row, as of weight norm.
  const std::string g = "  g: float [4, 1] at 6\n";
  const std::string of_scale =
      "  q.1: float [4, 3] = region Mul(dw.1, m) @1 {}\n"
      "  ^dg: float [4, 1] added at 7 = SumReduceLike(q.1, g) @2 {}\n";
  EXPECT_EQ(AfterLines(g + Gradient("") + of_scale),
            Backward(StrCat(WithSum("dw.1"), g, InStep(), Gradient(" added summed"), Behind(), of_scale,
                            "  at the end: no dw, no q\n")));
}

// As the gradient of what an attention reads, of which each step has a product for each item of the batch.
TEST(SumBeforeLinear, AddsUpWhatKnowsOfNoRows) {
  const auto product = [](const std::string& home) {
    return StrCat("  v.1: float [2, 3, 4]", home,
                  " = product a [2, 1, 3]^T * c [2, 1, 4] by BatchMatMul(a, c) @0 {arg { name: \"trans_a\" i: 1 }}\n");
  };
  const std::string inputs = "  a: float [2, 1, 3] at 5[24 * t]\n  c: float [2, 1, 4] at 6[32 * t]\n";
  const std::string lines =
      "  q.1: float [3, 2, 4] = region Transpose(v.1) @1 {arg { name: \"axes\" ints: 1 ints: 0 ints: 2 }}\n"
      "  ^dq: float [3, 2, 4] added at 7 = q.1\n";
  EXPECT_EQ(AfterLines(inputs + product("") + lines),
            Backward(StrCat(WithSum("v.1"), inputs, InStep(), product(" added summed"), Behind(), lines,
                            "  at the end: no q, no v\n")));
}

// The sum may be of rows in any operator that can add it, and have several terms.
TEST(SumBeforeLinear, AddsUpWhatIsASumOfRows) {
  const std::string b = "  b: float [4] at 5\n";
  const std::string chain =
      "  dp.1: float [4] = region SigmoidGradient(b, db.1) @1 {}\n"
      "  ^dp: float [4] added at 4 from zero = dp.1\n";
  const auto sum = [](const std::string& home) {
    return StrCat("  db.1: float [4]", home, " = SumReduceLike(e, b) @0 {}\n");
  };
  EXPECT_EQ(AfterLines(b + sum("") + chain), Backward(StrCat(WithSum("db.1"), b, InStep(), sum(" added summed"),
                                                             Behind(), chain, "  at the end: no db, no dp\n")));
  const std::string second = StrCat(
      "  dw.2: float [4, 3] added in dw.1 = product e [2, 4]^T * y [2, 3] by FCGradient(y, w, e) @9 "
      "{arg { name: \"no_bias\" i: 1 }}\n");
  const std::string y = "  y: float [2, 3] at 8[24 * t]\n";
  const std::string mul = "  dp.1: float [4, 3] = region Mul(dw.2, m) @1 {}\n" + AddTo("dp.1");
  EXPECT_EQ(AfterLines(y + Gradient("") + second + mul),
            Backward(StrCat(WithSum("dw.1"), y, InStep(), Gradient(" added summed"), second, Behind(), mul, kEnd)));
}

TEST(SumBeforeLinear, KeepsWhatIsNotLinear) {
  for (const char* const call :
       {"Tanh(dw.1)", "Sqr(dw.1)", "Mul(dw.1, dw.1)", "Div(m, dw.1)", "Div(dw.1, dw.1)", "Add(dw.1, m)", "Abs(dw.1)",
        "Max(dw.1, m)", "ReluGradient(dw.1, m)", "ReluGradient(dw.1, dw.1)"}) {
    ExpectKeptBehindProduct(StrCat("  dp.1: float [4, 3] = region ", call, " @1 {}\n"));
  }
}

TEST(SumBeforeLinear, KeepsWhatIsNotTheSameInAllSteps) {
  const std::string lines = Gradient("") + "  dp.1: float [4, 3] = region Mul(dw.1, k) @1 {}\n" + AddTo("dp.1");
  ExpectKept("  k: float [4, 3] at 5[48 * t]\n" + lines);
  // A step writes to it, or computes it of what differs.
  ExpectKept("  k: float [4, 3] at 5\n" + lines + "  k.1: float [4, 3] at 5 = region Tanh(m) @2 {}\n");
  ExpectKept("  z: float [4, 3] at 5[48 * t]\n  k.1: float [4, 3] = region Tanh(z) @2 {}\n" + Gradient("") +
             "  dp.1: float [4, 3] = region Mul(dw.1, k.1) @1 {}\n" + AddTo("dp.1"));
}

// What is the same in all steps, and that alone reads, goes with it.
TEST(SumBeforeLinear, MovesFactorsToo) {
  const std::string factor = "  k.1: float [4, 3] = region Tanh(m) @2 {}\n";
  const std::string lines = "  dp.1: float [4, 3] = region Mul(dw.1, k.1) @1 {}\n" + AddTo("dp.1");
  EXPECT_EQ(AfterLines(factor + Gradient("") + lines),
            Backward(StrCat(WithSum("dw.1"), InStep(), Gradient(" added summed"), Behind(), factor, lines,
                            "  at the end: no dp, no dw, no k\n")));
  ExpectKept(factor + Gradient("") + lines + "  z.1: float [4, 3] at 9[48 * t] = region Tanh(k.1) @3 {}\n");
}

TEST(SumBeforeLinear, KeepsWhatOthersSee) {
  const std::string mul = "  dp.1: float [4, 3] = region Mul(dw.1, m) @1 {}\n";
  const std::string lines = mul + AddTo("dp.1");
  const std::string out = " at 9[48 * t] = region Tanh(";
  // A step reads the gradient, what follows from it, or the sum.
  ExpectKept(Gradient("") + lines + "  z.1: float [4, 3]" + out + "dw.1) @2 {}\n");
  ExpectKept(Gradient("") + lines + "  z.1: float [4, 3]" + out + "dp.1) @2 {}\n");
  ExpectKept("  sum: float [4, 3] at 4\n" + Gradient("") + lines + "  z.1: float [4, 3]" + out + "sum) @2 {}\n");
  // Each step keeps its own, or has a row of its own for what is added.
  ExpectKept(Gradient(" kept") + lines);
  ExpectKept(Gradient("") + "  dp.1: float [4, 3] kept = region Mul(dw.1, m) @1 {}\n" + AddTo("dp.1"));
  ExpectKept(Gradient("") + mul + "  ^dq: float [4, 3] added at 5[48 * t] = dp.1\n");
  // It is written and not added.
  ExpectKept(Gradient("") + "  dq.1: float [4, 3] at 5 = region Mul(dw.1, m) @1 {}\n");
}

TEST(SumBeforeLinear, KeepsWhatIsNoSumOfRows) {
  // Rows of the step, all of which would have to be added up.
  ExpectKept(
      "  b: float [4] at 5\n  q.1: float [2, 4] = region Tanh(e) @0 {}\n  r.1: float [2, 4] = region Negative(q.1) @1 "
      "{}\n"
      "  ^db: float [4] added at 6 = SumReduceLike(r.1, b) @2 {}\n");
  ExpectKept(
      "  b: float [3] at 5\n  u: float [3, 3] at 7\n"
      "  q.1: float [2, 3] = product x [2, 3] * u [3, 3]^T by FC(x, u) @0 {}\n"
      "  r.1: float [2, 3] = region Negative(q.1) @1 {}\n"
      "  ^db: float [3] added at 6 = SumReduceLike(r.1, b) @2 {}\n");
  // Nothing follows from the sum but that it is added.
  ExpectKept(Gradient("") + "  ^dp: float [4, 3] added at 4 from zero = dw.1\n");
}

TEST(SumBeforeLinear, KeepsStepsForward) {
  const std::string lines = Gradient("") + "  dp.1: float [4, 3] = region Mul(dw.1, m) @1 {}\n" + AddTo("dp.1");
  EXPECT_EQ(After("sum_before_linear", Step(kGiven + lines)), Step(kGiven + lines));
}

}  // namespace
}  // namespace stepnet

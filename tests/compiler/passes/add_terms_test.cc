#include "pass_case.h"
#include "stepnet/core/formulas/formula.h"

namespace stepnet {
namespace {

Operator OfTwo(const char* type, Expr (*result)(const Expr& a, const Expr& b)) {
  Operator op(type);
  op.Doc("For these tests.").Input("a", "any shape").Input("b", "any shape").Output("y", "their shape, repeated");
  op.Formula([result](Formula& f) { f.Out({result(f.In("a"), f.In("b"))}); });
  return op;
}

const Registration adds = OfTwo("test.Adds", [](const Expr& a, const Expr& b) { return a + b; });
const Registration adds_twice = OfTwo("test.AddsTwice", [](const Expr& a, const Expr& b) { return a + b + a; });
const Registration adds_part = OfTwo("test.AddsPart", [](const Expr& a, const Expr& b) { return a + 0.5 * b; });
const Registration adds_rows = OfTwo("test.AddsRows", [](const Expr& a, const Expr& b) { return a + RowSum(b); });

constexpr char kTerms[] =
    "  x: float [1, 2] at 0[8 * t]\n"
    "  a.1: float [1, 2] = Tanh(x) @0 {}\n"
    "  b.1: float [1, 2] = Sigmoid(x) @1 {}\n";

TEST(AddTerms, AddsEachTermOfASumWhereTheSumIsAdded) {
  const std::string zeros = "  before the first step:\n  ^sum at 1 = zero\n";
  EXPECT_EQ(After("add_terms", Step(zeros + kTerms +
                                    "  c.1: float [1, 2] = Relu(x) @2 {}\n"
                                    "  s.1: float [1, 2] = Sum(a.1, b.1) @3 {}\n"
                                    "  total.1: float [1, 2] = Sum(s.1, c.1) @4 {}\n"
                                    "  ^sum: float [1, 2] added at 1 from zero = total.1\n")),
            Step(zeros + "  x: float [1, 2] at 0[8 * t]\n"
                         "  a.1: float [1, 2] = Tanh(x) @0 {}\n"
                         "  ^sum.1: float [1, 2] added at 1 from zero = a.1\n"
                         "  b.1: float [1, 2] = Sigmoid(x) @1 {}\n"
                         "  ^sum.2: float [1, 2] added in ^sum.1 = b.1\n"
                         "  c.1: float [1, 2] = Relu(x) @2 {}\n"
                         "  ^sum.3: float [1, 2] added in ^sum.1 = c.1\n"));
}

TEST(AddTerms, AddsTermsOfASumInPlace) {
  EXPECT_EQ(After("add_terms", Step(std::string(kTerms) + "  a.2: float [1, 2] in a.1 = Sum(a.1, b.1) @2 {}\n"
                                                          "  ^sum: float [1, 2] added at 1 = a.2\n")),
            Step("  x: float [1, 2] at 0[8 * t]\n"
                 "  a.1: float [1, 2] = Tanh(x) @0 {}\n"
                 "  ^sum.1: float [1, 2] added at 1 = a.1\n"
                 "  b.1: float [1, 2] = Sigmoid(x) @1 {}\n"
                 "  ^sum.2: float [1, 2] added in ^sum.1 = b.1\n"));
}

TEST(AddTerms, KnowsASumByItsFormula) {
  EXPECT_EQ(After("add_terms", Step(std::string(kTerms) + "  s.1: float [1, 2] = test.Adds(a.1, b.1) @2 {}\n"
                                                          "  ^sum: float [1, 2] added at 1 = s.1\n")),
            Step("  x: float [1, 2] at 0[8 * t]\n"
                 "  a.1: float [1, 2] = Tanh(x) @0 {}\n"
                 "  ^sum.1: float [1, 2] added at 1 = a.1\n"
                 "  b.1: float [1, 2] = Sigmoid(x) @1 {}\n"
                 "  ^sum.2: float [1, 2] added in ^sum.1 = b.1\n"));
}

// The memory is overwritten, or read, before the sum is added there.
TEST(AddTerms, LeavesSumsForMemoryThatIsUsedBetween) {
  const std::string given = "  m: float [1, 2] at 1\n  z: float [1, 2] at 2\n";
  const std::string sum = "  s.1: float [1, 2] = Sum(a.1, b.1) @2 {}\n";
  for (const std::string& between :
       {"  ^old: float [1, 2] at 1 = z\n" + sum, sum + "  y.1: float [1, 2] = Tanh(m) @3 {}\n",
        sum + "  ^seen: float [1, 2] at 3 = m\n"}) {
    const std::string before = Step(given + std::string(kTerms) + between + "  ^sum: float [1, 2] added at 1 = s.1\n");
    EXPECT_EQ(After("add_terms", before), before);
  }
}

// Graphs that stay what they are: what may not be read otherwise, each for a reason of its own.
class AddTermsLeaves : public testing::TestWithParam<const char*> {};

TEST_P(AddTermsLeaves, Alone) {
  const std::string before = Step(std::string(kTerms) + GetParam());
  EXPECT_EQ(After("add_terms", before), before);
}

INSTANTIATE_TEST_SUITE_P(AddTerms, AddTermsLeaves,
                         testing::Values(
                             // Something else reads the sum.
                             "  s.1: float [1, 2] = Sum(a.1, b.1) @2 {}\n"
                             "  ^sum: float [1, 2] added at 1 = s.1\n"
                             "  y.1: float [1, 2] = Tanh(s.1) @3 {}\n",
                             // Something else reads a term.
                             "  s.1: float [1, 2] = Sum(a.1, b.1) @2 {}\n"
                             "  ^sum: float [1, 2] added at 1 = s.1\n"
                             "  y.1: float [1, 2] = Tanh(a.1) @3 {}\n",
                             // It is copied, not added.
                             "  s.1: float [1, 2] = Sum(a.1, b.1) @2 {}\n"
                             "  ^copy: float [1, 2] at 1 = s.1\n",
                             // The sum can be fetched after the loop.
                             "  s.1: float [1, 2] kept = Sum(a.1, b.1) @2 {}\n"
                             "  ^sum: float [1, 2] added at 1 = s.1\n",
                             // One term comes twice.
                             "  s.1: float [1, 2] = Sum(a.1, a.1) @2 {}\n"
                             "  ^sum: float [1, 2] added at 1 = s.1\n",
                             // What is added is more, less or something else than the inputs, by the formula.
                             "  s.1: float [1, 2] = test.AddsTwice(a.1, b.1) @2 {}\n"
                             "  ^sum: float [1, 2] added at 1 = s.1\n",
                             "  s.1: float [1, 2] = test.AddsPart(a.1, b.1) @2 {}\n"
                             "  ^sum: float [1, 2] added at 1 = s.1\n",
                             "  s.1: float [1, 2] = test.AddsRows(a.1, b.1) @2 {}\n"
                             "  ^sum: float [1, 2] added at 1 = s.1\n",
                             // Its formula says nothing.
                             "  s.1: float [1, 2] = TanhGradient(a.1, b.1) @2 {}\n"
                             "  ^sum: float [1, 2] added at 1 = s.1\n",
                             // A term would be added before an operator has read what it is added to.
                             "  old.1: float [1, 2] at 1 = Tanh(b.1) @2 {}\n"
                             "  s.1: float [1, 2] = Sum(a.1, b.1) @3 {}\n"
                             "  ^sum: float [1, 2] added at 1 = s.1\n"));

}  // namespace
}  // namespace stepnet

#include "pass_case.h"

namespace stepnet {
namespace {

constexpr char kTerms[] =
    "  x: float [1, 2] at 0[8 * t]\n"
    "  a.1: float [1, 2] = Tanh(x) @0 {}\n"
    "  b.1: float [1, 2] = Sigmoid(x) @1 {}\n";

TEST(AddTerms, AddsEachTermOfASumWhereTheSumIsAdded) {
  EXPECT_EQ(After(AddTerms, Step(std::string(kTerms) + "  c.1: float [1, 2] = Relu(x) @2 {}\n"
                                                       "  s.1: float [1, 2] = Sum(a.1, b.1) @3 {}\n"
                                                       "  total.1: float [1, 2] = Sum(s.1, c.1) @4 {}\n"
                                                       "  ^sum: float [1, 2] added at 1 from zero = total.1\n")),
            Step("  x: float [1, 2] at 0[8 * t]\n"
                 "  a.1: float [1, 2] = Tanh(x) @0 {}\n"
                 "  ^sum.1: float [1, 2] added at 1 from zero = a.1\n"
                 "  b.1: float [1, 2] = Sigmoid(x) @1 {}\n"
                 "  ^sum.2: float [1, 2] added at 1 from zero = b.1\n"
                 "  c.1: float [1, 2] = Relu(x) @2 {}\n"
                 "  ^sum.3: float [1, 2] added at 1 from zero = c.1\n"));
}

TEST(AddTerms, AddsTermsOfASumInPlace) {
  EXPECT_EQ(After(AddTerms, Step(std::string(kTerms) + "  a.2: float [1, 2] in a.1 = Sum(a.1, b.1) @2 {}\n"
                                                       "  ^sum: float [1, 2] added at 1 = a.2\n")),
            Step("  x: float [1, 2] at 0[8 * t]\n"
                 "  a.1: float [1, 2] = Tanh(x) @0 {}\n"
                 "  ^sum.1: float [1, 2] added at 1 = a.1\n"
                 "  b.1: float [1, 2] = Sigmoid(x) @1 {}\n"
                 "  ^sum.2: float [1, 2] added at 1 = b.1\n"));
}

// Graphs that stay what they are: what may not be read otherwise, each for a reason of its own.
class AddTermsLeaves : public testing::TestWithParam<const char*> {};

TEST_P(AddTermsLeaves, Alone) {
  const std::string before = Step(std::string(kTerms) + GetParam());
  EXPECT_EQ(After(AddTerms, before), before);
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
                             // A term would be added before an operator has read what it is added to.
                             "  old.1: float [1, 2] at 1 = Tanh(b.1) @2 {}\n"
                             "  s.1: float [1, 2] = Sum(a.1, b.1) @3 {}\n"
                             "  ^sum: float [1, 2] added at 1 = s.1\n"));

}  // namespace
}  // namespace stepnet

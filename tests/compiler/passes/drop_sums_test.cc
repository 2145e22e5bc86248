#include "pass_case.h"

namespace stepnet {
namespace {

TEST(DropSums, LetsReadersReadWhatWasSummed) {
  EXPECT_EQ(After(DropSums, Step("  a: float [2, 3] at 0\n"
                                 "  d.1: float [2, 3] = Tanh(a) @0 {}\n"
                                 "  e.1: float [2, 3] = SumReduceLike(d.1, a) @1 {arg { name: \"may_share\" i: 1 }}\n"
                                 "  f.1: float [2, 3] = SumReduceLike(d.1, a) @2 {arg { name: \"may_share\" i: 1 }}\n"
                                 "  g.1: float [2, 3] = Sum(e.1, f.1) @3 {}\n"
                                 "  ^all: float [2, 3] at 1 = g.1\n")),
            Step("  a: float [2, 3] at 0\n"
                 "  d.1: float [2, 3] = Tanh(a) @0 {}\n"
                 "  g.1: float [2, 3] = Sum(d.1, d.1) @3 {}\n"
                 "  ^all: float [2, 3] at 1 = g.1\n"));
}

// Of e others look at the memory.
TEST(DropSums, LetsWhatGivesTheTermsWriteWhereTheSumBelongs) {
  EXPECT_EQ(
      After(DropSums, Step("  a: float [2, 3] at 0\n"
                           "  d.1: float [2, 3] = Tanh(a) @0 {}\n"
                           "  e.1: float [2, 3] at 1 = SumReduceLike(d.1, a) @1 {arg { name: \"may_share\" i: 1 }}\n")),
      Step("  a: float [2, 3] at 0\n"
           "  e.1: float [2, 3] at 1 = Tanh(a) @0 {}\n"));
}

TEST(DropSums, KeepsSumsAndWhatMustBeApart) {
  const std::string repeated = Step(
      "  a: float [3] at 0\n"
      "  b: float [2, 3] at 1\n"
      "  d.1: float [2, 3] = Tanh(b) @0 {}\n"
      "  e.1: float [3] = SumReduceLike(d.1, a) @1 {arg { name: \"may_share\" i: 1 }}\n"
      "  ^all: float [3] at 2 = e.1\n");
  EXPECT_EQ(After(DropSums, repeated), repeated);
  const std::string overwritten = Step(
      "  a: float [2, 3] at 0\n"
      "  d.1: float [2, 3] at 3 = Tanh(a) @0 {}\n"
      "  e.1: float [2, 3] = SumReduceLike(d.1, a) @1 {arg { name: \"may_share\" i: 1 }}\n"
      "  d.2: float [2, 3] at 3 = Tanh(a) @2 {}\n"
      "  ^all: float [2, 3] at 1 = e.1\n");
  EXPECT_EQ(After(DropSums, overwritten), overwritten);
  const std::string both_outside = Step(
      "  a: float [2, 3] at 0\n"
      "  d.1: float [2, 3] at 1 = Tanh(a) @0 {}\n"
      "  e.1: float [2, 3] at 2 = SumReduceLike(d.1, a) @1 {arg { name: \"may_share\" i: 1 }}\n");
  EXPECT_EQ(After(DropSums, both_outside), both_outside);
  const std::string without_leave = Step(
      "  a: float [2, 3] at 0\n"
      "  d.1: float [2, 3] = Tanh(a) @0 {}\n"
      "  e.1: float [2, 3] = SumReduceLike(d.1, a) @1 {}\n"
      "  ^all: float [2, 3] at 1 = e.1\n");
  EXPECT_EQ(After(DropSums, without_leave), without_leave);
}

}  // namespace
}  // namespace stepnet

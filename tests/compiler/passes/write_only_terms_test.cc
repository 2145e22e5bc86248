#include "stepnet/core/strings.h"
#include "unit_gradient.h"

namespace stepnet {
namespace {

// Row t of base 1 gets c_prev_grad in step t; step t - 1 reads it.
std::string CellStates(const std::string& zeros, const std::string& more, const std::string& given = "") {
  return Backward(StrCat("  before the first step:\n", zeros, kUnit, given,
                         "  h_prev_grad.1: float [1, 2, 4], c_prev_grad.1: float [1, 2, 4], g.1: float [1, 2, 16]",
                         kFromUnit, "  ^c: float [1, 2, 4] added at 1[32 * t] = c_prev_grad.1\n", more));
}

TEST(WriteOnlyTerms, TheOnlyTermOfARowIsWritten) {
  EXPECT_EQ(After("write_only_terms", CellStates("  ^c at 1 = zero\n", "")),
            Backward(StrCat("  before the first step:\n  ^c at 1 = zero\n", kUnit,
                            "  h_prev_grad.1: float [1, 2, 4], ^c: float [1, 2, 4] at 1[32 * t], g.1: float [1, 2, 16]",
                            kFromUnit)));
}

TEST(WriteOnlyTerms, WhatElseReadsTheTermReadsTheRow) {
  EXPECT_EQ(After("write_only_terms",
                  CellStates("  ^c at 1 = zero\n", "  e.1: float [1, 2, 4] = region Tanh(c_prev_grad.1) @1 {}\n")),
            Backward(StrCat("  before the first step:\n  ^c at 1 = zero\n", kUnit,
                            "  h_prev_grad.1: float [1, 2, 4], ^c: float [1, 2, 4] at 1[32 * t], g.1: float [1, 2, 16]",
                            kFromUnit, "  e.1: float [1, 2, 4] = region Tanh(^c) @1 {}\n")));
}

TEST(WriteOnlyTerms, OtherTermsAreAdded) {
  for (const std::string& before : std::vector<std::string>{
           // Not all rows are zeros.
           CellStates("  ^c at 1[1:] = zero\n", ""),
           CellStates("  ^c at 1 = ^dc at 6 lent\n", ""),
           CellStates("  ^c at 1 = zero\n  ^c at 1[1:] += ^dc at 6 lent\n", ""),
           // There is another term, or the row is read in the same step.
           CellStates("  ^c at 1 = zero\n", "  ^c.1: float [1, 2, 4] added at 1[32 * t] = h_t_grad\n"),
           CellStates("  ^c at 1 = zero\n", "  e.1: float [1, 2, 4] = region Tanh(now) @1 {}\n",
                      "  now: float [1, 2, 4] at 1[32 * t]\n"),
       }) {
    EXPECT_EQ(After("write_only_terms", before), before);
  }
}

}  // namespace
}  // namespace stepnet

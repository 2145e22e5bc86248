#include "pass_case.h"

namespace stepnet {
namespace {

constexpr char kProduct[] =
    "  w: float [2, 3] at 0\n"
    "  v: float [3, 2] at 1\n"
    "  p.1: float [2, 2] = MatMul(w, v) @0 {}\n";

TEST(FoldSums, LeavesAddingToOperatorsThatCan) {
  const std::string zeros = "  before the first step:\n  ^products at 2 = zero\n";
  EXPECT_EQ(After("fold_sums", Step(zeros + kProduct +
                                    "  ^products: float [2, 2] added at 2 from zero = p.1\n"
                                    "  q.1: float [3, 2] = Tanh(v) @1 {}\n"
                                    "  ^others: float [3, 2] added at 3 = q.1\n")),
            Step(zeros + "  w: float [2, 3] at 0\n"
                         "  v: float [3, 2] at 1\n"
                         "  ^products: float [2, 2] added at 2 from zero = MatMul(w, v) @0 {}\n"
                         "  q.1: float [3, 2] = Tanh(v) @1 {}\n"
                         "  ^others: float [3, 2] added at 3 = q.1\n"));
}

TEST(FoldSums, KeepsTermsThatSomethingElseReads) {
  const std::string before = Step(std::string(kProduct) +
                                  "  ^products: float [2, 2] added at 2 = p.1\n"
                                  "  q.1: float [2, 2] = Tanh(p.1) @1 {}\n");
  EXPECT_EQ(After("fold_sums", before), before);
}

// Between the operator and the move somebody reads the sum without the term: an operator, a move, and in the operator.
TEST(FoldSums, KeepsTermsOfSumsThatAreReadBetween) {
  const std::string given = "  m: float [2, 2] at 2[16 * t]\n";
  for (const char* between : {"  q.1: float [2, 2] = Tanh(m) @1 {}\n", "  ^seen: float [2, 2] at 3[16 * t] = m\n"}) {
    const std::string before =
        Step(given + std::string(kProduct) + between + "  ^m: float [2, 2] added at 2[16 * t] = p.1\n");
    EXPECT_EQ(After("fold_sums", before), before);
  }
  const std::string before = Step(
      "  m: float [2, 2] at 2[16 * t]\n"
      "  p.1: float [2, 2] = MatMul(m, m) @0 {}\n"
      "  ^m: float [2, 2] added at 2[16 * t] = p.1\n");
  EXPECT_EQ(After("fold_sums", before), before);
}

TEST(FoldSums, KeepsTermsThatGoOutTwice) {
  const std::string before = Step(std::string(kProduct) +
                                  "  ^products: float [2, 2] added at 2 = p.1\n"
                                  "  ^copy: float [2, 2] at 3 = p.1\n");
  EXPECT_EQ(After("fold_sums", before), before);
}

}  // namespace
}  // namespace stepnet

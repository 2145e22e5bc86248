#include "draft_case.h"

namespace stepnet {
namespace {

TEST(FoldSums, LeavesAddingToOperatorsThatCan) {
  DraftCase step({"p = MatMul(w, v)", "q = Tanh(v)"});
  step.Whole("w", {2, 3}).Whole("v", {3, 2}).AddsTo("products", "p", {2, 2}).AddsTo("others", "q", {3, 2});
  const std::string graph =
      "net step(v, w) {\n"
      "  p.1 = MatMul(w, v)  # float [2, 2]\n"
      "  q.1 = Tanh(v)  # float [3, 2]\n"
      "}\n"
      "w is bound to base 0\n"
      "v is bound to base 1\n";
  EXPECT_EQ(step.Before(), graph + "\"products\" in base 2 += p\n\"others\" in base 3 += q\n");
  EXPECT_EQ(step.After(FoldSums), graph + "\"products\" in base 2 += p, by its operator\n\"others\" in base 3 += q\n");
}

TEST(FoldSums, KeepsTermsThatSomethingElseReads) {
  DraftCase step({"p = MatMul(w, v)", "q = Tanh(p)"});
  step.Whole("w", {2, 3}).Whole("v", {3, 2}).AddsTo("products", "p", {2, 2});
  EXPECT_EQ(step.After(FoldSums), step.Before());
}

}  // namespace
}  // namespace stepnet

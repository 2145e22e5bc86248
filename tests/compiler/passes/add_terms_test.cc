#include "draft_case.h"

namespace stepnet {
namespace {

TEST(AddTerms, AddsEachTermOfASumWhereTheSumIsAdded) {
  DraftCase step({"a = Tanh(x)", "b = Sigmoid(x)", "c = Relu(x)", "s = Sum(a, b)", "total = Sum(s, c)"});
  step.Row("x", {2}).AddsTo("sum", "total", {1, 2});
  EXPECT_EQ(step.Before(),
            "net step(x) {\n"
            "  a.1 = Tanh(x)  # float [1, 2]\n"
            "  b.1 = Sigmoid(x)  # float [1, 2]\n"
            "  c.1 = Relu(x)  # float [1, 2]\n"
            "  s.1 = Sum(a.1, b.1)  # float [1, 2]\n"
            "  total.1 = Sum(s.1, c.1)  # float [1, 2]\n"
            "}\n"
            "x is bound to base 0[t]\n"
            "\"sum\" in base 1 += total\n");
  EXPECT_EQ(step.After(AddTerms),
            "net step(x) {\n"
            "  a.1 = Tanh(x)  # float [1, 2]\n"
            "  b.1 = Sigmoid(x)  # float [1, 2]\n"
            "  c.1 = Relu(x)  # float [1, 2]\n"
            "}\n"
            "x is bound to base 0[t]\n"
            "\"sum\" in base 1 += a\n"
            "\"sum\" in base 1 += b\n"
            "\"sum\" in base 1 += c\n");
}

TEST(AddTerms, LeavesSumsThatSomethingElseReads) {
  DraftCase step({"a = Tanh(x)", "b = Sigmoid(x)", "s = Sum(a, b)", "y = Tanh(s)"});
  step.Row("x", {2}).AddsTo("sum", "s", {1, 2});
  EXPECT_EQ(step.After(AddTerms), step.Before());
}

TEST(AddTerms, LeavesTermsThatSomethingElseReads) {
  DraftCase step({"a = Tanh(x)", "b = Sigmoid(x)", "s = Sum(a, b)", "y = Tanh(a)"});
  step.Row("x", {2}).AddsTo("sum", "s", {1, 2});
  EXPECT_EQ(step.After(AddTerms), step.Before());
}

TEST(AddTerms, LeavesSumsThatAreCopied) {
  DraftCase step({"a = Tanh(x)", "b = Sigmoid(x)", "s = Sum(a, b)"});
  step.Row("x", {2}).CopiesTo("copy", "s", {1, 2});
  EXPECT_EQ(step.After(AddTerms), step.Before());
}

}  // namespace
}  // namespace stepnet

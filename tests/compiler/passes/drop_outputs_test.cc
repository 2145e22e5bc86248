#include "draft_case.h"

namespace stepnet {
namespace {

DraftCase Gradient(const std::vector<std::string>& more_ops) {
  std::vector<std::string> ops = {"dw, db, dx = FCGradient(x, w, dy)"};
  ops.insert(ops.end(), more_ops.begin(), more_ops.end());
  DraftCase step(ops);
  step.Whole("x", {4, 3}).Whole("w", {2, 3}).Whole("dy", {4, 2}).CopiesTo("result", "dx", {4, 3});
  return step;
}

TEST(DropOutputs, FindsSumsOverRowsThatNobodyReads) {
  DraftCase step = Gradient({});
  EXPECT_EQ(step.Before(),
            "net step(dy, w, x) {\n"
            "  dw.1, db.1, dx.1 = FCGradient(x, w, dy)  # float [2, 3], float [2], float [4, 3]\n"
            "}\n"
            "x is bound to base 0\n"
            "w is bound to base 1\n"
            "dy is bound to base 2\n"
            "\"result\" in base 3 = dx\n");
  EXPECT_EQ(step.After(DropOutputs), step.Before() + "dw.1 is not needed\ndb.1 is not needed\n");
}

TEST(DropOutputs, KeepsWhatAnOperatorReads) {
  DraftCase step = Gradient({"y = Tanh(db)"});
  EXPECT_EQ(step.After(DropOutputs), step.Before() + "dw.1 is not needed\n");
}

TEST(DropOutputs, KeepsWhatGoesOut) {
  DraftCase step = Gradient({});
  step.AddsTo("sum", "dw", {2, 3});
  EXPECT_EQ(step.After(DropOutputs), step.Before() + "db.1 is not needed\n");
}

}  // namespace
}  // namespace stepnet

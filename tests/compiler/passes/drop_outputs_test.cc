#include "pass_case.h"

namespace stepnet {
namespace {

// A graph whose operator gives the gradients of w, b and x; the last goes out.
std::string Gradient(const std::string& dw, const std::string& db, const std::string& more) {
  return Step(
      "  x: float [4, 3] at 0\n"
      "  w: float [2, 3] at 1\n"
      "  dy: float [4, 2] at 2\n"
      "  " +
      dw + ", " + db + ", dx.1: float [4, 3] = FCGradient(x, w, dy) @0 {}\n  ^result: float [4, 3] at 3 = dx.1\n" +
      more);
}

constexpr char kDw[] = "dw.1: float [2, 3]", kDb[] = "db.1: float [2]";

TEST(DropOutputs, TakesAwaySumsOverRowsThatNobodyReads) {
  EXPECT_EQ(After("drop_outputs", Gradient(kDw, kDb, "")), Gradient("_", "_", ""));
}

TEST(DropOutputs, KeepsWhatAnOperatorReads) {
  const std::string reader = "  y.1: float [2] = Tanh(db.1) @1 {}\n";
  EXPECT_EQ(After("drop_outputs", Gradient(kDw, kDb, reader)), Gradient("_", kDb, reader));
}

TEST(DropOutputs, KeepsWhatGoesOut) {
  const std::string sum = "  ^sum: float [2, 3] added at 4 = dw.1\n";
  EXPECT_EQ(After("drop_outputs", Gradient(kDw, kDb, sum)), Gradient(kDw, "_", sum));
}

// Gives rows and their sum, as FCGradient does, by a kernel that always writes both.
const Registration rows_and_sum = Operator("test.RowsAndSum")
                                      .Input("x", "[M, K]")
                                      .Output("y", "[M, K]")
                                      .Output("sum", "[K]")
                                      .Shapes([](const ShapeQuery& query) {
                                        const TensorInfo& x = query.In(0);
                                        return std::vector<TensorInfo>{x, {x.dtype, x.shape.Tail()}};
                                      })
                                      .Rows([](const ShapeQuery&) {
                                        return RowOperands{{0}, {0}};
                                      })
                                      .Cpu([](const OperatorCall&) { return [](const OpRun&) {}; });

TEST(DropOutputs, KeepsWhatKernelsCannotLeaveOut) {
  const std::string before = Step(
      "  x: float [4, 3] at 0\n"
      "  y.1: float [4, 3], sum.1: float [3] = test.RowsAndSum(x) @0 {}\n"
      "  ^result: float [4, 3] at 1 = y.1\n");
  EXPECT_EQ(After("drop_outputs", before), before);
}

TEST(DropOutputs, KeepsWhatIsReadAfterTheLoop) {
  const std::string kept = std::string(kDw) + " kept";
  EXPECT_EQ(After("drop_outputs", Gradient(kept, kDb, "")), Gradient(kept, "_", ""));
}

}  // namespace
}  // namespace stepnet

#include "pass_case.h"
#include "stepnet/core/strings.h"

namespace stepnet {
namespace {

constexpr char kGiven[] = R"(  before the first step:
  ^dw at 4 = zero
  ^db at 5 = zero
  x: float [2, 3] at 0[24 * t]
  e: float [2, 4] at 1[32 * t]
  w: float [4, 3] at 2
  b: float [4] at 3
)";
constexpr char kP[] = "  p.1: float [2, 4] = region Tanh(e) @0 {}\n";
constexpr char kSum[] = "  db.1: float [4] = SumReduceLike(p.1, b) @1 {}\n";
constexpr char kGradient[] =
    "  dw.1: float [4, 3], dx.1: float [2, 3] at 6[24 * t] = product p.1 [2, 4]^T * x [2, 3]; p.1 [2, 4] * w [4, 3] by "
    "FCGradient(x, w, p.1) @2 {arg { name: \"no_bias\" i: 1 }}\n";
constexpr char kGradientAndSum[] =
    "  dw.1: float [4, 3], db.1: float [4], dx.1: float [2, 3] at 6[24 * t] = product p.1 [2, 4]^T * x [2, 3]; sum p.1 "
    "[2, 4]; p.1 [2, 4] * w [4, 3] by FCGradient(x, w, p.1) @2 {}\n";
constexpr char kAddW[] = "  ^dw: float [4, 3] added at 4 from zero = dw.1\n";
constexpr char kAddB[] = "  ^db: float [4] added at 5 from zero = db.1\n";

std::string AfterLines(const std::string& lines) { return After("fold_bias_gradients", Step(kGiven + lines)); }

TEST(FoldBiasGradients, GradientOfAProductGivesThatOfTheBias) {
  EXPECT_EQ(AfterLines(StrCat(kP, kSum, kAddB, kGradient, kAddW)),
            Step(StrCat(kGiven, kP, kGradientAndSum, kAddB, kAddW)));
  EXPECT_EQ(AfterLines(StrCat(kP, kGradient, kAddW, kSum, kAddB)),
            Step(StrCat(kGiven, kP, kGradientAndSum, kAddB, kAddW)));
}

TEST(FoldBiasGradients, LeavesOthersAlone) {
  const std::string p = kP, sum = kSum, b = kAddB, gradient = kGradient, w = kAddW;
  const auto with = [](std::string text, const std::string& from, const std::string& to) {
    return text.replace(text.find(from), from.size(), to);
  };
  for (const std::string& lines : std::vector<std::string>{
           // No product has these rows, or the one that has gives the gradient of a bias already.
           p + "  q.1: float [2, 4] = region Tanh(p.1) @3 {}\n" + with(sum, "(p.1", "(q.1") + b + gradient + w,
           p + sum + b + with(kGradientAndSum, "db.1", "eb.1") + w + "  ^eb: float [4] added at 9 = eb.1\n",
           // Something else reads the sum, or it is summed over columns.
           p + sum + b + "  r.1: float [4] = region Tanh(db.1) @4 {}\n" + gradient + w,
           "  c: float [2, 1] at 7\n" + p + "  s.1: float [2, 1] = SumReduceLike(p.1, c) @1 {}\n" +
               "  ^s: float [2, 1] added at 8 = s.1\n" + gradient + w,
           // The step reads what it is added to.
           "  old: float [4] at 5\n" + p + sum + b + "  r.1: float [4] = region Tanh(old) @4 {}\n" + gradient + w,
       }) {
    EXPECT_EQ(AfterLines(lines), Step(kGiven + lines));
  }
}

}  // namespace
}  // namespace stepnet

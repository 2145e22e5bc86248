#include <limits>
#include <utility>

#include "pass_case.h"
#include "stepnet/core/cancellation.h"
#include "stepnet/core/strings.h"

namespace stepnet {
namespace {

constexpr char kGiven[] =
    "  x_t: float [2, 3] at 0[24 * t]\n"
    "  h: float [2, 4] at 1[32 * t]\n"
    "  w: float [4, 3] at 2\n"
    "  u: float [4, 4] at 3\n"
    "  b: float [4] at 4\n";
constexpr char kOfX[] = "  p.1: float [2, 4] = product x_t [2, 3] * w [4, 3]^T by FC(x_t, w) @0 {}\n";
constexpr char kOfH[] = "  q.1: float [2, 4] = product h [2, 4] * u [4, 4]^T by FC(h, u) @1 {}\n";

TEST(FoldBiases, AProductAddsItsBias) {
  for (const char* sum : {"Add(p.1, b)", "Add(b, p.1)"}) {
    EXPECT_EQ(After("fold_biases", Step(StrCat(kGiven, kOfX, "  s.1: float [2, 4] = region ", sum, " @2 {}\n",
                                               "  y.1: float [2, 4] at 5[32 * t] = Tanh(s.1) @3 {}\n"))),
              Step(StrCat(kGiven, "  s.1: float [2, 4] = product x_t [2, 3] * w [4, 3]^T + b by FC(x_t, w, b) @0 {}\n",
                          "  y.1: float [2, 4] at 5[32 * t] = Tanh(s.1) @3 {}\n")));
  }
}

// The state is read in the step after that which writes it.
constexpr char kLoop[] = "  h.1: float [2, 4] at 1[32 * (t + 1)] = region Tanh(r.1) @5 {}\n";

TEST(FoldBiases, OfASumTheProductThatNoStepWaitsForDoes) {
  EXPECT_EQ(
      After("fold_biases", Step(StrCat(kGiven, kOfH, kOfX, "  s.1: float [2, 4] = region Sum(q.1, p.1) @2 {}\n",
                                       "  r.1: float [2, 4] kept = region Add(s.1, b) @3 {}\n", kLoop))),
      Step(StrCat(kGiven, kOfH, "  p.1: float [2, 4] = product x_t [2, 3] * w [4, 3]^T + b by FC(x_t, w, b) @0 {}\n",
                  "  r.1: float [2, 4] kept = region Sum(q.1, p.1) @2 {}\n", kLoop)));
}

TEST(FoldBiases, AProductThatNoStepWaitsForDoesWhereverItIsAdded) {
  const std::string of_x = "  p.1: float [2, 4] = product x_t [2, 3] * w [4, 3]^T by FC(x_t, w) @2 {}\n";
  const std::string total = "  r.1: float [2, 4] kept = region Sum(s.1, p.1) @3 {}\n";
  const std::string of_h = "  s.1: float [2, 4] = product h [2, 4] * u [4, 4]^T by FC(h, u) @1 {}\n";
  const std::string x_with_bias = "  p.1: float [2, 4] = product x_t [2, 3] * w [4, 3]^T + b by FC(x_t, w, b) @2 {}\n";
  EXPECT_EQ(After("fold_biases",
                  Step(StrCat(kGiven, kOfH, "  s.1: float [2, 4] = region Add(b, q.1) @4 {}\n", of_x, total, kLoop))),
            Step(StrCat(kGiven, of_h, x_with_bias, total, kLoop)));
  // The one in the loop has it already.
  const std::string h_with_bias = "  s.1: float [2, 4] = product h [2, 4] * u [4, 4]^T + b by FC(h, u, b) @1 {}\n";
  EXPECT_EQ(After("fold_biases", Step(StrCat(kGiven, h_with_bias, of_x, total, kLoop))),
            Step(StrCat(kGiven, of_h, x_with_bias, total, kLoop)));
  // Something else reads that: it stays where it is.
  const std::string reader = "  v.1: float [2, 4] kept = region Tanh(s.1) @6 {}\n";
  EXPECT_EQ(After("fold_biases", Step(StrCat(kGiven, h_with_bias, of_x, total, kLoop, reader))),
            Step(StrCat(kGiven, h_with_bias, of_x, total, kLoop, reader)));
}

TEST(FoldBiases, TwoBiasesGoToTwoProducts) {
  const std::string given = StrCat(kGiven, "  c: float [4] at 6\n");
  EXPECT_EQ(After("fold_biases", Step(StrCat(given, kOfX, kOfH, "  s.1: float [2, 4] = region Sum(p.1, q.1) @2 {}\n",
                                             "  o.1: float [2, 4] = region Add(s.1, c) @3 {}\n",
                                             "  r.1: float [2, 4] = region Add(o.1, b) @4 {}\n", kLoop))),
            Step(StrCat(given, "  p.1: float [2, 4] = product x_t [2, 3] * w [4, 3]^T + c by FC(x_t, w, c) @0 {}\n",
                        "  q.1: float [2, 4] = product h [2, 4] * u [4, 4]^T + b by FC(h, u, b) @1 {}\n",
                        "  r.1: float [2, 4] = region Sum(p.1, q.1) @2 {}\n", kLoop)));
}

TEST(FoldBiases, LeavesOtherSumsAlone) {
  const std::string given = kGiven;
  for (const std::string& lines : std::vector<std::string>{
           // Something else reads the product.
           given + kOfX +
               "  s.1: float [2, 4] = region Add(p.1, b) @2 {}\n  r.1: float [2, 4] = region Tanh(p.1) @3 {}\n",
           // The product has a bias.
           given + "  p.1: float [2, 4] = product x_t [2, 3] * w [4, 3]^T + b by FC(x_t, w, b) @0 {}\n" +
               "  s.1: float [2, 4] = region Add(p.1, b) @2 {}\n",
           // It is no sum.
           given + kOfX + "  s.1: float [2, 4] = region Mul(p.1, b) @2 {}\n",
           given + kOfX + "  s.1: float [2, 4] = region Sub(b, p.1) @2 {}\n",
           // What is added is of the step, or of another row each.
           given + "  d_t: float [4] at 6[16 * t]\n" + kOfX + "  s.1: float [2, 4] = region Add(p.1, d_t) @2 {}\n",
           given + "  d: float [2, 1] at 6\n" + kOfX + "  s.1: float [2, 4] = region Add(p.1, d) @2 {}\n",
           given + "  d: float [1] at 6\n" + kOfX + "  s.1: float [2, 4] = region Add(p.1, d) @2 {}\n",
           // A step writes it.
           given + "  b.1: float [4] at 4 = region Tanh(b) @5 {}\n" + kOfX +
               "  s.1: float [2, 4] = region Add(p.1, b.1) @2 {}\n",
           // The operator of the product takes no bias.
           given + "  p.1: float [2, 4] = product h [2, 4] * u [4, 4] by MatMul(h, u) @0 {}\n" +
               "  s.1: float [2, 4] = region Add(p.1, b) @2 {}\n",
           // A term of the sum is no product.
           given + "  p.1: float [2, 4] = region Tanh(h) @0 {}\n  s.1: float [2, 4] = region Add(p.1, b) @2 {}\n",
       }) {
    EXPECT_EQ(After("fold_biases", Step(lines)), Step(lines));
  }
}

// Products in the loop, each with a bias that is added to it, or to the sum of those so far, and their sum.
std::string ManySums(int count, bool is_to_sum) {
  std::string lines = kGiven;
  std::string total;
  int op = 0;
  const auto add = [&](const std::string& name, const std::string& what) {
    lines += StrCat("  ", name, ".1: float [2, 4] = ", what, " @", op++, " {}\n");
  };
  for (int i = 0; i < count; ++i) {
    const std::string product = StrCat("p", i), sum = StrCat("s", i), with_bias = StrCat("o", i);
    add(product, "product h [2, 4] * u [4, 4]^T by FC(h, u)");
    std::string added = product;
    if (is_to_sum && i > 0) add(added = sum, StrCat("region Sum(", total, ".1, ", product, ".1)"));
    add(with_bias, StrCat("region Add(", added, ".1, b)"));
    if (!is_to_sum && i > 0) add(sum, StrCat("region Sum(", total, ".1, ", with_bias, ".1)"));
    total = is_to_sum || i == 0 ? with_bias : sum;
  }
  return Step(StrCat(lines, "  h.1: float [2, 4] at 1[32 * (t + 1)] = region Tanh(", total, ".1) @", op, " {}\n"));
}

// What the pass counts for the time limit.
std::int64_t WorkOn(const std::string& text) {
  StepGraph graph = ParseGraph(text);
  constexpr std::int64_t kMuch = std::numeric_limits<std::int64_t>::max();
  internal::work_left = kMuch;
  EXPECT_TRUE(RunPass("fold_biases", &graph));
  return kMuch - std::exchange(internal::work_left, 0);
}

TEST(FoldBiases, TakesTimeInProportionToTheSums) {
  for (const bool is_to_sum : {false, true}) {
    const std::int64_t few = WorkOn(ManySums(100, is_to_sum)), many = WorkOn(ManySums(400, is_to_sum));
    EXPECT_GT(few, 100 * 100);
    EXPECT_LT(many, 5 * few);
  }
}

}  // namespace
}  // namespace stepnet

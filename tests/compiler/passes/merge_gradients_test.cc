#include "pass_case.h"
#include "stepnet/core/strings.h"

namespace stepnet {
namespace {

constexpr char kGiven[] = R"(  before the first step:
  ^dw at 5 = zero
  ^dv at 6 = zero
  ^db at 7 = zero
  x: float [2, 3] at 0[24 * t]
  e: float [2, 4] at 1[32 * t]
  g: float [2, 2] at 2[16 * t]
  w: float [4, 3] at 3
  v: float [2, 3] at 4
  b: float [4] at 8
)";
constexpr char kP[] = "  p.1: float [2, 4] = region Tanh(e) @0 {}\n";
constexpr char kQ[] = "  q.1: float [2, 2] = region Tanh(g) @1 {}\n";
constexpr char kOfP[] =
    "  dw.1: float [4, 3], d.1: float [2, 3] = product p.1 [2, 4]^T * x [2, 3]; p.1 [2, 4] * w [4, 3] by "
    "FCGradient(x, w, p.1) @3 {arg { name: \"no_bias\" i: 1 }}\n";
constexpr char kOfPAndSum[] =
    "  dw.1: float [4, 3], db.1: float [4], d.1: float [2, 3] = product p.1 [2, 4]^T * x [2, 3]; sum p.1 [2, 4]; p.1 "
    "[2, 4] * w [4, 3] by FCGradient(x, w, p.1) @3 {}\n";
constexpr char kOfQ[] =
    "  dv.1: float [2, 3], d.2: float [2, 3] = product q.1 [2, 2]^T * x [2, 3]; q.1 [2, 2] * v [2, 3] by "
    "FCGradient(x, v, q.1) @4 {arg { name: \"no_bias\" i: 1 }}\n";
constexpr char kAddW[] = "  ^dw: float [4, 3] added at 5 from zero = dw.1\n";
constexpr char kAddV[] = "  ^dv: float [2, 3] added at 6 from zero = dv.1\n";
constexpr char kAddB[] = "  ^db: float [4] added at 7 from zero = db.1\n";
constexpr char kTotal[] = "  dx.1: float [2, 3] at 9[24 * t] = region Sum(d.1, d.2) @5 {}\n";
constexpr char kOther[] = "  r.1: float [2, 3] = region Tanh(x) @6 {}\n";
std::string ForgottenBeside(const std::string& others) {
  return StrCat("  at the end: ", others, "no \"p|q\", no \"p|q sizes\"\n");
}

std::string AfterLines(const std::string& lines) { return After("merge_gradients", Step(kGiven + lines)); }

std::string BackwardStep(const std::string& lines) { return "backward step step {\n" + lines + "}\n"; }

void ExpectUnchanged(const std::string& lines) { EXPECT_EQ(AfterLines(lines), Step(kGiven + lines)); }

TEST(MergeGradients, ThoseOfOneValueBecomeOne) {
  EXPECT_EQ(
      AfterLines(StrCat(kP, kOfPAndSum, kAddW, kAddB, kQ, kOfQ, kAddV, kTotal)),
      Step(StrCat(
          kGiven, kP, kQ,
          R"(  "p|q".1: float [2, 6], "p|q sizes".1: int32 [2] = region Concat(p.1, q.1) @4 {arg { name: "axis" i: 1 }}
  dw.1: float [4, 3], dv.1: float [2, 3], db.1: float [4], _, dx.1: float [2, 3] at 9[24 * t] = FCGradientOfParts(x, "p|q".1, w, v) @4 {arg { name: "parts" ints: 4 ints: 2 } arg { name: "no_bias" i: 0 }}
)",
          kAddW, kAddB, kAddV, ForgottenBeside(""))));
}

TEST(MergeGradients, WhatElseIsAddedUpIsAddedToTheirs) {
  EXPECT_EQ(
      AfterLines(StrCat(kP, kOfP, kAddW, kQ, kOfQ, kAddV, kOther,
                        "  dx.1: float [2, 3] at 9[24 * t] = region Sum(d.1, r.1, d.2) @5 {}\n")),
      Step(StrCat(
          kGiven, kP, kQ,
          R"(  "p|q".1: float [2, 6], "p|q sizes".1: int32 [2] = region Concat(p.1, q.1) @4 {arg { name: "axis" i: 1 }}
  dw.1: float [4, 3], dv.1: float [2, 3], d.3: float [2, 3] = FCGradientOfParts(x, "p|q".1, w, v) @4 {arg { name: "parts" ints: 4 ints: 2 } arg { name: "no_bias" i: 1 }}
)",
          kAddW, kAddV, kOther, "  dx.1: float [2, 3] at 9[24 * t] = region Sum(r.1, d.3) @5 {}\n",
          ForgottenBeside("no d, "))));
}

TEST(MergeGradients, ThoseOfWeightsAloneDo) {
  const auto without_dx = [](std::string of) {
    return of.replace(of.find(", d."), of.find(" = ") - of.find(", d."), ", _");
  };
  EXPECT_EQ(
      AfterLines(StrCat(kP, without_dx(kOfP), kAddW, kQ, without_dx(kOfQ), kAddV)),
      Step(StrCat(
          kGiven, kP, kQ,
          R"(  "p|q".1: float [2, 6], "p|q sizes".1: int32 [2] = region Concat(p.1, q.1) @4 {arg { name: "axis" i: 1 }}
  dw.1: float [4, 3], dv.1: float [2, 3] = FCGradientOfParts(x, "p|q".1) @4 {arg { name: "parts" ints: 4 ints: 2 } arg { name: "no_bias" i: 1 }}
)",
          kAddW, kAddV, "  at the end: no \"p|q\", no \"p|q sizes\"\n")));
}

// Two values, each multiplied by two weights, where the gradients follow from the same values.
TEST(MergeGradients, WhatLiesSideBySideIsReadByAll) {
  const auto of_y = [](std::string lines) {
    for (const auto& [from, to] : {std::pair("(x, ", "(y, "),
                                   {"* x [", "* y ["},
                                   {"dw", "dr"},
                                   {"dv", "ds"},
                                   {"d.", "c."},
                                   {"@3", "@13"},
                                   {"@4", "@14"}}) {
      for (size_t at = lines.find(from); at != std::string::npos; at = lines.find(from, at + 1)) {
        lines.replace(at, std::string(from).size(), to);
      }
    }
    return lines;
  };
  const std::string text = AfterLines(StrCat("  y: float [2, 3] at 10[24 * t]\n", kP, kOfP, kAddW, of_y(kOfP),
                                             "  ^dr: float [4, 3] added at 11 = dr.1\n", kQ, of_y(kOfQ),
                                             "  ^ds: float [2, 3] added at 12 = ds.1\n", kOfQ, kAddV, kTotal,
                                             "  dy.1: float [2, 3] at 13[24 * t] = region Sum(c.1, c.2) @8 {}\n"));
  const auto count = [&](const std::string& what) {
    int found = 0;
    for (size_t at = text.find(what); at != std::string::npos; at = text.find(what, at + 1)) ++found;
    return found;
  };
  EXPECT_EQ(count("= FCGradientOfParts("), 2) << text;
  EXPECT_EQ(count("= region Concat(p.1, q.1)"), 1) << text;
}

TEST(MergeGradients, LeavesOthersAlone) {
  const std::string p = kP, of_p = kOfP, q = kQ, of_q = kOfQ, total = kTotal, w = kAddW, v = kAddV;
  const auto with = [](std::string text, const std::string& from, const std::string& to) {
    return text.replace(text.find(from), from.size(), to);
  };
  for (const std::string& lines : std::vector<std::string>{
           // There is one, or one reads another value.
           p + of_p + w,
           "  y: float [2, 3] at 10[24 * t]\n" + p + of_p + w + q + with(with(of_q, "* x [", "* y ["), "(x, ", "(y, ") +
               v + total,
           // Something else reads the gradient of x, or it is multiplied.
           p + of_p + w + q + of_q + v + total + "  r.1: float [2, 3] = region Tanh(d.1) @6 {}\n",
           p + of_p + w + q + of_q + v + with(total, "Sum(", "Mul("),
           // Something else reads the gradient of a weight, which goes elsewhere.
           p + of_p + w + "  r.1: float [4, 3] = region Tanh(dw.1) @6 {}\n" + q + of_q + v + total,
           // What one follows from is written again.
           p + of_p + w + "  p.2: float [2, 4] in p.1 = region Tanh(p.1) @6 {}\n" + q + of_q + v + total,
           // So is x.
           p + of_p + w + q + of_q + v + total + "  x.1: float [2, 3] at 0[24 * t] = region Tanh(x) @6 {}\n",
       }) {
    ExpectUnchanged(lines);
  }
}

// Sums over all steps would read rows of 24 bytes, of each of which they need a part.
TEST(MergeGradients, OnlyThoseOfSmallStepsBecomeOne) {
  const auto with_rows = [](int rows) {
    std::string text = Step(StrCat(kGiven, kP, kOfP, kAddW, kQ, kOfQ, kAddV, kTotal));
    for (const char* of : {"x: float", "e: float", "g: float", "p.1: float", "q.1: float", "p.1", "q.1", "* x",
                           "d.1: float", "d.2: float", "dx.1: float"}) {
      const std::string from = StrCat(" ", of, " [2, "), to = StrCat(" ", of, " [", rows, ", ");
      for (size_t at = text.find(from); at != std::string::npos; at = text.find(from))
        text.replace(at, from.size(), to);
    }
    for (const auto& [base, columns] : {std::pair{0, 3}, {1, 4}, {2, 2}, {9, 3}}) {
      const std::string from = StrCat(" at ", base, "[", 8 * columns, " * t]");
      text.replace(text.find(from), from.size(), StrCat(" at ", base, "[", 4 * rows * columns, " * t]"));
    }
    return text;
  };
  const auto max_rows = static_cast<int>(kCpuTarget.small_step_bytes / 24);
  EXPECT_NE(After("merge_gradients", with_rows(max_rows)), with_rows(max_rows));
  EXPECT_EQ(After("merge_gradients", with_rows(max_rows + 1)), with_rows(max_rows + 1));
}

// One of the loop, and one that no step waits for, which would come into it.
TEST(MergeGradients, ThoseOfTheLoopStayApartFromOthers) {
  const std::string p = "  h: float [2, 4] at 9[32 * (t + 1)]\n  p.1: float [2, 4] = region Tanh(h) @0 {}\n";
  const auto lines = [&](const char* row) {
    return StrCat(p, kOfP, kAddW, kQ, kOfQ, kAddV, "  s.1: float [2, 3] = region Sum(d.1, d.2) @5 {}\n",
                  "  r.1: float [2, 4] at ", row, " = MatMul(s.1, k) @6 {}\n");
  };
  const std::string given = StrCat(kGiven, "  k: float [3, 4] at 11\n");
  const std::string in_loop = given + lines("9[32 * t]");
  EXPECT_EQ(After("merge_gradients", BackwardStep(in_loop)), BackwardStep(in_loop));
  EXPECT_NE(After("merge_gradients", BackwardStep(given + lines("10[32 * t]"))),
            BackwardStep(given + lines("10[32 * t]")));
}

}  // namespace
}  // namespace stepnet

#include "pass_case.h"
#include "stepnet/core/strings.h"

namespace stepnet {
namespace {

constexpr char kGiven[] =
    "  w: float [2, 3] at 0\n"
    "  v: float [3, 2] at 1\n"
    "  x: float [2, 2] at 2\n";
const std::string kTerms = StrCat(kGiven,
                                  "  t.1: float [2, 2] = Tanh(x) @0 {}\n"
                                  "  p.1: float [2, 2] = MatMul(w, v) @1 {}\n");

TEST(AddInPlace, TheLaterTermIsAddedToTheOther) {
  for (const char* sum : {"Add(t.1, p.1)", "Sum(p.1, t.1)"}) {
    EXPECT_EQ(After("add_in_place",
                    Step(StrCat(kTerms, "  s.1: float [2, 2] = ", sum, " @2 {}\n", "  ^y: float [2, 2] at 3 = s.1\n"))),
              Step(StrCat(kGiven,
                          "  t.1: float [2, 2] = Tanh(x) @0 {}\n"
                          "  s.1: float [2, 2] added in t.1 = MatMul(w, v) @1 {}\n"
                          "  ^y: float [2, 2] at 3 = s.1\n"
                          "  at the end: no t\n")));
  }
}

TEST(AddInPlace, ASumGoesOn) {
  const std::string more =
      "  q.1: float [2, 2] = MatMul(w, v) @2 {}\n"
      "  s.1: float [2, 2] = Add(t.1, p.1) @3 {}\n"
      "  r.1: float [2, 2] kept = Add(s.1, q.1) @4 {}\n";
  EXPECT_EQ(After("add_in_place", Step(kTerms + more)),
            Step(StrCat(kGiven,
                        "  t.1: float [2, 2] kept = Tanh(x) @0 {}\n"
                        "  s.1: float [2, 2] added in t.1 = MatMul(w, v) @1 {}\n"
                        "  r.1: float [2, 2] added in t.1 = MatMul(w, v) @2 {}\n"
                        "  at the end: no s, no t\n")));
}

TEST(AddInPlace, ASumThatSomebodyReadsDoesNotGoOn) {
  const std::string more =
      "  q.1: float [2, 2] = MatMul(w, v) @2 {}\n"
      "  s.1: float [2, 2] = Add(t.1, p.1) @3 {}\n"
      "  r.1: float [2, 2] = Add(s.1, q.1) @4 {}\n"
      "  ^y: float [2, 2] at 3 = s.1\n";
  EXPECT_EQ(After("add_in_place", Step(kTerms + more)),
            Step(StrCat(kGiven,
                        "  t.1: float [2, 2] = Tanh(x) @0 {}\n"
                        "  s.1: float [2, 2] added in t.1 = MatMul(w, v) @1 {}\n"
                        "  q.1: float [2, 2] = MatMul(w, v) @2 {}\n"
                        "  r.1: float [2, 2] = Add(s.1, q.1) @4 {}\n"
                        "  ^y: float [2, 2] at 3 = s.1\n"
                        "  at the end: no t\n")));
}

// The region that gives what is summed gives the sum, too, and needs no memory for either.
TEST(AddInPlace, ASumOfWhatARegionGivesIsNotAdded) {
  const std::string given =
      "  m: float [2, 4, 3] at 0\n"
      "  row: float [2, 1, 3] at 1\n";
  const auto text = [&](const char* region) {
    return Step(StrCat(given, "  t.1: float [2, 1, 3] = region Tanh(row) @0 {}\n  p.1: float [2, 4, 3] = ", region,
                       "Sqr(m) @1 {}\n  s.1: float [2, 1, 3] = SumReduceLike(p.1, row) @2 {}\n"
                       "  u.1: float [2, 1, 3] kept = region Add(t.1, s.1) @3 {}\n"));
  };
  EXPECT_NE(After("add_in_place", text("")).find("added in t.1 = SumReduceLike"), std::string::npos);
  EXPECT_EQ(After("add_in_place", text("region ")), text("region "));
}

TEST(AddInPlace, WhatIsKeptIsKept) {
  EXPECT_EQ(After("add_in_place", Step(kTerms + "  s.1: float [2, 2] kept = Add(t.1, p.1) @2 {}\n")),
            Step(StrCat(kGiven,
                        "  t.1: float [2, 2] kept = Tanh(x) @0 {}\n"
                        "  s.1: float [2, 2] added in t.1 = MatMul(w, v) @1 {}\n"
                        "  at the end: no t\n")));
}

TEST(AddInPlace, ASumMayLieWhereATermWas) {
  // Over the later term, which is then nowhere; and over the first one.
  for (const auto& [home, other] : {std::pair("p", "t"), std::pair("t", "p")}) {
    std::string given = kTerms;
    const std::string mark = StrCat("  ", home, ".1: float [2, 2]");
    given.insert(given.find(mark) + mark.size(), " kept");
    EXPECT_EQ(After("add_in_place", Step(StrCat(given, "  s.1: float [2, 2] in ", home, ".1 = Sum(", home, ".1, ",
                                                other, ".1) @2 {}\n", "  u.1: float [2, 2] = Tanh(s.1) @3 {}\n"))),
              Step(StrCat(kGiven,
                          "  t.1: float [2, 2] kept = Tanh(x) @0 {}\n"
                          "  s.1: float [2, 2] added in t.1 = MatMul(w, v) @1 {}\n"
                          "  u.1: float [2, 2] = Tanh(s.1) @3 {}\n"
                          "  at the end: no t\n")));
  }
}

TEST(AddInPlace, WhatMayRunForManyStepsAtOnceDoesNotComeIntoTheLoop) {
  const auto step = [](const std::string& sum, const char* end) {
    return Step(StrCat("  x_t: float [2, 2] at 0[16 * t]\n  h: float [2, 2] at 1[16 * t]\n  w: float [2, 2] at 2\n",
                       "  r.1: float [2, 2] = Tanh(h) @0 {}\n", sum,
                       "  h.1: float [2, 2] at 1[16 * (t + 1)] = Relu(s.1) @3 {}\n", end));
  };
  const auto sum_of = [](const char* read) {
    return StrCat("  p.1: float [2, 2] = FC(", read, ", w) @1 {}\n  s.1: float [2, 2] = Sum(p.1, r.1) @2 {}\n");
  };
  EXPECT_EQ(After("add_in_place", step(sum_of("x_t"), "")), step(sum_of("x_t"), ""));
  EXPECT_EQ(After("add_in_place", step(sum_of("h"), "")),
            step("  s.1: float [2, 2] added in r.1 = FC(h, w) @1 {}\n", "  at the end: no r\n"))
      << "it is in the loop";
}

TEST(AddInPlace, WhatMayRunForManyStepsAtOnceComesFirst) {
  const auto step = [](const std::string& sum, const char* end) {
    return Step(StrCat("  x_t: float [2, 2] at 0[16 * t]\n  h: float [2, 2] at 1[16 * t]\n  w: float [2, 2] at 2\n",
                       "  u: float [2, 2] at 3\n", sum, "  h.1: float [2, 2] at 1[16 * (t + 1)] = Relu(s.1) @3 {}\n",
                       end));
  };
  const std::string of_h = "  q.1: float [2, 2] = FC(h, u) @0 {}\n", of_x = "  p.1: float [2, 2] = FC(x_t, w) @1 {}\n";
  const std::string sum = "  s.1: float [2, 2] = Add(q.1, p.1) @2 {}\n";
  EXPECT_EQ(After("add_in_place", step(of_h + of_x + sum, "")),
            step(of_x + "  s.1: float [2, 2] added in p.1 = FC(h, u) @0 {}\n", "  at the end: no p\n"));
  // It reads what is not there before the other one, or is written again.
  const std::string behind = "  y.1: float [2, 2] = Tanh(x_t) @4 {}\n  p.1: float [2, 2] = FC(y.1, w) @1 {}\n";
  EXPECT_EQ(After("add_in_place", step(of_h + behind + sum, "")), step(of_h + behind + sum, ""));
  const std::string again = "  x_t.1: float [2, 2] at 0[16 * t] = Tanh(x_t) @4 {}\n";
  const std::string of_old = "  p.1: float [2, 2] = FC(x_t, w) @1 {}\n";
  EXPECT_EQ(After("add_in_place", step(of_h + of_old + again + sum, "")), step(of_h + of_old + again + sum, ""));
}

TEST(AddInPlace, AGradientOfSeveralTermsComesFirstOnce) {
  const auto step = [](const std::string& gradients, const char* end) {
    return Step(StrCat("  x_t: float [2, 3] at 0[24 * t]\n  h: float [2, 3] at 1[24 * t]\n  w: float [2, 3] at 2\n",
                       "  dy_t: float [2, 2] at 3[16 * t]\n", gradients,
                       "  h.1: float [2, 3] at 1[24 * (t + 1)] = Relu(r.1) @4 {}\n"
                       "  v.1: float [2] at 4[8 * (t + 1)] = Relu(s.1) @5 {}\n",
                       end));
  };
  const std::string of_h = "  dw.1: float [2, 3], db.1: float [2] = FCGradient(h, w, dy_t) @0 {}\n";
  const std::string of_x = "  dv.1: float [2, 3], dc.1: float [2] = FCGradient(x_t, w, dy_t) @1 {}\n";
  const std::string sums =
      "  r.1: float [2, 3] = Sum(dw.1, dv.1) @2 {}\n"
      "  s.1: float [2] = Sum(db.1, dc.1) @3 {}\n";
  EXPECT_EQ(
      After("add_in_place", step(of_h + of_x + sums, "")),
      step(of_x + "  r.1: float [2, 3] added in dv.1, s.1: float [2] added in dc.1 = FCGradient(h, w, dy_t) @0 {}\n",
           "  at the end: no dc, no dv\n"));
}

TEST(AddInPlace, ProductsThatBecomeOneStayApart) {
  const std::string given =
      "  x_t: float [2, 2] at 0[16 * t]\n  h: float [2, 2] at 1[16 * t]\n"
      "  w: float [2, 2] at 2\n  u: float [2, 2] at 3\n  v: float [2, 2] at 4\n";
  const std::string first = "  p.1: float [2, 2] = product x_t [2, 2] * w [2, 2]^T by FC(x_t, w) @0 {}\n";
  const std::string sum =
      "  q.1: float [2, 2] = product h [2, 2] * u [2, 2]^T by FC(h, u) @1 {}\n"
      "  s.1: float [2, 2] = Sum(p.1, q.1) @2 {}\n";
  const std::string added = "  s.1: float [2, 2] added in p.1 = product h [2, 2] * u [2, 2]^T by FC(h, u) @1 {}\n";
  EXPECT_EQ(After("add_in_place", Step(given + first + sum)), Step(given + first + added + "  at the end: no p\n"))
      << "one of each value";
  // Another product of h, which is added to none of x_t.
  const std::string other =
      "  r.1: float [2, 2] = product h [2, 2] * v [2, 2]^T by FC(h, v) @3 {}\n"
      "  y.1: float [2, 2] at 5[16 * t] = Mul(s.1, r.1) @4 {}\n";
  EXPECT_EQ(After("add_in_place", Step(given + first + sum + other)), Step(given + first + sum + other));
  // One that is added to another of x_t: the sums become one.
  const std::string alike = "  z.1: float [2, 2] = product x_t [2, 2] * v [2, 2]^T by FC(x_t, v) @3 {}\n";
  EXPECT_EQ(After("add_in_place", Step(given + first + sum + alike +
                                       "  r.1: float [2, 2] = product h [2, 2] * v [2, 2]^T by FC(h, v) @4 {}\n"
                                       "  o.1: float [2, 2] = Sum(z.1, r.1) @5 {}\n")),
            Step(given + first + added + alike +
                 "  o.1: float [2, 2] added in z.1 = product h [2, 2] * v [2, 2]^T by FC(h, v) @4 {}\n"
                 "  at the end: no p, no z\n"));
}

TEST(AddInPlace, LeavesOtherSumsAlone) {
  const std::string x = kGiven;
  for (const std::string& lines : std::vector<std::string>{
           // The later one cannot add.
           x + "  p.1: float [2, 2] = MatMul(w, v) @0 {}\n  t.1: float [2, 2] = Tanh(x) @1 {}\n" +
               "  s.1: float [2, 2] = Add(t.1, p.1) @2 {}\n",
           // Something else reads a term.
           kTerms + ("  s.1: float [2, 2] = Add(t.1, p.1) @2 {}\n  u.1: float [2, 2] = Tanh(t.1) @3 {}\n"),
           kTerms + ("  s.1: float [2, 2] = Add(t.1, p.1) @2 {}\n  u.1: float [2, 2] = Tanh(p.1) @3 {}\n"),
           // One operator gives both.
           "  x: float [2, 3] at 0\n  w: float [2, 3] at 1\n  dy: float [2, 2] at 2\n"
           "  dw.1: float [2, 3], db.1: float [2], dx.1: float [2, 3] = FCGradient(x, w, dy) @0 {}\n"
           "  s.1: float [2, 3] = Add(dx.1, dw.1) @1 {}\n  t.1: float [2] = Tanh(db.1) @2 {}\n",
           // A term was there before the step.
           x + "  p.1: float [2, 2] = MatMul(w, v) @0 {}\n  s.1: float [2, 2] = Add(x, p.1) @1 {}\n",
           // It is no sum, or is not a temporary.
           kTerms + ("  s.1: float [2, 2] = Mul(t.1, p.1) @2 {}\n"),
           kTerms + ("  s.1: float [2, 2] at 3 = Add(t.1, p.1) @2 {}\n"),
           // Where it lies something else follows.
           kTerms + ("  s.1: float [2, 2] in p.1 = Add(t.1, p.1) @2 {}\n"
                     "  s.2: float [2, 2] in p.1 = Mul(s.1, x) @3 {}\n"),
           // A term is repeated.
           "  w: float [2, 3] at 0\n  v: float [3, 2] at 1\n  x: float [2] at 2\n  t.1: float [2] = Tanh(x) @0 {}\n"
           "  p.1: float [2, 2] = MatMul(w, v) @1 {}\n  s.1: float [2, 2] = Add(t.1, p.1) @2 {}\n",
       }) {
    EXPECT_EQ(After("add_in_place", Step(lines)), Step(lines));
  }
}

TEST(AddInPlace, RowsOfASequenceAreCopiedWhereTheSumIs) {
  const std::string given =
      "  w: float [2, 3] at 0\n"
      "  v: float [3, 2] at 1\n"
      "  x_t: float [2, 2] at 2[16 * t] lent\n";
  const std::string product = "  p.1: float [2, 2] = MatMul(w, v) @0 {}\n";
  for (const char* sum : {"Add(x_t, p.1)", "Sum(p.1, x_t)"}) {
    const std::string before = Step(
        StrCat(given, product, "  s.1: float [2, 2] = ", sum, " @1 {}\n", "  ^y: float [2, 2] at 3[16 * t] = s.1\n"));
    EXPECT_EQ(After("add_in_place", before, &kCallsCostMore),
              Step(given + "  x_t.1: float [2, 2] = x_t\n"
                           "  s.1: float [2, 2] added in x_t.1 = MatMul(w, v) @0 {}\n"
                           "  ^y: float [2, 2] at 3[16 * t] = s.1\n"
                           "  at the end: x_t\n"));
    EXPECT_EQ(After("add_in_place", before), before) << "elsewhere the sum reads them";
  }
  for (const std::string& lines : std::vector<std::string>{
           // The same in all steps, written by steps, of another shape.
           "  w: float [2, 3] at 0\n  v: float [3, 2] at 1\n  x: float [2, 2] at 2\n" + product +
               "  s.1: float [2, 2] = Add(x, p.1) @1 {}\n",
           given + product +
               "  s.1: float [2, 2] = Add(x_t, p.1) @1 {}\n  ^y: float [2, 2] at 2[16 * (t + 1)] lent = s.1\n",
           "  w: float [2, 3] at 0\n  v: float [3, 2] at 1\n  x_t: float [2] at 2[8 * t]\n" + product +
               "  s.1: float [2, 2] = Add(p.1, x_t) @1 {}\n",
       }) {
    EXPECT_EQ(After("add_in_place", Step(lines), &kCallsCostMore), Step(lines));
  }
}

}  // namespace
}  // namespace stepnet

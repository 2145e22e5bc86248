#include "pass_case.h"
#include "stepnet/compiler/regions_apart.h"
#include "stepnet/core/cancellation.h"
#include "stepnet/core/strings.h"
#include "stepnet/tests/core/error_of.h"

namespace stepnet {
namespace {

constexpr char kInputs[] =
    "  x: float [1, 4] at 0[16 * t]\n"
    "  h_prev: float [1, 4] at 1[16 * t]\n";

std::string After(const std::string& before) { return stepnet::After("fuse_regions", before); }
void ExpectUnchanged(const std::string& text) { EXPECT_EQ(After(text), text); }
std::string Loop(const std::string& lines) { return Step(kInputs + lines); }

TEST(FuseRegions, WhatReadsARegionIsPartOfIt) {
  EXPECT_EQ(After(Loop("  a.1: float [1, 4] = region Gelu(x) @0 {}\n"
                       "  h.1: float [1, 4] at 1[16 * (t + 1)] = region test.Add(a.1, h_prev) @1 {}\n")),
            Loop("  region {\n"
                 "    a.1: float [1, 4] local = Gelu(x) @0 {}\n"
                 "    h.1: float [1, 4] at 1[16 * (t + 1)] = test.Add(a.1, h_prev) @1 {}\n"
                 "  }\n"));
}

TEST(FuseRegions, WhatGivesAnotherShapeIsPartOfIt) {
  const std::string dims = "{arg { name: \"dims\" ints: 0 }}\n";
  EXPECT_EQ(After(Loop("  a.1: float [4] = region Squeeze(x) @0 " + dims +
                       "  b.1: float [4] = region Gelu(a.1) @1 {}\n"
                       "  h.1: float [1, 4] at 1[16 * (t + 1)] = region ExpandDims(b.1) @2 " +
                       dims)),
            Loop("  region {\n"
                 "    a.1: float [4] local = Squeeze(x) @0 " +
                 dims +
                 "    b.1: float [4] local = Gelu(a.1) @1 {}\n"
                 "    h.1: float [1, 4] at 1[16 * (t + 1)] = ExpandDims(b.1) @2 " +
                 dims + "  }\n"));
}

TEST(FuseRegions, ACopyIsPartOfIt) {
  for (const char* copy : {"Copy", "Alias", "StopGradient"}) {
    const auto call = [&](const std::string& where, const std::string& kind) {
      return StrCat("    b.1: float [1, 4] ", where, "= ", kind, copy, "(a.1) @1 {}\n");
    };
    EXPECT_EQ(After(Loop(StrCat("  a.1: float [1, 4] = region Gelu(x) @0 {}\n", call("", "region ").substr(2),
                                "  h.1: float [1, 4] at 1[16 * (t + 1)] = region test.Add(b.1, h_prev) @2 {}\n"))),
              Loop(StrCat("  region {\n    a.1: float [1, 4] local = Gelu(x) @0 {}\n", call("local ", ""),
                          "    h.1: float [1, 4] at 1[16 * (t + 1)] = test.Add(b.1, h_prev) @2 {}\n  }\n")));
  }
}

// Averages over the last dimension are those of rows.
TEST(FuseRegions, AnRmsNormIsOneRegion) {
  const std::string axes = "{arg { name: \"axes\" ints: -1 }}\n";
  EXPECT_EQ(After(Loop("  q.1: float [1, 4] = region Sqr(x) @0 {}\n"
                       "  m.1: float [1, 1] = region ReduceMean(q.1) @1 " +
                       axes +
                       "  r.1: float [1, 1] = region Rsqrt(m.1) @2 {}\n"
                       "  h.1: float [1, 4] at 1[16 * (t + 1)] = region Mul(x, r.1) @3 {}\n")),
            Loop("  region {\n"
                 "    q.1: float [1, 4] local = Sqr(x) @0 {}\n"
                 "    m.1: float [1, 1] local = ReduceMean(q.1) @1 " +
                 axes +
                 "    r.1: float [1, 1] local = Rsqrt(m.1) @2 {}\n"
                 "    h.1: float [1, 4] at 1[16 * (t + 1)] = Mul(x, r.1) @3 {}\n"
                 "  }\n"));
}

// Sums within rows are: what a sum over rows gives is read behind the region. They are calls where they stand alone;
// other devices add up rows one by one.
TEST(FuseRegions, SumsWithinRowsArePartOfIt) {
  const std::string given =
      "  m: float [1, 2, 3, 4] at 0[96 * t]\n"
      "  n: float [1, 2, 3, 4] at 1[96 * t]\n"
      "  row: float [1, 2, 1, 4] at 2\n"
      "  one: float [1, 2, 1, 1] at 3\n";
  const auto lines = [](const char* before, const char* p, const char* kind, const char* of_region) {
    return StrCat(before, "p.1: float [1, 2, 3, 4] ", p, "= ", kind, "Mul(m, n) @0 {}\n", before,
                  "s.1: float [1, 2, 1, 4] kept = SumReduceLike(p.1, row) @1 {}\n", before,
                  "u.1: float [1, 2, 1, 1] kept = SumReduceLike(p.1, one) @2 {}\n", of_region,
                  "  v.1: float [1, 2, 1, 4] kept = region Tanh(s.1) @3 {}\n");
  };
  const std::string before = Step(given + lines("  ", "", "region ", ""));
  EXPECT_EQ(After(before), Step(StrCat(given, "  region {\n", lines("    ", "local ", "", "  }\n"))));
  StepGraph of_device = ParseGraph(before);
  Target other = kCpuTarget;
  other.device = DeviceKind::kCuda;
  of_device.target = &other;
  EXPECT_EQ(RegionsApart(of_device, 0, static_cast<int>(of_device.nodes.size())).Why(0, 1),
            "SumReduceLike stays apart: it adds up over rows, which is known when all are done");
}

TEST(FuseRegions, WhatItWaitsForIsPartOfItToo) {
  EXPECT_EQ(After(Loop("  a.1: float [1, 4] = region Gelu(x) @0 {}\n"
                       "  b.1: float [1, 4] = region Erf(h_prev) @1 {}\n"
                       "  c.1: float [1, 4] kept = region test.Mul(a.1, b.1) @2 {}\n")),
            Loop("  region {\n"
                 "    a.1: float [1, 4] local = Gelu(x) @0 {}\n"
                 "    b.1: float [1, 4] local = Erf(h_prev) @1 {}\n"
                 "    c.1: float [1, 4] kept = test.Mul(a.1, b.1) @2 {}\n"
                 "  }\n"));
}

TEST(FuseRegions, WhatStandsBetweenThemIsPutInFront) {
  const auto text = [](const std::string& first, const std::string& last) {
    return Step(StrCat(kInputs, "  w: float [4, 4] at 2\n", first, "  p.1: float [1, 4] = FC(x, w) @1 {}\n", last));
  };
  EXPECT_EQ(After(text("  a.1: float [1, 4] = region Gelu(h_prev) @0 {}\n",
                       "  b.1: float [1, 4] kept = region test.Add(a.1, p.1) @2 {}\n")),
            text("",
                 "  region {\n"
                 "    a.1: float [1, 4] local = Gelu(h_prev) @0 {}\n"
                 "    b.1: float [1, 4] kept = test.Add(a.1, p.1) @2 {}\n"
                 "  }\n"));
}

// b waits for the product, and that for a.
TEST(FuseRegions, NothingIsJoinedAroundWhatStandsBetween) {
  ExpectUnchanged(Step(StrCat(kInputs, "  w: float [4, 4] at 2\n",
                              "  a.1: float [1, 4] = region Gelu(h_prev) @0 {}\n"
                              "  p.1: float [1, 4] = FC(a.1, w) @1 {}\n"
                              "  b.1: float [1, 4] kept = region test.Add(a.1, p.1) @2 {}\n")));
}

TEST(FuseRegions, WhatHasNothingToDoWithEachOtherStaysApart) {
  ExpectUnchanged(
      Loop("  a.1: float [1, 4] kept = region Gelu(x) @0 {}\n"
           "  b.1: float [1, 4] kept = region Erf(x) @1 {}\n"));
}

// Both read x over as many elements, and a product waits for both.
TEST(FuseRegions, WhatReadsTheSameAndIsWaitedForTogetherBecomesOne) {
  const std::string w = "  w: float [4, 4] at 2\n", a = "a.1: float [1, 4] kept = ", b = "b.1: float [1, 4] kept = ";
  const auto product = [](const std::string& of, const std::string& name, int op) {
    return StrCat("  ", name, ".1: float [1, 4] kept = product ", of, ".1 [1, 4] * w [4, 4]^T by FC(", of, ".1, w) @",
                  op, " {}\n");
  };
  const std::string p = product("a", "p", 2) + product("b", "q", 3);
  ExpectUnchanged(Step(StrCat(kInputs, w, "  ", a, "region Gelu(x) @0 {}\n  ", b, "region Erf(x) @1 {}\n", p)));
  const std::string r = StrCat(p, "  r.1: float [1, 4] kept = region test.Add(p.1, q.1) @4 {}\n");
  EXPECT_EQ(After(Step(StrCat(kInputs, w, "  ", a, "region Gelu(x) @0 {}\n  ", b, "region Erf(x) @1 {}\n", r))),
            Step(StrCat(kInputs, w, "  region {\n    ", a, "Gelu(x) @0 {}\n    ", b, "Erf(x) @1 {}\n  }\n", r)));
}

// b is wanted by nothing but what the product gives: it is put behind the product, where that is read.
TEST(FuseRegions, WhatIsWantedLaterWaitsForWhatReadsIt) {
  const std::string w = "  w: float [4, 4] at 2\n", p = "  p.1: float [1, 4] = FC(a.1, w) @2 {}\n";
  const std::string before = Step(StrCat(kInputs, w,
                                         "  b.1: float [1, 4] = region Erf(h_prev) @0 {}\n"
                                         "  a.1: float [1, 4] = region Gelu(x) @1 {}\n",
                                         p, "  c.1: float [1, 4] kept = region test.Add(b.1, p.1) @3 {}\n"));
  EXPECT_EQ(After(before), Step(StrCat(kInputs, w, "  a.1: float [1, 4] = region Gelu(x) @1 {}\n", p,
                                       "  region {\n"
                                       "    b.1: float [1, 4] local = Erf(h_prev) @0 {}\n"
                                       "    c.1: float [1, 4] kept = test.Add(b.1, p.1) @3 {}\n"
                                       "  }\n")));
}

// What writes memory that another node reads keeps its place behind it: y is at the row of h_prev.
TEST(FuseRegions, BytesKeepTheirOrder) {
  const auto text = [](const std::string& more) {
    return Step(StrCat(kInputs, "  w: float [4, 4] at 2\n  a.1: float [1, 4] = region Gelu(x) @0 {}\n", more));
  };
  const std::string before = text(
      "  p.1: float [1, 4] kept = FC(h_prev, w) @1 {}\n"
      "  h_prev.1: float [1, 4] at 1[16 * t] = region test.Add(a.1, x) @2 {}\n"
      "  q.1: float [1, 4] kept = FC(h_prev.1, w) @3 {}\n");
  const std::string after = Step(StrCat(kInputs,
                                        "  w: float [4, 4] at 2\n"
                                        "  p.1: float [1, 4] kept = FC(h_prev, w) @1 {}\n"
                                        "  region {\n"
                                        "    a.1: float [1, 4] local = Gelu(x) @0 {}\n"
                                        "    h_prev.1: float [1, 4] at 1[16 * t] = test.Add(a.1, x) @2 {}\n"
                                        "  }\n"
                                        "  q.1: float [1, 4] kept = FC(h_prev.1, w) @3 {}\n"));
  EXPECT_EQ(After(before), after);
}

// again is another name of the row that h is written to.
TEST(FuseRegions, WhatReadsBytesUnderAnotherNameStaysApart) {
  ExpectUnchanged(
      Loop("  again: float [1, 4] at 1[16 * (t + 1)]\n"
           "  h.1: float [1, 4] at 1[16 * (t + 1)] = region Gelu(x) @0 {}\n"
           "  e.1: float [1, 4] kept = region test.Add(h.1, again) @1 {}\n"));
}

TEST(FuseRegions, WhatComputesNothingStaysApart) {
  ExpectUnchanged(
      Step("  e: float [0, 4] at 0[0 * t]\n"
           "  a.1: float [0, 4] = region Gelu(e) @0 {}\n"
           "  b.1: float [0, 4] kept = region Erf(a.1) @1 {}\n"));
}

// What is kept of x has 4 elements, the rest has 8.
TEST(FuseRegions, WhatCannotBeOneProgramStaysApart) {
  EXPECT_EQ(After(Loop("  m: float [2, 4] at 2[32 * t]\n"
                       "  a.1: float [2, 4] = region test.Softmax(m) @0 {}\n"
                       "  s.1: float [1, 4] kept = region Gelu(x) @1 {}\n"
                       "  b.1: float [2, 4] kept = region Add(a.1, s.1) @2 {}\n")),
            Loop("  m: float [2, 4] at 2[32 * t]\n"
                 "  s.1: float [1, 4] kept = region Gelu(x) @1 {}\n"
                 "  region {\n"
                 "    a.1: float [2, 4] local = test.Softmax(m) @0 {}\n"
                 "    b.1: float [2, 4] kept = Add(a.1, s.1) @2 {}\n"
                 "  }\n"));
}

// Beside rows of 8 elements a vector that all of them share.
std::string Rows(int rows, const std::string& lines) {
  return Step(StrCat("  x: float [", rows, ", 8] at 0[", 32 * rows, " * t]\n  v: float [8] at 1\n", lines));
}

// a has 8 elements, y 512, of which each row would compute it again.
TEST(FuseRegions, WhatManyRowsShareIsComputedOnce) {
  EXPECT_EQ(After(Rows(64,
                       "  g.1: float [64, 8] = region Gelu(x) @0 {}\n"
                       "  a.1: float [8] = region Gelu(v) @1 {}\n"
                       "  b.1: float [8] = region Erf(a.1) @2 {}\n"
                       "  y.1: float [64, 8] kept = region Mul(g.1, b.1) @3 {}\n")),
            Rows(64,
                 "  region {\n"
                 "    a.1: float [8] local = Gelu(v) @1 {}\n"
                 "    b.1: float [8] = Erf(a.1) @2 {}\n"
                 "  }\n"
                 "  region {\n"
                 "    g.1: float [64, 8] local = Gelu(x) @0 {}\n"
                 "    y.1: float [64, 8] kept = Mul(g.1, b.1) @3 {}\n"
                 "  }\n"));
}

TEST(FuseRegions, WhatFewRowsShareIsComputedInEach) {
  EXPECT_EQ(After(Rows(4,
                       "  a.1: float [8] = region Erf(v) @0 {}\n"
                       "  y.1: float [4, 8] kept = region Mul(x, a.1) @1 {}\n")),
            Rows(4,
                 "  region {\n"
                 "    a.1: float [8] local = Erf(v) @0 {}\n"
                 "    y.1: float [4, 8] kept = Mul(x, a.1) @1 {}\n"
                 "  }\n"));
}

// Softmax reads whole rows: of 16 columns, then of 8, so that no operator of one length can be beside one of the other.
TEST(FuseRegions, OperatorsOverTheSameElementsStayTogetherWhereTwoNumbersMeet) {
  const auto step = [](bool is_fused) {
    const auto line = [&](const char* value, bool is_local, const char* call) {
      return StrCat(is_fused ? "    " : "  ", value, is_fused && is_local ? " local" : "",
                    is_fused ? " = " : " = region ", call, "\n");
    };
    const std::string open = is_fused ? "  region {\n" : "", close = is_fused ? "  }\n" : "";
    const std::string halves =
        is_fused ? "p.1: float [3, 8] local, q.1: float [3, 8]" : "p.1: float [3, 8], q.1: float [3, 8]";
    return Step(
        StrCat("  x: float [3, 16] at 0[192 * t]\n", open, line("a.1: float [3, 16]", true, "Softmax(x) @0 {}"),
               line("b.1: float [3, 16]", true, "Erf(a.1) @1 {}"), line("c.1: float [3, 16]", true, "Gelu(b.1) @2 {}"),
               line("d.1: float [3, 16]", false, "Mul(c.1, x) @3 {}"), close, open,
               line(halves.c_str(), true, "Split(d.1) @4 {arg { name: \"axis\" i: 1 }}"),
               line("e.1: float [3, 8]", true, "Softmax(p.1) @5 {}"), line("f.1: float [3, 8]", true, "Erf(e.1) @6 {}"),
               line("g.1: float [3, 8]", true, "Softmax(q.1) @7 {}"),
               line("h.1: float [3, 8] kept", false, "Mul(f.1, g.1) @8 {}"), close));
  };
  EXPECT_EQ(After(step(false)), step(true));
}

// No two of these can be one region beyond the halves of a: Softmax reads whole rows.
TEST(FuseRegions, WhereManyCannotBeOneSomeAre) {
  constexpr int kTimes = 12;
  std::string lines = "  a0: float [3, 16] at 0[192 * t]\n";
  int op = 0;
  const auto add = [&](const std::string& line) { lines += StrCat("  ", line, " @", op++); };
  for (int i = 0; i < kTimes; ++i) {
    const std::string a = StrCat("a", i, i == 0 ? "" : ".1");
    const auto half = [&](const char* name, const char* starts, const char* ends) {
      add(StrCat(name, i, ".1: float [3, 8] = region Slice(", a, ")"));
      lines += StrCat(" {arg { name: \"starts\" ints: 0 ints: ", starts,
                      " } arg { name: \"ends\" ints: -1 ints: ", ends, " }}\n");
    };
    half("p", "8", "-1");
    half("q", "0", "8");
    add(StrCat("c", i, ".1: float [3, 16], n", i, ".1: int32 [2] = region Concat(p", i, ".1, q", i, ".1)"));
    lines += " {arg { name: \"axis\" i: 1 }}\n";
    add(StrCat("a", i + 1, ".1: float [3, 16] = region Softmax(c", i, ".1)"));
    lines += " {}\n";
  }
  const std::string after = After(Step(lines + StrCat("  ^y: float [3, 16] at 1[192 * t] = a", kTimes, ".1\n")));
  int regions = 0;
  for (size_t at = after.find("region {"); at != std::string::npos; at = after.find("region {", at + 1)) ++regions;
  EXPECT_GE(regions, kTimes) << after;
}

// A device for which regions are small.
TEST(FuseRegions, ARegionHasAsManyOperatorsAndOperandsAsItsTargetAllows) {
  const auto after = [](const Target& target) {
    StepGraph graph =
        ParseGraph(Loop("  a.1: float [1, 4] = region Gelu(x) @0 {}\n"
                        "  b.1: float [1, 4] = region Erf(a.1) @1 {}\n"
                        "  h.1: float [1, 4] at 1[16 * (t + 1)] = region test.Add(b.1, h_prev) @2 {}\n"));
    graph.target = &target;
    RunPass("fuse_regions", &graph);
    VerifyGraph(graph, "fuse_regions");
    return GraphText(graph);
  };
  const std::string two = Loop(
      "  region {\n"
      "    a.1: float [1, 4] local = Gelu(x) @0 {}\n"
      "    b.1: float [1, 4] = Erf(a.1) @1 {}\n"
      "  }\n"
      "  h.1: float [1, 4] at 1[16 * (t + 1)] = region test.Add(b.1, h_prev) @2 {}\n");
  static constexpr Target kTwoOperators = {.max_region_operators = 2};
  EXPECT_EQ(after(kTwoOperators), two);
  static constexpr Target kTwoOperands = {.max_region_operands = 2};
  EXPECT_EQ(after(kTwoOperands), two) << "the sum has three";
}

TEST(FuseRegions, OnlyLoopsAreLookedAt) {
  ExpectUnchanged(
      Loop("  for 16 steps at once:\n"
           "  a.1: float [1, 4] kept = region Gelu(x) @0 {}\n"
           "  b.1: float [1, 4] kept = region Erf(a.1) @1 {}\n"));
}

TEST(FuseRegions, WhatIsAddedToStaysInMemory) {
  const auto text = [](const std::string& regions) {
    return Step(StrCat("  w: float [2, 3] at 0\n  v: float [3, 2] at 1\n  x: float [2, 2] at 2\n", regions,
                       "  s.1: float [2, 2] added in t.1 = MatMul(w, v) @2 {}\n  ^y: float [2, 2] at 3 = s.1\n"));
  };
  EXPECT_EQ(After(text("  a.1: float [2, 2] = region Gelu(x) @0 {}\n"
                       "  t.1: float [2, 2] = region Erf(a.1) @1 {}\n")),
            text("  region {\n"
                 "    a.1: float [2, 2] local = Gelu(x) @0 {}\n"
                 "    t.1: float [2, 2] = Erf(a.1) @1 {}\n"
                 "  }\n"));
}

// Sums of memory outside are added by operators alone.
TEST(FuseRegions, WhatAddsStaysAlone) {
  ExpectUnchanged(
      Loop("  a.1: float [1, 4] = region Gelu(x) @0 {}\n"
           "  ^s: float [1, 4] added at 2 = a.1\n"));
}

// The same operator, of floats and of whole numbers, which may be divided by zero.
TEST(FuseRegions, WhatChecksNothingForTheseDtypesIsPartOfIt) {
  const auto text = [](const std::string& dtype, const std::string& lines) {
    return Step(StrCat("  n: ", dtype, " [1, 4] at 0[16 * t]\n", lines));
  };
  EXPECT_EQ(After(text("float",
                       "  a.1: float [1, 4] = region Div(n, n) @0 {}\n"
                       "  b.1: float [1, 4] kept = region Mul(a.1, n) @1 {}\n")),
            text("float",
                 "  region {\n"
                 "    a.1: float [1, 4] local = Div(n, n) @0 {}\n"
                 "    b.1: float [1, 4] kept = Mul(a.1, n) @1 {}\n"
                 "  }\n"));
  ExpectUnchanged(text("int32",
                       "  a.1: int32 [1, 4] = region Div(n, n) @0 {}\n"
                       "  b.1: int32 [1, 4] kept = region Mul(a.1, n) @1 {}\n"));
}

TEST(FuseRegions, StopsWhenItIsAskedTo) {
  StepGraph graph =
      ParseGraph(Loop("  a.1: float [1, 4] = region Gelu(x) @0 {}\n"
                      "  h.1: float [1, 4] at 1[16 * (t + 1)] = region test.Add(a.1, h_prev) @1 {}\n"));
  Cancellation cancellation;
  cancellation.Cancel();
  const CancellationScope scope(&cancellation);
  EXPECT_EQ(ErrorOf([&] { RunPass("fuse_regions", &graph); }), "cancelled: the run was cancelled");
}

std::string WhyApart(const std::string& lines, int giver, int reader, const Target* target = &kCpuTarget) {
  StepGraph graph = ParseGraph(Loop(lines));
  graph.target = target;
  return RegionsApart(graph, 0, static_cast<int>(graph.nodes.size())).Why(giver, reader);
}

TEST(RegionsApart, SayWhatLiesBetween) {
  const std::string lines =
      "  w: float [4, 4] at 2\n"
      "  a.1: float [1, 4] = region Gelu(x) @0 {}\n"
      "  p.1: float [1, 4] = product a.1 [1, 4] * w [4, 4]^T by FC(a.1, w) @1 {}\n"
      "  b.1: float [1, 4] kept = region test.Add(a.1, p.1) @2 {}\n";
  EXPECT_EQ(WhyApart(lines, 0, 2), "product 1, which waits for 0, lies between them");
  EXPECT_EQ(WhyApart(lines, 0, 1), "products are not fused with other operators");
}

TEST(RegionsApart, SayThatWhatIsKeptHasOtherRows) {
  const std::string lines =
      "  g: float [1, 7] at 2\n"
      "  a.1: float [1, 7]KEPT = region Gelu(g) @0 {}\n"
      "  b.1: float [1, 4] kept = region Slice(a.1) @1 {arg { name: \"starts\" ints: 0 ints: 0 } "
      "arg { name: \"ends\" ints: -1 ints: 4 }}\n";
  const auto with = [&](const std::string& kept) {
    std::string text = lines;
    return text.replace(text.find("KEPT"), 4, kept);
  };
  const std::string why = WhyApart(with(" kept"), 0, 1);
  EXPECT_TRUE(why.starts_with("a is needed in memory, too, and Slice: ")) << why;
  EXPECT_EQ(WhyApart(with(""), 0, 1), "the two could be, but what is near them had to be cut into small regions");
}

TEST(RegionsApart, SayWhatElseIsNear) {
  const std::string lines =
      "  y: float [3, 16] at 2[192 * t]\n"
      "  a.1: float [3, 16] = region Gelu(y) @0 {}\n"
      "  p.1: float [3, 8] kept, q.1: float [3, 8] kept = region Split(a.1) @1 {arg { name: \"axis\" i: 1 }}\n"
      "  s.1: float [3, 16] kept = region Softmax(a.1) @2 {}\n";
  EXPECT_EQ(WhyApart(lines, 0, 2),
            "the two could be, but a region is made of all that is near, and with 1, which reads 0, too: Split: a part "
            "over [1, 1, 3, 8] in a region over [3, 16]");
}

TEST(RegionsApart, SayThatTheyAreTooMany) {
  const std::string lines =
      "  a.1: float [1, 4] = region Gelu(x) @0 {}\n"
      "  b.1: float [1, 4] kept = region test.Add(a.1, h_prev) @1 {}\n";
  Target target = kCpuTarget;
  target.max_region_operators = 1;
  EXPECT_EQ(WhyApart(lines, 0, 1, &target), "they have 2 operators, and a region at most 1");
  target.max_region_operands = 2;
  EXPECT_EQ(WhyApart(lines, 0, 1, &target), "test.Add stays apart: it has more operands than a region may have");
}

}  // namespace
}  // namespace stepnet

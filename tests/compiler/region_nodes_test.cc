// Regions of several operators, as texts.
#include "stepnet/compiler/region_nodes.h"

#include <array>

#include "stepnet/tests/compiler/passes/pass_case.h"
#include "stepnet/tests/operators/op_test.h"

namespace stepnet {
namespace {

constexpr char kInputs[] =
    "  x: float [1, 4] at 0[16 * t]\n"
    "  h_prev: float [1, 4] at 1[16 * t]\n";

// The graph with nodes [begin, end) as one region.
std::string Formed(const std::string& before, int begin, int end) {
  StepGraph graph = ParseGraph(before);
  VerifyGraph(graph, "parse");
  FormRegions(std::array{NodeRange{begin, end}}, &graph);
  VerifyGraph(graph, "form_region");
  const std::string text = GraphText(graph);
  EXPECT_EQ(GraphText(ParseGraph(text)), text);
  VerifyGraph(ParseGraph(text), "parse");
  return text;
}

TEST(FormRegions, WhatOnlyTheRegionReadsIsInNoMemory) {
  const std::string after = "  z.1: float [1, 4] = region Gelu(c.1) @4 {}\n";
  EXPECT_EQ(Formed(Step(std::string(kInputs) +
                        "  a.1: float [1, 4] = region Gelu(x) @0 {}\n"
                        "  b.1: float [1, 4] = region test.Add(a.1, h_prev) @1 {}\n"
                        "  c.1: float [1, 4] = region test.Add(a.1, b.1) @2 {}\n"
                        "  h.1: float [1, 4] at 1[16 * (t + 1)] = region Erf(c.1) @3 {}\n" +
                        after),
                   0, 4),
            Step(std::string(kInputs) +
                 "  region {\n"
                 "    a.1: float [1, 4] local = Gelu(x) @0 {}\n"
                 "    b.1: float [1, 4] local = test.Add(a.1, h_prev) @1 {}\n"
                 "    c.1: float [1, 4] = test.Add(a.1, b.1) @2 {}\n"
                 "    h.1: float [1, 4] at 1[16 * (t + 1)] = Erf(c.1) @3 {}\n"
                 "  }\n" +
                 after));
}

TEST(FormRegions, RegionsOfSeveralAreJoinedAndStagesShrink) {
  const std::string before = Step(std::string(kInputs) +
                                  "  for 16 steps at once:\n"
                                  "  a.1: float [1, 4] kept = region Gelu(x) @0 {}\n"
                                  "  in each step:\n"
                                  "  region {\n"
                                  "    b.1: float [1, 4] local = test.Add(a.1, h_prev) @1 {}\n"
                                  "    c.1: float [1, 4] = Erf(b.1) @2 {}\n"
                                  "  }\n"
                                  "  h.1: float [1, 4] at 1[16 * (t + 1)] = region Silu(c.1) @3 {}\n");
  EXPECT_EQ(Formed(before, 1, 3),
            Step(std::string(kInputs) + "  for 16 steps at once:\n"
                                        "  a.1: float [1, 4] kept = region Gelu(x) @0 {}\n"
                                        "  in each step:\n"
                                        "  region {\n"
                                        "    b.1: float [1, 4] local = test.Add(a.1, h_prev) @1 {}\n"
                                        "    c.1: float [1, 4] local = Erf(b.1) @2 {}\n"
                                        "    h.1: float [1, 4] at 1[16 * (t + 1)] = Silu(c.1) @3 {}\n"
                                        "  }\n"));
}

TEST(FormRegions, WhatIsKeptStaysInMemory) {
  const auto lines = [](const std::string& region, const std::string& end) {
    const bool is_formed = region.empty();
    return Step(std::string(kInputs) + (is_formed ? "  region {\n  " : "") + "  a.1: float [1, 4] kept = " + region +
                "Gelu(x) @0 {}\n" + (is_formed ? "  " : "") + "  b.1: float [1, 4] kept = " + region +
                "Erf(a.1) @1 {}\n" + end);
  };
  EXPECT_EQ(Formed(lines("region ", ""), 0, 2), lines("", "  }\n"));
}

TEST(FormRegions, WhatIsKeptAndOverwrittenIsInNoMemory) {
  const std::string text = Formed(Step(std::string(kInputs) + "  a.1: float [1, 4] kept = region Gelu(x) @0 {}\n"
                                                              "  a.2: float [1, 4] in a.1 = region Erf(a.1) @1 {}\n"),
                                  0, 2);
  EXPECT_EQ(text, Step(std::string(kInputs) + "  region {\n"
                                              "    a.1: float [1, 4] local = Gelu(x) @0 {}\n"
                                              "    a.2: float [1, 4] kept = Erf(a.1) @1 {}\n"
                                              "  }\n"));
}

// Other names may read it in between.
TEST(FormRegions, MemoryOutsideIsWrittenEachTime) {
  const std::string text =
      Formed(Step(std::string(kInputs) + "  a.1: float [1, 4] at 3[16 * t] = region Gelu(x) @0 {}\n"
                                         "  a.2: float [1, 4] in a.1 = region Erf(a.1) @1 {}\n"),
             0, 2);
  EXPECT_EQ(text, Step(std::string(kInputs) + "  region {\n"
                                              "    a.1: float [1, 4] at 3[16 * t] = Gelu(x) @0 {}\n"
                                              "    a.2: float [1, 4] at 3[16 * t] = Erf(a.1) @1 {}\n"
                                              "  }\n"));
}

// As its operators would one by one.
TEST(FormRegions, RegionsBetweenProductsLeaveTheLoop) {
  const auto text = [](const std::string& over_time, const std::string& kept, const std::string& in_each_step) {
    return Step(
        "  x: float [1, 1, 8] at 0[32 * t]\n"
        "  w: float [8, 8] at 1\n"
        "  h_prev: float [1, 1, 8] at 2[32 * t]\n" +
        over_time + "  p.1: float [1, 1, 8]" + kept + " = FC(x, w) @0 {arg { name: \"axis\" i: 2 }}\n" +
        "  region {\n"
        "    a.1: float [1, 1, 8] local = Gelu(p.1) @1 {}\n"
        "    b.1: float [1, 1, 8]" +
        kept +
        " = test.Mul(a.1, p.1) @2 {}\n"
        "  }\n"
        "  q.1: float [1, 1, 8]" +
        kept + " = FC(b.1, w) @3 {arg { name: \"axis\" i: 2 }}\n" + in_each_step +
        "  region {\n"
        "    s.1: float [1, 1, 8] local = test.Add(q.1, h_prev) @4 {}\n"
        "    h.1: float [1, 1, 8] at 2[32 * (t + 1)] = test.Tanh(s.1) @5 {}\n"
        "  }\n");
  };
  EXPECT_EQ(After("form_stages", text("", "", "")), text("  for 64 steps at once:\n", " passed", "  in each step:\n"));
}

}  // namespace
}  // namespace stepnet

// Where temporaries lie: what is never there at the same time shares memory.
#include "stepnet/compiler/place.h"

#include <gtest/gtest.h>

#include "stepnet/compiler/dependencies.h"
#include "stepnet/compiler/emit.h"
#include "stepnet/compiler/graph_text.h"

namespace stepnet {
namespace {

// a, b and c follow from each other; big needs more room than they.
constexpr char kChain[] =
    "step s {\n"
    "  x: float [1, 2] at 0[8 * t]\n"
    "  a.1: float [1, 2] = Tanh(x) @0 {}\n"
    "  b.1: float [1, 2] = Tanh(a.1) @1 {}\n"
    "  c.1: float [1, 2] = Tanh(b.1) @2 {}\n"
    "  big.1: float [1, 4] = Concat(c.1, c.1) @3 {}\n"
    "  a.2: float [1, 2] = Relu(x) @4 {}\n"
    "  ^y: float [1, 2] at 1[8 * t] = a.2\n"
    "}\n";

StepPlan Placed(const char* graph, std::int64_t ring_rows, bool all_kept) {
  StepPlan plan;
  PlaceHomes(ParseGraph(graph), ring_rows, all_kept, &plan);
  return plan;
}

std::vector<int> BasesOf(const StepPlan& plan) {
  std::vector<int> bases;
  for (const Slot& slot : plan.slots) bases.push_back(slot.base);
  return bases;
}

TEST(Place, StepsThatFollowEachOtherShareRowsInTurn) {
  const StepPlan plan = Placed(kChain, /*ring_rows=*/1, /*all_kept=*/false);
  // x, a.1, b.1, c.1 in the place of a.1, big.1 in that of b.1, a.2 in that of c.1, y.
  EXPECT_EQ(BasesOf(plan), (std::vector<int>{0, 2, 3, 2, 3, 2, 1}));
  ASSERT_EQ(plan.arena.size(), 2);
  EXPECT_EQ(plan.arena[0].row_bytes, 8);
  EXPECT_EQ(plan.arena[1].row_bytes, 16);  // as large as the largest of those that share it
  EXPECT_EQ(plan.slots[2].bytes, 8);
}

// As above, but for a.2, which nothing orders behind the others.
TEST(Place, StepsAtTheSameTimeShareRowsOfWhatComesBeforeInAnyCase) {
  const StepPlan plan = Placed(kChain, /*ring_rows=*/4, /*all_kept=*/false);
  EXPECT_EQ(BasesOf(plan), (std::vector<int>{0, 2, 3, 2, 3, 4, 1}));
  EXPECT_EQ(plan.arena[0].rows, 4);
  EXPECT_EQ(plan.slots[1].row_bytes, 64);  // a cache line each
}

// Sum i reads what Tanh i and sum i - 1 gave: two chains, of which the second may take what is left by both.
TEST(Place, SharingOrdersNothing) {
  std::string text = "step s {\n  x: float [1, 2] at 0[8 * t]\n  s0.1: float [1, 2] = Tanh(x) @0 {}\n";
  constexpr int kTerms = 100;
  for (int i = 1; i <= kTerms; ++i) {
    text += StrCat("  a", i, ".1: float [1, 2] = Tanh(x) @", 2 * i, " {}\n  s", i, ".1: float [1, 2] = Add(s", i - 1,
                   ".1, a", i, ".1) @", 2 * i + 1, " {}\n");
  }
  const StepGraph graph = ParseGraph(StrCat(text, "  ^y: float [1, 2] at 1[8 * t] = s", kTerms, ".1\n}\n"));
  StepPlan plan = EmitPlan(graph, {.ring_rows = 1});
  EXPECT_EQ(plan.arena.size(), 3);
  plan = EmitPlan(graph, {.ring_rows = 4});
  // Each term is there at any time, and the sums have three in turn: of the last term, its own, the one that is read.
  EXPECT_EQ(plan.arena.size(), kTerms + 2);
  const Dependencies dependencies = FindDependencies(plan, plan.stages[0]);
  const Dependencies alone = FindDependencies(AccessesOf(EmitPlan(graph, {.is_draft = true})));
  for (const Dependency& edge : dependencies.edges) {
    EXPECT_TRUE(edge.delta > 0 || alone.Orders(edge.from, edge.to, 0)) << edge.from << " before " << edge.to;
  }
}

TEST(Place, ManyInARowTakeTwoRows) {
  std::string text = "step s {\n  a0: float [1, 2] at 0[8 * t]\n";
  for (int i = 1; i <= 300; ++i) {
    text += StrCat("  a", i, ".1: float [1, 2] = Tanh(a", i - 1, i == 1 ? "" : ".1", ") @", i, " {}\n");
  }
  const StepPlan plan = Placed((text + "}\n").c_str(), /*ring_rows=*/4, /*all_kept=*/false);
  EXPECT_EQ(plan.arena.size(), 2);
}

// More side by side than there are chains (NodePrecedence): nothing is said of the rest, which share nothing.
TEST(Place, AnyNumberSideBySide) {
  std::string text = "step s {\n  x: float [1, 2] at 0[8 * t]\n";
  for (int i = 0; i < 100; ++i) {
    text += StrCat("  a", i, ".1: float [1, 2] = Tanh(x) @", 3 * i, " {}\n  b", i, ".1: float [1, 2] = Tanh(a", i,
                   ".1) @", 3 * i + 1, " {}\n  c", i, ".1: float [1, 2] = Tanh(b", i, ".1) @", 3 * i + 2, " {}\n");
  }
  const StepPlan plan = Placed((text + "}\n").c_str(), /*ring_rows=*/4, /*all_kept=*/false);
  EXPECT_EQ(plan.arena.size(), 64 * 2 + 36 * 3);
}

TEST(Place, StagesShareNothing) {
  StepGraph graph = ParseGraph(kChain);
  graph.stages = {{.begin = 0, .end = 2}, {.begin = 2, .end = 6}};
  graph.homes[2].kept = true;  // b.1 goes from one to the other
  StepPlan plan;
  PlaceHomes(graph, /*ring_rows=*/1, /*all_kept=*/false, &plan);
  EXPECT_EQ(BasesOf(plan), (std::vector<int>{0, 2, 3, 4, 5, 4, 1}));
}

TEST(Place, WhatIsKeptHasARowForEachStep) {
  const StepPlan plan = Placed(kChain, /*ring_rows=*/1, /*all_kept=*/true);
  EXPECT_EQ(BasesOf(plan), (std::vector<int>{0, 2, 3, 4, 5, 6, 1}));
  EXPECT_EQ(plan.arena[0].rows, 0);
}

}  // namespace
}  // namespace stepnet

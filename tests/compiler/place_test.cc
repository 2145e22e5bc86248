// Where temporaries lie: what is never there at the same time shares memory.
#include "stepnet/compiler/place.h"

#include <gtest/gtest.h>

#include <map>
#include <set>

#include "stepnet/compiler/dependencies.h"
#include "stepnet/compiler/emit.h"
#include "stepnet/compiler/graph_text.h"
#include "stepnet/tests/compiler/dependency_order.h"

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
  PlaceHomes(ParseGraph(graph), ring_rows, {.min_chunks = 1}, all_kept, &plan);
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

// Steps of the chain can overlap, and could not if a.1 and c.1 shared a row.
TEST(Place, StepsAtTheSameTimeShareNothingThatOrdersThem) {
  const StepPlan plan = Placed(kChain, /*ring_rows=*/4, /*all_kept=*/false);
  EXPECT_EQ(BasesOf(plan), (std::vector<int>{0, 2, 3, 4, 5, 6, 1}));
  EXPECT_EQ(plan.arena[0].rows, 4);
  EXPECT_EQ(plan.slots[1].row_bytes, 64);  // a cache line each
}

// A step of a state: what `lines` make of h.
std::string StateStep(const std::string& lines, const std::string& last) {
  return StrCat("step s {\n  h: float [1, 2] at 0[8 * t]\n", lines, "  h.1: float [1, 2] at 0[8 * (t + 1)] = Copy(",
                last, ") @0 {}\n}\n");
}

StepPlan PlanOf(const std::string& text, std::int64_t ring_rows) {
  return EmitPlan(ParseGraph(text), {.ring_rows = ring_rows});
}

// How many rows have the slots of these blobs.
std::map<std::string, std::int64_t> RowsOf(const StepPlan& plan) {
  std::map<std::string, std::int64_t> rows;
  for (const Slot& slot : plan.slots) {
    if (slot.storage_class == StorageClass::kRing) rows[slot.blob] = slot.ring_rows;
  }
  return rows;
}

TEST(Place, OneRowIsEnoughWhereAStepWaitsForThoseWhoUsedIt) {
  // a is written behind a read of h, which what reads a has written the step before.
  EXPECT_EQ(RowsOf(PlanOf(StateStep("  a.1: float [1, 2] = Tanh(h) @1 {}\n", "a.1"), 4)),
            (std::map<std::string, std::int64_t>{{"a", 0}}));
  // b is read beside what the next step waits for.
  EXPECT_EQ(RowsOf(PlanOf("step s {\n"
                          "  h: float [1, 2] at 0[8 * t]\n"
                          "  b.1: float [1, 2] = Tanh(h) @0 {}\n"
                          "  h.1: float [1, 2] at 0[8 * (t + 1)] = Copy(b.1) @1 {}\n"
                          "  y.1: float [1, 2] at 1[8 * t] = Relu(b.1) @2 {}\n"
                          "}\n",
                          4)),
            (std::map<std::string, std::int64_t>{{"b", 4}}));
  // c is of a step whose state is read two steps later.
  EXPECT_EQ(RowsOf(PlanOf("step s {\n"
                          "  h: float [1, 2] at 0[8 * t]\n"
                          "  c.1: float [1, 2] = Tanh(h) @0 {}\n"
                          "  h.1: float [1, 2] at 0[8 * (t + 2)] = Copy(c.1) @1 {}\n"
                          "}\n",
                          4)),
            (std::map<std::string, std::int64_t>{{"c", 4}}));
}

// How many rows steps use in turn of base 0, a state; 0: there is one for each step.
std::int64_t StateRowsOf(const std::string& lines, std::int64_t ring_rows) {
  const StepPlan plan = PlanOf(StrCat("step s {\n  before the first step:\n  ^h at 0[0:1] in turns = ^h0 at 2 lent\n",
                                      "  h: float [1, 2] at 0[8 * t]\n", lines, "}\n"),
                               ring_rows);
  std::set<std::int64_t> rows;
  for (const Slot& slot : plan.slots) {
    if (slot.base == 0) rows.insert(slot.ring_rows);
  }
  EXPECT_EQ(rows.size(), 1);
  return *rows.begin();
}

TEST(Place, StatesThatNobodySeesLaterHaveAsFewRowsAsMakeNoStepWait) {
  const std::string h = "  h.1: float [1, 2] at 0[8 * (t + 1)] = Tanh(h) @0 {}\n";
  EXPECT_EQ(StateRowsOf(h, 1), 2);
  EXPECT_EQ(StateRowsOf(h, 4), 2);
  // y reads the new row, which is written over two steps later.
  EXPECT_EQ(StateRowsOf(h + "  y.1: float [1, 2] at 1[8 * t] = Relu(h.1) @1 {}\n", 4), 2);
  // y reads the old row, and nothing waits for y.
  const std::string y = "  y.1: float [1, 2] at 1[8 * t] = Relu(h) @1 {}\n";
  EXPECT_EQ(StateRowsOf(y + h, 4), 4);
  EXPECT_EQ(StateRowsOf(y + h, 1), 2);
  // A row of three steps before.
  EXPECT_EQ(StateRowsOf("  h.1: float [1, 2] at 0[8 * (t + 4)] = Tanh(h) @0 {}\n", 4), 8);
}

TEST(Place, StatesHaveARowForEachStepWhereStepsSeeMoreThanOneOrManyAtOnce) {
  EXPECT_EQ(StateRowsOf("  h2: float [2, 2] at 0[8 * t], 16 bytes\n"
                        "  h.1: float [1, 2] at 0[8 * (t + 2)] = Tanh(h) @0 {}\n"
                        "  y.1: float [2, 2] at 1[16 * t] = Relu(h2) @1 {}\n",
                        4),
            0);
  EXPECT_EQ(StateRowsOf("  in each step:\n  h.1: float [1, 2] at 0[8 * (t + 1)] = Tanh(h) @0 {}\n"
                        "  for 8 steps at once:\n  y.1: float [1, 2] at 1[8 * t] = Relu(h.1) @1 {}\n",
                        4),
            0);
}

TEST(Place, OneRowIsEnoughBackwardsToo) {
  EXPECT_EQ(RowsOf(PlanOf("backward step s {\n"
                          "  h: float [1, 2] at 0[8 * (t + 1)]\n"
                          "  a.1: float [1, 2] = Tanh(h) @0 {}\n"
                          "  h.1: float [1, 2] at 0[8 * t] = Copy(a.1) @1 {}\n"
                          "}\n",
                          4)),
            (std::map<std::string, std::int64_t>{{"a", 0}}));
}

// That all that a plan of overlapping steps orders is ordered without sharing, too.
void ExpectSharingOrdersNothing(const std::string& text) {
  const StepPlan plan = PlanOf(text, 4);
  const Dependencies alone = FindDependencies(AccessesOf(EmitPlan(ParseGraph(text), {.is_draft = true})));
  for (const Dependency& edge : FindDependencies(plan, plan.stages[0]).edges) {
    bool is_ordered = edge.from_slot == edge.to_slot;  // a home's own ring
    // Otherwise by as many steps or fewer: each step of a cycle waits for the one before.
    for (int delta = 0; delta <= edge.delta; ++delta) is_ordered |= IsOrdered(alone, edge.from, edge.to, delta);
    EXPECT_TRUE(is_ordered) << edge.from << " before " << edge.to << " of " << edge.delta << " steps later";
  }
}

TEST(Place, ManyInARowTakeTwoRows) {
  std::string lines = "  a0.1: float [1, 2] = Tanh(h) @0 {}\n";
  for (int i = 1; i <= 300; ++i) {
    lines += StrCat("  a", i, ".1: float [1, 2] = Tanh(a", i - 1, ".1) @", i, " {}\n");
  }
  EXPECT_EQ(PlanOf(StateStep(lines, "a300.1"), 4).arena.size(), 2);
}

// Sum i reads what Tanh i and sum i - 1 gave. Sums take turns; all Tanh may run at once.
TEST(Place, WhatMayRunAtOnceSharesNothing) {
  std::string lines = "  s0.1: float [1, 2] = Tanh(h) @0 {}\n";
  constexpr int kTerms = 20;
  for (int i = 1; i <= kTerms; ++i) {
    lines += StrCat("  a", i, ".1: float [1, 2] = Tanh(h) @", 2 * i, " {}\n  s", i, ".1: float [1, 2] = Add(s", i - 1,
                    ".1, a", i, ".1) @", 2 * i + 1, " {}\n");
  }
  const std::string text = StateStep(lines, StrCat("s", kTerms, ".1"));
  EXPECT_EQ(PlanOf(text, 1).arena.size(), 3);
  EXPECT_EQ(PlanOf(text, 4).arena.size(), kTerms + 2);
  ExpectSharingOrdersNothing(text);
}

// The second state reads what the first one gives, and may be some steps behind.
TEST(Place, OneStateSharesNothingWithAnother) {
  const std::string text = StateStep(
      "  a.1: float [1, 2] = Tanh(h) @0 {}\n"
      "  k: float [1, 2] at 1[8 * t]\n"
      "  b.1: float [1, 2] = Tanh(a.1) @1 {}\n"
      "  c.1: float [1, 2] = Add(k, b.1) @2 {}\n"
      "  d.1: float [1, 2] = Tanh(c.1) @3 {}\n"
      "  e.1: float [1, 2] = Tanh(d.1) @4 {}\n"
      "  k.1: float [1, 2] at 1[8 * (t + 1)] = Copy(e.1) @5 {}\n",
      "b.1");
  // b is used in both; e takes the place of c.
  EXPECT_EQ(PlanOf(text, 4).arena.size(), 4);
  ExpectSharingOrdersNothing(text);
}

TEST(Place, BackwardStepsShareAsForwardOnes) {
  std::string text = StateStep(
      "  a.1: float [1, 2] = Tanh(h) @0 {}\n"
      "  b.1: float [1, 2] = Tanh(a.1) @1 {}\n"
      "  c.1: float [1, 2] = Tanh(b.1) @2 {}\n",
      "c.1");
  EXPECT_EQ(PlanOf(text, 4).arena.size(), 2);
  EXPECT_EQ(PlanOf("backward " + text, 4).arena.size(), 3) << "each step reads what later ones write";
}

// More side by side than there are chains (NodePrecedence): nothing is said of the rest, which share nothing.
TEST(Place, AnyNumberSideBySide) {
  std::string lines;
  std::vector<std::string> terms;
  for (int i = 0; i < 100; ++i) {
    lines += StrCat("  a", i, ".1: float [1, 2] = Tanh(h) @", 4 * i, " {}\n  b", i, ".1: float [1, 2] = Tanh(a", i,
                    ".1) @", 4 * i + 1, " {}\n  c", i, ".1: float [1, 2] = Tanh(b", i, ".1) @", 4 * i + 2, " {}\n");
    terms.push_back(StrCat("c", i, ".1"));
  }
  lines += StrCat("  sum.1: float [1, 2] = Sum(", Join(terms, ", "), ") @400 {}\n");
  EXPECT_EQ(PlanOf(StateStep(lines, "sum.1"), 4).arena.size(), 64 * 2 + 36 * 3);
}

TEST(Place, StagesShareNothing) {
  StepGraph graph = ParseGraph(kChain);
  graph.stages = {{.begin = 0, .end = 2}, {.begin = 2, .end = 6}};
  graph.homes[2].kept = true;  // b.1 goes from one to the other
  StepPlan plan;
  PlaceHomes(graph, /*ring_rows=*/1, {.min_chunks = 1}, /*all_kept=*/false, &plan);
  EXPECT_EQ(BasesOf(plan), (std::vector<int>{0, 2, 3, 4, 5, 4, 1}));
}

TEST(Place, WhatIsKeptHasARowForEachStep) {
  const StepPlan plan = Placed(kChain, /*ring_rows=*/1, /*all_kept=*/true);
  EXPECT_EQ(BasesOf(plan), (std::vector<int>{0, 2, 3, 4, 5, 6, 1}));
  EXPECT_EQ(plan.arena[0].rows, 0);
}

}  // namespace
}  // namespace stepnet

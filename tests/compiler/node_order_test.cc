// Which nodes keep their order: in a step, and around the loop.
#include "stepnet/compiler/node_order.h"

#include <gtest/gtest.h>

#include <map>
#include <random>

#include "stepnet/tests/compiler/node_pairs.h"
#include "stepnet/tests/compiler/passes/pass_case.h"

namespace stepnet {
namespace {

StepGraph Graph(const std::string& lines, bool backward = false) {
  const StepGraph graph = ParseGraph((backward ? "backward " : "") + Step(lines));
  VerifyGraph(graph, "parse");
  return graph;
}

int NumNodes(const StepGraph& graph) { return static_cast<int>(graph.nodes.size()); }

Pairs ByBytes(const std::string& lines) {
  const StepGraph graph = Graph(lines);
  return AllOf(FollowersByBytes(graph, 0, NumNodes(graph)));
}

Pairs InAll(const std::string& lines) {
  const StepGraph graph = Graph(lines);
  return AllOf(FollowersOf(graph, 0, NumNodes(graph)));
}

constexpr char kX[] = "  x: float [1, 4] at 0[16 * t]\n";

TEST(NodeOrder, WhoReadsFollowsWhoWrites) {
  EXPECT_EQ(ByBytes(StrCat(kX,
                           "  a.1: float [1, 4] = Tanh(x) @0 {}\n"
                           "  b.1: float [1, 4] = Relu(a.1) @1 {}\n"
                           "  c.1: float [1, 4] = Relu(a.1) @2 {}\n"
                           "  d.1: float [1, 4] = Add(b.1, x) @3 {}\n")),
            (Pairs{{0, 1}, {0, 2}, {0, 3}, {1, 3}}))
      << "two that read have no order";
}

TEST(NodeOrder, ValuesTakeTurnsInAHome) {
  EXPECT_EQ(ByBytes(StrCat(kX,
                           "  a.1: float [1, 4] = Tanh(x) @0 {}\n"
                           "  b.1: float [1, 4] = Relu(a.1) @1 {}\n"
                           "  c.1: float [1, 4] = Relu(a.1) @2 {}\n"
                           "  a.2: float [1, 4] in a.1 = Gelu(x) @3 {}\n"
                           "  d.1: float [1, 4] in b.1 = Gelu(x) @4 {}\n")),
            (Pairs{{0, 1}, {0, 2}, {0, 3}, {0, 4}, {1, 3}, {2, 3}, {1, 4}}));
}

// h is in the last of the rows that w shows, in the one behind them, in the one before them, and in other memory.
TEST(NodeOrder, WindowsShareTheRowsThatBothShow) {
  const auto pairs = [](const std::string& h) {
    return ByBytes(StrCat(kX,
                          "  w: float [3, 4] at 1[16 * (t + 1)]\n"
                          "  a.1: float [3, 4] = Tanh(w) @0 {}\n"
                          "  h.1: float [1, 4] at ",
                          h, " = Tanh(x) @1 {}\n"));
  };
  EXPECT_EQ(pairs("1[16 * (t + 3)]"), (Pairs{{0, 1}}));
  EXPECT_EQ(pairs("1[16 * (t + 4)]"), Pairs{});
  EXPECT_EQ(pairs("1[16 * (t + 1)]"), (Pairs{{0, 1}}));
  EXPECT_EQ(pairs("1[16 * t]"), Pairs{});
  EXPECT_EQ(pairs("2[16 * (t + 3)]"), Pairs{});
}

// Three names show one row; the first and the last are written.
TEST(NodeOrder, BytesHaveManyNames) {
  EXPECT_EQ(ByBytes(StrCat(kX,
                           "  ^a: float [1, 4] at 1[16 * t] = x\n"
                           "  ^b: float [1, 4] at 1[16 * t]\n"
                           "  c.1: float [1, 4] = Tanh(^b) @1 {}\n"
                           "  ^d: float [1, 4] at 1[16 * t] = x\n")),
            (Pairs{{0, 1}, {0, 2}, {1, 2}}));
}

TEST(NodeOrder, TermsOfASumKeepTheirOrder) {
  EXPECT_EQ(ByBytes(StrCat(kX,
                           "  ^s: float [1, 4] added at 1 = x\n"
                           "  ^r: float [1, 4] added in ^s = x\n")),
            (Pairs{{0, 1}}));
}

TEST(NodeOrder, APackedWeightIsRead) {
  const StepGraph graph = Graph(
      "  x: float [2, 64] at 0[512 * t]\n"
      "  w: float [64, 64] at 1\n"
      "  once for all steps:\n"
      "  ^\"w packed\": uint8 [16384] once = packed w for @1\n"
      "  in each step:\n"
      "  y.1: float [2, 64] = FC(x, w) with ^\"w packed\" @1 {}\n");
  EXPECT_EQ(AllOf(FollowersByBytes(graph, 0, 2)), (Pairs{{0, 1}}));
}

TEST(NodeOrder, OutputsThatAreNotGivenAreInNoMemory) {
  EXPECT_EQ(ByBytes("  x: float [2, 4] at 0[32 * t]\n"
                    "  w: float [4, 4] at 1\n"
                    "  dy: float [2, 4] at 2[32 * t]\n"
                    "  _, db.1: float [4], _ = FCGradient(x, w, dy) @0 {}\n"
                    "  c.1: float [4] = Tanh(db.1) @1 {}\n"),
            (Pairs{{0, 1}}));
}

TEST(NodeOrder, NodesAreNumberedFromTheFirstOfTheirStage) {
  const StepGraph graph = Graph(StrCat(kX,
                                       "  a.1: float [1, 4] = Tanh(x) @0 {}\n"
                                       "  b.1: float [1, 4] = Tanh(a.1) @1 {}\n"
                                       "  c.1: float [1, 4] = Tanh(b.1) @2 {}\n"
                                       "  d.1: float [1, 4] = Tanh(c.1) @3 {}\n"));
  EXPECT_EQ(FollowersByBytes(graph, 1, 3), (Followers{{1}, {}}));
  EXPECT_EQ(AllOf(FollowersOf(graph, 1, 4)), (Pairs{{0, 1}, {0, 2}, {1, 2}}));
}

// Nodes that share no byte: two of `line`, of operator 0, whose blobs have the letters a and b.
Pairs TwoOf(const std::string& inputs, const std::string& line) {
  std::string other = line;
  if (const size_t number = line.find("@0"); number != std::string::npos) other.replace(number, 2, "@1");
  return InAll(StrCat(inputs, "  a", line, "  b", other));
}

TEST(NodeOrder, WhatMayFailKeepsItsOrder) {
  const Pairs kept = {{0, 1}};
  EXPECT_EQ(TwoOf(kX, ".1: float [1, 4] = Tanh(x) @0 {}\n"), kept) << "a call may throw";
  EXPECT_EQ(TwoOf(kX, ".1: float [1, 4] = region Tanh(x) @0 {}\n"), Pairs{});
  EXPECT_EQ(TwoOf(kX, ".1: float [1, 4] = x\n"), Pairs{});
  EXPECT_EQ(TwoOf(kX, ".1: float [1, 4] = region Div(x, x) @0 {}\n"), Pairs{});
  EXPECT_EQ(TwoOf("  n: int32 [1, 4] at 0[16 * t]\n", ".1: int32 [1, 4] = region Div(n, n) @0 {}\n"), kept)
      << "whole numbers may be divided by zero";
  const std::string weights = StrCat(kX, "  w: float [4, 4] at 1\n");
  EXPECT_EQ(TwoOf(weights, ".1: float [1, 4] = product x [1, 4] * w [4, 4]^T by FC(x, w) @0 {}\n"), Pairs{});
}

TEST(NodeOrder, WhatMayFailInARegionKeepsItsOrder) {
  const auto region = [](const std::string& type) {
    return StrCat("  region {\n    ", type, ".1: int32 [1, 4] local = Mul(n, m) @0 {}\n    ", type,
                  ".2: int32 [1, 4] = ", type, "(", type, ".1, m) @1 {}\n  }\n");
  };
  const std::string inputs = "  n: int32 [1, 4] at 0[16 * t]\n  m: int32 [1, 4] at 1[16 * t]\n";
  const std::string call = "  a.1: int32 [1, 4] = Sub(n, m) @2 {}\n";
  EXPECT_EQ(InAll(StrCat(inputs, region("Div"), call)), (Pairs{{0, 1}}));
  EXPECT_EQ(InAll(StrCat(inputs, region("Mul"), call)), Pairs{});
}

TEST(NodeOrder, WhatLastsKeepsItsOrder) {
  EXPECT_EQ(InAll(StrCat(kX,
                         "  = Print(x) @0 {}\n"
                         "  b.1: float [1, 4] = region Gelu(x) @1 {}\n"
                         "  = Print(x) @2 {}\n")),
            (Pairs{{0, 2}}));
}

// A kernel of blobs decides itself what it touches.
TEST(NodeOrder, WhatGoesThroughBlobsKeepsItsOrder) {
  const std::string line = ".1: unknown blob = region Gelu(u) by blobs @0 {}\n";
  EXPECT_EQ(TwoOf("  u: unknown blob of list 0\n", line), (Pairs{{0, 1}}));
}

// The cycle of each node.
std::vector<int> Cycles(const std::string& lines, bool backward = false) {
  const StepGraph graph = Graph(lines, backward);
  return CyclesOf(graph, 0, NumNodes(graph), FollowersByBytes(graph, 0, NumNodes(graph)));
}

// Whether nodes have the cycles that letters name; "." of none.
testing::AssertionResult AreCycles(const std::vector<int>& cycles, const std::string& names) {
  bool fits = cycles.size() == names.size();
  for (size_t a = 0; fits && a < names.size(); ++a) {
    fits = (cycles[a] == kNoCycle) == (names[a] == '.');
    for (size_t b = 0; fits && b < a; ++b)
      fits = cycles[a] == kNoCycle || (cycles[a] == cycles[b]) == (names[a] == names[b]);
  }
  return fits ? testing::AssertionSuccess() : testing::AssertionFailure() << testing::PrintToString(cycles);
}

TEST(NodeOrder, NodesBetweenAStateAndItsNextRowAreACycle) {
  EXPECT_TRUE(AreCycles(Cycles(StrCat(kX,
                                      "  h: float [1, 4] at 1[16 * t]\n"
                                      "  a.1: float [1, 4] = Tanh(x) @0 {}\n"
                                      "  b.1: float [1, 4] = Add(a.1, h) @1 {}\n"
                                      "  h.1: float [1, 4] at 1[16 * (t + 1)] = Tanh(b.1) @2 {}\n"
                                      "  c.1: float [1, 4] = Tanh(b.1) @3 {}\n"
                                      "  d.1: float [1, 4] = Tanh(h) @4 {}\n")),
                        ".hh.."));
}

TEST(NodeOrder, EachStateHasACycleOfItsOwn) {
  const std::string first =
      "  h: float [1, 4] at 1[16 * t]\n"
      "  h.1: float [1, 4] at 1[16 * (t + 1)] = Tanh(h) @0 {}\n";
  const auto second = [](const std::string& what) {
    return StrCat("  k: float [1, 4] at 2[16 * t]\n  a.1: float [1, 4] = Add(", what,
                  ", k) @1 {}\n  k.1: float [1, 4] at 2[16 * (t + 1)] = Tanh(a.1) @2 {}\n");
  };
  EXPECT_TRUE(AreCycles(Cycles(first + second("h.1")), "hkk")) << "the one waits for the other";
  EXPECT_TRUE(AreCycles(Cycles(StrCat("  h: float [1, 4] at 1[16 * t]\n", second("h"),
                                      "  h.1: float [1, 4] at 1[16 * (t + 1)] = Tanh(k.1) @0 {}\n")),
                        "hhh"))
      << "both wait for each other";
}

TEST(NodeOrder, RowsOfTheSameStepAreNoCycle) {
  EXPECT_TRUE(AreCycles(Cycles(StrCat(kX,
                                      "  h.1: float [1, 4] at 1[16 * (t + 1)] = Tanh(x) @0 {}\n"
                                      "  a.1: float [1, 4] = Tanh(h.1) @1 {}\n"
                                      "  ^y: float [1, 4] at 2[16 * t] = a.1\n")),
                        "..."));
}

// A step that runs forward never reads what later ones write, and one that runs backward does.
TEST(NodeOrder, RowsComeInTheDirectionOfTheRun) {
  const auto lines = [](const std::string& from, const std::string& to) {
    return StrCat("  h: float [1, 4] at 1[16 * ", from, "]\n  a.1: float [1, 4] = Tanh(h) @0 {}\n",
                  "  g.1: float [1, 4] at 1[16 * ", to, "] = Tanh(a.1) @1 {}\n");
  };
  EXPECT_TRUE(AreCycles(Cycles(lines("t", "(t + 1)"), /*backward=*/false), "hh"));
  EXPECT_TRUE(AreCycles(Cycles(lines("t", "(t + 1)"), /*backward=*/true), ".."));
  EXPECT_TRUE(AreCycles(Cycles(lines("(t + 1)", "t"), /*backward=*/false), ".."));
  EXPECT_TRUE(AreCycles(Cycles(lines("(t + 1)", "t"), /*backward=*/true), "hh"));
}

// Rows that later steps read are those of c alone: h is read one row behind that of b, or in it.
TEST(NodeOrder, WhatWritesRowsThatNoLaterStepReadsIsNoCycle) {
  for (const std::string b : {"t", "(t + 1)"}) {
    EXPECT_TRUE(AreCycles(Cycles(StrCat(kX,
                                        "  h: float [1, 4] at 1[16 * (t + 1)]\n"
                                        "  a.1: float [1, 4] = Tanh(h) @0 {}\n"
                                        "  b.1: float [1, 4] at 1[16 * ",
                                        b,
                                        "] = Tanh(a.1) @1 {}\n"
                                        "  c.1: float [1, 4] at 1[16 * (t + 2)] = Tanh(x) @2 {}\n")),
                          "..."));
  }
}

TEST(NodeOrder, MemoryThatAllStepsShareIsACycle) {
  for (const bool backward : {false, true}) {
    EXPECT_TRUE(AreCycles(Cycles("  h: float [1, 4] at 1\n"
                                 "  a.1: float [1, 4] = Tanh(h) @0 {}\n"
                                 "  b.1: float [1, 4] = Tanh(h) @1 {}\n"
                                 "  h.1: float [1, 4] at 1 = Tanh(a.1) @2 {}\n",
                                 backward),
                          "hhh"));
    EXPECT_TRUE(AreCycles(Cycles(StrCat(kX, "  ^s: float [1, 4] added at 1 = x\n"), backward), "s"))
        << "whoever adds to a sum reads it";
    EXPECT_TRUE(AreCycles(Cycles(StrCat(kX, "  ^s: float [1, 4] at 1 = x\n"), backward), "."));
  }
}

TEST(NodeOrder, TheNextStepWaitsForTheRowsThatItReads) {
  using Waits = std::vector<std::pair<int, int>>;
  const auto waits = [](const std::string& lines, bool backward = false) {
    const StepGraph graph = Graph(lines, backward);
    return WaitsOfNextStep(graph, 0, NumNodes(graph));
  };
  const std::string reads = "  a.1: float [1, 4] = Tanh(x) @0 {}\n";
  EXPECT_EQ(waits(StrCat(kX, reads, "  y.1: float [1, 4] at 0[16 * (t + 1)] = Relu(a.1) @1 {}\n")), (Waits{{1, 0}}));
  EXPECT_EQ(waits(StrCat(kX, reads, "  y.1: float [1, 4] at 0[16 * (t + 2)] = Relu(a.1) @1 {}\n")), Waits())
      << "the step after it does";
  const std::string later = "  x: float [1, 4] at 0[16 * (t + 1)]\n";
  EXPECT_EQ(waits(StrCat(later, reads, "  y.1: float [1, 4] at 0[16 * t] = Relu(a.1) @1 {}\n"), true), (Waits{{1, 0}}));
  EXPECT_EQ(waits(StrCat(kX, reads, "  y.1: float [1, 4] at 1[16 * (t + 1)] = Relu(a.1) @1 {}\n")), Waits())
      << "other memory";
}

TEST(NodeOrder, CyclesOfAStageAreThoseOfItsNodes) {
  const StepGraph graph = Graph(
      "  h: float [1, 4] at 1[16 * t]\n"
      "  a.1: float [1, 4] = Tanh(h) @0 {}\n"
      "  k: float [1, 4] at 2[16 * t]\n"
      "  k.1: float [1, 4] at 2[16 * (t + 1)] = Tanh(k) @1 {}\n"
      "  h.1: float [1, 4] at 1[16 * (t + 1)] = Tanh(a.1) @2 {}\n");
  EXPECT_TRUE(AreCycles(CyclesOf(graph, 0, 3, FollowersByBytes(graph, 0, 3)), "hkh"));
  EXPECT_TRUE(AreCycles(CyclesOf(graph, 1, 3, FollowersByBytes(graph, 1, 3)), "k."));
}

TEST(NodePrecedence, NodesInTurnAreOneChain) {
  const NodePrecedence precedence(3);
  EXPECT_EQ(precedence.num_chains(), 1);
  for (int node = 0; node < 3; ++node) EXPECT_EQ(precedence.ChainOf(node), 0);
  EXPECT_EQ(precedence.LastBefore(0, 0), NodePrecedence::kNone);
  EXPECT_EQ(precedence.LastBefore(2, 0), 1);
  EXPECT_TRUE(precedence.IsBefore(0, 2));
  EXPECT_FALSE(precedence.IsBefore(1, 1));
  EXPECT_FALSE(precedence.IsBefore(2, 1));
}

// 0 before 1 and 2, these before 3; 4 by itself.
TEST(NodePrecedence, OfADiamond) {
  const NodePrecedence precedence(Followers{{1, 2}, {3}, {3}, {}, {}});
  EXPECT_EQ(precedence.num_chains(), 3);
  EXPECT_EQ(precedence.ChainOf(1), precedence.ChainOf(0));
  EXPECT_EQ(precedence.ChainOf(3), precedence.ChainOf(1));
  EXPECT_NE(precedence.ChainOf(2), precedence.ChainOf(1));
  EXPECT_EQ(precedence.LastBefore(3, precedence.ChainOf(1)), 1);
  EXPECT_EQ(precedence.LastBefore(3, precedence.ChainOf(2)), 2);
  EXPECT_EQ(precedence.LastBefore(3, precedence.ChainOf(4)), NodePrecedence::kNone);
  EXPECT_EQ(precedence.LastBefore(0, precedence.ChainOf(0)), NodePrecedence::kNone);
}

// Compares with all pairs. Returns how many nodes are in no chain.
int ExpectPairsOf(const Followers& followers) {
  const auto n = static_cast<int>(followers.size());
  const Pairs all = AllOf(followers);
  const NodePrecedence precedence(followers);
  int beyond = 0;
  std::map<int, int> last_of_chain;
  for (int earlier = 0; earlier < n; ++earlier) {
    const int chain = precedence.ChainOf(earlier);
    if (chain == NodePrecedence::kNone) {
      ++beyond;
    } else {
      EXPECT_LT(chain, precedence.num_chains());
      const auto [last, is_first] = last_of_chain.emplace(chain, earlier);
      EXPECT_TRUE(is_first || all.contains({last->second, earlier})) << "of one chain, one follows the other";
      last->second = earlier;
    }
    for (int later = 0; later < n; ++later) {
      const bool is_said = chain != NodePrecedence::kNone && all.contains({earlier, later});
      EXPECT_EQ(precedence.IsBefore(earlier, later), is_said) << earlier << " before " << later;
      if (testing::Test::HasFailure()) return beyond;
    }
  }
  return beyond;
}

TEST(NodePrecedence, SaysOfAnyTwoNodesWhetherTheOneFollows) {
  std::mt19937 random(1);
  for (int round = 0; round < 60; ++round) {
    const int n = 2 + static_cast<int>(random() % 40);
    Followers followers(n);
    for (int from = 0; from < n; ++from) {
      for (int to = from + 1; to < n; ++to) {
        if (random() % n < 2) followers[from].push_back(to);
      }
    }
    EXPECT_EQ(ExpectPairsOf(followers), 0);
    if (HasFailure()) return;
  }
}

// Chains of three nodes side by side; 100 of them are more than are told apart.
TEST(NodePrecedence, SaysNothingOfNodesBeyondTheChains) {
  constexpr int kSideBySide = 100;
  Followers followers;
  for (int n = 0; n < 3 * kSideBySide; ++n) {
    const bool goes_on = n < 2 * kSideBySide;
    followers.push_back(goes_on ? std::vector{n + kSideBySide} : std::vector<int>());
  }
  followers.emplace_back();  // the last node follows all
  for (int n = 2 * kSideBySide; n < 3 * kSideBySide; ++n) followers[n].push_back(3 * kSideBySide);
  EXPECT_EQ(NodePrecedence(followers).num_chains(), 64);
  EXPECT_EQ(ExpectPairsOf(followers), 3 * (kSideBySide - 64));
}

}  // namespace
}  // namespace stepnet

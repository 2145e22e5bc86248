#include "stepnet/core/access_order.h"

#include <gtest/gtest.h>

#include <random>
#include <set>
#include <string>

#include "stepnet/core/strings.h"

namespace stepnet {
namespace {

// The edges of a program of accesses to one thing: "r" and "w", or "rw" for a node that does both.
std::string EdgesOf(const std::vector<std::string>& program) {
  AccessOrder<int> order;
  std::vector<std::string> edges;
  const auto add_edge = [&](int from, int to) { edges.push_back(StrCat(from, "->", to)); };
  for (int node = 0; node < static_cast<int>(program.size()); ++node) {
    for (const char access : program[node]) {
      if (access == 'w') {
        order.Write(node, add_edge);
      } else {
        order.Read(node, add_edge);
      }
    }
  }
  return Join(edges, " ");
}

TEST(AccessOrder, ReadAfterWrite) { EXPECT_EQ(EdgesOf({"w", "r", "r"}), "0->1 0->2"); }
TEST(AccessOrder, WriteAfterRead) { EXPECT_EQ(EdgesOf({"r", "r", "w"}), "0->2 1->2"); }
TEST(AccessOrder, WriteAfterWrite) { EXPECT_EQ(EdgesOf({"w", "w", "w"}), "0->1 1->2"); }
TEST(AccessOrder, WhoeverWritesAfterReadersWaitsForTheWriterThroughThem) {
  EXPECT_EQ(EdgesOf({"w", "r", "r", "w"}), "0->1 0->2 1->3 2->3");
}
TEST(AccessOrder, ANodeDoesNotWaitForItself) {
  EXPECT_EQ(EdgesOf({"rw"}), "");
  EXPECT_EQ(EdgesOf({"ww", "r"}), "0->1 0->1");                       // for each of its writes
  EXPECT_EQ(EdgesOf({"w", "rw", "rw", "r"}), "0->1 1->2 1->2 2->3");  // for what it read and for what it wrote
}

TEST(AccessOrder, OrdersAllThatConflictAndNothingElseOfRandomNets) {
  constexpr int kNodes = 12, kThings = 3;
  for (unsigned seed = 0; seed < 200; ++seed) {
    std::mt19937 random(seed);
    std::vector<AccessOrder<int>> orders(kThings);
    std::set<std::pair<int, int>> ordered, conflicts;  // with what follows
    const auto add_edge = [&](int from, int to) {
      EXPECT_LT(from, to);
      ordered.emplace(from, to);
    };
    std::vector<std::vector<std::pair<int, bool>>> accesses(kNodes);  // thing, and whether it is written
    for (int node = 0; node < kNodes; ++node) {
      for (int n = 0; n < 3; ++n) accesses[node].emplace_back(random() % kThings, n == 2);
      for (const auto& [thing, writes] : accesses[node]) {
        if (writes) {
          orders[thing].Write(node, add_edge);
        } else {
          orders[thing].Read(node, add_edge);
        }
        for (int before = 0; before < node; ++before) {
          for (const auto& [other, wrote] : accesses[before]) {
            if (other == thing && (writes || wrote)) conflicts.emplace(before, node);
          }
        }
      }
    }
    for (std::set<std::pair<int, int>>* edges : {&ordered, &conflicts}) {
      for (int through = 0; through < kNodes; ++through) {
        for (int from = 0; from < through; ++from) {
          for (int to = through + 1; to < kNodes; ++to) {
            if (edges->contains({from, through}) && edges->contains({through, to})) edges->emplace(from, to);
          }
        }
      }
    }
    EXPECT_EQ(ordered, conflicts) << "seed " << seed;
  }
}

TEST(AccessOrder, ManyReadersAndWritersHaveAsManyEdgesAsAccesses) {
  constexpr int kNodes = 100'000;
  AccessOrder<int> order;
  int edges = 0;
  const auto count = [&](int, int) { ++edges; };
  for (int node = 0; node < kNodes; ++node) {
    if (node % 100 == 0) {
      order.Write(node, count);
    } else {
      order.Read(node, count);
    }
  }
  EXPECT_LE(edges, 2 * kNodes);
}

}  // namespace
}  // namespace stepnet

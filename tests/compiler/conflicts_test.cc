// Conflicts of many instructions on one piece of memory: how many edges stand for them, and that none is missing.
#include "stepnet/compiler/conflicts.h"

#include <gtest/gtest.h>

#include "stepnet/compiler/transitive_reduction.h"
#include "stepnet/tests/compiler/dependency_order.h"

namespace stepnet {
namespace {

using Accesses = std::vector<std::vector<MemoryAccess>>;

constexpr int kMany = 2000;
constexpr std::int64_t kRow = 8;

MemoryAccess Shared(bool writes) { return {.memory = 0, .writes = writes, .bytes = kRow}; }
MemoryAccess Ring(bool writes) {
  return {.memory = 0, .writes = writes, .stride = kRow, .bytes = kRow, .ring = 4 * kRow};
}
MemoryAccess Window(bool writes, std::int64_t offset, std::int64_t rows) {
  return {.memory = 0, .writes = writes, .begin = offset * kRow, .stride = kRow, .bytes = rows * kRow};
}

TEST(Conflicts, OfManyThatWorkInPlaceAreAsManyAsAccesses) {
  for (const auto& access : {Shared, Ring}) {
    const Accesses accesses(kMany, {access(false), access(true)});
    std::vector<Dependency> edges = FindConflicts(accesses);
    EXPECT_LE(edges.size(), size_t{4} * kMany);
    RemoveImplied(kMany, &edges);
    // A chain, and from its end to its begin in another step.
    EXPECT_EQ(edges.size(), size_t{kMany});
  }
}

TEST(Conflicts, OfManyReadersAndOneWriterAreAsManyAsReaders) {
  for (const auto& access : {Shared, Ring}) {
    Accesses accesses(kMany, {access(false)});
    accesses.push_back({access(true)});
    std::vector<Dependency> edges = FindConflicts(accesses);
    RemoveImplied(kMany + 1, &edges);
    EXPECT_EQ(edges.size(), size_t{2} * kMany);  // each reader waits for the writer of a step before
  }
}

TEST(Conflicts, OfLinksAtManyOffsetsAreAsManyAsLinks) {
  Accesses accesses;
  for (int i = 0; i < kMany; ++i) accesses.push_back({Window(/*writes=*/i % 2 == 0, i, 1)});
  EXPECT_LE(FindConflicts(accesses).size(), size_t{2} * kMany);
}

// Windows of which each is written by many others, too many to tell them apart: everything is kept in order.
TEST(Conflicts, OfManyWindowsThatAreWrittenAreAsManyAsWindows) {
  constexpr int kWindows = 200;
  Accesses accesses;
  for (int i = 0; i < kWindows; ++i) accesses.push_back({Window(i % 2 == 0, i, 20 + i)});
  const Dependencies found = FindDependencies(accesses);
  EXPECT_LE(found.edges.size(), size_t{2} * kWindows);
  for (int from = 0; from < kWindows; from += 2) {
    for (const int to : {0, 1, kWindows - 2, kWindows - 1}) {
      for (const int delta : {from < to ? 0 : 1, 2, 5}) EXPECT_TRUE(IsOrdered(found, from, to, delta));
    }
  }
}

// Row k of a step is written, then read by the next instruction and by all that follow in it: only neighbours stay.
TEST(TransitiveReduction, OfMoreInstructionsThanAWordHasBits) {
  constexpr int kInstructions = 300;
  std::vector<Dependency> edges;
  for (int from = 0; from < kInstructions; ++from) {
    for (int to = from + 1; to < kInstructions; ++to) edges.push_back({.from = from, .to = to});
    edges.push_back({.from = from, .to = from, .delta = 1});
    edges.push_back({.from = from, .to = from, .delta = 3});
  }
  RemoveImplied(kInstructions, &edges);
  ASSERT_EQ(edges.size(), size_t{2} * kInstructions - 1);
  for (const Dependency& edge : edges) EXPECT_EQ(edge.to - edge.from, edge.delta == 0 ? 1 : 0);
}

}  // namespace
}  // namespace stepnet

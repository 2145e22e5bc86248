#include "stepnet/compiler/dependencies.h"

#include <gtest/gtest.h>

#include <random>
#include <set>

#include "stepnet/compiler/schedule.h"
#include "stepnet/tests/compiler/dependency_order.h"
#include "stepnet/tests/executor/recurrent_case.h"

namespace stepnet {
namespace {

using Accesses = std::vector<std::vector<MemoryAccess>>;

std::vector<std::string> Text(const Dependencies& dependencies) {
  std::vector<std::string> text;
  for (const Dependency& edge : dependencies.edges) {
    text.push_back(StrCat(edge.from, "->", edge.to, "+", edge.delta, " ", DependencyKindName(edge.kind)));
  }
  return text;
}

MemoryAccess Row(int memory, bool writes, std::int64_t offset = 0, std::int64_t window = 1, bool backward = false) {
  return {.memory = memory, .writes = writes, .begin = offset * 8, .stride = backward ? -8 : 8, .bytes = window * 8};
}
MemoryAccess Shared(int memory, bool writes) { return {.memory = memory, .writes = writes, .bytes = 8}; }
MemoryAccess Ring(int memory, bool writes, std::int64_t rows, std::int64_t offset = 0) {
  return {.memory = memory, .writes = writes, .begin = offset * 8, .stride = 8, .bytes = 8, .ring = rows * 8};
}

TEST(Dependencies, S1EveryKindOfHazardOnASharedBuffer) {
  // 0 writes, 1 reads, 2 overwrites.
  EXPECT_EQ(
      Text(FindDependencies({{Shared(0, true)}, {Shared(0, false)}, {Shared(0, true)}})),
      (std::vector<std::string>{"0->1+0 read after write", "1->2+0 write after read", "2->0+1 write after write"}));
}

TEST(Dependencies, S2AnInstructionThatSharesNothingWaitsForNobody) {
  EXPECT_TRUE(FindDependencies({{Row(0, true)}, {Row(1, true)}, {Row(2, false)}}).edges.empty());
}

TEST(Dependencies, S3AnInstructionThatReadsWhatItWroteWaitsForItself) {
  EXPECT_EQ(Text(FindDependencies({{Row(0, false, 0), Row(0, true, 1)}})),
            (std::vector<std::string>{"0->0+1 read after write"}));
}

TEST(Dependencies, S4AnyOffsetAndWindow) {
  // Reads three rows of the past, of which the nearest is two steps old.
  EXPECT_EQ(
      Text(FindDependencies({{Row(0, false, 0, 3)}, {Row(0, true, 4)}})),
      (std::vector<std::string>{"1->0+2 read after write", "1->0+3 read after write", "1->0+4 read after write"}));
  // The same backward: step k reads what steps k - 4 … k - 2 wrote, each over what the one before had written.
  EXPECT_EQ(Text(FindDependencies({{Row(0, false, 4, 1, true)}, {Row(0, true, 0, 3, true)}})),
            (std::vector<std::string>{"1->1+1 write after write", "1->0+2 read after write"}));
}

TEST(Dependencies, S5TwoWritesWithoutAReaderKeepProgramOrder) {
  EXPECT_EQ(Text(FindDependencies({{Row(0, true)}, {Row(0, true)}})),
            (std::vector<std::string>{"0->1+0 write after write"}));
}

TEST(Dependencies, S9RowsOfDifferentStepsDoNotConflict) {
  EXPECT_EQ(Text(FindDependencies({{Row(0, true)}, {Row(0, false)}})),
            (std::vector<std::string>{"0->1+0 read after write"}));
  EXPECT_EQ(Text(FindDependencies({{Ring(0, true, 4)}, {Ring(0, false, 4)}})),
            (std::vector<std::string>{"0->1+0 read after write", "1->0+4 write after read"}));
}

TEST(Dependencies, RowsOfRingsMayLieApart) {
  // A state in two rows: what reads the old row is done before that becomes the new one in the next step.
  EXPECT_EQ(Text(FindDependencies({{Ring(0, false, 2)}, {Ring(0, true, 2, 1)}})),
            (std::vector<std::string>{"0->1+1 write after read", "1->0+1 read after write"}));
  // In four: the row comes again three steps later.
  EXPECT_EQ(Text(FindDependencies({{Ring(0, false, 4)}, {Ring(0, true, 4, 1)}})),
            (std::vector<std::string>{"0->1+3 write after read", "1->0+1 read after write"}));
}

TEST(Dependencies, WindowsOfAnySizeCostFewEdges) {
  const Dependencies wide = FindDependencies({{Row(0, false, 0, 1'000'000)}, {Row(0, true, 1'000'000)}});
  EXPECT_EQ(Text(wide), (std::vector<std::string>{"1->0+1 read after write", "1->1+1 read after write"}));
  // The write's order with itself stands for all further rows that the window sees.
  for (const Dependency& edge : wide.edges) EXPECT_EQ(edge.bytes, 8);
}

// All that conflicts, instance by instance.
class Unrolled {
 public:
  Unrolled(const Accesses& accesses, std::int64_t steps) : accesses_(accesses), steps_(steps) {}

  // Counts what step 0 of the one and step `later` of the other share, each named by its slot.
  std::int64_t SharedBytes(int from_slot, int to_slot, std::int64_t later) const {
    const std::set<std::int64_t> from = Bytes(OfSlot(from_slot), 0);
    const std::set<std::int64_t> to = Bytes(OfSlot(to_slot), later);
    return std::ranges::count_if(from, [&](std::int64_t byte) { return to.contains(byte); });
  }

  bool Conflict(int from, std::int64_t k, int to, std::int64_t later) const {
    for (const MemoryAccess& a : accesses_[from]) {
      for (const MemoryAccess& b : accesses_[to]) {
        if (a.memory == b.memory && (a.writes || b.writes) && Overlap(Bytes(a, k), Bytes(b, later))) return true;
      }
    }
    return false;
  }
  std::int64_t steps() const { return steps_; }
  int size() const { return static_cast<int>(accesses_.size()); }

 private:
  const MemoryAccess& OfSlot(int slot) const {
    const auto has_slot = [&](const MemoryAccess& access) { return access.slot == slot; };
    const auto owner = std::ranges::find_if(accesses_, [&](const auto& i) { return std::ranges::any_of(i, has_slot); });
    return *std::ranges::find_if(*owner, has_slot);
  }
  static std::set<std::int64_t> Bytes(const MemoryAccess& access, std::int64_t k) {
    std::set<std::int64_t> bytes;
    for (std::int64_t i = 0; i < access.bytes; ++i) {
      const std::int64_t at = access.begin + k * access.stride + i;
      bytes.insert(access.ring > 0 ? at % access.ring : at);
    }
    return bytes;
  }
  static bool Overlap(const std::set<std::int64_t>& a, const std::set<std::int64_t>& b) {
    return std::ranges::any_of(a, [&](std::int64_t byte) { return b.contains(byte); });
  }

  const Accesses& accesses_;
  std::int64_t steps_;
};

Accesses RandomAccesses(std::mt19937& rng) {
  const auto upto = [&](int max) { return static_cast<int>(rng() % (max + 1)); };
  const int memories = 1 + upto(3);
  std::vector<int> kinds;  // a piece of memory is used in one way
  for (int m = 0; m < memories; ++m) kinds.push_back(upto(3));
  const bool backward = upto(1) == 1;
  const std::int64_t ring_rows = 2 << upto(1);
  Accesses accesses(1 + upto(4));
  int slot = 0;  // each access has its own
  for (auto& instruction : accesses) {
    for (int a = upto(3); a >= 0; --a) {
      const int memory = upto(memories - 1);
      const bool writes = upto(2) == 0;
      if (kinds[memory] == 0) {
        instruction.push_back(Row(memory, writes, upto(3), 1 + upto(2), backward));
      } else if (kinds[memory] == 1) {
        instruction.push_back(Shared(memory, writes));
      } else {
        instruction.push_back(Ring(memory, writes, ring_rows, kinds[memory] == 2 ? 0 : upto(3)));
      }
      instruction.back().slot = slot++;
    }
  }
  return accesses;
}

TEST(Dependencies, AreNeitherMissingNorSuperfluousAgainstAllInstances) {
  std::mt19937 rng(1);
  for (int round = 0; round < 300; ++round) {
    const Accesses accesses = RandomAccesses(rng);
    const Unrolled unrolled(accesses, 9);
    const Dependencies found = FindDependencies(accesses);
    for (int from = 0; from < unrolled.size(); ++from) {
      for (int to = 0; to < unrolled.size(); ++to) {
        for (int delta = to > from ? 0 : 1; delta < unrolled.steps(); ++delta) {
          if (!unrolled.Conflict(from, 0, to, delta)) continue;
          ASSERT_TRUE(IsOrdered(found, from, to, delta))
              << "round " << round << ": " << from << "->" << to << "+" << delta;
        }
      }
    }
    for (size_t e = 0; e < found.edges.size(); ++e) {
      const Dependency& edge = found.edges[e];
      ASSERT_TRUE(unrolled.Conflict(edge.from, 0, edge.to, edge.delta))
          << "round " << round << ": superfluous " << Text(found)[e];
      ASSERT_EQ(unrolled.SharedBytes(edge.from_slot, edge.to_slot, edge.delta), edge.bytes)
          << "round " << round << ": " << Text(found)[e];
      Dependencies others = found;
      others.edges.erase(others.edges.begin() + static_cast<std::ptrdiff_t>(e));
      ASSERT_FALSE(IsOrdered(others, edge.from, edge.to, edge.delta))
          << "round " << round << ": implied " << Text(found)[e];
    }
  }
}

}  // namespace
}  // namespace stepnet

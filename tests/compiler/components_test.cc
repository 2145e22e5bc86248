#include "stepnet/compiler/components.h"

#include <gtest/gtest.h>

namespace stepnet {
namespace {

using Components = std::vector<std::vector<int>>;

TEST(Components, ReachEachOtherAndComeBeforeWhatTheyReach) {
  // 0 -> 2 -> 1 -> 2, 3 -> 0, 4 alone with an edge to itself.
  EXPECT_EQ(StronglyConnectedComponents({{2}, {2}, {1}, {0}, {4}}), (Components{{4}, {3}, {0}, {1, 2}}));
  EXPECT_EQ(StronglyConnectedComponents({}), Components{});
}

TEST(Components, ALongChainTakesNoDepth) {
  constexpr int kNodes = 300'000;
  std::vector<std::vector<int>> edges(kNodes);
  for (int n = 0; n < kNodes; ++n) edges[n] = {(n + 1) % kNodes};
  EXPECT_EQ(StronglyConnectedComponents(edges).size(), 1);
  edges.back().clear();
  EXPECT_EQ(StronglyConnectedComponents(edges).size(), kNodes);
}

}  // namespace
}  // namespace stepnet

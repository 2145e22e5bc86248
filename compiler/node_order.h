// Which nodes of a step must keep their order.
#pragma once

#include <utility>
#include <vector>

#include "stepnet/compiler/step_graph.h"

namespace stepnet {

// Gives, of each of the nodes [begin, end), all of one stage that takes one step at a time, those that come behind it,
// numbered from `begin`: they share bytes in a step, and one of them writes; or both may fail or do something that
// lasts. Those that follow from others may be missing.
std::vector<std::vector<int>> FollowersOf(const StepGraph& graph, int begin, int end);

// FollowersOf without the nodes that merely may fail or do something that lasts.
std::vector<std::vector<int>> FollowersByBytes(const StepGraph& graph, int begin, int end);

// Which nodes of a loop, those of [begin, end), numbered from `begin`, wait for each other around it: one number for
// those on a cycle of steps, by what `followers` (FollowersByBytes) says of one step and rows outside of the next;
// kNoCycle for others.
std::vector<int> CyclesOf(const StepGraph& graph, int begin, int end, const std::vector<std::vector<int>>& followers);
inline constexpr int kNoCycle = -1;

// Pairs of nodes of a loop, those of [begin, end): the second one reads, in the next step, rows outside that the first
// one writes in a step. A few of them, where there are many.
std::vector<std::pair<int, int>> WaitsOfNextStep(const StepGraph& graph, int begin, int end);

// Which of some nodes come before others whatever else is going on, by what follows each of them: chains of nodes, of
// which one follows the other, and for each node how far along each chain all has come before it (vector clocks;
// Mattern, Virtual time and global states of distributed systems, 1989). There are 64 chains at most: of nodes beyond
// them nothing is said.
class NodePrecedence {
 public:
  // Nodes run in turn.
  explicit NodePrecedence(int num_nodes);
  // Node n comes before those of followers[n], all of which have larger numbers.
  explicit NodePrecedence(const std::vector<std::vector<int>>& followers);

  int num_chains() const { return num_chains_; }
  int ChainOf(int node) const { return chain_of_[node]; }  // kNone beyond the chains
  // The last node of the chain that comes before this one; kNone: none does.
  int LastBefore(int node, int chain) const;
  bool IsBefore(int earlier, int later) const {
    return chain_of_[earlier] != kNone && earlier <= LastBefore(later, chain_of_[earlier]);
  }

  static constexpr int kNone = -1;

 private:
  static constexpr int kMaxChains = 64;

  bool in_turn_ = false;
  int num_chains_ = 0;
  std::vector<int> chain_of_;
  std::vector<std::vector<int>> last_before_;  // by node and chain, of those that had a node by then
};

}  // namespace stepnet

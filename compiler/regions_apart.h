// RegionsApart: what the pass fuse_regions says of nodes that it has not made one, by the conditions of the pass.
#pragma once

#include <string>
#include <vector>

#include "stepnet/compiler/step_graph.h"

namespace stepnet {

// Says of two nodes of a loop, [begin, end) of a graph behind the passes, why they are not one region.
class RegionsApart {
 public:
  RegionsApart(const StepGraph& graph, int begin, int end);

  // Why a node and a later one, which reads what it gives, are not one region: "product 7 lies between them". REQUIRES:
  // both run operators.
  std::string Why(int giver, int reader) const;

 private:
  std::string WhyNotJoined(int giver, int reader) const;
  std::string WhyNotWithOthers(int giver, int reader) const;
  bool Reads(int later, int earlier) const;
  int Between(int giver, int reader) const;
  std::vector<bool> Behind(int node) const;

  const StepGraph& graph_;
  const int begin_;
  const std::vector<std::vector<int>> followers_;
  std::vector<std::vector<int>> leaders_;  // the other way round
};

}  // namespace stepnet

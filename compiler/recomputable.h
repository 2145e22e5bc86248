// What a run forward keeps for its gradient and the steps back could as well compute again, and how.
#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include "stepnet/compiler/recomputed_value.h"
#include "stepnet/compiler/step_graph.h"
#include "stepnet/nets/recurrent_spec.h"

namespace stepnet {

// What follows of a step from what is there in the run back anyway: rows of states and sequences, captured tensors,
// what is computed once for all steps, what is kept. Nothing with effects, nothing that checks values, and no product
// that runs for many steps at once: the steps back take others together, by which it could round otherwise.
class StepAgain {
 public:
  // `forward` is a step forward before the pass recompute; a run back is lent the memory of `bases`, too.
  StepAgain(const StepGraph& forward, std::set<int> bases);

  // The nodes that give what the node gives, and that node, where these values of blobs are not kept; none: it cannot
  // be computed again, or takes more than kMaxNodes.
  std::set<int> NodesOf(int node, const std::set<std::string>& gone) const;
  // So many, one after the other, take longer than to keep what they give.
  static constexpr size_t kMaxNodes = 256;
  // The graph of the nodes that give these blobs. Its sources have the homes that they have in the step forward, its
  // other values temporaries. REQUIRES: all of them can be computed again.
  StepGraph PartThatGives(const std::set<std::string>& blobs) const;
  // Whether the value is what its blob ends as, and is kept.
  bool IsKeptBlob(int value) const;

 private:
  bool IsThere(int value, const std::set<std::string>& gone) const;
  bool IsLastInHome(int value) const;
  bool Stays(int value) const;
  int Predecessor(int value) const;
  bool MayRunAgain(int node) const;

  const StepGraph& graph_;
  const std::set<int> bases_;
  std::vector<std::vector<int>> values_of_;  // by home
  std::map<int, std::set<int>> written_;     // homes outside that the step writes, by base
  std::vector<bool> runs_for_many_steps_;    // by node
};

// The values that steps back could compute again: first those that follow from less, then others that no product is
// needed for, then the rest; of each kind first those that free the most bytes for the time that they take. Values that
// need the same products are one entry. Nothing that the backward step net reads by an operator without a formula:
// products of many steps would read it, for which it would be kept there.
std::vector<RecomputedValue> FindRecomputable(const StepGraph& forward, const RecurrentSpec& spec,
                                              const std::set<int>& bases);

}  // namespace stepnet

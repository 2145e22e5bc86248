// SummedProducts: the products that sums of a step add up, through sums of sums: who gives them biases finds those that
// have none yet without looking at the others again.
#pragma once

#include <optional>
#include <vector>

#include "stepnet/compiler/step_graph.h"
#include "stepnet/compiler/uses.h"

namespace stepnet {

class SummedProducts {
 public:
  // Products that stand side by side in the order in which they are added up.
  struct Range {
    int begin = 0, end = 0;
    bool empty() const { return begin == end; }
  };
  // Returns those among the terms of a value, which may be one itself.
  struct Terms {
    Range outside;  // of the loop: no step waits for them
    Range in_loop;
  };

  // Looks at the graph as it is now, in time that is in proportion to it.
  SummedProducts(const StepGraph& graph, const Uses& uses, NodesInLoop* in_loop);

  const Terms& Of(int value) const { return terms_[value]; }
  // Returns those of the last sum of which the value is a term, or a term of a term; of itself where it is none.
  const Terms& OfTotal(int value) const { return terms_[totals_[value]]; }
  bool IsTerm(int value) const { return totals_[value] != value; }

  // The first node of a range of this object that it has not given before: those outside before those in the loop.
  std::optional<int> Take(const Terms& terms);
  std::optional<int> TakeOutside(const Terms& terms) { return outside_.Take(terms.outside); }

 private:
  class List {
   public:
    int size() const { return static_cast<int>(nodes_.size()); }
    void Add(int node);
    std::optional<int> Take(Range range);

   private:
    std::vector<int> nodes_;
    std::vector<int> next_ = {0};  // for each and behind them: itself, or one behind it up to which all are taken
  };

  std::vector<Terms> terms_;  // by value
  std::vector<int> totals_;   // likewise
  List outside_, in_loop_;
};

}  // namespace stepnet

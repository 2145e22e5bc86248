// ForwardPlans: the plans of a RecurrentNetwork operator, and by which of them a run goes.
//
// A run that finds too little memory is tried again by a plan that does with less: with shorter blocks
// (StepPlan::block_steps), down to a chunk, which has the same bits and takes a little longer, then without one more of
// the values that the steps back can compute again. Later runs begin with what was little enough.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "stepnet/compiler/forward_plan.h"
#include "stepnet/compiler/plan_cache.h"
#include "stepnet/executor/number_for_limit.h"

namespace stepnet {

// Safe to use from any thread.
class ForwardPlans {
 public:
  // Which inputs of the operator have given elements, from which shapes in a step follow (CapturedSizes), on the host.
  using Sizes = std::vector<std::pair<int, Tensor>>;

  explicit ForwardPlans(std::shared_ptr<const ForwardOperator> forward);

  // Chooses the plan by which a run goes. One run and one thread use it.
  class Choice {
   public:
    // Begins with the plan whose memory was little enough for earlier runs, which keeps nothing that is better computed
    // again, however much memory there is (NumBetterRecomputed). `inputs` describes those of the run, and outlives the
    // choice. Throws what MakeForwardPlan throws.
    Choice(ForwardPlans& plans, const std::vector<TensorInfo>& inputs, Sizes sizes);

    const std::shared_ptr<const ForwardPlan>& plan() const { return plan_; }
    // Whether there is a plan that does with less memory, which TakeLess chooses.
    bool HasLess() const;
    void TakeLess();
    // There is memory for the run: later ones begin with what it does with.
    void Keep() const;

   private:
    void FindPlan();
    bool HasShorterBlocks() const;

    ForwardPlans& plans_;
    const std::vector<TensorInfo>& inputs_;
    const Sizes sizes_;
    const std::int64_t num_steps_;
    LessMemory less_;
    std::int64_t num_better_ = 0;  // NumBetterRecomputed
    std::shared_ptr<const ForwardPlan> plan_;
  };

  // How many values of ForwardPlan::recomputable runs do without as memory is short.
  const std::shared_ptr<NumberForLimit>& num_recomputed() const { return num_recomputed_; }

 private:
  // What a plan depends on: inputs, the elements of those that shapes follow from, and the memory that it does without.
  struct Key {
    std::vector<TensorInfo> inputs;
    std::string sizes;
    LessMemory less;
    bool operator==(const Key&) const = default;
  };

  const std::shared_ptr<const ForwardOperator> forward_;
  const std::vector<bool> seen_by_rows_;  // by input of the operator
  PlanCache<Key, ForwardPlan> plans_;
  NumberForLimit max_block_steps_;
  const std::shared_ptr<NumberForLimit> num_recomputed_ = std::make_shared<NumberForLimit>();
};

}  // namespace stepnet

#include "stepnet/executor/forward_plans.h"

#include <gtest/gtest.h>

#include <bit>

#include "step_of_pairs.h"
#include "stepnet/core/strings.h"
#include "stepnet/nets/backward_step.h"
#include "stepnet/nets/net_check.h"
#include "stepnet/tests/compiler/needs_usual_plans.h"
#include "stepnet/tests/core/limited_memory.h"

namespace stepnet {
namespace {

std::shared_ptr<const ForwardOperator> Forward(NetDef def) {
  AddBackwardStepNets(&def);
  return std::make_shared<const ForwardOperator>(OperatorCall(def.op(0)));
}

std::shared_ptr<const ForwardOperator> Pairs() { return Forward(StepOfPairs().Build()); }

// A product over time, in front of a loop.
std::shared_ptr<const ForwardOperator> Projection() {
  RecurrentCase net;
  net.Sequence("x", "x_t").State("h", "h0", "h_prev", "h_t").Captured("w").Captured("u");
  for (const char* text : {"a = FC(x_t, w)", "b = FC(h_prev, u)"}) {
    OperatorDef op = ParseOp(text);
    AddInt(&op, "axis", 2);
    net.Step(op);
  }
  net.Step("c = Add(a, b)").Step("h_t = Tanh(c)").Output("h_all", "h", 1);
  NetDef def = net.Build();
  return std::make_shared<const ForwardOperator>(OperatorCall(def.op(0)));
}

// The inputs of a run; captured tensors are squares of `units`.
std::vector<TensorInfo> InputsOf(const ForwardOperator& forward, std::int64_t steps, std::int64_t units) {
  std::vector<TensorInfo> inputs;
  for (const std::string& input : forward.op.inputs()) {
    const Shape shape = input == "x"    ? Shape({steps, 8, units})
                        : input == "h0" ? Shape({1, 8, units})
                                        : Shape({units, units});
    inputs.push_back({.dtype = DType::kFloat, .shape = shape});
  }
  return inputs;
}

TEST(ForwardPlans, ComputeAgainWhatIsBetterHoweverMuchMemoryThereIs) {
  NEEDS_USUAL_PLANS();
  ForwardPlans plans(Pairs());
  const std::vector<TensorInfo> few = InputsOf(*Pairs(), 5, 32), many = InputsOf(*Pairs(), 10'000, 32);
  EXPECT_TRUE(ForwardPlans::Choice(plans, few, {}).plan()->recomputed.empty());
  const ForwardPlans::Choice of_many(plans, many, {});
  EXPECT_FALSE(of_many.plan()->recomputed.empty());
  of_many.Keep();
  EXPECT_TRUE(ForwardPlans::Choice(plans, few, {}).plan()->recomputed.empty()) << "memory was not short";
}

TEST(ForwardPlans, TakeOneValueLessAfterTheOtherAndBeginWithWhatWasEnough) {
  NEEDS_USUAL_PLANS();
  ForwardPlans plans(Pairs());
  const std::vector<TensorInfo> inputs = InputsOf(*Pairs(), 5, 32);
  ForwardPlans::Choice choice(plans, inputs, {});
  const size_t all = choice.plan()->recomputable.size();
  ASSERT_GT(all, 1U);
  for (size_t count = 1; count <= all; ++count) {
    ASSERT_TRUE(choice.HasLess());
    choice.TakeLess();
    EXPECT_EQ(choice.plan()->recomputed.size(), count);
  }
  EXPECT_FALSE(choice.HasLess());
  EXPECT_TRUE(ForwardPlans::Choice(plans, inputs, {}).plan()->recomputed.empty()) << "nothing was kept";
  choice.Keep();
  EXPECT_EQ(ForwardPlans::Choice(plans, inputs, {}).plan(), choice.plan());
  EXPECT_EQ(plans.num_recomputed()->Get(), static_cast<std::int64_t>(all));
  const LimitedMemory other(TensorMemory().current + (std::int64_t{1} << 40));
  EXPECT_TRUE(ForwardPlans::Choice(plans, inputs, {}).plan()->recomputed.empty()) << "under another limit";
}

TEST(ForwardPlans, TakeShorterBlocksDownToAChunk) {
  NEEDS_USUAL_PLANS();
  ForwardPlans plans(Projection());
  const std::vector<TensorInfo> inputs = InputsOf(*Projection(), 300, 128);
  ForwardPlans::Choice choice(plans, inputs, {});
  std::vector<std::int64_t> blocks = {std::min<std::int64_t>(choice.plan()->steps->block_steps, 300)};
  while (choice.HasLess()) {
    choice.TakeLess();
    blocks.push_back(choice.plan()->steps->block_steps);
  }
  const std::int64_t chunk = choice.plan()->steps->chunk_steps;
  EXPECT_EQ(blocks.back(), chunk);
  ASSERT_GT(blocks.size(), 1U);
  for (size_t k = 1; k < blocks.size(); ++k) {
    const auto before = static_cast<std::uint64_t>(blocks[k - 1]);
    EXPECT_EQ(blocks[k], std::max(static_cast<std::int64_t>(std::bit_floor(before)) / 4, chunk));
  }
  choice.Keep();
  EXPECT_EQ(ForwardPlans::Choice(plans, inputs, {}).plan(), choice.plan());
}

}  // namespace
}  // namespace stepnet

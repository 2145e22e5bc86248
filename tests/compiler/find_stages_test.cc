// Which instructions leave the loop, in which order stages come, and that values stay what one loop gives.
#include "stepnet/compiler/find_stages.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <set>
#include <tuple>

#include "stepnet/compiler/schedule.h"
#include "stepnet/core/strings.h"
#include "stepnet/nets/backward.h"
#include "stepnet/nets/backward_step.h"
#include "stepnet/tests/compiler/needs_usual_plans.h"
#include "stepnet/tests/compiler/stages_case.h"
#include "stepnet/tests/executor/layers.h"
#include "stepnet/tests/executor/recurrent_case.h"
#include "stepnet/tests/operators/op_test.h"

namespace stepnet {
namespace {

// The title of the stage with the instruction that gives `outputs`, as its text has them.
std::string StageWith(const StepPlan& plan, const std::string& outputs) {
  for (const Stage& stage : plan.stages) {
    for (int i = stage.begin; i < stage.end; ++i) {
      if (plan.instructions[i].text.starts_with(outputs + " ")) return StageTitle(stage);
    }
  }
  return "nowhere";
}

// The net with the gradients of `outputs` by `inputs`.
NetDef Training(const NetDef& forward, const Lines& outputs, const Lines& inputs) {
  NetDef net = forward;
  AddBackwardStepNets(&net);
  return AddGradients(net, outputs, inputs).net;
}

// Over all elements of a step, so that several steps are no more rows of one run.
OperatorDef WholeSoftmax(const std::string& text) {
  OperatorDef op = ParseOp(text);
  AddInt(&op, "axis", 0);
  return op;
}

constexpr std::int64_t kSize = 8;  // weights are eight times as large as a row, or four times two rows

Tensor Rows(std::int64_t rows, unsigned seed, std::int64_t batch = 1) { return Random({rows, batch, kSize}, seed); }

// Small enough for values to stay small over any number of steps.
Tensor Weights(unsigned seed) {
  const Tensor weights = Random({kSize, kSize}, seed);
  for (std::int64_t i = 0; i < weights.size(); ++i) weights.data<double>()[i] *= 0.3;
  return weights;
}

// A recurrent layer over x: what comes from it goes through `above`, which gives h_next from p, and r of the state.
RecurrentCase Layer(const Lines& above = {"s = Sum(p, r)", "h_next = Tanh(s)"}) {
  RecurrentCase net;
  net.Sequence("x", "x_t").State("h", "h0", "h_prev", "h_next").Captured("w").Captured("u").Captured("b");
  net.Step(Product("p = FC(x_t, w, b)")).Step(Product("r = FC(h_prev, u)"));
  for (const std::string& op : above) net.Step(op);
  net.Output("h_all", "h", 1);
  return net;
}

Feeds LayerFeeds(std::int64_t steps, std::int64_t batch = 1) {
  return {{"x", Rows(steps, 1, batch)},
          {"h0", Random({batch, kSize}, 2)},
          {"w", Weights(3)},
          {"u", Weights(4)},
          {"v", Weights(5)},
          {"b", Random({kSize}, 6)}};
}

TEST(Stages, TheProductOfASequenceRunsBeforeTheLoop) {
  NEEDS_USUAL_PLANS();
  const Plans plans = PlansOf(Layer().Build(), LayerFeeds(3));
  EXPECT_EQ(StagesOf(plans.forward), (Lines{WhenPacked(), "u packed = Pack(u)",            //
                                            "for 64 steps at once:", "p = FC(x_t, w, b)",  //
                                            "in each step:", "r = FC(h_prev, u)", "h_next = Tanh(s)"}));
}

TEST(Stages, ElementwiseOperatorsBesideALoopStayInIt) {
  NEEDS_USUAL_PLANS();
  // Before the loop or after it, their values would have to leave the caches.
  RecurrentCase net =
      Layer({"a = Tanh(p)", "e = Sigmoid(x_t)", "s = Sum(a, r, e)", "h_next = Tanh(s)", "o = Sigmoid(h_next)"});
  net.State("o_state", "h0", "", "o").Output("o_all", "o_state", 1);
  const Plans plans = PlansOf(net.Build(), LayerFeeds(3));
  EXPECT_EQ(StagesOf(plans.forward), (Lines{WhenPacked(), "u packed = Pack(u)",            //
                                            "for 64 steps at once:", "p = FC(x_t, w, b)",  //
                                            "in each step:", "r = FC(h_prev, u)", "a = Tanh(p)", "e = Sigmoid(x_t)",
                                            "s = Sum(a, r, e)", "h_next = Tanh(s)", "o = Sigmoid(h_next)"}));
}

TEST(Stages, ElementwiseOperatorsBetweenProductsLeaveTheLoopWithThem) {
  NEEDS_USUAL_PLANS();
  RecurrentCase net;
  net.Sequence("x", "x_t").State("h", "h0", "h_prev", "h_next").Captured("w").Captured("u");
  net.Step(Product("p = FC(x_t, w)")).Step("a = Tanh(p)").Step("a = Mul(a, x_t)").Step(Product("q = FC(a, u)"));
  net.Step("h_next = Sum(q, h_prev)").Output("h_all", "h", 1);
  const Plans plans = ExpectLevelsAgree(net.Build(), LayerFeeds(150), "between products");
  EXPECT_EQ(StagesOf(plans.forward),
            (Lines{"for 64 steps at once:", "p = FC(x_t, w)", "a = Tanh(p)", "a = Mul(a, x_t)", "q = FC(a, u)",  //
                   "in each step:", "h_next = Sum(q, h_prev)"}));
}

TEST(Stages, AStepNetInWhichNoStepWaitsForAnotherHasNoLoop) {
  NEEDS_USUAL_PLANS();
  RecurrentCase net;
  net.Sequence("x", "x_t").State("h", "h0", "", "h_next").Captured("w");
  net.Step(Product("p = FC(x_t, w)")).Step("h_next = Tanh(p)").Output("h_all", "h", 1);
  const Plans plans = ExpectLevelsAgree(net.Build(), LayerFeeds(150), "no loop");
  EXPECT_EQ(StagesOf(plans.forward), (Lines{"for 64 steps at once:", "p = FC(x_t, w)", "h_next = Tanh(p)"}));
}

// Two layers in one step net, the second over what the first gives.
RecurrentCase TwoLayers(const OperatorDef& between) {
  RecurrentCase net;
  net.Sequence("x", "x_t").State("h", "h0", "h_prev", "h_next").State("g", "h0", "g_prev", "g_next");
  net.Captured("w").Captured("u").Captured("v").Captured("b");
  net.Step(Product("r = FC(h_prev, u)")).Step("s = Sum(x_t, r)").Step("h_next = Tanh(s)");
  net.Step(between).Step(Product("q = FC(g_prev, v)")).Step("a = Sum(p, q)").Step("g_next = Tanh(a)");
  net.Output("g_all", "g", 1).Output("h_all", "h", 1);
  return net;
}

TEST(Stages, LoopsComeApartWhereAProductLiesBetweenThem) {
  NEEDS_USUAL_PLANS();
  const NetDef net =
      Training(TwoLayers(Product("p = FC(h_next, w, b)")).Build(), {"g_all", "h_all"}, {"x", "h0", "w", "u", "v", "b"});
  const Plans plans = ExpectLevelsAgree(net, LayerFeeds(150), "two layers");
  EXPECT_EQ(StagesOf(plans.forward),
            (Lines{WhenPacked(), "u packed = Pack(u)", "v packed = Pack(v)",                     //
                   "in each step:", "r = FC(h_prev, u)", "s = Sum(x_t, r)", "h_next = Tanh(s)",  //
                   "for 64 steps at once:", "p = FC(h_next, w, b)",                              //
                   "in each step:", "q = FC(g_prev, v)", "g_next = Tanh(a)"}));
  EXPECT_EQ(StagesOf(plans.backward),
            (Lines{WhenPacked(), "v packed = Pack(v)", "u packed = Pack(u)",  //
                   "in each step:", "a_grad = TanhGradient(g_next, g_next_grad)",
                   "g_prev_grad = FCGradient(g_prev, v, a_grad)",                                      //
                   "for 64 steps at once:", "_h_next_grad_autosplit = FCGradient(h_next, w, a_grad)",  //
                   "in each step:", "h_next_grad_0 = Sum(h_next_grad, _h_next_grad_autosplit)",
                   "s_grad = TanhGradient(h_next, h_next_grad_0)", "h_prev_grad = FCGradient(h_prev, u, s_grad)",
                   "x_t_grad = Copy(s_grad)",  //
                   "once for all steps:", "v_grad = FCGradient(g_prev, v, a_grad)",
                   "w_grad, b_grad = FCGradient(h_next, w, a_grad)", "u_grad = FCGradient(h_prev, u, s_grad)"}));
}

// The edges between the tasks of the plan's pipeline: from, to, delta.
std::set<std::tuple<int, int, int>> EdgesOf(const StepPlan& plan) {
  std::set<std::tuple<int, int, int>> edges;
  const Schedule pipeline = MakePipeline(plan, 8);
  for (size_t task = 0; task < pipeline.tasks.size(); ++task) {
    for (const Task::Successor& next : pipeline.tasks[task].successors) edges.emplace(task, next.task, next.delta);
  }
  return edges;
}

using PipelineEdges = std::set<std::tuple<int, int, int>>;

// Chunks of a block, where steps are small: rows of what a stage passes on are written again then.
constexpr int kBlock = kCpuTarget.max_chunks_of_block;

TEST(Stages, ProductsOfOneChunkDoNotWaitForThoseOfAnother) {
  NEEDS_USUAL_PLANS();
  const Plans plans = PlansOf(Layer().Build(), LayerFeeds(3));
  EXPECT_EQ(EdgesOf(plans.forward), (PipelineEdges{{0, 1, 0}, {1, 0, kBlock}, {1, 1, 1}}));
}

TEST(Stages, ALoopWaitsForItsLastChunkAndForTheRowsThatItReads) {
  NEEDS_USUAL_PLANS();
  const Plans plans = PlansOf(TwoLayers(Product("p = FC(h_next, w, b)")).Build(), LayerFeeds(3));
  EXPECT_EQ(EdgesOf(plans.forward), (PipelineEdges{{0, 0, 1}, {0, 1, 0}, {1, 2, 0}, {2, 1, kBlock}, {2, 2, 1}}));
}

TEST(Stages, ChunksThatShareATemporaryDoNotRunBesideEachOther) {
  NEEDS_USUAL_PLANS();
  RecurrentCase net;
  net.Sequence("x", "x_t").State("h", "h0", "h_prev", "h_next").Captured("w").Captured("u");
  net.Step(Product("p = FC(x_t, w)"))
      .Step(WholeSoftmax("m = Softmax(p)"))
      .Step(WholeSoftmax("n = Softmax(m)"))
      .Step(Product("q = FC(n, u)"));
  net.Step("h_next = Sum(q, h_prev)").Output("h_all", "h", 1);
  const StepPlan plan = PlansOf(net.Build(), LayerFeeds(3), {.executor = "parallel", .threads = 2}).forward;
  EXPECT_EQ(StagesOf(plan), (Lines{"for 64 steps at once:", "p = FC(x_t, w)",            //
                                   "in each step:", "m = Softmax(p)", "n = Softmax(m)",  //
                                   "for 64 steps at once:", "q = FC(n, u)",              //
                                   "in each step:", "h_next = Sum(q, h_prev)"}));
  // No step of the first loop waits for another, but m is in a ring.
  EXPECT_EQ(
      EdgesOf(plan),
      (PipelineEdges{
          {0, 1, 0}, {1, 0, kBlock}, {1, 1, 1}, {1, 2, 0}, {2, 1, kBlock}, {2, 3, 0}, {3, 2, kBlock}, {3, 3, 1}}));
}

TEST(Stages, LoopsWithoutAProductBetweenThemAreOne) {
  NEEDS_USUAL_PLANS();
  const Plans plans = PlansOf(TwoLayers(ParseOp("p = Tanh(h_next)")).Build(), LayerFeeds(3));
  EXPECT_EQ(StagesOf(plans.forward), (Lines{WhenPacked(), "u packed = Pack(u)", "v packed = Pack(v)",  //
                                            "in each step:", "r = FC(h_prev, u)", "s = Sum(x_t, r)", "h_next = Tanh(s)",
                                            "p = Tanh(h_next)", "q = FC(g_prev, v)", "g_next = Tanh(a)"}));
}

// As those of two directions: each has its weights in the cache, and one may be beside the other.
TEST(Stages, LoopsThatNeedNothingOfEachOtherComeApart) {
  NEEDS_USUAL_PLANS();
  RecurrentCase net = Layer();
  net.State("g", "h0", "g_prev", "g_next").Captured("v").Step(Product("q = FC(g_prev, v)"));
  net.Step("a = Sum(p, q)").Step("g_next = Tanh(a)").Output("g_all", "g", 1);
  const Plans plans = ExpectLevelsAgree(net.Build(), LayerFeeds(150), "two loops");
  EXPECT_EQ(StagesOf(plans.forward),
            (Lines{WhenPacked(), "u packed = Pack(u)", "v packed = Pack(v)",                   //
                   "for 64 steps at once:", "p = FC(x_t, w, b)",                               //
                   "in each step:", "r = FC(h_prev, u)", "s = Sum(p, r)", "h_next = Tanh(s)",  //
                   "in each step:", "q = FC(g_prev, v)", "a = Sum(p, q)", "g_next = Tanh(a)"}));
}

TEST(Stages, LoopsWithoutChunksBeforeThemAreOneWhateverTheyNeed) {
  NEEDS_USUAL_PLANS();
  RecurrentCase net;
  net.Sequence("x", "x_t").Captured("u").Captured("v").State("h", "h0", "h_prev", "h_next");
  net.State("g", "h0", "g_prev", "g_next").Step(Product("r = FC(h_prev, u)")).Step(Product("q = FC(g_prev, v)"));
  net.Step("h_next = Sum(x_t, r)").Step("g_next = Sum(x_t, q)").Output("h_all", "h", 1).Output("g_all", "g", 1);
  const Plans plans = PlansOf(net.Build(), LayerFeeds(3));
  EXPECT_EQ(StagesOf(plans.forward), (Lines{WhenPacked(), "u packed = Pack(u)", "v packed = Pack(v)",  //
                                            "in each step:", "r = FC(h_prev, u)", "q = FC(g_prev, v)",
                                            "h_next = Sum(x_t, r)", "g_next = Sum(x_t, q)"}));
}

const Lines kParameters = {"x", "h0", "w", "u", "b"};

TEST(Stages, GradientsOfWeightsAreSummedOnceForAllSteps) {
  NEEDS_USUAL_PLANS();
  const Plans plans = PlansOf(Training(Layer().Build(), {"h_all"}, kParameters), LayerFeeds(3));
  EXPECT_EQ(StagesOf(plans.backward), (Lines{WhenPacked(), "u packed = Pack(u)",  //
                                             "in each step:", "s_grad = TanhGradient(h_next, h_next_grad)",
                                             "h_prev_grad = FCGradient(h_prev, u, s_grad)",                     //
                                             "for 64 steps at once:", "x_t_grad = FCGradient(x_t, w, s_grad)",  //
                                             "once for all steps:", "u_grad = FCGradient(h_prev, u, s_grad)",
                                             "w_grad, b_grad = FCGradient(x_t, w, s_grad)"}));
}

const Lines kForwardLoop = {"in each step:", "p = FC(x_t, w, b)", "r = FC(h_prev, u)", "s = Sum(p, r)",
                            "h_next = Tanh(s)"};
const Lines kBackwardLoop = {"in each step:", "s_grad = TanhGradient(h_next, h_next_grad)",
                             "u_grad, h_prev_grad = FCGradient(h_prev, u, s_grad)",
                             "w_grad, b_grad, x_t_grad = FCGradient(x_t, w, s_grad)"};

TEST(Stages, AtLevel0EverythingIsInOneLoop) {
  NEEDS_USUAL_PLANS();
  const Plans plans =
      PlansOf(Training(Layer().Build(), {"h_all"}, kParameters), LayerFeeds(3), {.executor = "serial", .opt_level = 0});
  EXPECT_EQ(StagesOf(plans.forward), kForwardLoop);
  EXPECT_EQ(StagesOf(plans.backward), kBackwardLoop);
}

TEST(Stages, ProductsStayInTheLoopWhereRowsAreLargeBesideTheWeights) {
  NEEDS_USUAL_PLANS();
  // 64 elements of weights, as eight rows have; so little that any less of rows is worth taking out.
  const NetDef net = Training(Layer().Build(), {"h_all"}, kParameters);
  EXPECT_GT(PlansOf(net, LayerFeeds(3, 7)).forward.stages.size(), 1u);
  const Plans plans =
      PlansOf(net, LayerFeeds(3, 8), {.executor = "serial", .disabled_passes = {"pack_weights", "add_in_place"}});
  EXPECT_EQ(StagesOf(plans.forward), kForwardLoop);
  EXPECT_EQ(StagesOf(plans.backward), kBackwardLoop);
}

TEST(Stages, AStepNetWithoutProductsIsOneLoop) {
  NEEDS_USUAL_PLANS();
  RecurrentCase net;
  net.Sequence("x", "x_t").State("h", "h0", "h_prev", "h_next");
  net.Step("a = Tanh(x_t)").Step("h_next = Sum(a, h_prev)").Output("h_all", "h", 1);
  const NetDef def = Training(net.Build(), {"h_all"}, {"x", "h0"});
  for (const int level : {0, 1, 2}) {
    const Plans plans = PlansOf(def, LayerFeeds(3), {.executor = "serial", .opt_level = level});
    EXPECT_EQ(StagesOf(plans.forward), (Lines{"in each step:", "a = Tanh(x_t)", "h_next = Sum(a, h_prev)"}));
    EXPECT_EQ(plans.backward.stages.size(), 1u);
    EXPECT_EQ(plans.backward.stages.front().steps_at_once, 1);
  }
}

TEST(Stages, AChunkHasUpTo64RowsInAPowerOfTwoOf4StepsAtLeast) {
  NEEDS_USUAL_PLANS();
  RecurrentCase net;
  net.Sequence("x", "x_t").State("h", "h0", "", "h_next").Captured("w").Step(Product("h_next = FC(x_t, w)"));
  const NetDef def = net.Output("h_all", "h", 1).Build();
  for (const auto& [rows, steps] : std::vector<std::pair<std::int64_t, std::int64_t>>{{1, 64}, {3, 16}, {15, 4}}) {
    const std::int64_t size = std::max<std::int64_t>(4 * rows, 8);
    const Plans plans = PlansOf(def, {{"x", Tensor::Zeros(DType::kFloat, {2, rows, size})},
                                      {"h0", Tensor::Zeros(DType::kFloat, {rows, size})},
                                      {"w", Tensor::Zeros(DType::kFloat, {size, size})}});
    EXPECT_EQ(plans.forward.chunk_steps, steps) << rows << " rows";
    EXPECT_EQ(StageWith(plans.forward, "h_next"), StrCat("for ", steps, " steps at once"));
  }
}

// They read packed weights as fast as many steps at once would, where weights are neither small nor beyond the caches.
// A large second cache is better without them, where as many steps as it takes at once pack weights, too.
TEST(Stages, AProductOfManyRowsStaysInTheLoop) {
  NEEDS_USUAL_PLANS();
  RecurrentCase net;
  net.Sequence("x", "x_t").State("h", "h0", "", "h_next").Captured("w").Step(Product("h_next = FC(x_t, w)"));
  const NetDef def = net.Output("h_all", "h", 1).Build();
  static constexpr Target kSmallCache = {.second_cache_bytes = 1 << 20}, kLargeCache = {.second_cache_bytes = 2 << 20};
  const auto stays = [&](std::int64_t rows, std::int64_t size, const Target& target) {
    const Feeds feeds = {{"x", Tensor::Zeros(DType::kFloat, {2, rows, size})},
                         {"h0", Tensor::Zeros(DType::kFloat, {rows, size})},
                         {"w", Tensor::Zeros(DType::kFloat, {size, size})}};
    return PlansOf(def, feeds, {.target = &target}).forward.chunk_steps == 0;
  };
  const std::int64_t rows = kCpuTarget.min_rows_of_step;
  EXPECT_TRUE(stays(rows, 512, kSmallCache));
  EXPECT_TRUE(stays(64, 512, kSmallCache));
  EXPECT_FALSE(stays(rows - 1, 512, kSmallCache));
  EXPECT_FALSE(stays(rows, 256, kSmallCache)) << "small weights";
  EXPECT_FALSE(stays(rows, 1536, kSmallCache)) << "large weights";
  EXPECT_FALSE(stays(rows, 512, kLargeCache));
  EXPECT_FALSE(stays(32, 512, kLargeCache));
  EXPECT_TRUE(stays(33, 512, kLargeCache));
}

TEST(Stages, LoopsComeApartWhereAProductThatStaysIsBetweenThem) {
  NEEDS_USUAL_PLANS();
  constexpr Target kStays = {.second_cache_bytes = 1 << 20, .min_rows_of_step = 1, .min_bytes_in_loop = 0};
  const NetDef net =
      Training(TwoLayers(Product("p = FC(h_next, w, b)")).Build(), {"g_all", "h_all"}, {"x", "h0", "w", "u", "v", "b"});
  const Plans plans = PlansOf(net, LayerFeeds(3, 4), {.executor = "serial", .target = &kStays});
  const Lines forward = StagesOf(plans.forward);
  const auto product = std::ranges::find(forward, "p = FC(h_next, w, b)");
  ASSERT_NE(product, forward.end());
  EXPECT_EQ(*(product - 1), "in each step:");
  EXPECT_EQ(*(product - 2), "h_next = Tanh(s)");
  EXPECT_EQ(plans.forward.chunk_steps, 0);
}

// Two layers, each with a factor; overlapping stages would add to the gradient of one that both have in another order.
TEST(Stages, DoNotOverlapWhereTheyAddToOneSum) {
  NEEDS_USUAL_PLANS();
  for (const std::string second : {"r", "s"}) {
    RecurrentCase net;
    net.Sequence("x", "x_t").State("h", "h0", "h_prev", "h_next").State("g", "h0", "g_prev", "g_next");
    for (const char* name : {"w", "b", "s", "r"}) net.Captured(name);
    net.Step("a = Mul(h_prev, s)").Step("c = Add(x_t, a)").Step("h_next = Tanh(c)");
    net.Step(Product("p = FC(h_next, w, b)")).Step(ParseOp(StrCat("d = Mul(g_prev, ", second, ")")));
    net.Step("e = Add(p, d)").Step("g_next = Tanh(e)").Output("g_all", "g", 1);
    const NetDef def = Training(net.Build(), {"g_all"}, {"x", "s", "w"});
    Feeds feeds = LayerFeeds(150, 3);
    feeds.emplace_back("s", Random({kSize}, 7));
    feeds.emplace_back("r", Random({kSize}, 8));
    Tensor expected;
    for (const int threads : {1, 2, 3}) {
      Workspace workspace;
      for (const auto& [name, tensor] : feeds) workspace.SetTensor(name, tensor.Clone());
      const Plans plans = PlansOf(def, workspace, {.threads = threads});
      const Tensor found = workspace.GetTensor("s_grad").Clone();
      if (threads == 1) expected = found;
      ExpectSame(found, expected, StrCat(threads, " threads, ", second));
      const bool overlap = plans.backward.pipeline != nullptr;
      EXPECT_EQ(overlap, threads > 1 && second == "r") << threads << " threads, " << second;
    }
  }
}

TEST(Stages, AProductOfSeveralRowsOfASequenceStaysInTheLoop) {
  NEEDS_USUAL_PLANS();
  RecurrentCase net;
  net.Sequence("x", "x_t").Sequence("y", "y_w", 0, 2).State("h", "h0", "", "h_next").Captured("w");
  net.Step(Product("p = FC(x_t, w)")).Step(Product("q = FC(y_w, w)"));
  OperatorDef sum = ParseOp("m = ReduceSum(q)");
  AddInts(&sum, "axes", {0});
  net.Step(sum).Step("h_next = Sum(p, m)").Output("h_all", "h", 1);
  Feeds feeds = LayerFeeds(150);
  feeds.emplace_back("y", Rows(151, 7));
  const Plans plans = ExpectLevelsAgree(net.Build(), feeds, "windows");
  EXPECT_EQ(StageWith(plans.forward, "p"), "for 64 steps at once");
  EXPECT_EQ(StageWith(plans.forward, "q"), "in each step");
}

TEST(Stages, AProductWithWeightsThatTheStepComputesStaysInTheLoop) {
  NEEDS_USUAL_PLANS();
  RecurrentCase net;
  net.Sequence("x", "x_t").State("h", "h0", "", "h_next").Captured("w").Captured("u");
  net.Step("v = Tanh(w)").Step(Product("p = FC(x_t, v)")).Step(Product("q = FC(x_t, u)"));
  net.Step("h_next = Sum(p, q)").Output("h_all", "h", 1);
  const Plans plans = PlansOf(net.Build(), LayerFeeds(3), {.disabled_passes = {"hoist", "merge_products"}});
  EXPECT_EQ(StageWith(plans.forward, "p"), "in each step");
  EXPECT_EQ(StageWith(plans.forward, "q"), "for 64 steps at once");
  const Plans hoisted = PlansOf(net.Build(), LayerFeeds(3), {.disabled_passes = {"merge_products"}});
  EXPECT_EQ(StageWith(hoisted.forward, "v"), "once for all steps");
  EXPECT_EQ(StageWith(hoisted.forward, "p"), "for 64 steps at once");
}

// In training, too: the gradient's steps read the one value that the forward steps do.
TEST(Stages, WhatIsComputedOnceIsSharedWithTheGradient) {
  NEEDS_USUAL_PLANS();
  RecurrentCase net;
  net.Sequence("x", "x_t").State("h", "h0", "h_prev", "h_next").Captured("w").Captured("u");
  net.Step("v = Tanh(w)").Step(Product("p = FC(x_t, v)")).Step(Product("r = FC(h_prev, u)"));
  net.Step("s = Sum(p, r)").Step("h_next = Tanh(s)").Output("h_all", "h", 1);
  const Plans plans =
      ExpectLevelsAgree(Training(net.Build(), {"h_all"}, {"x", "h0", "w", "u"}), LayerFeeds(150), "weights of weights");
  EXPECT_EQ(StageWith(plans.forward, "v"), "once for all steps");
  EXPECT_EQ(StageWith(plans.forward, "p"), "for 64 steps at once");
  const auto of_v = std::ranges::find(plans.backward.slots, "v", &Slot::blob);
  ASSERT_NE(of_v, plans.backward.slots.end());
  EXPECT_EQ(of_v->storage_class, StorageClass::kShared);
}

TEST(Stages, ProductsOfOneSequenceAreOneOverTime) {
  NEEDS_USUAL_PLANS();
  RecurrentCase net;
  net.Sequence("x", "x_t").State("h", "h0", "h_prev", "h_next").Captured("w").Captured("u");
  net.Step(Product("p = FC(x_t, w)")).Step(Product("q = FC(x_t, u)")).Step("s = Mul(p, h_prev)");
  net.Step("h_next = Sum(s, q)").Output("h_all", "h", 1);
  const Plans plans = ExpectLevelsAgree(net.Build(), LayerFeeds(150), "two products");
  EXPECT_EQ(StageWith(plans.forward, "p|q"), "for 64 steps at once");
}

TEST(Stages, RandomNumbersStayThoseOfTheirStep) {
  NEEDS_USUAL_PLANS();
  RecurrentCase net;
  net.Sequence("x", "x_t").State("h", "h0", "h_prev", "h_next").Captured("w").Captured("u");
  net.Step(Product("p = FC(x_t, w)")).Step("d, mask = Dropout(p)").Step(Product("q = FC(d, u)"));
  net.Step("h_next = Sum(q, h_prev)").Output("h_all", "h", 1);
  const Plans plans = ExpectLevelsAgree(net.Build(), LayerFeeds(150), "dropout");
  EXPECT_EQ(StagesOf(plans.forward), (Lines{"for 64 steps at once:", "p = FC(x_t, w)",  //
                                            "in each step:", "d, mask = Dropout(p)",    //
                                            "for 64 steps at once:", "q = FC(d, u)",    //
                                            "in each step:", "h_next = Sum(q, h_prev)"}));
}

std::vector<std::int64_t> steps_seen;

// y = x; notes which step it is.
const Registration notes_step = Operator("test.NotesStep")
                                    .Input("x", "any shape")
                                    .Output("y", "as x")
                                    .Elementwise()
                                    .HasSideEffects()
                                    .Shapes(SameAsInput(0))
                                    .Cpu([](const OperatorCall&) -> RunFn {
                                      return [](const OpRun& run) {
                                        steps_seen.push_back(run.step());
                                        CopyElements(run.In(0), run.Out(0));
                                      };
                                    });

TEST(Stages, WhatHasSideEffectsRunsInEachStep) {
  NEEDS_USUAL_PLANS();
  RecurrentCase net;
  net.Sequence("x", "x_t").State("h", "h0", "h_prev", "h_next").Captured("w").Captured("u");
  net.Step(Product("p = FC(x_t, w)")).Step("d = test.NotesStep(p)").Step(Product("q = FC(d, u)"));
  net.Step("h_next = Sum(q, h_prev)").Output("h_all", "h", 1);
  steps_seen.clear();
  const Plans plans = PlansOf(net.Build(), LayerFeeds(5));
  EXPECT_EQ(StageWith(plans.forward, "p"), "for 64 steps at once");
  EXPECT_EQ(StageWith(plans.forward, "d"), "in each step");
  EXPECT_EQ(steps_seen, (std::vector<std::int64_t>{0, 1, 2, 3, 4}));
}

TEST(Stages, WhatReadsAStateOfAStepAgoComesAfterWhatGivesItsRows) {
  NEEDS_USUAL_PLANS();
  // No loop is needed; z is the first in the program, and its row 64 is one that the first chunk of s gives.
  RecurrentCase net;
  net.Sequence("x", "x_t").State("s", "h0", "s_prev", "s_next").State("z_state", "h0", "", "z");
  net.Captured("w").Captured("u").Captured("b");
  net.Step(Product("z = FC(s_prev, u)")).Step(Product("s_next = FC(x_t, w, b)"));
  net.Output("z_all", "z_state", 1).Output("s_all", "s", 1);
  const NetDef def = Training(net.Build(), {"z_all", "s_all"}, kParameters);
  for (const std::int64_t steps : {0, 1, 64, 65, 128, 150}) {
    const Plans plans = ExpectLevelsAgree(def, LayerFeeds(steps), StrCat(steps, " steps"));
    EXPECT_EQ(StagesOf(plans.forward), (Lines{"for 64 steps at once:", "s_next = FC(x_t, w, b)", "z = FC(s_prev, u)"}));
    EXPECT_EQ(StagesOf(plans.backward), (Lines{"for 64 steps at once:", "s_prev_grad = FCGradient(s_prev, u, z_grad)",
                                               "x_t_grad = FCGradient(x_t, w, s_next_grad)",  //
                                               "once for all steps:", "u_grad = FCGradient(s_prev, u, z_grad)",
                                               "w_grad, b_grad = FCGradient(x_t, w, s_next_grad)"}));
  }
}

TEST(Stages, TheNumberOfStepsMayChangeFromRunToRun) {
  NEEDS_USUAL_PLANS();
  const NetDef net =
      Training(TwoLayers(Product("p = FC(h_next, w, b)")).Build(), {"g_all", "h_all"}, {"x", "h0", "w", "u", "v", "b"});
  for (const int threads : {1, 2, 3}) {
    Workspace changing;
    for (const auto& [name, tensor] : LayerFeeds(5)) changing.SetTensor(name, tensor);
    const auto made =
        Net::Create(net, changing, {.executor = threads == 1 ? "serial" : "parallel", .threads = threads});
    for (const std::int64_t steps : {5, 150, 0, 64, 1, 200, 3}) {
      changing.SetTensor("x", Rows(steps, 1));
      made->Run();
      Workspace fresh;
      for (const auto& [name, tensor] : LayerFeeds(steps)) fresh.SetTensor(name, tensor);
      RunNetOnce(net, fresh, {.executor = "serial"});
      ExpectSameBlobs(fresh, changing, StrCat(steps, " steps, ", threads, " threads"));
    }
  }
}

TEST(Stages, ASumIsNotPutOffWhenItsTermIsOverwritten) {
  NEEDS_USUAL_PLANS();
  RecurrentCase net;
  net.Sequence("x", "x_t").State("h", "h0", "h_prev", "h_next").Captured("w");
  net.Step(Product("p = FC(x_t, w)")).Step("h_next = Sum(p, h_prev)").Output("h_all", "h", 1);
  OperatorDef gradient = ParseOp("w_step, dx = FCGradient(x_t, w, d)");
  AddInt(&gradient, "axis", 2);
  AddInt(&gradient, "no_bias", 1);
  net.BackwardStep("d = Tanh(h_next_grad)").BackwardStep(gradient).BackwardStep("d = Mul(d, d)");
  net.BackwardStep("e = Sum(d, dx)").BackwardLink("h_next_grad", "h_grad", 1).BackwardLink("e", "x_grad", 0);
  net.Param("w", "w_step").OutputGradient("h_all").WithGradient();
  Feeds feeds = LayerFeeds(150);
  feeds.emplace_back("h_all_grad", Rows(150, 9));
  const Plans plans = ExpectLevelsAgree(net.Build(), feeds, "overwritten");
  EXPECT_EQ(StagesOf(plans.backward),
            (Lines{"for 64 steps at once:", "d = Tanh(h_next_grad)", "w_step = FCGradient(x_t, w, d)",
                   "dx = FCGradient(x_t, w, d)", "d = Mul(d, d)", "e = Sum(d, dx)"}));
}

// A recurrent layer whose products are of this type.
NetDef TrainedLayer(const std::string& type, bool has_bias) {
  RecurrentCase net;
  net.Sequence("x", "x_t").State("h", "h0", "h_prev", "h_next").Captured("w").Captured("u");
  OperatorDef p = ParseOp(StrCat("p = ", type, "(x_t, w", has_bias ? ", b" : "", ")"));
  OperatorDef r = ParseOp(StrCat("r = ", type, "(h_prev, u)"));
  if (type != "MatMul") {
    for (OperatorDef* op : {&p, &r}) AddInt(op, "axis", 2);
  }
  net.Captured("b").Step(p).Step(r).Step("s = Sum(p, r)").Step("h_next = Tanh(s)").Output("h_all", "h", 1);
  return Training(net.Build(), {"h_all"}, has_bias ? kParameters : Lines{"x", "h0", "w", "u"});
}

TEST(Stages, EveryTypeOfProductLeavesTheLoopAndIsTrainedAsInOne) {
  NEEDS_USUAL_PLANS();
  for (const auto& [type, has_bias] : std::vector<std::pair<std::string, bool>>{
           {"FC", true}, {"FC", false}, {"FCTransposed", true}, {"FCTransposed", false}, {"MatMul", false}}) {
    const std::string what = StrCat(type, has_bias ? " with bias" : "");
    // The gradient of MatMul is one of matrices: a step has one row.
    const std::int64_t batch = type == "MatMul" ? 1 : 2;
    const std::string chunk = batch == 1 ? "for 64 steps at once" : "for 32 steps at once";
    const Plans plans = ExpectLevelsAgree(TrainedLayer(type, has_bias), LayerFeeds(150, batch), what);
    EXPECT_EQ(StageWith(plans.forward, "p"), chunk) << what;
    EXPECT_EQ(StageWith(plans.forward, "r"), "in each step") << what;
    EXPECT_EQ(StageWith(plans.backward, has_bias ? "w_grad, b_grad" : "w_grad"), "once for all steps") << what;
    EXPECT_EQ(StageWith(plans.backward, "u_grad"), "once for all steps") << what;
    EXPECT_EQ(StageWith(plans.backward, "x_t_grad"), chunk) << what;
    EXPECT_EQ(StageWith(plans.backward, "h_prev_grad"), "in each step") << what;
  }
}

}  // namespace
}  // namespace stepnet

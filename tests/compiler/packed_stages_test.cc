// Which weights are packed before the steps, and that values stay what unpacked ones give.
#include "stepnet/tests/compiler/needs_usual_plans.h"
#include "stepnet/tests/compiler/stages_case.h"
#include "stepnet/tests/core/sanitized.h"

namespace stepnet {
namespace {

// A layer of so many units that its product is made in several blocks.
Feeds WideFeeds(std::int64_t steps, std::int64_t batch) {
  constexpr std::int64_t kUnits = 1030;
  Tensor u = Random({kUnits, kUnits}, 4);
  for (std::int64_t i = 0; i < u.size(); ++i) u.data<double>()[i] /= kUnits;  // so that rounding does not grow
  return {{"x", Random({steps, batch, kUnits}, 1)},
          {"h0", Random({batch, kUnits}, 2)},
          {"u", u},
          {"b", Random({kUnits}, 6)}};
}

TEST(Stages, WeightsThatTheLoopReadsArePackedOnce) {
  NEEDS_USUAL_PLANS();
  RecurrentCase net;
  net.Sequence("x", "x_t").State("h", "h0", "h_prev", "h_next").Captured("u").Captured("b");
  net.Step(Product("r = FC(h_prev, u, b)")).Step("s = Sum(x_t, r)").Step("h_next = Tanh(s)").Output("h_all", "h", 1);
  const auto has_packed = [](const StepPlan& plan) { return StagesOf(plan).front() == WhenPacked(); };
  const NetDef one_row = net.Build();
  EXPECT_FALSE(has_packed(PlansOf(one_row, WideFeeds(2, 1)).forward)) << "a row times rows needs no other form";
  for (const std::int64_t batch : {2, 4}) {
    const auto what = StrCat("batch ", batch);
    EXPECT_TRUE(
        has_packed(ExpectLevelsAgree(net.Build(), WideFeeds(kCpuTarget.min_steps_to_pack, batch), what).forward))
        << what;
  }
  constexpr Target kPacksThree = {.max_rows_to_pack = 3};
  const RunOptions options{.executor = "serial", .target = &kPacksThree};
  EXPECT_TRUE(has_packed(PlansOf(net.Build(), WideFeeds(2, 3), options).forward));
  EXPECT_FALSE(has_packed(PlansOf(net.Build(), WideFeeds(2, 4), options).forward)) << "more rows than are worth it";
}

TEST(Stages, WeightsThatManyChunksReadArePackedToo) {
  NEEDS_USUAL_PLANS();
  RecurrentCase net;
  net.Sequence("x", "x_t").State("h", "h0", "", "h_next").Captured("w").Captured("b");
  const NetDef def = net.Step(Product("h_next = FC(x_t, w, b)")).Output("h_all", "h", 1).Build();
  // Chunks of 64 rows in 8 steps, in so many steps that runs have few of them, and steps of many rows.
  const std::vector<std::pair<std::int64_t, bool>> cases = {
      {8, true}, {16, true}, {4, false}, {64, true}, {200, false}};
  constexpr std::int64_t kUnits = 1000;
  const Tensor w = Random({kUnits, kUnits}, 3), b = Random({kUnits}, 4);
  for (const auto& [batch, packs] : cases) {
    if (kIsSanitized && batch > 16) continue;  // most of the numbers
    const Feeds feeds = {{"x", Random({kCpuTarget.min_steps_to_pack + 1, batch, kUnits}, 1)},
                         {"h0", Random({batch, kUnits}, 2)},
                         {"w", w},
                         {"b", b}};
    const Plans plans = ExpectLevelsAgree(def, feeds, StrCat("batch ", batch));
    EXPECT_EQ(StagesOf(plans.forward).size(), packs ? 4u : 2u) << "batch " << batch;
    EXPECT_EQ(StagesOf(plans.forward)[1], packs ? "w packed = Pack(w)" : "h_next = FC(x_t, w, b)") << "batch " << batch;
  }
}

TEST(Stages, RunsOfFewStepsReadWeightsAsTheyAre) {
  NEEDS_USUAL_PLANS();
  RecurrentCase net;
  net.Sequence("x", "x_t").State("h", "h0", "h_prev", "h_next").Captured("u");
  net.Step(Product("r = FC(h_prev, u)")).Step("h_next = Sum(x_t, r)").Output("h_all", "h", 1);
  Workspace workspaces[kMaxOptLevel + 1];
  for (const int level : {0, 1, 2}) {
    for (const auto& [name, tensor] : WideFeeds(kCpuTarget.min_steps_to_pack - 1, 4))
      workspaces[level].SetTensor(name, tensor);
    RunNetOnce(net.Build(), workspaces[level], {.opt_level = level});
  }
  for (const int level : {1, 2}) {
    ExpectSame(workspaces[0].GetTensor("h_all"), workspaces[level].GetTensor("h_all"), StrCat("level ", level));
  }
}

}  // namespace
}  // namespace stepnet

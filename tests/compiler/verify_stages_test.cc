// Plans of graphs whose stages are wrong, whatever was verified of the graphs, are found.
#include "stepnet/compiler/verify_stages.h"

#include "stepnet/compiler/emit.h"
#include "stepnet/compiler/graph_text.h"
#include "stepnet/core/strings.h"
#include "stepnet/tests/operators/op_test.h"

namespace stepnet {
namespace {

TEST(VerifyStages, FindsPlansThatDoNotKeepTheOrderOfALoop) {
  const auto plan_of = [](int steps, const std::string& stage) {
    return EmitPlan(
        ParseGraph(StrCat("step s {\n  h_prev: float [1, 4] at 0[16 * t]\n  ", stage,
                          ":\n  h.1: float [1, 4] at 0[16 * (t + ", steps, ")] = region Tanh(h_prev) @0 {}\n}\n")),
        {});
  };
  VerifyStages(plan_of(1, "in each step"));
  VerifyStages(plan_of(64, "for 64 steps at once"));
  ExpectError(
      [&] { VerifyStages(plan_of(1, "for 64 steps at once")); },
      "internal error: stages run node 0, h = Tanh(h_prev), before node 0, h = Tanh(h_prev), of 1 step earlier, "
      "which it waits for by h\n  in net \"s\"");
  ExpectError([&] { VerifyStages(plan_of(64, "once for all steps")); },
              "internal error: stages run node 0, h = Tanh(h_prev), before node 0, h = Tanh(h_prev), of 64 steps "
              "earlier, which it waits for by h\n  in net \"s\"");
}

TEST(VerifyStages, FindsWhatRunsForAllStepsBetweenOthers) {
  const auto verify = [](const std::string& first, const std::string& second, const std::string& third) {
    std::string lines = "  x: float [1, 4] at 0[16 * t]\n";
    int k = 0;
    for (const std::string& stage : {first, second, third}) {
      ++k;
      lines += StrCat("  ", stage, ":\n  y", k, ": float [1, 4] at ", k, "[16 * t] = region Tanh(x) @", k, " {}\n");
    }
    VerifyStages(EmitPlan(ParseGraph(StrCat("step s {\n", lines, "}\n")), {}));
  };
  const std::string all = "once for all steps", one = "in each step";
  verify(all, all, one);
  verify(all, one, all);
  verify(one, "for 64 steps at once", all);
  ExpectError(
      [&] { verify(one, all, one); },
      "internal error: node 1, y2 = Tanh(x): it runs once for all steps, between what does not\n  in net \"s\"");
}

}  // namespace
}  // namespace stepnet

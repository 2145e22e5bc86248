// Step nets whose plans are looked at, stage by stage, and whose values are compared with those of one loop.
#pragma once

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "stepnet/compiler/schedule.h"
#include "stepnet/core/strings.h"
#include "stepnet/nets/net.h"
#include "stepnet/tests/executor/recurrent_case.h"
#include "stepnet/tests/operators/op_test.h"

namespace stepnet {

using Lines = std::vector<std::string>;
using Feeds = std::vector<std::pair<std::string, Tensor>>;

// What a plan does, a line for the title of each stage and for each instruction.
inline Lines StagesOf(const StepPlan& plan) {
  Lines lines;
  for (const Stage& stage : plan.stages) {
    lines.push_back(StageTitle(stage) + ":");
    for (int i = stage.begin; i < stage.end; ++i) lines.push_back(plan.instructions[i].text);
  }
  return lines;
}

// The title of the stage in which weights are packed.
inline std::string WhenPacked() {
  return StrCat("once for all steps, in runs of ", kCpuTarget.min_steps_to_pack, " steps or more:");
}

struct Plans {
  StepPlan forward, backward;
};

// Runs the net in the workspace and returns the plans that it made, of operators one by one.
inline Plans PlansOf(const NetDef& def, Workspace& workspace, RunOptions options = {.executor = "serial"}) {
  Plans plans;
  options.disabled_passes.insert("fuse_regions");
  options.on_plan = [&](const StepPlan& plan) { (plan.backward ? plans.backward : plans.forward) = plan; };
  Net::Create(def, workspace, options)->Run();
  return plans;
}

inline Plans PlansOf(const NetDef& def, const Feeds& feeds, const RunOptions& options = {.executor = "serial"}) {
  Workspace workspace;
  for (const auto& [name, tensor] : feeds) workspace.SetTensor(name, tensor.Clone());
  return PlansOf(def, workspace, options);
}

// A product of rows [1, B, K].
inline OperatorDef Product(const std::string& text) {
  OperatorDef op = ParseOp(text);
  AddInt(&op, "axis", 2);
  return op;
}

// Runs the net at level 0 and at the default one, and compares all blobs, which must differ by rounding alone.
inline Plans ExpectLevelsAgree(const NetDef& def, const Feeds& feeds, const std::string& what) {
  Workspace in_a_loop;
  for (const auto& [name, tensor] : feeds) in_a_loop.SetTensor(name, tensor.Clone());
  const Plans loops = PlansOf(def, in_a_loop, {.executor = "serial", .opt_level = 0});
  EXPECT_EQ(loops.forward.stages.size(), 1u);
  Plans plans;
  for (const int threads : {1, 3}) {
    Workspace in_stages;
    for (const auto& [name, tensor] : feeds) in_stages.SetTensor(name, tensor.Clone());
    plans = PlansOf(def, in_stages, {.executor = threads == 1 ? "serial" : "parallel", .threads = threads});
    for (const std::string& name : in_a_loop.LocalBlobs()) {
      if (!in_a_loop.FindBlob(name)->HasTensor()) continue;
      const std::vector<double> expected = Values(in_a_loop.GetTensor(name)), found = Values(in_stages.GetTensor(name));
      EXPECT_EQ(found.size(), expected.size()) << name;
      for (size_t i = 0; i < std::min(found.size(), expected.size()); ++i) {
        EXPECT_NEAR(found[i], expected[i], 1e-12 * (1 + std::abs(expected[i])))
            << name << " element " << i << ", " << threads << " threads, " << what;
        if (testing::Test::HasFailure()) return plans;
      }
    }
  }
  return plans;
}

}  // namespace stepnet

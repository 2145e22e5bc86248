// Plans as text: everything that an instruction or a slot has to say, once.
#include "stepnet/compiler/plan_text.h"

#include <gtest/gtest.h>

namespace stepnet {
namespace {

TEST(PlanText, SaysWhereValuesLieAndWhatRuns) {
  StepPlan plan{.name = "cell\x1b", .backward = true};
  plan.arena = {
      {.base = 2, .row_bytes = 24, .rows = 0}, {.base = 3, .row_bytes = 64, .rows = 16}, {.base = 4, .row_bytes = 96}};
  plan.dynamic_lists = {true, false};
  plan.slots = {
      {.blob = "x", .storage_class = StorageClass::kLinked, .base = 0, .row_bytes = 24, .bytes = 24},
      {.blob = "h", .storage_class = StorageClass::kLinked, .base = 1, .offset = 2, .row_bytes = 24, .bytes = 48},
      {.blob = "kept", .storage_class = StorageClass::kStacked, .base = 2, .row_bytes = 24, .bytes = 24},
      {.blob = "turns", .storage_class = StorageClass::kRing, .base = 3, .row_bytes = 64, .ring_rows = 16, .bytes = 24},
      {.blob = "packed", .storage_class = StorageClass::kShared, .base = 4, .bytes = 96},
      {.blob = "found", .storage_class = StorageClass::kDynamic, .base = 1},
      {.blob = "gone", .storage_class = StorageClass::kLocal},
  };
  plan.before = {{.text = "h[0:1] = h_init", .rows = RowMove()},
                 {.text = "h = 0", .rows = RowMove{.only_without_steps = true}}};
  plan.after = {{.text = "h_init_grad += h[0:1]", .rows = RowMove()}};
  plan.instructions = {
      {.text = "kept = FC(x, w)",
       .inputs = {{.slot = 0}},
       .outputs = {{.slot = 2, .added = true}},
       .packed = InstructionOperand{.slot = 4}},
      {.text = "found = NonZero(kept)",
       .inputs = {{.slot = 2}},
       .outputs = {{.slot = 5}},
       .by_blobs = true,
       .checks_values = true},
      {.text = "Print(kept)", .inputs = {{.slot = 2}}, .has_side_effects = true},
      {.text = "h = Sum(x, turns)", .inputs = {{.slot = 0}, {.slot = 3}}, .outputs = {{.slot = 1}}, .max_parts = 3}};
  plan.stages = {{.begin = 0, .end = 1, .steps_at_once = kAllSteps, .min_steps = 4},
                 {.begin = 1, .end = 3, .steps_at_once = 8},
                 {.begin = 3, .end = 4}};
  EXPECT_EQ(PlanText(plan),
            "plan of backward net cell\\x1b\n"
            "  base 2: 24 bytes a step\n"
            "  base 3: 16 rows of 64 bytes\n"
            "  base 4: 96 bytes\n"
            "  list 0: a blob a step\n"
            "  list 1: one blob\n"
            "  slot 0: x, linked at 0[24 * t], 24 bytes\n"
            "  slot 1: h, linked at 1[24 * (t + 2)], 48 bytes\n"
            "  slot 2: kept, stacked at 2[24 * t], 24 bytes\n"
            "  slot 3: turns, ring at 3[64 * (t % 16)], 24 bytes\n"
            "  slot 4: packed, shared at 4, 96 bytes\n"
            "  slot 5: found, dynamic, list 1\n"
            "  slot 6: gone, local\n"
            "before the first step:\n"
            "  4: h[0:1] = h_init\n"
            "  5: h = 0, in runs of no steps\n"
            "once for all steps, in runs of 4 steps or more:\n"
            "  0: kept = FC(x, w): 0 to +2; packed in 4\n"
            "for 8 steps at once:\n"
            "  1: found = NonZero(kept): 2 to 5; by blobs; checks values\n"
            "  2: Print(kept): 2 to nothing; has side effects\n"
            "in each step:\n"
            "  3: h = Sum(x, turns): 0, 3 to 1; up to 3 parts\n"
            "after the last step:\n"
            "  6: h_init_grad += h[0:1]\n");
}

}  // namespace
}  // namespace stepnet

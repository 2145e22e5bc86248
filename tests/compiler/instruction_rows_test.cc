// Which operands of an instruction have rows of many steps.
#include "stepnet/compiler/instruction_rows.h"

#include <gtest/gtest.h>

#include "stepnet/compiler/emit.h"
#include "stepnet/tests/compiler/passes/pass_case.h"
#include "stepnet/tests/core/error_of.h"

namespace stepnet {
namespace {

// What has rows in runs for several steps, "R" or "-".
std::string RowsOf(const std::string& lines) {
  const StepPlan plan = EmitPlan(ParseGraph(Step(lines)), {});
  const Instruction& instruction = plan.instructions.back();
  std::string text = instruction.can_take_steps ? "steps: " : "step: ";
  for (const InstructionOperand& input : instruction.inputs) text += input.has_rows ? "R" : "-";
  text += " to ";
  for (const InstructionOperand& output : instruction.outputs) text += output.has_rows ? "R" : "-";
  return text;
}

TEST(InstructionRows, SaysWhichOperandsHaveRowsOfManySteps) {
  const std::string x = "  x: float [2, 4] at 0[32 * t]\n  w: float [4, 4] at 1\n  b: float [4] at 2\n";
  EXPECT_EQ(RowsOf(x + "  y.1: float [2, 4] kept = FC(x, w) @0 {}\n"), "steps: R- to R");
  EXPECT_EQ(RowsOf(x + "  y.1: float [2, 4] = FC(x, w) @0 {}\n"), "step: R- to R") << "a ring has no row for each step";
  EXPECT_EQ(RowsOf(x + "  ^y: float [2, 4] at 3[32 * t] = x\n"), "steps: R to R");
  EXPECT_EQ(RowsOf(x + "  y.1: float [2, 4] kept = region Tanh(x) @0 {}\n"), "steps: R to R");
  EXPECT_EQ(
      RowsOf(x + "  region {\n    a.1: float [2, 4] local = Sigmoid(x) @0 {}\n    y.1: float [2, 4] kept = Tanh(a.1) "
                 "@1 {}\n  }\n"),
      "steps: R to R");
}

TEST(InstructionRows, WhatRunsOnceHasNoRows) {
  EXPECT_EQ(RowsOf("  w: float [4, 4] at 0\n"
                   "  v: float [4, 4] at 1\n"
                   "  once for all steps:\n"
                   "  ^p: float [4, 4] once = FC(w, v) @0 {}\n"),
            "step: -- to -");
}

TEST(InstructionRows, ARegionThatCannotTakeManyStepsIsRefused) {
  StepGraph graph =
      ParseGraph(Step("  x: float [2, 4] at 0[32 * t]\n"
                      "  region {\n"
                      "    a.1: float [2, 4] local = Tanh(x) @0 {}\n"
                      "    y.1: float [2, 4] = Tanh(a.1) @1 {}\n"
                      "  }\n"));
  graph.stages = {{.begin = 0, .end = 1, .steps_at_once = 16}};
  EXPECT_EQ(ErrorOf([&] { EmitPlan(graph, {}); }),
            "internal error: y = Region(x) of Tanh, Tanh cannot run for several steps at once\n  in net \"step\"");
}

}  // namespace
}  // namespace stepnet

// Plans of small graphs: operands, slots, stages, row moves, and what instructions say of themselves.
#include "stepnet/compiler/emit.h"

#include <gtest/gtest.h>

#include "stepnet/compiler/plan_text.h"
#include "stepnet/core/error.h"
#include "stepnet/core/move.h"
#include "stepnet/tests/compiler/passes/pass_case.h"
#include "stepnet/tests/core/error_of.h"

namespace stepnet {
namespace {

StepGraph Graph(const std::string& lines, bool backward = false) {
  const StepGraph graph = ParseGraph((backward ? "backward " : "") + Step(lines));
  VerifyGraph(graph, "parse");
  return graph;
}

StepPlan PlanOf(const std::string& lines, const EmitOptions& options = {}) { return EmitPlan(Graph(lines), options); }

// Without the first line.
std::string TextOf(const StepPlan& plan) {
  const std::string text = PlanText(plan);
  EXPECT_TRUE(text.starts_with("plan of net step\n")) << text;
  return text.substr(text.find('\n') + 1);
}
std::string TextOf(const std::string& lines, const EmitOptions& options = {}) { return TextOf(PlanOf(lines, options)); }

TEST(Emit, EachHomeIsASlotAndEachNodeAnInstruction) {
  EXPECT_EQ(TextOf("  x: float [1, 2, 4] at 0[32 * t]\n"
                   "  w: float [4, 4] at 1\n"
                   "  b: float [4] at 2\n"
                   "  a.1: float [1, 2, 4] = FC(x, w, b) @0 {arg { name: \"axis\" i: 2 }}\n"
                   "  a.2: float [1, 2, 4] in a.1 = Tanh(a.1) @1 {}\n"
                   "  k.1: float [1, 2, 4] kept = Relu(a.2) @2 {}\n"
                   "  h.1: float [1, 2, 4] at 3[32 * (t + 1)] = Add(k.1, a.2) @3 {}\n"
                   "  ^y: float [1, 2, 4] at 4[32 * (t + 2)] = h.1\n"),
            "  base 5: 32 bytes\n"
            "  base 6: 32 bytes a step\n"
            "  slot 0: x, linked at 0[32 * t], 32 bytes\n"
            "  slot 1: w, shared at 1, 64 bytes\n"
            "  slot 2: b, shared at 2, 16 bytes\n"
            "  slot 3: a, ring at 5, 32 bytes\n"
            "  slot 4: k, stacked at 6[32 * t], 32 bytes\n"
            "  slot 5: h, linked at 3[32 * (t + 1)], 32 bytes\n"
            "  slot 6: y, linked at 4[32 * (t + 2)], 32 bytes\n"
            "in each step:\n"
            "  0: a = FC(x, w, b): 0, 1, 2 to 3\n"
            "  1: a = Tanh(a): 3 to 3\n"
            "  2: k = Relu(a): 3 to 4\n"
            "  3: h = Add(k, a): 4, 3 to 5\n"
            "  4: y = h: 5 to 6\n");
}

TEST(Emit, SaysOfWhichOperatorAnInstructionIs) {
  const StepPlan plan = PlanOf(
      "  x: float [1, 4] at 0[16 * t]\n"
      "  a.1: float [1, 4] = Tanh(x) @5 {}\n"
      "  ^y: float [1, 4] at 1[16 * t] = a.1\n");
  EXPECT_EQ(plan.instructions[0].op_index, 5);
  EXPECT_EQ(plan.instructions[0].type, "Tanh");
  EXPECT_EQ(plan.instructions[1].op_index, -1);
  EXPECT_EQ(plan.instructions[1].type, "copy");
  for (const Instruction& instruction : plan.instructions) EXPECT_TRUE(instruction.kernel);
}

TEST(Emit, APlanIsOfTheGraphsTargetAndDirection) {
  const Target target{.max_parts = 7};
  StepGraph graph = Graph("  x: float [1, 4] at 0[16 * t]\n  a.1: float [1, 4] = Tanh(x) @0 {}\n", /*backward=*/true);
  graph.target = &target;
  const StepPlan plan = EmitPlan(graph, {});
  EXPECT_TRUE(plan.backward);
  EXPECT_EQ(plan.name, "step");
  EXPECT_EQ(plan.target, &target);
}

TEST(Emit, RingsHaveTheRowsThatAreAskedFor) {
  EXPECT_EQ(TextOf("  x: float [1, 4] at 0[16 * t]\n  a.1: float [1, 4] = Tanh(x) @0 {}\n", {.ring_rows = 8}),
            "  base 1: 8 rows of 64 bytes\n"
            "  slot 0: x, linked at 0[16 * t], 16 bytes\n"
            "  slot 1: a, ring at 1[64 * (t % 8)], 16 bytes\n"
            "in each step:\n"
            "  0: a = Tanh(x): 0 to 1\n");
}

// w shows three rows of a sequence; g is of base 0, which has more.
TEST(Emit, WindowsLieWhereTheirFirstRowIs) {
  EXPECT_EQ(TextOf("  w: float [3, 4] at 0[16 * (t + 1)]\n"
                   "  g: float [1, 4] at 1[16 * t], 48 bytes\n"
                   "  a.1: float [3, 4] = Add(w, g) @0 {}\n"),
            "  base 2: 48 bytes\n"
            "  slot 0: w, linked at 0[16 * (t + 1)], 48 bytes\n"
            "  slot 1: g, linked at 1[16 * t], 48 bytes\n"
            "  slot 2: a, ring at 2, 48 bytes\n"
            "in each step:\n"
            "  0: a = Add(w, g): 0, 1 to 2\n");
}

TEST(Emit, WhatIsMadeOnceIsSharedAndPackedWeightsAreRead) {
  EXPECT_EQ(TextOf("  x: float [2, 8] at 0[64 * t]\n"
                   "  w: float [16, 8] at 1\n"
                   "  once for all steps, in runs of 4 steps or more:\n"
                   "  ^\"w packed\": uint8 [512] once = packed w for @0\n"
                   "  in each step:\n"
                   "  y.1: float [2, 16] kept = product x [2, 8] * w [16, 8]^T by FC(x, w) with ^\"w packed\" @0 {}\n"),
            "  base 2: 512 bytes\n"
            "  base 3: 128 bytes a step\n"
            "  slot 0: x, linked at 0[64 * t], 64 bytes\n"
            "  slot 1: w, shared at 1, 512 bytes\n"
            "  slot 2: w packed, shared at 2, 512 bytes\n"
            "  slot 3: y, stacked at 3[128 * t], 128 bytes\n"
            "once for all steps, in runs of 4 steps or more:\n"
            "  0: w packed = Pack(w): 1 to 2\n"
            "in each step:\n"
            "  1: y = FC(x, w): 0, 1 to 3; packed in 2\n");
}

// What runs behind all steps has no rows of them; its temporaries take turns, in one row each whatever steps have.
TEST(Emit, WhatStepsAddUpIsClearedAndReadBehindThem) {
  EXPECT_EQ(TextOf("  before the first step:\n"
                   "  s.1 = zero\n"
                   "  x: float [4] at 0[16 * t]\n"
                   "  in each step:\n"
                   "  s.1: float [4] added summed = x\n"
                   "  once behind all steps:\n"
                   "  a.1: float [4] = Tanh(s.1) @0 {}\n"
                   "  b.1: float [4] = Relu(a.1) @1 {}\n"
                   "  c.1: float [4] = Abs(b.1) @2 {}\n"
                   "  ^y: float [4] at 1 = c.1\n",
                   {.ring_rows = 4}),
            "  base 2: 16 bytes\n"
            "  base 3: 16 bytes\n"
            "  base 4: 16 bytes\n"
            "  slot 0: x, linked at 0[16 * t], 16 bytes\n"
            "  slot 1: s, shared at 2, 16 bytes\n"
            "  slot 2: a, ring at 3, 16 bytes\n"
            "  slot 3: b, ring at 4, 16 bytes\n"
            "  slot 4: c, ring at 3, 16 bytes\n"
            "  slot 5: y, shared at 1, 16 bytes\n"
            "before the first step:\n"
            "  5: s = zero\n"
            "in each step:\n"
            "  0: s += x: 0 to 1\n"
            "once behind all steps:\n"
            "  1: a = Tanh(s): 1 to 2\n"
            "  2: b = Relu(a): 2 to 3\n"
            "  3: c = Abs(b): 3 to 4\n"
            "  4: y = c: 4 to 5\n");
}

TEST(Emit, PackingIsPartOfEachTypicalStep) {
  const std::string lines =
      "  x: float [2, 1024] at 0[8192 * t]\n"
      "  w: float [128, 1024] at 1\n"
      "  once for all steps:\n"
      "  ^\"w packed\": uint8 [524288] once = packed w for @0\n"
      "  in each step:\n"
      "  y.1: float [2, 128] = product x [2, 1024] * w [128, 1024]^T by FC(x, w) with ^\"w packed\" @0 {}\n";
  const StepPlan plan = PlanOf(lines);
  const Instruction& pack = plan.instructions.front();
  EXPECT_EQ(pack.type, "pack");
  EXPECT_EQ(pack.op_index, -1);
  EXPECT_TRUE(pack.kernel);
  EXPECT_EQ(pack.max_parts, 524288 / kCpuTarget.min_part_bytes);
  EXPECT_EQ(pack.cost.bytes, 2 * 524288.0 / kTypicalSteps);
  EXPECT_TRUE(plan.instructions.back().can_pack);
  EXPECT_EQ(plan.instructions.back().max_parts, 128 / OpRun::kUnitsOfPart);
  EXPECT_FALSE(PlanOf(lines, {.is_draft = true}).instructions.front().kernel);
}

TEST(Emit, StagesHaveTheInstructionsOfTheirNodes) {
  const StepPlan plan = PlanOf(
      "  x: float [2, 4] at 0[32 * t]\n"
      "  w: float [4, 4] at 1\n"
      "  for 16 steps at once:\n"
      "  p.1: float [2, 4] kept = product x [2, 4] * w [4, 4]^T by FC(x, w) @0 {}\n"
      "  in each step:\n"
      "  h: float [2, 4] at 2[32 * t]\n"
      "  h.1: float [2, 4] at 2[32 * (t + 1)] = region Add(p.1, h) @1 {}\n");
  EXPECT_TRUE(
      TextOf(plan).ends_with("for 16 steps at once:\n"
                             "  0: p = FC(x, w): 0, 1 to 2\n"
                             "in each step:\n"
                             "  1: h = Add(p, h): 2, 3 to 4\n"));
  EXPECT_EQ(plan.chunk_steps, 16);
  EXPECT_EQ(plan.instructions[0].steps_at_once, 16);
  EXPECT_EQ(plan.instructions[1].steps_at_once, 1);
}

// 4 MB of a step: blocks of as few chunks as there may be.
TEST(Emit, WhatIsPassedHasRowsForABlockOfChunks) {
  const auto plan_of = [](int columns) {
    const std::string row = StrCat(": float [2, ", columns, "]"), bytes = StrCat(8 * columns);
    return PlanOf(StrCat("  x: float [2, 4] at 0[32 * t]\n  w: float [", columns,
                         ", 4] at 1\n  for 16 steps at once:\n  p.1", row, " passed = product x [2, 4] * w [", columns,
                         ", 4]^T by FC(x, w) @0 {}\n  in each step:\n  h", row, " at 2[", bytes, " * t]\n  h.1", row,
                         " at 2[", bytes, " * (t + 1)] = region Add(p.1, h) @1 {}\n"));
  };
  const StepPlan wide = plan_of(1 << 19), narrow = plan_of(4);
  EXPECT_EQ(wide.block_steps, 16 * kCpuTarget.min_chunks_of_block);
  EXPECT_EQ(narrow.block_steps, 16 * kCpuTarget.max_chunks_of_block);
  EXPECT_EQ(plan_of(512).block_steps, kCpuTarget.block_bytes / (2 * 512 * 4));
  EXPECT_TRUE(narrow.instructions[0].can_take_steps);
  EXPECT_EQ(narrow.slots[2].ring_rows, narrow.block_steps);
  EXPECT_EQ(narrow.slots[2].row_bytes, 32);
  ASSERT_EQ(narrow.arena.size(), 1);
  EXPECT_EQ(narrow.arena[0].BytesFor(3), 3 * 32);
  EXPECT_EQ(narrow.arena[0].BytesFor(100'000), narrow.block_steps * 32);
}

TEST(Emit, ChunksAreOfStagesThatTakeSomeSteps) {
  const StepPlan plan = PlanOf(
      "  x: float [2, 4] at 0[32 * t]\n"
      "  dy: float [2, 4] at 1[32 * t]\n"
      "  w: float [4, 4] at 2\n"
      "  once for all steps:\n"
      "  dw.1: float [4, 4] added at 3, db.1: float [4] added at 4, _ = FCGradient(x, w, dy) @0 {}\n");
  EXPECT_EQ(plan.chunk_steps, 0);
  EXPECT_EQ(plan.instructions[0].steps_at_once, kAllSteps);
}

// The cost of a run for many steps is less than theirs alone: weights are read once.
TEST(Emit, CostsAreThoseOfAStep) {
  const auto cost = [](const std::string& stage) {
    return PlanOf(StrCat("  x: float [2, 4] at 0[32 * t]\n  w: float [4, 4] at 1\n  ", stage,
                         "\n  p.1: float [2, 4] kept = product x [2, 4] * w [4, 4]^T by FC(x, w) @0 {}\n"))
        .instructions[0]
        .cost;
  };
  const Cost each = cost("in each step:"), many = cost("for 16 steps at once:");
  EXPECT_EQ(each.flops, 2 * 2 * 4 * 4);
  EXPECT_EQ(many.flops, each.flops);
  EXPECT_EQ(each.bytes, 32 + 64 + 32);
  EXPECT_EQ(many.bytes, 32 + 64 / 16.0 + 32);
}

TEST(Emit, MovesAroundTheLoopStandInTheirOrder) {
  const StepPlan plan = PlanOf(
      "  before the first step:\n"
      "  ^h at 0[0:1] = ^h_init at 1 lent\n"
      "  ^x at 2 = lend\n"
      "  ^g at 3 = zero, in runs of no steps\n"
      "  ^h_init_grad at 5 = zero\n"
      "  h: float [1, 4] at 0[16 * t]\n"
      "  w: float [4, 4] at 4\n"
      "  in each step:\n"
      "  x.1: float [1, 4] at 2[16 * t] lent = Tanh(h) @0 {}\n"
      "  once for all steps:\n"
      "  g.1: float [4, 4] at 3, _, _ = FCGradient(h, w, x.1) @1 {is_gradient_op: true}\n"
      "  after the last step:\n"
      "  ^h_init_grad at 5 += ^h at 0[0:1]\n");
  EXPECT_EQ(MovesBeforeText(plan),
            "before the first step:\n"
            "  2: h[0:1] = h_init\n"
            "  3: x = lend\n"
            "  4: g = zero, in runs of no steps\n"
            "  5: h_init_grad = zero\n");
  EXPECT_EQ(MovesAfterText(plan), "after the last step:\n  6: h_init_grad += h[0:1]\n");
  EXPECT_EQ(plan.before[1].type, "lend");
  EXPECT_EQ(plan.before[2].rows->kind, RowMove::Kind::kZero);
  EXPECT_EQ(plan.is_copied, (std::vector<bool>{false, false, true, false, false, false}));
}

TEST(Emit, BlobsThatEndWithAValueAreFoundInItsSlot) {
  const StepPlan plan = PlanOf(
      "  x: float [1, 4] at 0[16 * t]\n"
      "  a.1: float [1, 4] kept = Tanh(x) @0 {}\n"
      "  a.2: int64 [2] kept = Shape(a.1) @1 {}\n"
      "  region {\n"
      "    b.1: float [1, 4] local = Tanh(a.1) @2 {}\n"
      "    c.1: float [1, 4] at 1[16 * t] = Tanh(b.1) @3 {}\n"
      "  }\n"
      "  ^y: float [1, 4] at 2[16 * t] = c.1\n"
      "  at the end: no x\n");
  ASSERT_EQ(plan.finals.size(), 2u) << "a and c; b is in no memory, y no blob of the step";
  EXPECT_EQ(plan.finals.at("a").slot, 2);
  EXPECT_EQ(plan.finals.at("a").info.dtype, DType::kInt64);
  EXPECT_EQ(plan.finals.at("a").info.shape, Shape({2}));
  EXPECT_EQ(plan.finals.at("c").slot, 4);
}

TEST(Emit, ARegionOfSeveralIsOneInstruction) {
  const StepPlan plan = PlanOf(
      "  x: float [1, 4] at 0[16 * t]\n"
      "  z: float [1, 4] at 1[16 * t]\n"
      "  region {\n"
      "    a.1: float [1, 4] local = Add(x, z) @3 {}\n"
      "    h.1: float [1, 4] at 2[16 * t] = Tanh(a.1) @4 {}\n"
      "    g.1: float [1, 4] kept = Mul(h.1, z) @5 {}\n"
      "  }\n");
  EXPECT_EQ(TextOf(plan),
            "  base 3: 16 bytes a step\n"
            "  slot 0: x, linked at 0[16 * t], 16 bytes\n"
            "  slot 1: z, linked at 1[16 * t], 16 bytes\n"
            "  slot 2: a, local\n"
            "  slot 3: h, linked at 2[16 * t], 16 bytes\n"
            "  slot 4: g, stacked at 3[16 * t], 16 bytes\n"
            "in each step:\n"
            "  0: h, g = Region(x, z) of Add, Tanh, Mul: 0, 1 to 3, 4\n");
  const Instruction& region = plan.instructions[0];
  EXPECT_EQ(region.type, "Region");
  EXPECT_EQ(region.op_index, 3);
  EXPECT_EQ(region.num_outputs, 2);
  EXPECT_TRUE(region.names_operators);
  EXPECT_GT(region.cost.flops, 0);
}

// Rows of the first operator are columns of the second one.
TEST(Emit, ARegionThatIsNoProgramRunsOneByOne) {
  EXPECT_TRUE(TextOf("  x: float [2, 4] at 0[32 * t]\n"
                     "  region {\n"
                     "    a.1: float [2, 4] local = Softmax(x) @0 {arg { name: \"axis\" i: 0 }}\n"
                     "    h.1: float [2, 4] kept = Softmax(a.1) @1 {arg { name: \"axis\" i: 1 }}\n"
                     "  }\n")
                  .ends_with("  0: h = Region(x) of Softmax, Softmax, one by one: 0 to 2\n"));
}

TEST(Emit, OutputsThatANodeLeavesOutAreInNoOperand) {
  const StepPlan plan = PlanOf(
      "  x: float [2, 4] at 0[32 * t]\n"
      "  w: float [4, 4] at 1\n"
      "  dy: float [2, 4] at 2[32 * t]\n"
      "  _, db.1: float [4], dx.1: float [2, 4] = FCGradient(x, w, dy) @0 {}\n");
  const Instruction& gradient = plan.instructions[0];
  EXPECT_EQ(gradient.text, "db, dx = FCGradient(x, w, dy)");
  EXPECT_EQ(gradient.num_outputs, 3);
  ASSERT_EQ(gradient.outputs.size(), 2u);
  EXPECT_EQ(gradient.outputs[0].position, 1);
  EXPECT_EQ(gradient.outputs[1].position, 2);
  EXPECT_EQ(gradient.inputs[2].position, 2);
}

TEST(Emit, WhatIsAddedSaysSo) {
  const StepPlan plan = PlanOf(
      "  x: float [2, 4] at 0[32 * t]\n"
      "  w: float [4, 4] at 1\n"
      "  p.1: float [2, 4] = FC(x, w) @0 {}\n"
      "  p.2: float [2, 4] added in p.1 = FC(x, w) @1 {}\n"
      "  ^s: float [2, 4] added at 2 = p.2\n");
  EXPECT_FALSE(plan.instructions[0].outputs[0].added);
  EXPECT_TRUE(plan.instructions[1].outputs[0].added);
  const Instruction& move = plan.instructions[2];
  EXPECT_EQ(move.text, "s += p");
  EXPECT_EQ(move.type, "add");
  EXPECT_EQ(*move.kernel.target<void (*)(const OpRun&)>(), AddInput);
  EXPECT_FALSE(move.outputs[0].added) << "the kernel of the move adds in any case";
  EXPECT_EQ(move.cost.bytes, 3 * 32);
  EXPECT_EQ(PlanOf("  x: float [2, 4] at 0[32 * t]\n  ^y: float [2, 4] at 1 = x\n").instructions[0].cost.bytes, 2 * 32);
}

TEST(Emit, BlobsAreOfLists) {
  const StepPlan plan = PlanOf(
      "  u: unknown blob of list 1\n"
      "  a.1: unknown kept blob = Tanh(u) by blobs @0 {}\n"
      "  b.1: unknown blob = Tanh(a.1) by blobs @1 {}\n"
      "  ^y: unknown blob of list 0 = b.1\n");
  EXPECT_EQ(TextOf(plan),
            "  list 0: a blob a step\n"
            "  list 1: a blob a step\n"
            "  list 2: a blob a step\n"
            "  list 3: one blob\n"
            "  slot 0: u, dynamic, list 1\n"
            "  slot 1: a, dynamic, list 2\n"
            "  slot 2: b, dynamic, list 3\n"
            "  slot 3: y, dynamic, list 0\n"
            "in each step:\n"
            "  0: a = Tanh(u): 0 to 1; by blobs\n"
            "  1: b = Tanh(a): 1 to 2; by blobs\n"
            "  2: y = b: 2 to 3; by blobs\n");
  EXPECT_TRUE(plan.instructions[0].call) << "its shapes are inferred at each step";
  EXPECT_EQ(plan.instructions[2].call, nullptr);
  EXPECT_FALSE(plan.instructions[2].by_elements);
}

TEST(Emit, MovesFromAndToBlobsGoThroughThem) {
  for (const auto& [from, to] : {std::pair("blob of list 0", "at 0"), std::pair("at 0", "blob of list 0")}) {
    const StepPlan plan = PlanOf(StrCat("  x: float [1, 4] ", from, "\n  ^y: float [1, 4] ", to, " = x\n"));
    EXPECT_TRUE(plan.instructions[0].by_blobs) << from;
  }
}

TEST(Emit, SaysWhatMayFailOrLast) {
  EXPECT_TRUE(TextOf("  n: int32 [1, 4] at 0[16 * t]\n"
                     "  m: int32 [1, 4] at 1[16 * t]\n"
                     "  a.1: int32 [1, 4] kept = region Div(n, m) @0 {}\n"
                     "  region {\n"
                     "    b.1: int32 [1, 4] local = Div(a.1, m) @1 {}\n"
                     "    c.1: int32 [1, 4] kept = Mul(b.1, n) @2 {}\n"
                     "  }\n"
                     "  c.2: int32 [1, 4] kept = region Mul(c.1, n) @3 {}\n"
                     "  = Print(c.2) @4 {}\n")
                  .ends_with("  0: a = Div(n, m): 0, 1 to 2; checks values\n"
                             "  1: c = Region(a, m, n) of Div, Mul: 2, 1, 0 to 4; checks values\n"
                             "  2: c = Mul(c, n): 4, 0 to 5\n"
                             "  3: Print(c): 5 to nothing; has side effects\n"));
}

// Elements of `like` are read by nobody: its memory may be too small for them.
TEST(Emit, SaysOfWhichInputsNoElementIsRead) {
  const auto alone = [](const std::string& lines) {
    const StepPlan plan =
        PlanOf("  x: float [2, 4] at 0[32 * t]\n  like: float [4] at 1\n  z: float [4] at 2\n" + lines);
    std::vector<bool> flags;
    for (const InstructionOperand& input : plan.instructions[0].inputs) flags.push_back(input.shape_alone);
    return flags;
  };
  using Flags = std::vector<bool>;
  EXPECT_EQ(alone("  y.1: float [4] = region SumReduceLike(x, like) @0 {}\n"), (Flags{false, true}));
  EXPECT_EQ(alone("  y.1: float [4] = SumReduceLike(x, like) @0 {}\n"), (Flags{false, true}));
  EXPECT_EQ(alone("  region {\n"
                  "    a.1: float [4] local = SumReduceLike(x, like) @0 {}\n"
                  "    y.1: float [4] = Add(z, z) @1 {}\n"
                  "  }\n"),
            (Flags{false, true, false}));
  EXPECT_EQ(alone("  region {\n"
                  "    y.1: float [4] = Add(like, z) @0 {}\n"
                  "    a.1: float [4] = SumReduceLike(x, like) @1 {}\n"
                  "  }\n"),
            (Flags{false, false, false}))
      << "one of the operators reads it";
}

constexpr int kManyColumns = 65536;  // 256 KB a row

std::string Row(const std::string& name, const std::string& home) {
  return StrCat(name, ": float [1, ", kManyColumns, "] ", home);
}
std::string At(const std::string& base, const std::string& t) { return StrCat("at ", base, "[262144 * ", t, "]"); }

TEST(Emit, LargeElementsComeInParts) {
  const auto parts = [](const std::string& x, const std::string& line) {
    return PlanOf(StrCat("  ", Row("x", x), "\n  ", line)).instructions[0].max_parts;
  };
  constexpr auto kParts = static_cast<int>(4 * kManyColumns / kCpuTarget.min_part_bytes);
  const std::string x = At("0", "t"), elsewhere = At("1", "t");
  EXPECT_EQ(parts(x, Row("y.1", elsewhere) + " = region Tanh(x) @0 {}\n"), kParts);
  EXPECT_EQ(parts(x, Row("^y", elsewhere) + " = x\n"), kParts);
  // In place, by its own name and by another one.
  EXPECT_EQ(parts(x, Row("x.1", x) + " = region Tanh(x) @0 {}\n"), kParts);
  EXPECT_EQ(parts(x, Row("y.1", x) + " = region Tanh(x) @0 {}\n"), kParts);
  EXPECT_EQ(parts(At("0", "(t + 1)"), Row("y.1", x) + " = region Tanh(x) @0 {}\n"), kParts) << "of another row";
}

TEST(Emit, InPlaceIsKnownOfElementsAndOfOneName) {
  const auto parts = [](const std::string& y, const std::string& shape_of_b) {
    return PlanOf(StrCat("  x: float [64, 1024] at 0[262144 * t]\n  b: float ", shape_of_b, " at 1\n  ", y,
                         ": float [64, 1024] at 0[262144 * t] = region Add(x, b) @0 {}\n"))
        .instructions[0]
        .max_parts;
  };
  EXPECT_GT(parts("x.1", "[1024]"), 1);
  EXPECT_EQ(parts("y.1", "[1024]"), 1) << "another name, and b is repeated";
  EXPECT_GT(parts("y.1", "[64, 1024]"), 1);
}

// Rows go on by half of what a step shows: an element is written where another one is read.
TEST(Emit, WhatWritesIntoOtherElementsThatItReadsRunsWhole) {
  const auto parts = [](const std::string& t) {
    return PlanOf(StrCat("  ", Row("x", "at 0[131072 * t]"), "\n  ", Row("y.1", StrCat("at 0[131072 * ", t, "]")),
                         " = region Tanh(x) @0 {}\n"))
        .instructions[0]
        .max_parts;
  };
  EXPECT_EQ(parts("(t + 1)"), 1);
  EXPECT_GT(parts("(t + 2)"), 1);
}

TEST(Emit, ElementsAreThoseOfLikeOperands) {
  const auto is_by_elements = [](const std::string& line) {
    return PlanOf("  x: float [2, 4] at 0[32 * t]\n  b: float [4] at 1\n  z: float [2, 4] at 2[32 * t]\n" + line)
        .instructions[0]
        .by_elements;
  };
  EXPECT_TRUE(is_by_elements("  y.1: float [2, 4] = region Add(x, z) @0 {}\n"));
  EXPECT_TRUE(is_by_elements("  ^y: float [2, 4] at 3[32 * t] = x\n"));
  EXPECT_FALSE(is_by_elements("  y.1: float [2, 4] = region Add(x, b) @0 {}\n")) << "b is repeated";
  EXPECT_FALSE(is_by_elements("  y.1: float [2, 4] = region Softmax(x) @0 {}\n"));
}

TEST(Emit, APlanOfNoElementsDoesNothing) {
  const auto does_nothing = [](const std::string& lines) {
    return PlanOf("  x: float [0, 4] at 0\n  n: int32 [0, 4] at 1\n" + lines).does_nothing;
  };
  EXPECT_TRUE(does_nothing("  y.1: float [0, 4] = Tanh(x) @0 {}\n"));
  EXPECT_TRUE(does_nothing(""));
  EXPECT_FALSE(does_nothing("  y.1: float [0, 4] = Tanh(x) @0 {}\n  s.1: int64 [2] at 2 = Shape(x) @1 {}\n"));
  EXPECT_FALSE(does_nothing("  y.1: float [0, 4] = Tanh(x) @0 {}\n  s.1: int64 [2] kept = Shape(x) @1 {}\n"));
  EXPECT_TRUE(does_nothing("  y.1: float [0, 4] = Tanh(x) @0 {}\n  s.1: int64 [2] = Shape(x) @1 {}\n"))
      << "nobody reads it";
  EXPECT_TRUE(does_nothing(
      "  w: float [4, 4] at 2\n  once for all steps:\n  ^\"w packed\": uint8 [256] once = packed w for @0\n"
      "  in each step:\n  y.1: float [0, 4] = product x [0, 4] * w [4, 4]^T by FC(x, w) with ^\"w packed\" "
      "@0 {}\n"))
      << "weights are packed for no rows";
  EXPECT_FALSE(does_nothing("  = Print(x) @0 {}\n"));
  EXPECT_FALSE(does_nothing("  m.1: int32 [0, 4] = region Div(n, n) @0 {}\n")) << "it may find bad values";
  EXPECT_FALSE(does_nothing("  y.1: float [0, 4] blob = Tanh(x) by blobs @0 {}\n"));
}

TEST(Emit, APlanThatAddsUpNoTermsDoesNothing) {
  const auto does_nothing = [](const std::string& rows, const std::string& line) {
    return PlanOf(StrCat("  x: float [", rows, ", 4] at 0\n  w: float [2, 4] at 1\n  dy: float [", rows,
                         ", 2] at 2\n  v: float [4] at 3\n  ", line))
        .does_nothing;
  };
  const std::string gradient =
      " = product dy [0, 2]^T * x [0, 4]; sum dy [0, 2]; dy [0, 2] * w [2, 4] by FCGradient(x, w, dy) @0 "
      "{is_gradient_op: true}\n";
  EXPECT_TRUE(
      does_nothing("0", "dw.1: float [2, 4] added at 4, db.1: float [2] added at 5, dx.1: float [0, 4]" + gradient));
  EXPECT_FALSE(does_nothing("0", "dw.1: float [2, 4] at 4, _, _" + gradient))
      << "zeros take the place of what was there";
  const std::string sum = "dv.1: float [4] added at 4 = SumReduceLike(x, v) @0 {}\n";
  EXPECT_TRUE(does_nothing("0", sum));
  EXPECT_FALSE(does_nothing("3", sum));
}

TEST(Emit, ADraftHasEachValueInMemoryOfItsOwnAndNoKernels) {
  const std::string lines =
      "  x: float [1, 65536] at 0[262144 * t]\n"
      "  a.1: float [1, 65536] = region Tanh(x) @0 {}\n"
      "  b.1: float [1, 65536] = region Tanh(a.1) @1 {}\n"
      "  region {\n"
      "    c.1: float [1, 65536] local = Tanh(b.1) @2 {}\n"
      "    d.1: float [1, 65536] = Tanh(c.1) @3 {}\n"
      "  }\n";
  const StepPlan draft = PlanOf(lines, {.is_draft = true}), plan = PlanOf(lines);
  for (const int temporary : {1, 2, 4}) {
    EXPECT_EQ(draft.slots[temporary].storage_class, StorageClass::kStacked);
    EXPECT_EQ(plan.slots[temporary].storage_class, StorageClass::kRing);
  }
  EXPECT_EQ(draft.arena.size(), 3u);
  EXPECT_EQ(plan.arena.size(), 2u) << "d takes the place of a";
  for (size_t i = 0; i < plan.instructions.size(); ++i) {
    EXPECT_EQ(draft.instructions[i].text, plan.instructions[i].text);
    EXPECT_FALSE(draft.instructions[i].kernel);
    EXPECT_EQ(draft.instructions[i].cost.flops, 0);
    EXPECT_EQ(draft.instructions[i].max_parts, 1);
    EXPECT_TRUE(plan.instructions[i].kernel);
    EXPECT_GT(plan.instructions[i].cost.flops, 0);
    EXPECT_GT(plan.instructions[i].max_parts, 1);
  }
}

TEST(Emit, AnOperatorWithoutKernelIsRefused) {
  EXPECT_EQ(ErrorOf([] { PlanOf("  x: float [1, 4] at 0[16 * t]\n  y.1: float [1, 4] = CopyCPUToGPU(x) @2 {}\n"); }),
            "invalid net: CopyCPUToGPU has no kernel for cpu\n  at op 2 `y = CopyCPUToGPU(x)`\n  in net \"step\"");
}

const Registration refuses =
    Operator("test.RefusesToBeMade")
        .Doc("Has a kernel that cannot be made.")
        .Input("x", "any")
        .Output("y", "as x")
        .Shapes(SameAsInput(0))
        .StopsGradient()
        .Private()
        .Cpu([](const OperatorCall&) -> RunFn { throw Error(ErrorCode::kInvalidArgument, "as asked"); });

TEST(Emit, WhatAFactoryThrowsSaysOfWhichOperator) {
  const std::string lines = "  x: float [1, 4] at 0[16 * t]\n  y.1: float [1, 4] = test.RefusesToBeMade(x) @2 {}\n";
  EXPECT_EQ(ErrorOf([&] { PlanOf(lines); }),
            "invalid argument: as asked\n  at op 2 `y = test.RefusesToBeMade(x)`\n  in net \"step\"");
  EXPECT_EQ(ErrorOf([&] { PlanOf(lines, {.is_draft = true}); }), "no error") << "a draft makes no kernels";
}

}  // namespace
}  // namespace stepnet

// Which instructions, and which loops of them, keep the rows of a batch apart.
#include "stepnet/compiler/batch_rows.h"

#include <gtest/gtest.h>

#include <functional>

#include "stepnet/compiler/emit.h"
#include "stepnet/tests/compiler/passes/pass_case.h"

namespace stepnet {
namespace {

TEST(BatchRows, TheBatchIsTheFirstSizeThatIsNotOne) {
  EXPECT_EQ(DimOfBatch(Shape({3, 4}), 3), 0);
  EXPECT_EQ(DimOfBatch(Shape({1, 1, 3, 4}), 3), 2);
  EXPECT_EQ(DimOfBatch(Shape({3}), 3), 0);
  EXPECT_EQ(DimOfBatch(Shape({3, 3}), 3), 0);
  EXPECT_EQ(DimOfBatch(Shape({2, 3}), 3), std::nullopt);
  EXPECT_EQ(DimOfBatch(Shape({1, 1}), 3), std::nullopt);
  EXPECT_EQ(DimOfBatch(Shape(), 3), std::nullopt);
}

// "2: B- to B" where 2 rows of the batch are kept apart, of which the first input and the output have each its own.
std::string RowsOf(const Instruction& instruction) {
  std::string text = StrCat(instruction.batch_rows, ": ");
  for (const InstructionOperand& input : instruction.inputs) text += input.has_batch ? "B" : "-";
  text += " to ";
  for (const InstructionOperand& output : instruction.outputs) text += output.has_batch ? "B" : "-";
  return text;
}

StepGraph Graph(const std::string& lines) {
  const StepGraph graph = ParseGraph(Step(lines));
  VerifyGraph(graph, "parse");
  return graph;
}

// What the last instruction keeps apart.
std::string RowsOf(const std::string& lines) {
  const StepGraph graph = Graph(lines);
  StepPlan plan = EmitPlan(graph, {});
  for (const Stage& stage : plan.stages) TakeBackBatch(graph, stage, &plan);
  return RowsOf(plan.instructions.back());
}

// The same of a product, as if its weights were packed.
std::string RowsOfPacked(const std::string& lines, const std::function<void(StepNode*, Instruction*)>& change = {}) {
  const StepGraph graph = Graph(lines);
  Instruction instruction = EmitPlan(graph, {}).instructions.back();
  EXPECT_EQ(instruction.batch_rows, 0) << "products of other weights round as it suits the number of rows";
  instruction.packed = InstructionOperand{};
  StepNode node = graph.nodes.back();
  if (change) change(&node, &instruction);
  MarkBatchOfProduct(node, &instruction);
  return RowsOf(instruction);
}

std::string Fc(const std::string& x, const std::string& of_x, const std::string& y, int axis) {
  return StrCat("  x: float ", x, " at 0[96 * t]\n  w: float [6, 4] at 1\n  b: float [6] at 2\n  y.1: float ", y,
                " = product x ", of_x, " * w [6, 4]^T + b by FC(x, w, b) @0 {arg { name: \"axis\" i: ", axis, " }}\n");
}

TEST(BatchRows, AProductOfPackedWeightsKeepsThoseOfItsLeftSideApart) {
  EXPECT_EQ(RowsOf("  x: float [1, 2, 4] at 0[32 * t]\n"
                   "  w: float [6, 4] at 1\n"
                   "  once for all steps:\n"
                   "  ^\"w packed\": uint8 [256] once = packed w for @0\n"
                   "  in each step:\n"
                   "  y.1: float [1, 2, 6] = product x [2, 4] * w [6, 4]^T by FC(x, w) with ^\"w packed\" @0 {arg { "
                   "name: \"axis\" i: 2 }}\n"),
            "2: B- to B");
  EXPECT_EQ(RowsOfPacked(Fc("[1, 2, 4]", "[2, 4]", "[1, 2, 6]", 2)), "2: B-- to B");
  EXPECT_EQ(RowsOfPacked(Fc("[2, 1, 4]", "[2, 4]", "[2, 1, 6]", 2)), "2: B-- to B");
  EXPECT_EQ(RowsOfPacked(Fc("[2, 1, 4]", "[2, 4]", "[2, 6]", 1)), "2: B-- to B");
}

TEST(BatchRows, WithoutPackedWeightsAProductKeepsNothingApart) {
  EXPECT_EQ(RowsOf(Fc("[2, 4]", "[2, 4]", "[2, 6]", 1)), "0: --- to -");
}

TEST(BatchRows, OneRowIsNoBatch) { EXPECT_EQ(RowsOfPacked(Fc("[1, 4]", "[1, 4]", "[1, 6]", 1)), "0: --- to -"); }

// Rows of the product are those of two dimensions.
TEST(BatchRows, ABatchIsOneDimension) {
  EXPECT_EQ(RowsOfPacked(Fc("[2, 3, 4]", "[6, 4]", "[2, 3, 6]", 2)), "0: --- to -");
}

TEST(BatchRows, ATransposedLeftSideHasNoRows) {
  const std::string lines =
      "  a: float [1, 6] at 0[24 * t]\n"
      "  b: float [1, 4] at 1\n"
      "  y.1: float [6, 4] = product a [1, 6]^T * b [1, 4] by MatMul(a, b) @0 {arg { name: \"trans_a\" i: 1 }}\n";
  EXPECT_EQ(RowsOfPacked(lines), "0: -- to -");
}

TEST(BatchRows, AProductForEachOfABatchOfMatricesKeepsNothingApart) {
  EXPECT_EQ(RowsOfPacked("  a: float [1, 2, 4] at 0[32 * t]\n"
                         "  b: float [1, 4, 8] at 1\n"
                         "  y.1: float [1, 2, 8] = product a [1, 2, 4] * b [1, 4, 8] by BatchMatMul(a, b) @0 {}\n"),
            "0: -- to -");
}

// Here dy [2, 2] has as many columns as rows.
std::string RowsOfGradient(const std::string& outputs) {
  return RowsOfPacked(
      StrCat("  x: float [2, 4] at 0[32 * t]\n  w: float [2, 4] at 1\n  dy: float [2, 2] at 2[16 * t]\n  ", outputs,
             " = product dy [2, 2]^T * x [2, 4]; sum dy [2, 2]; dy [2, 2] * w [2, 4] ",
             "by FCGradient(x, w, dy) @0 {is_gradient_op: true}\n"));
}

TEST(BatchRows, SumsOverRowsMixThem) {
  EXPECT_EQ(RowsOfGradient("_, db.1: float [2], _"), "0: --- to -");
  EXPECT_EQ(RowsOfGradient("dw.1: float [2, 4], _, _"), "0: --- to -");
  EXPECT_EQ(RowsOfGradient("_, db.1: float [2], dx.1: float [2, 4]"), "0: --- to --");
}

// FCGradient would compute nothing of fewer rows of dy than x has.
TEST(BatchRows, AProductWhoseOperatorHasRowsThatAreNotCutKeepsNothingApart) {
  EXPECT_EQ(RowsOfGradient("_, _, dx.1: float [2, 4]"), "0: --- to -");
}

// These are products that no operator has.
TEST(BatchRows, BothSidesOfAProductAndItsResultHaveRows) {
  const auto changed = [](const std::function<void(StepNode*, Instruction*)>& change) {
    return RowsOfPacked(Fc("[2, 4]", "[2, 4]", "[2, 6]", 1), change);
  };
  EXPECT_EQ(changed([](StepNode* node, Instruction*) { node->products[0]->right.reset(); }), "0: --- to -");
  EXPECT_EQ(changed([](StepNode*, Instruction* product) {
              product->inputs[0].info.shape = Shape({1, 4});
            }),
            "0: --- to -");
  EXPECT_EQ(changed([](StepNode*, Instruction* product) {
              product->outputs[0].info.shape = Shape({1, 6});
            }),
            "0: --- to -");
}

TEST(BatchRows, FactorsThatHaveTheBatchAreNotShared) {
  const std::string lines = Fc("[2, 4]", "[2, 4]", "[2, 6]", 1);
  EXPECT_EQ(RowsOfPacked(lines, [](StepNode* node, Instruction*) { node->products[0]->bias = -1; }), "2: B-- to B");
  EXPECT_EQ(RowsOfPacked(lines, [](StepNode* node, Instruction*) { node->products[0]->right->input = 0; }),
            "0: --- to -");
  EXPECT_EQ(RowsOfPacked(lines, [](StepNode* node, Instruction*) { node->products[0]->bias = 0; }), "0: --- to -");
}

constexpr char kX[] = "  x: float [2, 4] at 0[32 * t]\n";

TEST(BatchRows, ARegionOfElementsKeepsRowsApart) {
  EXPECT_EQ(RowsOf(StrCat(kX, "  y.1: float [2, 4] = region Tanh(x) @0 {}\n")), "2: B to B");
  EXPECT_EQ(RowsOf(StrCat(kX, "  b: float [4] at 1\n  y.1: float [2, 4] = region Add(x, b) @0 {}\n")), "2: B- to B");
  EXPECT_EQ(RowsOf(StrCat(kX, "  b: float [2, 1] at 1\n  y.1: float [2, 4] = region Add(x, b) @0 {}\n")), "2: BB to B");
  EXPECT_EQ(RowsOf("  x: float [1, 2, 3, 4] at 0[96 * t]\n  y.1: float [1, 2, 3, 4] = region Tanh(x) @0 {}\n"),
            "2: B to B");
  EXPECT_EQ(RowsOf("  x: float [1, 4] at 0[16 * t]\n  y.1: float [1, 4] = region Tanh(x) @0 {}\n"), "0: - to -");
  EXPECT_EQ(RowsOf("  x: float [4] at 0[16 * t]\n  y.1: float [4] = region Tanh(x) @0 {}\n"), "0: - to -");
  EXPECT_EQ(RowsOf("  x: float [] at 0[4 * t]\n  y.1: float [] = region Tanh(x) @0 {}\n"), "0: - to -");
}

TEST(BatchRows, ARegionOfWholeRowsKeepsThemApart) {
  const auto softmax = [](int axis) {
    return RowsOf(StrCat(kX, "  y.1: float [2, 4] = region Softmax(x) @0 {arg { name: \"axis\" i: ", axis, " }}\n"));
  };
  EXPECT_EQ(softmax(1), "2: B to B");
  EXPECT_EQ(softmax(0), "0: - to -") << "of the whole batch";
  EXPECT_EQ(RowsOf(StrCat(kX, "  y.1: float [2, 1] = region ReduceSum(x) @0 {arg { name: \"axes\" ints: -1 }}\n")),
            "2: B to B");
}

TEST(BatchRows, WhatIsComputedOfTheBatchMixesItsRows) {
  EXPECT_EQ(RowsOf("  x: float [2, 1] at 0[8 * t]\n"
                   "  y.1: float [2, 1] = region Softmax(x) @0 {arg { name: \"axis\" i: 0 }}\n"),
            "0: - to -");
}

TEST(BatchRows, CopiesOfColumnsKeepRowsApart) {
  const auto split = [](const std::string& x, const std::string& part, int axis) {
    return RowsOf(StrCat("  x: float ", x, " at 0[64 * t]\n  a.1: float ", part, ", b.1: float ", part,
                         " = region Split(x) @0 {arg { name: \"axis\" i: ", axis, " }}\n"));
  };
  EXPECT_EQ(split("[2, 8]", "[2, 4]", 1), "2: B to BB");
  EXPECT_EQ(split("[4, 4]", "[2, 4]", 0), "0: - to --") << "rows of a come before those of b";
}

// The sizes that Concat gives beside the rest are as many as the batch has rows; what is filled has a fixed shape.
TEST(BatchRows, OperatorsGiveAsManyRowsAsTheyAreGiven) {
  EXPECT_EQ(
      RowsOf(StrCat(kX,
                    "  z: float [2, 4] at 1[32 * t]\n"
                    "  y.1: float [2, 8], n.1: int32 [2] = region Concat(x, z) @0 {arg { name: \"axis\" i: 1 }}\n")),
      "0: -- to --");
  const std::string shape = "{arg { name: \"shape\" ints: 2 ints: 4 }}\n";
  EXPECT_EQ(RowsOf(StrCat("  y.1: float [2, 4] = region ConstantFill() @0 ", shape)), "0:  to -");
  for (const char* type : {"Add", "Sum"}) {  // one row and two: the one repeats it, the other refuses them
    EXPECT_EQ(RowsOf(StrCat(kX, "  region {\n    c.1: float [2, 4] local = ConstantFill() @0 ", shape,
                            "    y.1: float [2, 4] = ", type, "(x, c.1) @1 {}\n  }\n")),
              "0: - to -");
  }
}

TEST(BatchRows, ATransposeMixesRows) {
  EXPECT_EQ(RowsOf("  x: float [2, 2] at 0[16 * t]\n"
                   "  y.1: float [2, 2] = region Transpose(x) @0 {}\n"),
            "0: - to -");
}

TEST(BatchRows, SomeRowsOfMoreAreNoBatch) {
  EXPECT_EQ(RowsOf("  x: float [3, 4] at 0[48 * t]\n"
                   "  y.1: float [2, 4] = region Slice(x) @0 {arg { name: \"starts\" ints: 1 ints: 0 } "
                   "arg { name: \"ends\" ints: 3 ints: 4 }}\n"),
            "0: - to -");
}

TEST(BatchRows, RandomNumbersAreThoseOfPlaces) {
  const auto dropout = [](int is_test) {
    return RowsOf(
        StrCat(kX, "  y.1: float [2, 4], m.1: bool [2, 4] = region Dropout(x) @0 {arg { name: \"is_test\" i: ", is_test,
               " }}\n"));
  };
  EXPECT_EQ(dropout(0), "0: - to --");
  EXPECT_EQ(dropout(1), "2: B to BB");
}

TEST(BatchRows, WhatChecksValuesIsNotCut) {
  const auto divide = [](const std::string& dtype) {
    return RowsOf(StrCat("  x: ", dtype, " [2, 4] at 0[32 * t]\n  y.1: ", dtype, " [2, 4] = region Div(x, x) @0 {}\n"));
  };
  EXPECT_EQ(divide("float"), "2: BB to B");
  EXPECT_EQ(divide("int32"), "0: -- to -");
}

TEST(BatchRows, ARegionOfSeveralOperatorsKeepsRowsApartWhereAllDo) {
  const auto region = [](const std::string& last) {
    return RowsOf(StrCat(kX, "  region {\n    a.1: float [2, 4] local = Tanh(x) @0 {}\n    ", last, "  }\n"));
  };
  EXPECT_EQ(region("b.1: float [2, 4] = Mul(a.1, x) @1 {}\n"), "2: B to B");
  EXPECT_EQ(region("b.1: float [2, 4] = Softmax(a.1) @1 {arg { name: \"axis\" i: 0 }}\n"), "0: - to -");
}

TEST(BatchRows, CallsAreNotCut) { EXPECT_EQ(RowsOf(StrCat(kX, "  y.1: float [2, 4] = Tanh(x) @0 {}\n")), "0: - to -"); }

TEST(BatchRows, MovesKeepRowsApart) {
  const auto move = [](const std::string& from, const std::string& to) {
    return RowsOf(StrCat("  x: float ", from, " at 0[32 * t]\n  ^y: float ", to, " at 1[32 * t] = x\n"));
  };
  EXPECT_EQ(move("[2, 4]", "[2, 4]"), "2: B to B");
  EXPECT_EQ(move("[1, 2, 4]", "[2, 4]"), "2: B to B");
  EXPECT_EQ(move("[8]", "[2, 4]"), "0: - to -");
  EXPECT_EQ(move("[1, 8]", "[1, 8]"), "0: - to -");
}

// y = x + z of [2, 4] each, by a region that is made by hand.
const Expr x = Expr::Input(0, "x", DType::kFloat), z = Expr::Input(1, "z", DType::kFloat);
constexpr RegionOperand kRows = {.dtype = DType::kFloat, .size = 8, .strides = {0, 0, 4, 1}};
RegionPart Sum() {
  return {.region = {.sizes = {1, 1, 2, 4}, .inputs = {kRows, kRows}, .outputs = {{.value = x + z, .memory = kRows}}},
          .inputs = {0, 1},
          .outputs = {2}};
}

TEST(BatchRows, WhatActsOnMoreThanARunSeesIsNotCut) {
  const std::function<void(Instruction*)> changes[] = {
      [](Instruction* instruction) { instruction->by_blobs = true; },
      [](Instruction* instruction) { instruction->has_side_effects = true; },
      [](Instruction* instruction) { instruction->checks_values = true; },
      [](Instruction* instruction) { instruction->outputs.clear(); },
      [](Instruction* instruction) { instruction->steps_at_once = 16; },
      [](Instruction* instruction) { instruction->steps_at_once = kAllSteps; },
  };
  const StepGraph graph = Graph(StrCat(kX, "  z: float [2, 4] at 1\n  y.1: float [2, 4] = region Add(x, z) @0 {}\n"));
  Instruction sum = EmitPlan(graph, {}).instructions.back();
  EXPECT_EQ(sum.batch_rows, 2);
  sum.batch_rows = 0;
  const RegionPart part = Sum();
  for (const auto& change : changes) {
    Instruction changed = sum;
    change(&changed);
    MarkBatchOfElements(&changed);
    EXPECT_EQ(changed.batch_rows, 0);
    MarkBatchOfRegion({&part, 1}, &changed);
    EXPECT_EQ(changed.batch_rows, 0);
    const auto rows = RowsOfPacked(Fc("[2, 4]", "[2, 4]", "[2, 6]", 1),
                                   [&](StepNode*, Instruction* instruction) { change(instruction); });
    EXPECT_TRUE(rows.starts_with("0: --- to ")) << rows;
  }
  MarkBatchOfElements(&sum);
  EXPECT_EQ(sum.batch_rows, 2);
}

// How many rows are kept apart by parts, of which z has the shape.
std::int64_t RowsOfParts(const std::vector<RegionPart>& parts, const std::string& shape_of_z = "[2, 4]") {
  const StepGraph graph =
      Graph(StrCat(kX, "  z: float ", shape_of_z, " at 1\n  y.1: float [2, 4] = region Add(x, z) @0 {}\n"));
  Instruction instruction = EmitPlan(graph, {}).instructions.back();
  instruction.batch_rows = 0;
  MarkBatchOfRegion(parts, &instruction);
  return instruction.batch_rows;
}

std::int64_t RowsOfChanged(const std::function<void(Region*)>& change, const std::string& shape_of_z = "[2, 4]") {
  RegionPart part = Sum();
  change(&part.region);
  return RowsOfParts({part}, shape_of_z);
}

TEST(BatchRows, PartsKeepRowsApartTogether) {
  EXPECT_EQ(RowsOfParts({Sum()}), 2);
  EXPECT_EQ(RowsOfParts({}), 0) << "nothing is known";
  RegionPart mixed = Sum();
  mixed.region.inputs[1].strides = {0, 0, 1, 2};
  EXPECT_EQ(RowsOfParts({Sum(), mixed}), 0);
  EXPECT_EQ(RowsOfParts({mixed, Sum()}), 0);
}

// dx = x, and db = the sum of its rows, as if FCGradient were such a region.
TEST(BatchRows, ASumOverRowsIsNoRow) {
  const StepGraph graph = Graph(StrCat(kX,
                                       "  w: float [4, 4] at 1\n  dy: float [2, 4] at 2[32 * t]\n"
                                       "  _, db.1: float [4], dx.1: float [2, 4] = FCGradient(x, w, dy) @0 {}\n"));
  Instruction instruction = EmitPlan(graph, {}).instructions.back();
  std::swap(instruction.outputs[0], instruction.outputs[1]);
  const RegionOperand sums = {.dtype = DType::kFloat, .size = 4, .strides = {0, 0, 0, 1}};
  RegionPart part{.region = {.sizes = {1, 1, 2, 4},
                             .inputs = {kRows},
                             .outputs = {{.value = x, .memory = kRows},
                                         {.value = x, .memory = sums, .kind = RegionOutputKind::kSums}}},
                  .inputs = {0},
                  .outputs = {5, 4}};
  MarkBatchOfRegion({&part, 1}, &instruction);
  EXPECT_EQ(RowsOf(instruction), "0: --- to --");
  instruction.outputs.pop_back();
  part.region.outputs.pop_back();
  part.outputs.pop_back();
  MarkBatchOfRegion({&part, 1}, &instruction);
  EXPECT_EQ(RowsOf(instruction), "2: B-B to B");
}

TEST(BatchRows, PlacesAndRequirementsAreOfTheWholeRegion) {
  EXPECT_EQ(RowsOfChanged([](Region* region) { region->outputs[0].value = x + Cast(DType::kFloat, Index(2)); }), 0);
  EXPECT_EQ(RowsOfChanged([](Region* region) { region->requirements.push_back(x < z); }), 0);
}

TEST(BatchRows, OperandsMoveFromRowToRow) {
  // In x both rows read the first one, every second element, the second half of one row and the first of the next.
  EXPECT_EQ(RowsOfChanged([](Region* region) { region->inputs[0].strides = {0, 0, 0, 1}; }), 0);
  EXPECT_EQ(RowsOfChanged([](Region* region) { region->inputs[0].strides = {0, 0, 1, 2}; }), 0);
  EXPECT_EQ(RowsOfChanged([](Region* region) { region->inputs[0].offset = 2; }), 0);
  EXPECT_EQ(RowsOfChanged([](Region* region) { region->outputs[0].memory.strides = {0, 0, 1, 2}; }), 0);
}

TEST(BatchRows, WhatAllRowsShareStaysWhereItIs) {
  const auto rows = [](const RegionIndex& strides) {
    return RowsOfChanged([&](Region* region) { region->inputs[1] = {.size = 4, .strides = strides}; }, "[4]");
  };
  EXPECT_EQ(rows({0, 0, 0, 1}), 2);
  EXPECT_EQ(rows({0, 0, 3, 0}), 0) << "rows read different elements of z";
}

TEST(BatchRows, ADimensionHoldsWholeRows) {
  const auto flat = [](std::int64_t sums) {
    return [sums](Region* region) {
      region->sizes = {1, 1, sums, 8};
      for (RegionOperand& input : region->inputs) input.strides = {0, 0, 0, 1};
      region->outputs[0].memory.strides = {0, 0, 0, 1};
    };
  };
  EXPECT_EQ(RowsOfChanged(flat(1)), 2) << "four of the eight columns are a row";
  EXPECT_EQ(RowsOfChanged([&](Region* region) {
              flat(1)(region);
              region->outputs[0].value = x - RowSum(z);
            }),
            0)
      << "both rows are a row of the region";
  EXPECT_EQ(RowsOfChanged([&](Region* region) {
              flat(3)(region);
              region->outputs[0].kind = RegionOutputKind::kSums;
            }),
            0);
  EXPECT_EQ(RowsOfChanged([](Region* region) { region->sizes = {1, 1, 3, 1}; }), 0);
}

// Tensors behind those of the operands are of the run: the same for all rows.
TEST(BatchRows, WhatIsReadOfTheRunIsShared) {
  RegionPart part = Sum();
  part.inputs[1] = 3;
  EXPECT_EQ(RowsOfParts({part}), 0);
  part.region.inputs[1].strides = {};
  EXPECT_EQ(RowsOfParts({part}), 2);
}

// A loop over a state h at base 1, by way of a temporary: a = f(x, h), h = g(a). Rows have 16 bytes, two of them.
StepPlan Loop() {
  const TensorInfo info{.dtype = DType::kFloat, .shape = Shape({2, 4})};
  const auto linked = [](int base, std::int64_t offset) {
    return Slot{.storage_class = StorageClass::kLinked, .base = base, .offset = offset, .row_bytes = 32, .bytes = 32};
  };
  const auto operand = [&](int slot) { return InstructionOperand{.slot = slot, .info = info, .has_batch = true}; };
  StepPlan plan;
  plan.slots = {linked(0, 0), linked(1, 0), {.base = 2, .row_bytes = 64, .ring_rows = 4, .bytes = 32}, linked(1, 1)};
  plan.instructions = {{.inputs = {operand(0), operand(1)}, .outputs = {operand(2)}, .batch_rows = 2},
                       {.inputs = {operand(2)}, .outputs = {operand(3)}, .batch_rows = 2}};
  plan.stages = {{.begin = 0, .end = 2}};
  return plan;
}

std::int64_t RowsOfLoop(const std::function<void(StepPlan*)>& change) {
  StepPlan plan = Loop();
  change(&plan);
  return BatchRowsOf(plan, plan.stages.front());
}

TEST(BatchRows, ALoopIsCutWhereAllInstructionsKeepTheSameRowsApart) {
  EXPECT_EQ(RowsOfLoop([](StepPlan*) {}), 2);
  EXPECT_EQ(RowsOfLoop([](StepPlan* plan) { plan->instructions[1].batch_rows = 0; }), 0);
  EXPECT_EQ(RowsOfLoop([](StepPlan* plan) { plan->instructions[1].batch_rows = 4; }), 0);
  EXPECT_EQ(RowsOfLoop([](StepPlan* plan) { plan->instructions[0].batch_rows = 0; }), 0);
  EXPECT_EQ(RowsOfLoop([](StepPlan* plan) {
              for (Instruction& instruction : plan->instructions) instruction.batch_rows = 1;
            }),
            0);
}

TEST(BatchRows, OnlyStagesOfOneStepAreCut) {
  EXPECT_EQ(RowsOfLoop([](StepPlan* plan) { plan->stages[0].steps_at_once = 16; }), 0);
  EXPECT_EQ(RowsOfLoop([](StepPlan* plan) { plan->stages[0].steps_at_once = kAllSteps; }), 0);
  EXPECT_EQ(RowsOfLoop([](StepPlan* plan) { plan->stages[0] = {.begin = 1, .end = 1}; }), 0);
  EXPECT_EQ(RowsOfLoop([](StepPlan* plan) {
              plan->stages[0].begin = 1;
              plan->instructions[0].batch_rows = 0;
            }),
            2)
      << "of another stage";
}

TEST(BatchRows, WhatTheLoopWritesHasTheBatchWhereverItIsRead) {
  EXPECT_EQ(RowsOfLoop([](StepPlan* plan) { plan->instructions[0].inputs[1].has_batch = false; }), 0)
      << "as the right side of a product";
  EXPECT_EQ(RowsOfLoop([](StepPlan* plan) { plan->instructions[1].outputs[0].has_batch = false; }), 0);
  EXPECT_EQ(RowsOfLoop([](StepPlan* plan) {
              plan->instructions[0].inputs[1].has_batch = false;
              plan->instructions[0].inputs[1].shape_alone = true;
            }),
            2)
      << "of which no element is read";
  EXPECT_EQ(RowsOfLoop([](StepPlan* plan) { plan->instructions[0].inputs[0].has_batch = false; }), 2)
      << "x is not written";
}

TEST(BatchRows, RowsLieInTheSameMemoryWhereverTheyAreUsed) {
  const auto with_h = [](const std::function<void(InstructionOperand*, Slot*)>& change) {
    return RowsOfLoop([&](StepPlan* plan) { change(&plan->instructions[0].inputs[1], &plan->slots[1]); });
  };
  EXPECT_EQ(with_h([](InstructionOperand* h, Slot*) { h->info.shape = Shape({1, 2, 4}); }), 2);
  EXPECT_EQ(with_h([](InstructionOperand*, Slot* slot) { slot->row_bytes = 64; }), 0) << "rows of steps are elsewhere";
  EXPECT_EQ(with_h([](InstructionOperand*, Slot* slot) { slot->ring_rows = 2; }), 0);
  EXPECT_EQ(with_h([](InstructionOperand* h, Slot*) {
              h->info = {.dtype = DType::kDouble, .shape = Shape({2, 2})};
            }),
            2)
      << "of as many bytes";
}

TEST(BatchRows, RowsHaveTheSameBytesWhereverTheyAreUsed) {
  const auto with_columns = [](std::int64_t columns) {
    return RowsOfLoop([&](StepPlan* plan) {
      plan->slots[1].row_bytes = plan->slots[3].row_bytes = 64;
      plan->instructions[0].inputs[1].info.shape = Shape({2, columns});
    });
  };
  EXPECT_EQ(with_columns(4), 2);
  EXPECT_EQ(with_columns(8), 0);
}

TEST(BatchRows, MemoryWithoutBytesIsNotCut) {
  EXPECT_EQ(RowsOfLoop([](StepPlan* plan) {
              for (Instruction& instruction : plan->instructions) {
                for (InstructionOperand& operand : instruction.inputs) operand.info.shape = Shape({2, 0});
                for (InstructionOperand& operand : instruction.outputs) operand.info.shape = Shape({2, 0});
              }
            }),
            0);
}

// Steps go on by 16 or 48 bytes, of values that have 32: rows of one step are other rows of another.
TEST(BatchRows, AWindowShowsRowsOfOtherSteps) {
  for (const std::int64_t row_bytes : {16, 48}) {
    EXPECT_EQ(RowsOfLoop([&](StepPlan* plan) { plan->slots[1].row_bytes = plan->slots[3].row_bytes = row_bytes; }), 0);
  }
  EXPECT_EQ(RowsOfLoop([&](StepPlan* plan) { plan->slots[1].row_bytes = plan->slots[3].row_bytes = 64; }), 2);
  EXPECT_EQ(RowsOfLoop([&](StepPlan* plan) {
              plan->slots[1].row_bytes = plan->slots[3].row_bytes = 48;
              plan->slots[3].offset = 2;
            }),
            0)
      << "two steps later rows are the same, and one step later others";
  // Written alone.
  const auto with_steps_of = [](std::int64_t row_bytes) {
    return RowsOfLoop([&](StepPlan* plan) {
      plan->instructions[0].inputs.pop_back();
      plan->slots[3].row_bytes = row_bytes;
    });
  };
  EXPECT_EQ(with_steps_of(16), 0);
  EXPECT_EQ(with_steps_of(48), 2) << "steps share no bytes";
  EXPECT_EQ(with_steps_of(0), 2) << "all steps use the same bytes";
}

// Loops of a plan as it is made; a product of the batch as N reads all rows of the state.
TEST(BatchRows, OfPlans) {
  const auto rows_of = [](const std::string& lines) {
    const StepPlan plan = EmitPlan(Graph(lines), {.ring_rows = 4});
    return BatchRowsOf(plan, plan.stages.back());
  };
  const auto lines = [](const std::string& more) {
    return StrCat(
        "  h: float [2, 4] at 0[32 * t]\n"
        "  w: float [4, 4] at 1\n"
        "  once for all steps:\n"
        "  ^\"w packed\": uint8 [256] once = packed w for @0\n"
        "  in each step:\n"
        "  a.1: float [2, 4] = product h [2, 4] * w [4, 4]^T by FC(h, w) with ^\"w packed\" @0 {}\n"
        "  h.1: float [2, 4] at 0[32 * (t + 1)] = region Tanh(a.1) @1 {}\n",
        more);
  };
  EXPECT_EQ(rows_of(lines("")), 2);
  EXPECT_EQ(rows_of(lines("  v: float [2, 4] at 2\n"
                          "  b.1: float [2, 2] = product v [2, 4] * h [2, 4]^T by FC(v, h) @2 {}\n")),
            0);
  EXPECT_EQ(rows_of(lines("  b.1: float [2, 4] = Tanh(h) @2 {}\n")), 0);
}

}  // namespace
}  // namespace stepnet

// Which regions are cut into parts of their units, and which products in front of them go along.
#include "stepnet/compiler/unit_parts.h"

#include <gtest/gtest.h>

#include <functional>

#include "stepnet/compiler/emit.h"
#include "stepnet/tests/compiler/passes/pass_case.h"

namespace stepnet {
namespace {

// "64: U- to U" of a region of 64 units, where parts find theirs in columns of the first input and of the output.
std::string UnitsOf(const Instruction& instruction) {
  std::string text = StrCat(instruction.units, ": ");
  for (const InstructionOperand& input : instruction.inputs) text += input.has_units ? "U" : "-";
  text += " to ";
  for (const InstructionOperand& output : instruction.outputs) text += output.has_units ? "U" : "-";
  return text;
}

StepPlan PlanOf(const std::string& lines) {
  const StepGraph graph = ParseGraph(Step(lines));
  VerifyGraph(graph, "parse");
  return EmitPlan(graph, {});
}

// The last instruction of a step that has x [2, 64].
std::string UnitsOf(const std::string& lines) {
  return UnitsOf(PlanOf("  x: float [2, 64] at 0[512 * t]\n" + lines).instructions.back());
}

TEST(UnitParts, ColumnsThatAreComputedAloneAreUnits) {
  EXPECT_EQ(UnitsOf("  b: float [64] at 1\n  y.1: float [2, 64] = region Add(x, b) @0 {}\n"), "64: UU to U");
  EXPECT_EQ(UnitsOf("  m: float [2, 1] at 1\n  y.1: float [2, 64] = region Add(x, m) @0 {}\n"), "64: U- to U")
      << "all units read the same element of m";
  EXPECT_EQ(UnitsOf("  y.1: float [2, 64] = region Tanh(x) @0 {}\n"), "0: - to -") << "columns are those of both rows";
  EXPECT_EQ(UnitsOf("  y.1: float [2, 64] = region Softmax(x) @0 {}\n"), "0: - to -");
}

// A step of one row of so many columns.
std::string UnitsOfRow(int columns, const std::string& outputs, const std::string& type) {
  const std::string shape = StrCat("[1, ", columns, "]");
  return UnitsOf(StrCat("  z: float ", shape, " at 1[1024 * t]\n  y.1: float ", shape, outputs, " = region ", type,
                        "(z) @0 {}\n"));
}

TEST(UnitParts, PartsAreLinesOfTheCache) {
  EXPECT_EQ(UnitsOfRow(64, "", "Tanh"), "64: U to U");
  EXPECT_EQ(UnitsOfRow(16, "", "Tanh"), "16: U to U");
  EXPECT_EQ(UnitsOfRow(24, "", "Tanh"), "0: - to -");
  EXPECT_EQ(UnitsOfRow(8, "", "Tanh"), "0: - to -");
}

TEST(UnitParts, RandomNumbersAreThoseOfPlaces) {
  EXPECT_EQ(UnitsOfRow(64, ", m.1: bool [1, 64]", "Dropout"), "0: - to --");
}

TEST(UnitParts, WhatChecksValuesIsNotCut) {
  EXPECT_EQ(UnitsOf("  n: int32 [1, 64] at 1\n  y.1: int32 [1, 64] = region Div(n, n) @0 {}\n"), "0: -- to -");
}

TEST(UnitParts, GatesAreGroupsOfColumns) {
  EXPECT_EQ(UnitsOf("  region {\n"
                    "    a.1: float [2, 32] local, b.1: float [2, 32] local = Split(x) @0 {}\n"
                    "    y.1: float [2, 32] = Mul(a.1, b.1) @1 {}\n"
                    "  }\n"),
            "32: U to U");
}

// y [2, 64] = x, both of 64 columns, by a region that is made by hand.
std::string UnitsOfChanged(const std::function<void(Region*, Instruction*)>& change) {
  const RegionOperand rows = {.dtype = DType::kFloat, .size = 128, .strides = {0, 0, 64, 1}};
  const Expr x = Expr::Input(0, "x", DType::kFloat);
  RegionPart part{.region = {.sizes = {1, 1, 2, 64}, .inputs = {rows}, .outputs = {{.value = Tanh(x), .memory = rows}}},
                  .inputs = {0},
                  .outputs = {1}};
  const TensorInfo info{.dtype = DType::kFloat, .shape = Shape({2, 64})};
  Instruction instruction{.inputs = {{.info = info}}, .outputs = {{.info = info}}, .num_outputs = 1};
  change(&part.region, &instruction);
  MarkUnitsOfRegion(part, &instruction);
  return UnitsOf(instruction);
}

TEST(UnitParts, OperandsThatDoNotFollowUnitsHaveNone) {
  EXPECT_EQ(UnitsOfChanged([](Region*, Instruction*) {}), "64: U to U");
  const auto with_x = [](const std::function<void(RegionOperand*, InstructionOperand*)>& change) {
    return UnitsOfChanged(
        [&](Region* region, Instruction* instruction) { change(&region->inputs[0], &instruction->inputs[0]); });
  };
  EXPECT_EQ(with_x([](RegionOperand* x, InstructionOperand*) { x->strides[3] = 2; }), "64: - to U")
      << "every second column";
  EXPECT_EQ(with_x([](RegionOperand* x, InstructionOperand*) { x->strides[3] = 0; }), "64: - to U");
  EXPECT_EQ(with_x([](RegionOperand* x, InstructionOperand*) { x->offset = 16; }), "64: - to U") << "columns 16 to 80";
  EXPECT_EQ(with_x([](RegionOperand* x, InstructionOperand*) { x->offset = 64; }), "64: U to U") << "another row";
  EXPECT_EQ(with_x([](RegionOperand* x, InstructionOperand*) { x->strides[2] = 80; }), "64: - to U");
  EXPECT_EQ(with_x([](RegionOperand* x, InstructionOperand*) { x->strides[0] = 1; }), "64: U to U") << "of one index";
  EXPECT_EQ(with_x([](RegionOperand*, InstructionOperand* x) { x->info.shape = Shape({2, 80}); }), "64: - to U");
  EXPECT_EQ(with_x([](RegionOperand*, InstructionOperand* x) { x->info.shape = Shape({2, 128}); }), "64: U to U");
  EXPECT_EQ(with_x([](RegionOperand*, InstructionOperand* x) { x->info.shape = Shape(); }), "64: - to U");
}

TEST(UnitParts, AllReadsOfAnInputFollowUnits) {
  const RegionOperand shifted = {.dtype = DType::kFloat, .size = 128, .offset = 1, .strides = {0, 0, 64, 1}};
  const RegionOperand rows = {.dtype = DType::kFloat, .size = 128, .strides = {0, 0, 64, 1}};
  const Expr x = Expr::Input(0, "x", DType::kFloat), again = Expr::Input(1, "again", DType::kFloat);
  const RegionPart part{
      .region = {.sizes = {1, 1, 2, 32}, .inputs = {rows, shifted}, .outputs = {{.value = x + again, .memory = rows}}},
      .inputs = {0, 0},
      .outputs = {1}};
  const TensorInfo info{.dtype = DType::kFloat, .shape = Shape({2, 64})};
  Instruction instruction{.inputs = {{.info = info}}, .outputs = {{.info = info}}, .num_outputs = 1};
  MarkUnitsOfRegion(part, &instruction);
  EXPECT_EQ(UnitsOf(instruction), "32: - to U");
}

TEST(UnitParts, ARegionWhoseOutputsDoNotFollowUnitsIsNotCut) {
  EXPECT_EQ(UnitsOfChanged([](Region* region, Instruction*) { region->outputs[0].memory.offset = 1; }), "0: U to -");
  EXPECT_EQ(UnitsOfChanged([](Region*, Instruction* instruction) { instruction->outputs[0].info.shape = Shape({40}); }),
            "0: U to -");
  EXPECT_EQ(UnitsOfChanged([](Region* region, Instruction* instruction) {
              region->outputs.push_back(region->outputs[0]);
              region->outputs[1].memory.strides = {0, 0, 1, 2};
              instruction->outputs.push_back({.info = {.dtype = DType::kFloat, .shape = Shape()}, .position = 1});
            }),
            "0: U to U-");
}

TEST(UnitParts, ARegionThatMayFailIsNotCut) {
  EXPECT_EQ(UnitsOfChanged([](Region*, Instruction* instruction) { instruction->by_blobs = true; }), "0: - to -");
  EXPECT_EQ(UnitsOfChanged([](Region*, Instruction* instruction) { instruction->checks_values = true; }), "0: - to -");
}

// Slots of Loop.
enum { kH, kGates, kNext };

// gates [2, 64] = a product of h; the next row of h [2, 32] = a region of 32 units, of two groups of columns.
StepPlan Loop() {
  const auto operand = [](int slot, std::int64_t columns, bool has_units) {
    return InstructionOperand{
        .slot = slot, .info = {.dtype = DType::kFloat, .shape = Shape({2, columns})}, .has_units = has_units};
  };
  const auto linked = [](std::int64_t offset) {
    return Slot{.storage_class = StorageClass::kLinked, .base = 0, .offset = offset, .row_bytes = 256, .bytes = 256};
  };
  StepPlan plan;
  plan.slots = {linked(0), {.base = 1, .row_bytes = 512, .ring_rows = 4, .bytes = 512}, linked(1)};
  plan.instructions = {{.inputs = {operand(kH, 32, false)},
                        .outputs = {operand(kGates, 64, true)},
                        .max_parts = 4,
                        .can_part_units = true},
                       {.inputs = {operand(kGates, 64, true)}, .outputs = {operand(kNext, 32, true)}, .units = 32}};
  return plan;
}

// Where the parts of the last instruction begin.
int BeginOf(const std::function<void(StepPlan*)>& change, int first = 0) {
  StepPlan plan = Loop();
  change(&plan);
  return BeginOfUnitParts(plan, first, static_cast<int>(plan.instructions.size()) - 1);
}
int BeginOfProduct(const std::function<void(Instruction*)>& change) {
  return BeginOf([&](StepPlan* plan) { change(&plan->instructions[0]); });
}
int BeginOfRegion(const std::function<void(Instruction*)>& change) {
  return BeginOf([&](StepPlan* plan) { change(&plan->instructions[1]); });
}

TEST(UnitParts, AProductAndTheRegionBehindItGoTogether) {
  EXPECT_EQ(BeginOf([](StepPlan*) {}), 0);
  EXPECT_EQ(BeginOf([](StepPlan*) {}, /*first=*/1), 1) << "the product is of another stage";
}

TEST(UnitParts, OnlyRegionsHaveUnits) {
  EXPECT_EQ(BeginOfRegion([](Instruction* region) { region->units = 0; }), 1);
  EXPECT_EQ(BeginOfRegion([](Instruction* region) { region->steps_at_once = 16; }), 1);
}

TEST(UnitParts, ProductsThatCannotBeCutStayOutside) {
  EXPECT_EQ(BeginOfProduct([](Instruction* product) { product->can_part_units = false; }), 1);
  EXPECT_EQ(BeginOfProduct([](Instruction* product) { product->max_parts = 1; }), 1);
  EXPECT_EQ(BeginOfProduct([](Instruction* product) { product->steps_at_once = 16; }), 1);
}

TEST(UnitParts, ColumnsOfAProductAreWholeGroups) {
  const auto with_columns = [](const Shape& shape) {
    return BeginOf([&](StepPlan* plan) {
      plan->instructions[0].outputs[0].info.shape = shape;
      plan->instructions[0].outputs[0].slot = 3;  // which nobody reads
      plan->slots.push_back({.base = 2, .bytes = 512});
    });
  };
  EXPECT_EQ(with_columns(Shape({2, 96})), 0);
  EXPECT_EQ(with_columns(Shape({2, 48})), 1);
  EXPECT_EQ(with_columns(Shape()), 1);
}

TEST(UnitParts, PartsFindTheirUnitsInTheSameColumns) {
  const auto with_gates = [](const std::function<void(InstructionOperand*)>& change) {
    return BeginOfRegion([&](Instruction* region) { change(&region->inputs[0]); });
  };
  EXPECT_EQ(with_gates([](InstructionOperand* gates) { gates->has_units = false; }), 1);
  EXPECT_EQ(with_gates([](InstructionOperand* gates) { gates->info.dtype = DType::kInt32; }), 1);
  EXPECT_EQ(with_gates([](InstructionOperand* gates) { gates->info.shape = Shape({4, 32}); }), 1);
  EXPECT_EQ(with_gates([](InstructionOperand* gates) { gates->info.shape = Shape({1, 2, 64}); }), 0);
  EXPECT_EQ(BeginOfProduct([](Instruction* product) { product->outputs[0].has_units = false; }), 1);
  EXPECT_EQ(with_gates([](InstructionOperand* gates) {
              gates->has_units = false;
              gates->shape_alone = true;
            }),
            0)
      << "no element is read";
}

// The region reads the gates by way of another slot.
TEST(UnitParts, PartsFindTheirUnitsInTheSameBytes) {
  const auto with_slot = [](const Slot& slot) {
    return BeginOf([&](StepPlan* plan) {
      plan->instructions[1].inputs[0].slot = 3;
      plan->slots.push_back(slot);
    });
  };
  EXPECT_EQ(with_slot({.base = 1, .row_bytes = 512, .ring_rows = 4, .bytes = 512}), 0) << "another name";
  EXPECT_EQ(with_slot({.base = 1, .row_bytes = 0, .bytes = 512}), 1) << "rows of steps are elsewhere";
  EXPECT_EQ(with_slot({.base = 2, .row_bytes = 256, .bytes = 512}), 0) << "other memory";
  const auto with_offset = [](std::int64_t offset) {
    return BeginOf([&](StepPlan* plan) {
      plan->slots[kGates] = {.storage_class = StorageClass::kLinked, .base = 1, .row_bytes = 256, .bytes = 512};
      plan->instructions[1].inputs[0].slot = 3;
      plan->slots.push_back(plan->slots[kGates]);
      plan->slots.back().offset = offset;
    });
  };
  EXPECT_EQ(with_offset(0), 0);
  EXPECT_EQ(with_offset(1), 1) << "its first row is the second one of the product";
  EXPECT_EQ(with_offset(2), 0) << "rows of other steps";
}

TEST(UnitParts, WhatTheProductReadsIsNotWritten) {
  EXPECT_EQ(BeginOf([](StepPlan* plan) { plan->slots[kNext].offset = 0; }), 1) << "all of h is read for each unit";
}

TEST(UnitParts, WhatTheProductWritesIsWrittenInTheSameColumns) {
  const auto region_writes_gates = [](bool has_units) {
    return BeginOf([&](StepPlan* plan) {
      plan->instructions[1].inputs.clear();
      plan->instructions[1].outputs[0] = plan->instructions[0].outputs[0];
      plan->instructions[0].outputs[0].has_units = has_units;
    });
  };
  EXPECT_EQ(region_writes_gates(true), 0);
  EXPECT_EQ(region_writes_gates(false), 1);
}

TEST(UnitParts, ARegionThatWritesIntoWhatItReadsIsNotCut) {
  const auto reads_next = [](std::int64_t offset, bool has_units) {
    return BeginOf([&](StepPlan* plan) {
      InstructionOperand h = plan->instructions[1].outputs[0];
      h.slot = 3;
      h.has_units = has_units;
      plan->instructions[1].inputs.push_back(h);
      plan->slots.push_back(plan->slots[kNext]);
      plan->slots.back().offset = offset;
    });
  };
  EXPECT_EQ(reads_next(1, true), 0) << "in place";
  EXPECT_EQ(reads_next(1, false), 1);
  EXPECT_EQ(reads_next(2, false), 0) << "another row";
}

// Between the product and the region.
int BeginWith(const Instruction& between) {
  return BeginOf([&](StepPlan* plan) {
    plan->instructions.insert(plan->instructions.begin() + 1, between);
    plan->slots.push_back({.base = 2, .bytes = 512});
  });
}

TEST(UnitParts, SeveralProductsGoTogether) {
  Instruction adds = Loop().instructions[0];
  adds.outputs[0].added = true;
  EXPECT_EQ(BeginWith(adds), 0);
  Instruction elsewhere = adds;
  elsewhere.outputs[0].slot = 3;
  EXPECT_EQ(BeginWith(elsewhere), 0);
}

TEST(UnitParts, AReaderBetweenThemEndsTheParts) {
  Instruction reader = Loop().instructions[0];
  reader.inputs = Loop().instructions[0].outputs;
  reader.inputs[0].has_units = false;  // a product of all gates
  reader.outputs[0].slot = 3;
  EXPECT_EQ(BeginWith(reader), 1) << "the second product alone goes with the region";
  reader.can_part_units = false;
  EXPECT_EQ(BeginWith(reader), 2);
}

TEST(UnitParts, NoProductGoesAlongBeyondOneThatDoesNot) {
  EXPECT_EQ(BeginOf([](StepPlan* plan) {
              Instruction elsewhere = plan->instructions[0];
              elsewhere.outputs[0].slot = 3;
              plan->instructions[0].outputs[0].has_units = false;
              plan->instructions.insert(plan->instructions.begin(), elsewhere);
              plan->slots.push_back({.base = 2, .bytes = 512});
            }),
            2);
}

// Whether the product of a loop of so many rows is cut with the region behind it.
bool IsCutWithRegion(int rows, bool is_packed) {
  const std::string h = StrCat("[", rows, ", 256]"), g = StrCat("[", rows, ", 512]"), row = StrCat(rows * 1024);
  const std::string pack =
      "  once for all steps:\n  ^\"u packed\": uint8 [524288] once = packed u for @0\n  in each step:\n";
  const StepPlan plan = PlanOf(StrCat(
      "  h: float ", h, " at 0[", row, " * t]\n  u: float [512, 256] at 1\n", is_packed ? pack : "", "  g.1: float ", g,
      " = product h ", h, " * u [512, 256]^T by FC(h, u)", is_packed ? " with ^\"u packed\"" : "",
      " @0 {}\n  region {\n    a.1: float ", h, " local, b.1: float ", h, " local = Split(g.1) @1 {}\n    h.1: float ",
      h, " at 0[", row, " * (t + 1)] = Mul(a.1, b.1) @2 {}\n  }\n"));
  const auto last = static_cast<int>(plan.instructions.size()) - 1;
  EXPECT_EQ(plan.instructions[last].units, 256);
  EXPECT_GT(plan.instructions[last - 1].max_parts, 1);
  return BeginOfUnitParts(plan, plan.stages.back().begin, last) == last - 1;
}

TEST(UnitParts, OfSeveralRowsAProductIsCutWherePackedAlone) {
  EXPECT_TRUE(IsCutWithRegion(2, /*is_packed=*/true));
  EXPECT_FALSE(IsCutWithRegion(2, /*is_packed=*/false));
  EXPECT_TRUE(IsCutWithRegion(1, /*is_packed=*/false));
}

}  // namespace
}  // namespace stepnet

#include "stepnet/compiler/unit_parts.h"

#include <algorithm>

#include "stepnet/core/formulas/column_programs.h"
#include "stepnet/core/op_run.h"

namespace stepnet {
namespace {

// Whether the element of an operand at column c of the region is, for all others of its index, in column c of some
// group of the tensor that it lies in, whose rows have `columns`.
bool FollowsUnits(const Region& region, const RegionOperand& operand, std::int64_t columns) {
  const std::int64_t units = region.sizes[kRegionDims - 1];
  if (operand.strides[kRegionDims - 1] != 1 || columns % units != 0 || operand.offset % units != 0) return false;
  for (int d = 0; d < kRegionDims - 1; ++d) {
    if (region.sizes[d] > 1 && operand.strides[d] % units != 0) return false;
  }
  return true;
}

// Whether parts of the units touch no byte of each other's in two instructions of a step.
bool AreApart(const StepPlan& plan, const Instruction& a, const Instruction& b) {
  const auto may_meet = [&](const InstructionOperand& x, const InstructionOperand& y) {
    if (x.shape_alone || y.shape_alone || !ShareBytes(plan.slots[x.slot], plan.slots[y.slot])) return false;
    const Slot &from = plan.slots[x.slot], &to = plan.slots[y.slot];
    const bool is_one = from.BeginInBase() == to.BeginInBase() && from.row_bytes == to.row_bytes;
    const bool is_alike = x.info.dtype == y.info.dtype && x.info.shape[-1] == y.info.shape[-1];
    return !(x.has_units && y.has_units && is_one && is_alike);
  };
  const auto any_meet = [&](const std::vector<InstructionOperand>& writes,
                            const std::vector<InstructionOperand>& others) {
    return std::ranges::any_of(writes, [&](const InstructionOperand& x) {
      return std::ranges::any_of(others, [&](const InstructionOperand& y) { return may_meet(x, y); });
    });
  };
  return !any_meet(a.outputs, b.inputs) && !any_meet(a.outputs, b.outputs) && !any_meet(a.inputs, b.outputs);
}

// Whether each output has these units, once or several times side by side.
bool CanPart(const Instruction& instruction, std::int64_t units) {
  if (!instruction.can_part_units || instruction.max_parts < 2 || instruction.steps_at_once != 1) return false;
  return std::ranges::all_of(instruction.outputs, [&](const InstructionOperand& output) {
    return output.info.shape.rank() > 0 && output.info.shape[-1] % units == 0;
  });
}

}  // namespace

void MarkUnitsOfRegion(const RegionPart& part, Instruction* instruction) {
  const std::int64_t units = ColumnsApart(part.region);
  if (units == 0 || units % OpRun::kUnitsOfPart != 0 || instruction->by_blobs || instruction->checks_values) return;
  const auto num_inputs = static_cast<int>(instruction->inputs.size());
  const auto follows = [&](int tensor, const InstructionOperand& operand) {
    if (operand.info.shape.rank() == 0) return false;
    const std::int64_t columns = operand.info.shape[-1];
    for (size_t i = 0; i < part.inputs.size(); ++i) {
      if (part.inputs[i] == tensor && !FollowsUnits(part.region, part.region.inputs[i], columns)) return false;
    }
    for (size_t o = 0; o < part.outputs.size(); ++o) {
      if (part.outputs[o] == tensor && !FollowsUnits(part.region, part.region.outputs[o].memory, columns)) return false;
    }
    return true;
  };
  bool all_follow = true;
  for (InstructionOperand& input : instruction->inputs) input.has_units = follows(input.position, input);
  for (InstructionOperand& output : instruction->outputs) {
    output.has_units = follows(num_inputs + output.position, output);
    all_follow = all_follow && output.has_units;
  }
  if (all_follow) instruction->units = units;
}

int BeginOfUnitParts(const StepPlan& plan, int first, int i) {
  const Instruction& region = plan.instructions[i];
  if (region.units == 0 || region.steps_at_once != 1) return i;
  if (!AreApart(plan, region, region)) return i;
  int begin = i;
  for (int j = i - 1; j >= first; --j) {
    const Instruction& before = plan.instructions[j];
    if (!CanPart(before, region.units)) break;
    bool is_apart = true;
    for (int other = j + 1; other <= i; ++other)
      is_apart = is_apart && AreApart(plan, before, plan.instructions[other]);
    if (!is_apart) break;
    begin = j;
  }
  return begin;
}

}  // namespace stepnet

#include "stepnet/compiler/instruction_rows.h"

#include <algorithm>

#include "stepnet/compiler/region_node_kernel.h"

namespace stepnet {
namespace {

bool HasRows(const StepPlan& plan, const InstructionOperand& operand) {
  const Slot& slot = plan.slots[operand.slot];
  const bool goes_on = slot.ring_rows == 0 || slot.storage_class == StorageClass::kBlock;
  return slot.storage_class != StorageClass::kDynamic && goes_on && slot.row_bytes > 0 &&
         slot.row_bytes == operand.info.size_bytes() && operand.info.shape.rank() > 0;
}

}  // namespace

void MarkRows(const StepPlan& plan, const OperatorCall& op, Instruction* instruction) {
  const std::vector<TensorInfo> inputs = InfosOf(*instruction, instruction->inputs);
  const std::optional<RowOperands> rule = op.schema().rows(ShapeQuery(op, inputs));
  if (!rule) return;
  instruction->can_take_steps = true;
  const auto mark = [&](const std::vector<int>& with_rows, bool is_output, InstructionOperand* operand) {
    operand->has_rows = std::ranges::count(with_rows, operand->position) > 0;
    if (operand->shape_alone) {  // it may be anywhere; what is summed like it has the same shape for any rows
      const bool is_like = !is_output && op.schema().sum_like == operand->position;
      instruction->can_take_steps = instruction->can_take_steps && (operand->has_rows || is_like);
      return;
    }
    // The sum over all steps may be added or, by what runs once for all of them, written.
    const bool is_sum = operand->added || instruction->steps_at_once == kAllSteps;
    const bool is_for_all = plan.slots[operand->slot].row_bytes == 0 && (is_sum || !is_output);
    const bool fits = operand->has_rows ? HasRows(plan, *operand) : is_for_all;
    instruction->can_take_steps = instruction->can_take_steps && fits;
  };
  for (InstructionOperand& input : instruction->inputs) mark(rule->inputs, false, &input);
  for (InstructionOperand& output : instruction->outputs) mark(rule->outputs, true, &output);
}

void MarkRowsOfRegion(const StepPlan& plan, std::span<const RegionCall> calls, std::span<const TensorInfo> operands,
                      Instruction* instruction) {
  std::vector<bool> with_rows;
  bool fits = true;
  for (InstructionOperand& input : instruction->inputs) {
    input.has_rows = HasRows(plan, input);
    with_rows.push_back(input.has_rows);
    fits = fits && (input.has_rows || plan.slots[input.slot].row_bytes == 0);
  }
  const std::optional<std::vector<bool>> rows =
      fits ? OperandsWithRows(calls, operands, std::move(with_rows)) : std::nullopt;
  instruction->can_take_steps = rows.has_value();
  for (InstructionOperand& output : instruction->outputs) {
    output.has_rows = rows && (*rows)[instruction->inputs.size() + static_cast<size_t>(output.position)];
    if (!output.has_rows || !HasRows(plan, output)) instruction->can_take_steps = false;
  }
}

void MarkRowsOfElements(const StepPlan& plan, Instruction* instruction) {
  const auto has_rows = [&](const InstructionOperand& operand) { return HasRows(plan, operand); };
  instruction->can_take_steps =
      std::ranges::all_of(instruction->inputs, has_rows) && std::ranges::all_of(instruction->outputs, has_rows);
  for (std::vector<InstructionOperand>* operands : {&instruction->inputs, &instruction->outputs}) {
    for (InstructionOperand& operand : *operands) operand.has_rows = instruction->can_take_steps;
  }
}

bool HasSumsAndRows(const Instruction& instruction) {
  const auto has_rows = [](const InstructionOperand& operand) { return operand.has_rows; };
  return instruction.can_take_steps && std::ranges::any_of(instruction.outputs, has_rows) &&
         !std::ranges::all_of(instruction.outputs, has_rows);
}

std::vector<TensorInfo> InfosOf(const Instruction& instruction, const std::vector<InstructionOperand>& operands) {
  const bool are_outputs = &operands == &instruction.outputs;
  const size_t count = are_outputs ? static_cast<size_t>(instruction.num_outputs) : operands.size();
  const std::int64_t steps = TypicalStepsOf(instruction.steps_at_once);
  std::vector<TensorInfo> infos(count, {.dtype = DType::kFloat, .shape = Shape({0})});
  for (const InstructionOperand& operand : operands) {
    TensorInfo& info = infos[operand.position];
    info = operand.info;
    info.shape = ShapeOfSteps(operand, steps);
  }
  return infos;
}

Shape ShapeOfSteps(const InstructionOperand& operand, std::int64_t num_steps) {
  const Shape& row = operand.info.shape;
  return operand.has_rows && num_steps != 1 ? row.With(0, row[0] * num_steps) : row;
}

}  // namespace stepnet

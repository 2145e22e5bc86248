#include "stepnet/core/regions/region_instructions.h"

#include <algorithm>
#include <iterator>

namespace stepnet {

using Kind = RegionInstruction::Kind;

void SetOperands(RegionInstruction* instruction, std::span<const int> slots) {
  std::ranges::copy(slots, instruction->operands);
  const auto is_slot = [](int slot) { return slot >= 0; };
  instruction->num_operands = static_cast<int>(std::ranges::count_if(slots, is_slot));
  if (instruction->kind != Kind::kCompute) return;
  std::fill(instruction->operands + instruction->num_operands, std::end(instruction->operands), slots[0]);
}

RegionInstruction InstructionOf(const RegionValue& value, int out, int keys_of_run) {
  const ExprNode& expr = *value.expr;
  RegionInstruction instruction{
      .op = expr.op, .dtype = expr.dtype, .level = value.level, .number = expr.number, .out = out};
  instruction.kernel = value.kernel;
  instruction.pattern = value.pattern;
  if (value.row_operand_kernel != nullptr) {
    instruction.kind = Kind::kOfRows;
    instruction.row_operand_kernel = value.row_operand_kernel;
    instruction.repeated = value.repeated;
  }
  if (instruction.kernel != nullptr || instruction.row_operand_kernel != nullptr) return instruction;
  switch (expr.op) {
    case ExprOp::kUniform:
      instruction.kind = Kind::kUniform;
      instruction.number = keys_of_run;
      break;
    case ExprOp::kIndex: instruction.kind = expr.number == kRegionDims - 1 ? Kind::kColumns : Kind::kIndex; break;
    default: {
      const int typed = expr.op == ExprOp::kWhere ? 1 : 0;  // whose dtype chooses the kernel
      instruction.kernel = KernelOf(expr.op, expr.operands[typed]->dtype, expr.dtype);
    }
  }
  return instruction;
}

RegionInstruction CopyOf(const Expr& value, int from, int to) {
  const bool fills = value.IsConstant();
  RegionInstruction copy{.op = value->op,
                         .dtype = value.dtype(),
                         .out = to,
                         .kernel = fills ? FillKernelOf(value.dtype()) : CopyKernelOf(value.dtype()),
                         .pattern = {.kind = fills ? RegionPattern::Kind::kFill : RegionPattern::Kind::kCopy}};
  SetOperands(&copy, {from});
  return copy;
}

RegionInstruction LoadOf(Kind kind, const ExprNode& input, int to) {
  return {.kind = kind, .dtype = input.dtype, .number = input.number, .out = to};
}

RegionInstruction StoreOf(Kind kind, int from, int operand) {
  RegionInstruction store{.kind = kind, .number = operand};
  SetOperands(&store, {from});
  return store;
}

RegionInstruction ConditionOf(int from, int to) {
  RegionInstruction copy{.op = ExprOp::kAnd,
                         .dtype = DType::kBool,
                         .out = to,
                         .kernel = KernelOf(ExprOp::kAnd, DType::kBool, DType::kBool)};
  SetOperands(&copy, {from, from});
  return copy;
}

}  // namespace stepnet

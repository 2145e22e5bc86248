// Rows of operands: which instructions may run for several steps at once, and what they see then.
#pragma once

#include <span>
#include <vector>

#include "stepnet/compiler/step_graph.h"
#include "stepnet/compiler/step_plan.h"

namespace stepnet {

// Sets `can_take_steps`, and `has_rows` of the operands. The slots of `plan` say where operands are: rows of
// all steps must lie one after the other, and what has no rows must be the same for all steps, or a sum over them.
void MarkRows(const StepPlan& plan, const OperatorCall& op, Instruction* instruction);  // by the type's rule
// Marks them by the rules of a region's operators. `operands` are those of the region, of one step.
void MarkRowsOfRegion(const StepPlan& plan, std::span<const RegionCall> calls, std::span<const TensorInfo> operands,
                      Instruction* instruction);
void MarkRowsOfElements(const StepPlan& plan, Instruction* instruction);  // of what goes element by element

// Whether some outputs are sums over the steps and others have rows.
bool HasSumsAndRows(const Instruction& instruction);

// What the kernel sees in one run, by position; operands that the instruction leaves out have no elements. A run for
// all steps is taken to be for kTypicalSteps.
std::vector<TensorInfo> InfosOf(const Instruction& instruction, const std::vector<InstructionOperand>& operands);

// The shape of an operand in a run for `num_steps` steps: with the rows of all of them, where it has rows.
Shape ShapeOfSteps(const InstructionOperand& operand, std::int64_t num_steps);

}  // namespace stepnet

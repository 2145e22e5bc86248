// Instructions of a region's program, by what they compute.
#pragma once

#include <initializer_list>
#include <span>

#include "stepnet/core/regions/region_code.h"
#include "stepnet/core/regions/region_values.h"

namespace stepnet {

// The slots that an instruction reads; -1 where it has no operand.
void SetOperands(RegionInstruction* instruction, std::span<const int> slots);
inline void SetOperands(RegionInstruction* instruction, std::initializer_list<int> slots) {
  SetOperands(instruction, std::span<const int>(slots.begin(), slots.size()));
}

// What computes a value, by its pattern where it has one. `keys_of_run`: bit k where key k of a draw is one of the run.
RegionInstruction InstructionOf(const RegionValue& value, int out, int keys_of_run);
// Writes what `from` holds, a value, to `to`.
RegionInstruction CopyOf(const Expr& value, int from, int to);
// Elements of an input or values of its rows into a slot, and from a slot to the memory of an operand of the program,
// as `kind` says.
RegionInstruction LoadOf(RegionInstruction::Kind kind, const ExprNode& input, int to);
RegionInstruction StoreOf(RegionInstruction::Kind kind, int from, int operand);
// Writes a requirement, which is its condition.
RegionInstruction ConditionOf(int from, int to);

}  // namespace stepnet

// Parts of the units: a product of columns in groups, as the gates of a cell's units, and a region behind it that reads
// of each group the columns that it computes. So a part of the one is all that the same part of the other waits for,
// and a thread goes through both, with what is between them in its cache.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "stepnet/compiler/step_plan.h"
#include "stepnet/core/regions/region_composition.h"

namespace stepnet {

// Sets `units`, and `has_units` of the operands, of an instruction that is this region; tensors are its inputs and
// outputs, by position, and behind them what it reads of the run.
void MarkUnitsOfRegion(const RegionPart& part, Instruction* instruction);

// The first of the instructions [first, i] that go through parts of the units of instruction i, a region, together; i
// where none does. `first` is where to stop.
int BeginOfUnitParts(const StepPlan& plan, int first, int i);

}  // namespace stepnet

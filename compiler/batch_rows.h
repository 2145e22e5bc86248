// Rows of the batch: sequences of which no instruction of a loop mixes two, so that each thread can take some of them
// through all steps without waiting for others.
//
// Which rows an operand has follows from where they lie: after sizes of 1 comes the size of the batch. That an
// instruction keeps them apart follows from the products and regions that it computes.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "stepnet/compiler/step_graph.h"
#include "stepnet/compiler/step_plan.h"
#include "stepnet/core/regions/region_composition.h"

namespace stepnet {

// The dimension that holds `rows` rows of the batch: what comes before is 1. Nothing where there is none.
std::optional<int> DimOfBatch(const Shape& shape, std::int64_t rows);

// Set `batch_rows`, and `has_batch` of the operands, where the instruction that is made of the node keeps rows apart.
void MarkBatchOfProduct(const StepNode& node, Instruction* instruction);
// The same of an operator that says no more than which operands have rows (MarkRows), and reads packed weights: all
// sizes before the last count rows then, as those of products do.
void MarkBatchOfRows(Instruction* instruction);
// `parts` compute it; tensors are its inputs and outputs, by position, and behind them what it reads of the run.
void MarkBatchOfRegion(std::span<const RegionPart> parts, Instruction* instruction);
void MarkBatchOfElements(Instruction* instruction);

// How many rows the batch has that the instructions of a stage keep apart, in the same memory; 0: they do not.
std::int64_t BatchRowsOf(const StepPlan& plan, const Stage& stage);

// Takes the mark of an instruction of the stage back where its operators, given some of the rows, do not give as many;
// true where there is such a one. To be asked of loops that are to be cut: some formulas are made for fewer rows then,
// which takes long.
bool TakeBackBatch(const StepGraph& graph, const Stage& stage, StepPlan* plan);

}  // namespace stepnet

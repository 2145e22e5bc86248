// VerifyMoves: checks what a run does to whole rows around its loop (compiler/row_move.h).
#pragma once

#include "stepnet/compiler/step_graph.h"

namespace stepnet {

// Throws GraphFault (compiler/verify_operators.h), naming the move, for a graph in which, in runs of no steps or in
// others,
// - a move is of no base that there is, of rows that end before they begin, or from and to other numbers of rows;
// - a move reads rows, or adds to rows, that hold nothing yet. What is lent (StepGraph::lent) holds what the caller
//   gave; other rows hold something behind the first move that writes them and, after the last step, behind nodes;
// - a move writes rows that hold something already, or rows that it reads, or what is lent;
// - a copy of what is lent is made after the last step, of a part of it or of what is not lent, or twice;
// - the numbers of the steps go where steps read another dtype;
// - a sum of the steps (Home::Kind::kSum) is not cleared, once and before the first step.
void VerifyMoves(const StepGraph& graph);

}  // namespace stepnet

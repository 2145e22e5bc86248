// VerifyGraph: checks what is true of every StepGraph, before and after each pass.
#pragma once

#include <optional>
#include <string>

#include "stepnet/compiler/step_graph.h"
#include "stepnet/compiler/verify_operators.h"
#include "stepnet/compiler/verify_order.h"

namespace stepnet {

// Throws kInternal, naming the pass that has just run, the node and the value, for a graph in which
// - a node reads a value before it is given, or after its home has been given another one;
// - two values have one name, or a value two producers, or none that it names;
// - a value is larger than the memory outside in which it lives, or memory is of no base that there is;
// - a move has other than one input and one output of one dtype and size, or an operator operands, in places, of dtypes
//   or of shapes that its declaration does not allow or give;
// - a product is not what its operator says (core/expansion.h), or a weight is packed for what does not read it so;
// - an operator adds to an output to which its kernel cannot add, writes where terms are added to zeros, or adds where
//   nothing is;
// - a region has an operator without formula, or its operators read what none of them and no input gives;
// - a value that is in no memory is used outside of its region;
// - stages are not all nodes in their order, use values of each other that are not kept, or do not keep the order of
//   the loop (compiler/verify_stages.h);
// - sums over the steps are read before all terms are there, or what runs behind all steps uses what is of one of them
//   (compiler/verify_sums.h);
// - what moves around the loop read is not there, or what they write is lost (compiler/verify_moves.h);
// - what is to be computed again is not kept, or nothing computes it (compiler/verify_recomputation.h);
// - two operators have one number, which are not parts of one.
void VerifyGraph(const StepGraph& graph, const std::string& pass);

// Verifies the graphs of one plan, one pass after the other.
class GraphVerifier {
 public:
  // Without `thorough` the order of reads and writes is not compared with that before the pass, and that of a plan's
  // stages is left to who makes the plan: to emit one behind each pass takes half as long as all else.
  explicit GraphVerifier(bool thorough = true) : thorough_(thorough) {}

  // Does what VerifyGraph does. What no pass changes must be as in the first of them, too: direction, memory outside,
  // the moves around the loop; and reads and writes of the same bytes keep their order (compiler/verify_order.h).
  void Verify(const StepGraph& graph, const std::string& pass);

 private:
  const bool thorough_;
  OperatorVerifier operators_;
  OrderVerifier order_;
  std::optional<StepGraph> before_;  // of the first graph, without values and nodes
};

}  // namespace stepnet

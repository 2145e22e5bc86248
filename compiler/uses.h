// Who uses what in a graph, looked up once.
#pragma once

#include <memory>
#include <set>
#include <span>
#include <vector>

#include "stepnet/compiler/step_graph.h"
#include "stepnet/core/formulas/formula_program.h"

namespace stepnet {

class Uses {
 public:
  explicit Uses(const StepGraph& graph);

  int NumReaders(int value) const { return num_readers_[value]; }
  int NumValues(int home) const { return num_values_[home]; }
  // Whether some node adds to what the home holds, and so reads it.
  bool IsAddedTo(int home) const { return is_added_to_[home]; }
  // Whether the value is alone in memory of the step's own, and one node reads it.
  bool HasOneReader(int value) const;
  // Whether the value is alone in memory that goes with the step, so that who gives it may be another, or be gone.
  bool IsApart(int value) const { return IsTemporary(value) && NumValues(graph_.values[value].home) == 1; }
  // Whether the sum may lie where the term does: an operator of the step gives the term, which is as large as the sum,
  // and nobody reads it but the node that gives the sum.
  bool IsTermAlone(int term, int sum) const;
  // Whether the value's home is the step's own and goes with the step: nobody looks there when it has ended.
  bool IsTemporary(int value) const;
  // Whether one of the nodes [begin, end) reads or writes some of these bytes outside; moves that add there, which may
  // come in any order, do not count.
  bool IsTouched(const Home& memory, int begin, int end) const;
  // Whether a move reads some of these bytes outside.
  bool IsMovedIn(const Home& memory) const;

 private:
  // Who touches memory outside.
  struct Use {
    int base = 0;
    int node = 0;
    int value = 0;
    bool is_moved = false;  // a move reads it
  };

  // Returns those of one base by the nodes [begin, end).
  std::span<const Use> UsesOf(int base, int begin, int end) const;
  bool ShareBytesWith(const Home& memory, const Use& use) const;

  const StepGraph& graph_;
  std::vector<int> num_readers_;   // by value
  std::vector<int> num_values_;    // by home
  std::vector<bool> is_added_to_;  // likewise
  std::vector<Use> outside_;       // by base, in the order of the nodes
};

// Which nodes wait for each other around the loop (CyclesOf), of a graph that has no stages yet: as it is when somebody
// asks first.
class NodesInLoop {
 public:
  explicit NodesInLoop(const StepGraph& graph) : graph_(graph) {}
  bool Contains(int node);

 private:
  const StepGraph& graph_;
  std::vector<int> cycles_;  // by node
};

// Bases outside to some of whose memory a node writes.
std::set<int> WrittenBases(const StepGraph& graph);

// Whether the value is memory outside that is there before the first step, the same in all of them, and stays as it is.
bool IsGivenWhole(const StepGraph& graph, const std::set<int>& written_bases, int value);

// Whether the node is a move that adds what one operator of the step has made to memory outside.
bool AddsTermOutside(const StepGraph& graph, const StepNode& node);

// What the formula of the node's operator says; null where it has none, or none for these dtypes, or is run by blobs.
// REQUIRES: the node is one operator.
std::shared_ptr<const FormulaProgram> FormulaOf(const StepGraph& graph, const StepNode& node);

// Whether the formula of an operator that gives one output says that it is the sum of all inputs, element by element
// and in their order: each of them once, where none is repeated.
bool AddsItsInputs(const StepGraph& graph, const StepNode& node);

// Whether the node is an operator that gives the same for the same inputs and does nothing beside: no random numbers,
// nothing that depends on the number of the step or the run. Operators that run by blobs are not asked.
bool DependsOnInputsAlone(const StepGraph& graph, const StepNode& node);

// Whether two nodes of one type, which are one operator each, have the same arguments.
bool HaveSameArguments(const StepNode& a, const StepNode& b);

// Whether the kernel of the node, which is one operator, does without outputs that are kNoValue.
bool CanLeaveOut(const StepGraph& graph, const StepNode& node);

// Whether the operator that gives the value can add it to what memory holds.
bool CanAdd(const StepGraph& graph, int value);

}  // namespace stepnet

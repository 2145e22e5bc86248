#include <algorithm>
#include <map>
#include <vector>

#include "stepnet/compiler/passes/passes.h"
#include "stepnet/compiler/uses.h"

namespace stepnet {
namespace {

// Memory outside of which each step of a backward run has a row.
class RowsOutside {
 public:
  explicit RowsOutside(const StepGraph& graph) : graph_(graph) {
    for (const StepNode& node : graph.nodes) {
      for (const int output : node.given()) Note(output, &writers_);
      for (const int input : node.inputs) Note(input, &readers_);
    }
  }

  // Whether the value's row holds zeros until a step adds the value, as nothing else does, and is read by steps behind
  // that one alone.
  bool IsWrittenOnce(int value) const {
    const Slot& slot = SlotOf(value);
    if (!graph_.backward || slot.row_bytes == 0 || graph_.values[value].info.size_bytes() != slot.row_bytes)
      return false;
    if (writers_.at(slot.base).size() != 1 || !StartsAtZero(slot.base)) return false;
    const auto readers = readers_.find(slot.base);
    return readers == readers_.end() || std::ranges::all_of(readers->second, [&](int reader) {
             const Slot& read = SlotOf(reader);
             return read.row_bytes == slot.row_bytes && read.BeginInBase() >= slot.BeginInBase() + slot.row_bytes;
           });
  }

 private:
  const Slot& SlotOf(int value) const { return graph_.homes[graph_.values[value].home].slot; }

  void Note(int value, std::map<int, std::vector<int>>* users) {
    const Home& home = graph_.homes[graph_.values[value].home];
    if (home.kind == Home::Kind::kOutside) (*users)[home.slot.base].push_back(value);
  }

  bool StartsAtZero(int base) const {
    const auto writes = [&](const RowMove& move) { return move.to.base == base; };
    const auto move = std::ranges::find_if(graph_.before, writes);
    return move != graph_.before.end() && move->kind == RowMove::Kind::kZero && move->to.IsWhole() &&
           !move->only_without_steps && std::ranges::count_if(graph_.before, writes) == 1;
  }

  const StepGraph& graph_;
  std::map<int, std::vector<int>> writers_, readers_;  // values, by base
};

// Where a row of memory outside is zeros until a step of a backward run adds a term, and that is the only one, the
// operator that gives the term writes it there, and what else reads the term reads the row.
bool WriteOnlyTerms(StepGraph* graph) {
  const Uses uses(*graph);
  const RowsOutside rows(*graph);
  std::vector<bool> gone(graph->nodes.size(), false);
  for (size_t n = 0; n < graph->nodes.size(); ++n) {
    const StepNode& node = graph->nodes[n];
    if (!AddsTermOutside(*graph, node)) continue;
    const int term = node.inputs[0], row = node.outputs[0];
    if (!uses.IsApart(term) || !rows.IsWrittenOnce(row)) continue;
    std::ranges::replace(graph->nodes[graph->values[term].producer].outputs, term, row);
    if (uses.NumReaders(term) > 1) {
      for (StepNode& reader : graph->nodes) std::ranges::replace(reader.inputs, term, row);
    }
    graph->values[row].added = false;
    graph->ForgetLast(term);
    gone[n] = true;
  }
  if (!std::ranges::count(gone, true)) return false;
  graph->Erase(gone);
  return true;
}

const PassRegistration registration({.name = "write_only_terms", .place = 80, .opt_level = 2, .run = WriteOnlyTerms});

}  // namespace
}  // namespace stepnet

#include "stepnet/compiler/rows_in_turn.h"

#include <algorithm>
#include <bit>
#include <optional>
#include <utility>
#include <vector>

#include "stepnet/compiler/node_order.h"

namespace stepnet {
namespace {

// That a node reads or writes a row.
struct RowUse {
  int node = 0;
  std::int64_t offset = 0;  // of the row that it finds in step 0
  bool writes = false;
};

// The loop that has all of these nodes, which are in their order; none: there is no such loop.
std::optional<Stage> LoopOf(const StepGraph& graph, const std::vector<RowUse>& uses) {
  if (uses.empty()) return std::nullopt;
  const Stage all{.begin = 0, .end = static_cast<int>(graph.nodes.size())};
  if (graph.stages.empty()) return all;
  const auto stage = std::ranges::upper_bound(graph.stages, uses.front().node, {}, &Stage::end);
  if (stage->steps_at_once != 1 || uses.back().node >= stage->end) return std::nullopt;
  return *stage;
}

// Which nodes of a loop are done before which of the next step begin, in any case.
class NextStep {
 public:
  NextStep(const StepGraph& graph, const Stage& loop)
      : begin_(loop.begin),
        precedence_(FollowersByBytes(graph, loop.begin, loop.end)),
        waits_(WaitsOfNextStep(graph, loop.begin, loop.end)) {}

  bool WaitsFor(int node, int of_next_step) const {
    return std::ranges::any_of(waits_, [&](const std::pair<int, int>& wait) {
      return IsUpTo(node, wait.first) && IsUpTo(wait.second, of_next_step);
    });
  }

 private:
  bool IsUpTo(int earlier, int later) const {
    return earlier == later || precedence_.IsBefore(earlier - begin_, later - begin_);
  }

  const int begin_;
  const NodePrecedence precedence_;
  const std::vector<std::pair<int, int>> waits_;
};

}  // namespace

std::map<int, std::int64_t> RowsInTurn(const StepGraph& graph, std::int64_t ring_rows) {
  if (graph.in_turns.empty()) return {};
  std::map<int, std::vector<RowUse>> uses;  // by base
  for (size_t n = 0; n < graph.nodes.size(); ++n) {
    const auto add = [&](int value, bool writes) {
      const Home& home = graph.homes[graph.values[value].home];
      if (home.kind != Home::Kind::kOutside || !graph.in_turns.contains(home.slot.base)) return;
      uses[home.slot.base].push_back({static_cast<int>(n), home.slot.offset, writes});
    };
    for (const int input : graph.nodes[n].inputs) add(input, /*writes=*/false);
    for (const int output : graph.nodes[n].given()) add(output, /*writes=*/true);
  }
  std::map<int, NextStep> next_steps;  // by where their loop begins
  std::map<int, std::int64_t> rows;
  for (const auto& [base, of_base] : uses) {
    const bool are_rows = std::ranges::all_of(graph.homes, [b = base](const Home& home) {
      return home.kind != Home::Kind::kOutside || home.slot.base != b ||
             (home.slot.row_bytes > 0 && home.slot.bytes == home.slot.row_bytes);
    });
    const std::optional<Stage> loop = LoopOf(graph, of_base);
    if (!are_rows || !loop) continue;
    const std::int64_t last = std::ranges::max(of_base, {}, &RowUse::offset).offset;
    const auto few = static_cast<std::int64_t>(std::bit_ceil(static_cast<std::uint64_t>(last + 1)));
    rows[base] = few;
    if (few >= ring_rows) continue;
    const auto next = next_steps.try_emplace(loop->begin, graph, *loop).first;
    for (const RowUse& written : of_base) {
      for (const RowUse& used : of_base) {
        // So many steps later the row is written over; a step more is time enough.
        const bool is_next = written.writes && used.offset + few == written.offset + 1;
        if (is_next && !next->second.WaitsFor(used.node, written.node)) rows[base] = ring_rows;
      }
    }
  }
  return rows;
}

}  // namespace stepnet

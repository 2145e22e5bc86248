#include "stepnet/compiler/verify_moves.h"

#include <algorithm>
#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "stepnet/compiler/verify_operators.h"

namespace stepnet {
namespace {

[[noreturn]] void ThrowOf(const RowMove& move, const std::string& what) {
  throw GraphFault{StrCat(RowMoveText(move), ": ", what)};
}

// Where rows begin or end. How many rows a base has is known to runs alone, so not all places can be compared.
struct RowPlace {
  enum class From { kFirst, kSteps, kEnd };
  From from = From::kFirst;
  std::int64_t offset = 0;  // from row 0, from the number of steps, or, up to 0, from the end

  // Whether that is so in every run of one step or more.
  bool IsUpTo(const RowPlace& other) const {
    if (from == other.from) return offset <= other.offset;
    if (from == From::kFirst && offset <= 0) return true;
    if (other.from == From::kEnd && other.offset == 0) return true;
    return from == From::kFirst && other.from == From::kSteps && offset <= other.offset + 1;
  }
};

struct RowSpan {
  RowPlace begin, end;

  bool Contains(const RowSpan& other) const { return begin.IsUpTo(other.begin) && other.end.IsUpTo(end); }
  // Whether they have no row in common, in any run.
  bool IsApart(const RowSpan& other) const { return end.IsUpTo(other.begin) || other.end.IsUpTo(begin); }
};

constexpr RowSpan kAllRows = {.begin = {}, .end = {.from = RowPlace::From::kEnd}};

// Both, where one begins no later than the other ends.
std::optional<RowSpan> Joined(const RowSpan& a, const RowSpan& b) {
  const bool a_is_first = a.begin.IsUpTo(b.begin);
  const RowSpan &first = a_is_first ? a : b, &second = a_is_first ? b : a;
  if (!first.begin.IsUpTo(second.begin) || !second.begin.IsUpTo(first.end)) return std::nullopt;
  if (first.end.IsUpTo(second.end)) return RowSpan{first.begin, second.end};
  if (second.end.IsUpTo(first.end)) return first;
  return std::nullopt;
}

// Rows that hold something. Graphs are verified after each pass: this is one allocation.
class HeldRows {
 public:
  explicit HeldRows(size_t max_size) { ranges_.reserve(max_size); }

  bool Contain(int base, const RowSpan& rows) const {
    return std::ranges::any_of(ranges_,
                               [&](const Held& held) { return held.base == base && held.rows.Contains(rows); });
  }
  bool AreApart(int base, const RowSpan& rows) const {
    return std::ranges::all_of(ranges_, [&](const Held& held) { return held.base != base || held.rows.IsApart(rows); });
  }
  // Rows that follow each other become one range, which may follow another one.
  void Add(int base, RowSpan rows) {
    for (size_t i = 0; i < ranges_.size();) {
      const std::optional<RowSpan> joined = ranges_[i].base == base ? Joined(ranges_[i].rows, rows) : std::nullopt;
      if (!joined) {
        ++i;
        continue;
      }
      rows = *joined;
      ranges_[i] = ranges_.back();
      ranges_.pop_back();
      i = 0;
    }
    ranges_.push_back({base, rows});
  }

 private:
  struct Held {
    int base = 0;
    RowSpan rows;
  };
  std::vector<Held> ranges_;
};

// Follows the moves through a run, of no steps or of some.
class MoveVerifier {
 public:
  MoveVerifier(const StepGraph& graph, bool has_steps)
      : graph_(graph), has_steps_(has_steps), held_(graph.before.size() + graph.nodes.size()) {}

  void Run() {
    for (const RowMove& move : graph_.before) Check(move, /*is_before=*/true);
    if (has_steps_ && !graph_.after.empty()) RunNodes();
    for (const RowMove& move : graph_.after) Check(move, /*is_before=*/false);
  }

 private:
  void Check(const RowMove& move, bool is_before) {
    if (move.to.sum >= 0 || (move.only_without_steps && has_steps_)) return;
    if (move.kind == RowMove::Kind::kLend) return CheckLend(move, is_before);
    if (move.kind == RowMove::Kind::kGive) return CheckGive(move, is_before);
    const int base = move.to.base;
    const RowSpan to = RangeOf(move.to);
    const bool is_lent = graph_.lent.contains(base);
    if (!given_.empty()) ThrowOf(move, "the caller has been given something before");
    if (is_lent && !copied_.contains(base)) ThrowOf(move, "the caller owns the rows that it writes");
    if (move.kind == RowMove::Kind::kCopy || move.kind == RowMove::Kind::kAdd) {
      const RowSpan from = RangeOf(move.from);
      if (!IsHeld(move.from.base, from)) ThrowOf(move, "nothing has given the rows that it reads");
      if (move.from.base == base && !to.IsApart(from)) ThrowOf(move, "it writes rows that it reads");
    }
    if (move.kind == RowMove::Kind::kAdd) {
      if (!IsHeld(base, to)) ThrowOf(move, "nothing has given the rows that it adds to");
      return;
    }
    if (is_lent || !held_.AreApart(base, to)) ThrowOf(move, "it writes over rows that hold something");
    held_.Add(base, to);
  }

  bool IsHeld(int base, const RowSpan& rows) const { return graph_.lent.contains(base) || held_.Contain(base, rows); }

  void CheckLend(const RowMove& move, bool is_before) {
    if (!graph_.lent.contains(move.to.base)) ThrowOf(move, "the caller has not lent that");
    if (!is_before || !move.to.IsWhole()) ThrowOf(move, "what is lent is copied as a whole before the first step");
    if (!copied_.insert(move.to.base).second) ThrowOf(move, "it writes over rows that hold something");
  }

  // Nothing is made behind it: what is made there could fail.
  void CheckGive(const RowMove& move, bool is_before) {
    if (!graph_.lent.contains(move.to.base)) ThrowOf(move, "the caller has not lent that");
    if (is_before || !move.to.IsWhole()) ThrowOf(move, "what is given is given as a whole after the last step");
    if (graph_.lent.contains(move.from.base) || !held_.Contain(move.from.base, RangeOf(move.from))) {
      ThrowOf(move, "nothing has given the rows that it reads");
    }
    if (!given_.insert(move.to.base).second) ThrowOf(move, "it writes over rows that hold something");
  }

  RowSpan RangeOf(const BaseRows& rows) const {
    const auto place = [](std::int64_t row) {
      return RowPlace{.from = row < 0 ? RowPlace::From::kEnd : RowPlace::From::kFirst, .offset = row};
    };
    RowSpan range{.begin = place(rows.begin), .end = rows.end == BaseRows::kEnd ? kAllRows.end : place(rows.end)};
    if (rows.begins_at_steps && has_steps_) range.begin = {.from = RowPlace::From::kSteps, .offset = rows.begin};
    return range;
  }

  // What all steps together write, where moves behind them look.
  void RunNodes() {
    const auto is_looked_at = [&](int base) {
      return std::ranges::any_of(graph_.after,
                                 [&](const RowMove& move) { return move.to.base == base || move.from.base == base; });
    };
    for (const StepNode& node : graph_.nodes) {
      for (const int output : node.given()) {
        const StepValue& value = graph_.values[output];
        const Home& home = graph_.homes[value.home];
        const bool is_by_rows = home.slot.row_bytes == 0 || home.slot.bytes >= home.slot.row_bytes;
        if (home.kind != Home::Kind::kOutside || value.added || !is_by_rows || !is_looked_at(home.slot.base)) continue;
        held_.Add(home.slot.base, RowsOf(home.slot));
      }
    }
  }

  static RowSpan RowsOf(const Slot& slot) {
    if (slot.row_bytes == 0) return kAllRows;
    const std::int64_t window = slot.bytes / slot.row_bytes;
    return {.begin = {.offset = slot.offset},
            .end = {.from = RowPlace::From::kSteps, .offset = slot.offset + window - 1}};
  }

  const StepGraph& graph_;
  const bool has_steps_;
  HeldRows held_;         // of what is not lent
  std::set<int> copied_;  // bases that are lent, of which steps have a copy
  std::set<int> given_;   // bases that are lent and hold something new
};

// Whether it says how many rows these are, whatever a run has.
bool HasLength(const BaseRows& rows) {
  return !rows.begins_at_steps && rows.end != BaseRows::kEnd && (rows.begin < 0) == (rows.end < 0);
}

// Each of the plan's own sums is cleared, once and before the first step.
void CheckSumsAreCleared(const StepGraph& graph) {
  for (const RowMove& move : graph.before) {
    if (move.to.sum < 0) continue;
    const auto sum = static_cast<size_t>(move.to.sum);
    const bool is_sum = sum < graph.homes.size() && graph.homes[sum].kind == Home::Kind::kSum && move.to.base < 0;
    if (!is_sum) ThrowOf(move, "that is no sum of the steps");
    const auto clears = [&](const RowMove& other) { return other.to.sum == move.to.sum; };
    const bool is_whole = move.kind == RowMove::Kind::kZero && move.to.IsWhole() && !move.only_without_steps;
    if (!is_whole || std::ranges::count_if(graph.before, clears) > 1) {
      ThrowOf(move, "a sum of the steps is cleared once, in every run");
    }
  }
  for (size_t h = 0; h < graph.homes.size(); ++h) {
    const auto clears = [&](const RowMove& move) { return move.to.sum == static_cast<int>(h); };
    if (graph.homes[h].kind != Home::Kind::kSum || std::ranges::any_of(graph.before, clears)) continue;
    const auto term = std::ranges::find(graph.values, static_cast<int>(h), &StepValue::home);
    const std::string name = term == graph.values.end() ? "a sum" : term->blob;
    throw GraphFault{StrCat("steps add to ", name, ", and nothing clears it before the first one")};
  }
}

void CheckRows(const StepGraph& graph, const RowMove& move) {
  if (move.to.sum >= 0) return;
  const bool has_source = move.HasSource();
  for (const BaseRows* rows : {&move.to, &move.from}) {
    if (rows == &move.from && !has_source) continue;
    if (rows->base < 0 || rows->base >= graph.num_bases) throw GraphFault{StrCat("there is no base ", rows->base)};
    const bool is_backward = HasLength(*rows) ? rows->begin > rows->end : rows->begins_at_steps && rows->begin < 0;
    if (is_backward) ThrowOf(move, "rows end before they begin");
  }
  const bool are_as_many =
      !HasLength(move.to) || !HasLength(move.from) || move.to.end - move.to.begin == move.from.end - move.from.begin;
  if (has_source && !are_as_many) ThrowOf(move, "these are not as many rows");
  if (move.kind != RowMove::Kind::kNumbers) return;
  for (const StepValue& value : graph.values) {
    const Home& home = graph.homes[value.home];
    if (home.kind != Home::Kind::kOutside || home.slot.base != move.to.base || value.dynamic) continue;
    if (value.info.dtype != DType::kInt32) {
      ThrowOf(move, StrCat("numbers are int32, and steps see ", value.info.Description(), " there"));
    }
  }
}

// Where a row is of memory that steps may use in turn only they know, but for the first ones.
void CheckInTurns(const StepGraph& graph, int base) {
  int num_copies = 0;
  for (const RowMove& move : graph.before) {
    if (move.to.base != base) continue;
    const bool is_start = move.kind == RowMove::Kind::kCopy && move.to.begin == 0 && HasLength(move.to);
    if (!is_start || ++num_copies > 1) ThrowOf(move, "steps may use rows in turn, and these are not the first ones");
  }
  if (num_copies == 0) throw GraphFault{StrCat("steps may use rows of base ", base, " in turn, and none is given")};
  for (const std::vector<RowMove>* moves : {&graph.before, &graph.after}) {
    for (const RowMove& move : *moves) {
      const bool is_read = move.HasSource() && move.from.base == base;
      if (is_read || (moves == &graph.after && move.to.base == base)) ThrowOf(move, "steps may use these rows in turn");
    }
  }
}

}  // namespace

void VerifyMoves(const StepGraph& graph) {
  for (const std::set<int>* bases : {&graph.lent, &graph.in_turns}) {
    for (const int base : *bases) {
      if (base < 0 || base >= graph.num_bases) throw GraphFault{StrCat("there is no base ", base)};
    }
  }
  for (const int base : graph.in_turns) CheckInTurns(graph, base);
  CheckSumsAreCleared(graph);
  for (const RowMove& move : graph.after) {
    if (move.to.sum >= 0) ThrowOf(move, "a sum of the steps is cleared before the first one");
  }
  for (const std::vector<RowMove>* moves : {&graph.before, &graph.after}) {
    for (const RowMove& move : *moves) CheckRows(graph, move);
  }
  for (const bool has_steps : {false, true}) MoveVerifier(graph, has_steps).Run();
}

}  // namespace stepnet

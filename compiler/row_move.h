// RowMove: what a run does to whole rows of memory once, before its first step or after its last one: initial states,
// gradients of outputs, zeros, the numbers of the steps.
//
// Sizes that only a run knows are those of the tensors that the plan is given as its bases. Moves run one after the
// other, also in runs of no steps.
#pragma once

#include <cstdint>
#include <limits>
#include <string>

namespace stepnet {

// Rows [begin, end) of a base, counted by its first dimension; or, in a graph, all of a sum of the plan's own
// (Home::Kind::kSum), which gets a base when homes are placed.
struct BaseRows {
  static constexpr std::int64_t kEnd = std::numeric_limits<std::int64_t>::max();

  std::string name;  // that people know the memory by
  int base = -1;
  int sum = -1;                  // the home of such a sum, where there is no base yet
  std::int64_t begin = 0;        // negative: counted from the end
  std::int64_t end = kEnd;       // negative: counted from the end
  bool begins_at_steps = false;  // `begin` is counted from the number of steps; never behind `end`

  bool IsWhole() const { return begin == 0 && end == kEnd && !begins_at_steps; }
  bool operator==(const BaseRows&) const = default;
};

struct RowMove {
  enum class Kind {
    kCopy,     // to = from; a batch of one (dimension 1) goes to each row of the batch
    kAdd,      // to += from; a batch of one gets the sum over the batch
    kZero,     // to = 0
    kNumbers,  // to = 0, 1, 2, …, int32
    kLend,     // to = what the caller owns and lent as this base, of which the steps change a copy
    kGive,     // to, which the caller owns and finds after the run, = from: in the end, and not where the run fails
  };
  Kind kind = Kind::kCopy;
  BaseRows to;
  BaseRows from = {};               // of kCopy, kAdd and kGive
  bool only_without_steps = false;  // it is left out of other runs, whose steps write all of `to`

  bool HasSource() const { return kind == Kind::kCopy || kind == Kind::kAdd || kind == Kind::kGive; }
  bool operator==(const RowMove&) const = default;
};

// "0:1", "T:", "-2:".
std::string RowRangeText(const BaseRows& rows);
// "copy", "add", "zero", "numbers", "lend", "give".
const char* RowMoveName(RowMove::Kind kind);
// "hidden[0:1] = hidden_init"; or, by other texts of its rows, "^h at 0[0:1] = ^h_init at 2 lent".
std::string RowMoveText(const RowMove& move);
std::string RowMoveText(const RowMove& move, const std::string& to, const std::string& from);

}  // namespace stepnet

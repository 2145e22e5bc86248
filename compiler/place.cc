#include "stepnet/compiler/place.h"

#include <algorithm>
#include <bit>
#include <map>
#include <queue>
#include <set>
#include <utility>

#include "stepnet/compiler/node_order.h"
#include "stepnet/compiler/rows_in_turn.h"

namespace stepnet {
namespace {

// What is said of a home, of all its values.
struct Room {
  std::string blob;  // of the first value
  std::int64_t bytes = 0;
  std::vector<int> users = {};  // nodes, in their order, each once
  int stage = 0;                // of what takes turns: in which it is used
  std::int64_t min_steps = 0;   // of the stage that gives it: shorter runs do without
};

std::vector<Room> RoomsOf(const StepGraph& graph) {
  std::vector<Room> rooms(graph.homes.size());
  for (const StepValue& value : graph.values) {
    Room& room = rooms[value.home];
    if (room.blob.empty()) room.blob = value.blob;
    if (!value.dynamic) room.bytes = std::max(room.bytes, value.info.size_bytes());
  }
  int stage = 0;
  for (size_t n = 0; n < graph.nodes.size(); ++n) {
    while (!graph.stages.empty() && graph.stages[stage].end <= static_cast<int>(n)) ++stage;
    const auto use = [&](int value) {
      Room& room = rooms[graph.values[value].home];
      if (room.users.empty() && !graph.stages.empty()) room.min_steps = graph.stages[stage].min_steps;
      if (room.users.empty() || room.users.back() != static_cast<int>(n)) room.users.push_back(static_cast<int>(n));
      room.stage = stage;
    };
    std::ranges::for_each(graph.nodes[n].inputs, use);
    std::ranges::for_each(graph.nodes[n].given(), use);
  }
  return rooms;
}

// Which of some temporaries of one stage share a row: those that are never there at the same time, for whoever uses the
// one comes before whoever uses the other in any case (linear scan; Poletto and Sarkar, Linear scan register
// allocation, 1999). So sharing makes no instruction of a step wait.
class RowSharing {
 public:
  // Nodes are numbered from `begin`. Gives (*row_of)[home], a new element of `bytes` for each row.
  RowSharing(const std::vector<Room>& rooms, const NodePrecedence& precedence, int begin, std::vector<int>* row_of,
             std::vector<std::int64_t>* bytes)
      : rooms_(rooms),
        precedence_(precedence),
        begin_(begin),
        row_of_(*row_of),
        bytes_(*bytes),
        free_(precedence.num_chains()) {}

  void Run(std::vector<int> homes) {
    std::ranges::stable_sort(homes, {}, [&](int h) { return rooms_[h].users.front(); });
    for (const int h : homes) {
      while (!used_.empty() && used_.top().first < rooms_[h].users.front()) {
        Free(used_.top().second);
        used_.pop();
      }
      row_of_[h] = TakeRow(rooms_[h]);
      used_.emplace(rooms_[h].users.back(), h);
    }
  }

 private:
  // Rows that nobody uses any more, by their bytes, with the home that was there last.
  using FreeRows = std::multimap<std::int64_t, int>;

  void Free(int home) {
    const int chain = precedence_.ChainOf(rooms_[home].users.back() - begin_);
    if (chain != NodePrecedence::kNone) free_[chain].emplace(bytes_[row_of_[home]], home);
  }

  bool MayFollow(const Room& room, int home) const {
    return std::ranges::all_of(
        rooms_[home].users, [&](int user) { return precedence_.IsBefore(user - begin_, room.users.front() - begin_); });
  }

  // The smallest one that has room, otherwise the largest, of some that are looked at.
  int TakeRow(const Room& room) {
    FreeRows* from = nullptr;
    FreeRows::iterator best;
    const auto fits = [&](std::int64_t bytes) { return bytes >= room.bytes; };
    const auto consider = [&](FreeRows& rows, FreeRows::iterator row) {
      if (!MayFollow(room, row->second)) return false;
      const bool is_better = from == nullptr || (fits(row->first) ? !fits(best->first) || row->first < best->first
                                                                  : row->first > best->first);
      if (is_better) {
        from = &rows;
        best = row;
      }
      return true;
    };
    for (int chain = 0; chain < precedence_.num_chains(); ++chain) {
      if (precedence_.LastBefore(room.users.front() - begin_, chain) == NodePrecedence::kNone) continue;
      FreeRows& rows = free_[chain];
      int looks = kMaxLooks;
      const auto middle = rows.lower_bound(room.bytes);
      for (auto row = middle; row != rows.end() && looks-- > 0;) {
        if (consider(rows, row++)) break;
      }
      for (auto row = middle; row != rows.begin() && looks-- > 0;) {
        if (consider(rows, --row)) break;
      }
    }
    if (from == nullptr) {
      bytes_.push_back(room.bytes);
      return static_cast<int>(bytes_.size()) - 1;
    }
    const int row = row_of_[best->second];
    from->erase(best);
    bytes_[row] = std::max(bytes_[row], room.bytes);
    return row;
  }

  static constexpr int kMaxLooks = 8;  // at rows of a chain

  const std::vector<Room>& rooms_;
  const NodePrecedence& precedence_;
  const int begin_;
  std::vector<int>& row_of_;
  std::vector<std::int64_t>& bytes_;
  std::vector<FreeRows> free_;  // by the chain of the last user
  std::priority_queue<std::pair<int, int>, std::vector<std::pair<int, int>>, std::greater<>> used_;  // until, home
};

class Placer {
 public:
  Placer(const StepGraph& graph, std::int64_t ring_rows, const BlockBounds& blocks, bool all_kept, StepPlan* plan)
      : graph_(graph),
        ring_rows_(ring_rows),
        blocks_(blocks),
        all_kept_(all_kept),
        plan_(*plan),
        rooms_(RoomsOf(graph)),
        rows_in_turn_(all_kept ? std::map<int, std::int64_t>() : RowsInTurn(graph, ring_rows)),
        row_of_(graph.homes.size(), -1),
        is_single_row_(graph.homes.size(), ring_rows == 1) {
    ShareRows();
    base_of_row_.assign(bytes_of_row_.size(), -1);
  }

  void Run() {
    plan_.num_bases = graph_.num_bases;
    plan_.block_steps = BlockSteps();
    plan_.dynamic_lists.assign(graph_.num_lists, true);
    for (size_t h = 0; h < graph_.homes.size(); ++h) plan_.slots.push_back(SlotOf(static_cast<int>(h)));
  }

 private:
  bool TakesTurns(const Home& home) const {
    return home.kind == Home::Kind::kTemporary && !home.kept && !home.passed && !all_kept_;
  }

  // 0 where nothing is passed.
  std::int64_t BlockSteps() const {
    std::int64_t bytes = 0;  // of a step
    for (size_t h = 0; h < graph_.homes.size() && !all_kept_; ++h) {
      if (graph_.homes[h].passed) bytes += rooms_[h].bytes;
    }
    if (bytes == 0) return 0;
    std::int64_t chunk = 1;
    for (const Stage& stage : graph_.stages) chunk = std::max(chunk, stage.steps_at_once);
    const Target& target = *graph_.target;
    // Powers of two, as chunks are: blocks have whole ones.
    const auto by_bytes = std::bit_floor(static_cast<std::uint64_t>(std::max(target.block_bytes / bytes, chunk)));
    const auto min_chunks =
        std::bit_ceil(static_cast<std::uint64_t>(std::max(target.min_chunks_of_block, blocks_.min_chunks)));
    const auto steps = std::max(std::min(static_cast<std::int64_t>(by_bytes), target.max_chunks_of_block * chunk),
                                static_cast<std::int64_t>(min_chunks) * chunk);
    if (blocks_.max_steps == 0) return steps;
    const auto bound = static_cast<std::int64_t>(std::bit_floor(static_cast<std::uint64_t>(blocks_.max_steps)));
    return std::min(steps, std::max(bound, chunk));
  }

  // One for the home alone.
  void AddRow(int home) {
    row_of_[home] = static_cast<int>(bytes_of_row_.size());
    bytes_of_row_.push_back(rooms_[home].bytes);
  }

  // Stages run beside each other.
  void ShareRows() {
    const Stage all{.begin = 0, .end = static_cast<int>(graph_.nodes.size())};
    std::vector<std::vector<int>> homes(std::max<size_t>(graph_.stages.size(), 1));  // by stage
    for (size_t h = 0; h < graph_.homes.size(); ++h) {
      if (!TakesTurns(graph_.homes[h])) continue;
      const auto home = static_cast<int>(h);
      rooms_[h].users.empty() ? AddRow(home) : homes[rooms_[h].stage].push_back(home);
    }
    for (size_t s = 0; s < homes.size(); ++s) {
      if (!homes[s].empty()) ShareRows(graph_.stages.empty() ? all : graph_.stages[s], homes[s]);
    }
  }

  // Where several steps are under way, those of a cycle of instructions alone share: a step of it begins when the one
  // before has ended in any case. Others, as those of two layers, would come to wait for each other.
  void ShareRows(const Stage& stage, const std::vector<int>& homes) {
    if (ring_rows_ == 1) {
      const NodePrecedence in_turn(stage.end - stage.begin);
      RowSharing(rooms_, in_turn, stage.begin, &row_of_, &bytes_of_row_).Run(homes);
      return;
    }
    const std::vector<std::vector<int>> followers = FollowersByBytes(graph_, stage.begin, stage.end);
    const NodePrecedence precedence(followers);
    if (stage.is_behind) {
      RowSharing(rooms_, precedence, stage.begin, &row_of_, &bytes_of_row_).Run(homes);
      for (const int h : homes) is_single_row_[row_of_[h]] = true;
      return;
    }
    const std::vector<int> cycles = CyclesOf(graph_, stage.begin, stage.end, followers);
    std::map<int, std::vector<int>> by_cycle;
    for (const int h : homes) {
      const auto cycle_of = [&](int user) { return cycles[user - stage.begin]; };
      const std::vector<int>& users = rooms_[h].users;
      const int cycle = cycle_of(users.front());
      const bool is_in_cycle =
          cycle != kNoCycle && std::ranges::all_of(users, [&](int user) { return cycle_of(user) == cycle; });
      is_in_cycle ? by_cycle[cycle].push_back(h) : AddRow(h);
    }
    for (const auto& [cycle, of_cycle] : by_cycle) {
      RowSharing(rooms_, precedence, stage.begin, &row_of_, &bytes_of_row_).Run(of_cycle);
    }
    if (!by_cycle.empty()) FindSingleRows(stage, by_cycle, precedence);
  }

  // One row is enough where whoever writes it first waits in any case for all who used it in the step before: for what
  // some of them, or those behind them, write to rows outside, which it or those before it read.
  void FindSingleRows(const Stage& stage, const std::map<int, std::vector<int>>& by_cycle,
                      const NodePrecedence& precedence) {
    std::map<int, std::set<int>> users_of_row;
    for (const auto& [cycle, of_cycle] : by_cycle) {
      for (const int h : of_cycle) users_of_row[row_of_[h]].insert(rooms_[h].users.begin(), rooms_[h].users.end());
    }
    const auto is_before = [&](int earlier, int later) {
      return earlier == later || precedence.IsBefore(earlier - stage.begin, later - stage.begin);
    };
    const std::vector<std::pair<int, int>> waits = WaitsOfNextStep(graph_, stage.begin, stage.end);
    for (const auto& [row, users] : users_of_row) {
      const auto is_done = [&, first = *users.begin()](int user) {
        return std::ranges::any_of(waits, [&](const std::pair<int, int>& wait) {
          return is_before(user, wait.first) && is_before(wait.second, first);
        });
      };
      if (std::ranges::all_of(users, is_done)) is_single_row_[row] = true;
    }
  }

  Slot SlotOf(int h) {
    const Home& home = graph_.homes[h];
    const Room& room = rooms_[h];
    switch (home.kind) {
      case Home::Kind::kOutside: return SlotOutside(home.slot);
      case Home::Kind::kDynamic: return BlobSlot(home, room);
      case Home::Kind::kLocal: return {.blob = room.blob, .storage_class = StorageClass::kLocal};
      case Home::Kind::kOnce:
        return {.blob = room.blob,
                .storage_class = StorageClass::kShared,
                .base = AddPieceForOnce(room),
                .bytes = room.bytes};
      case Home::Kind::kSum:
        return {.blob = room.blob,
                .storage_class = StorageClass::kShared,
                .base = AddPiece(room.bytes, /*rows=*/1, /*is_temporary=*/true),
                .bytes = room.bytes};
      case Home::Kind::kTemporary: break;
    }
    if (TakesTurns(home)) return RingSlot(room, row_of_[h]);
    if (plan_.block_steps > 0 && home.passed) return BlockOfRows(room);
    // What a run forward keeps, others read: the run back, and the blob fetcher.
    const bool is_temporary = graph_.backward || !home.kept;
    return {.blob = room.blob,
            .storage_class = StorageClass::kStacked,
            .base = AddPiece(room.bytes, /*rows=*/0, is_temporary),
            .row_bytes = room.bytes,
            .bytes = room.bytes};
  }

  Slot SlotOutside(Slot slot) const {
    const auto in_turn = rows_in_turn_.find(slot.base);
    if (in_turn != rows_in_turn_.end()) slot.ring_rows = in_turn->second;
    return slot;
  }

  Slot BlobSlot(const Home& home, const Room& room) {
    const bool is_new = home.list < 0;
    const Slot slot{.blob = room.blob,
                    .storage_class = StorageClass::kDynamic,
                    .base = is_new ? static_cast<int>(plan_.dynamic_lists.size()) : home.list,
                    .row_bytes = is_new && home.kept ? 1 : 0};
    if (is_new) plan_.dynamic_lists.push_back(home.kept);
    return slot;
  }

  Slot RingSlot(const Room& room, int row) {
    const bool turns = !is_single_row_[row];  // otherwise every step uses the one row
    const std::int64_t row_bytes = turns ? StepPlan::AlignedBytes(bytes_of_row_[row]) : bytes_of_row_[row];
    int& base = base_of_row_[row];
    if (base < 0) base = AddPiece(row_bytes, turns ? ring_rows_ : 1, /*is_temporary=*/true);
    return {.blob = room.blob,
            .storage_class = StorageClass::kRing,
            .base = base,
            .row_bytes = turns ? row_bytes : 0,
            .ring_rows = turns ? ring_rows_ : 0,
            .bytes = room.bytes};
  }

  Slot BlockOfRows(const Room& room) {
    const int base = AddPiece(room.bytes, plan_.block_steps, /*is_temporary=*/true);
    plan_.arena.back().of_block = true;
    return {.blob = room.blob,
            .storage_class = StorageClass::kBlock,
            .base = base,
            .row_bytes = room.bytes,
            .ring_rows = plan_.block_steps,
            .bytes = room.bytes};
  }

  int AddPiece(std::int64_t row_bytes, std::int64_t rows, bool is_temporary) {
    plan_.arena.push_back(
        {.base = plan_.num_bases, .row_bytes = row_bytes, .rows = rows, .is_temporary = is_temporary});
    return plan_.num_bases++;
  }

  int AddPieceForOnce(const Room& room) {
    const int base = AddPiece(room.bytes, /*rows=*/1, /*is_temporary=*/false);
    plan_.arena.back().min_steps = room.min_steps;
    plan_.arena.back().is_once = true;
    return base;
  }

  const StepGraph& graph_;
  const std::int64_t ring_rows_;
  const BlockBounds blocks_;
  const bool all_kept_;
  StepPlan& plan_;
  const std::vector<Room> rooms_;
  const std::map<int, std::int64_t> rows_in_turn_;  // by base
  std::vector<int> row_of_;                         // by home
  std::vector<std::int64_t> bytes_of_row_;
  std::vector<bool> is_single_row_;  // there are no more rows than homes
  std::vector<int> base_of_row_;
};

}  // namespace

void PlaceHomes(const StepGraph& graph, std::int64_t ring_rows, const BlockBounds& blocks, bool all_kept,
                StepPlan* plan) {
  Placer(graph, ring_rows, blocks, all_kept, plan).Run();
}

}  // namespace stepnet

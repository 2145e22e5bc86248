#include "stepnet/compiler/place.h"

#include <algorithm>
#include <limits>
#include <map>
#include <queue>

namespace stepnet {
namespace {

// What is said of a home, of all its values.
struct Room {
  std::string blob;  // of the first value
  std::int64_t bytes = 0;
  int first = std::numeric_limits<int>::max();  // of the nodes that use it
  int last = -1;
  int stage = 0;  // of what takes turns: in which it is used
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
      room.first = std::min(room.first, static_cast<int>(n));
      room.last = static_cast<int>(n);
      room.stage = stage;
    };
    std::ranges::for_each(graph.nodes[n].inputs, use);
    std::ranges::for_each(graph.nodes[n].given(), use);
  }
  return rooms;
}

// Temporaries that are never there at the same time share a row: which one it is of each home, and how large rows are
// (linear scan; Poletto and Sarkar, Linear scan register allocation, 1999). With `by_blob` only values of one blob do:
// what shares memory waits for each other.
class RowSharing {
 public:
  RowSharing(const std::vector<Room>& rooms, std::vector<int> homes, bool by_blob)
      : rooms_(rooms), by_blob_(by_blob), row_of_(rooms.size(), -1) {
    std::ranges::stable_sort(homes, {}, [&](int h) { return rooms[h].first; });
    for (const int h : homes) {
      while (!used_.empty() && used_.top().first < rooms[h].first) {
        Free(used_.top().second);
        used_.pop();
      }
      row_of_[h] = TakeRow(rooms[h]);
      used_.emplace(rooms[h].last, h);
    }
  }

  int RowOf(int home) const { return row_of_[home]; }
  const std::vector<std::int64_t>& bytes() const { return bytes_; }  // by row

 private:
  // Stages run beside each other.
  struct Key {
    int stage = 0;
    std::string blob;
    std::int64_t bytes = 0;
    auto operator<=>(const Key&) const = default;
    bool MayShareWith(const Key& other) const { return stage == other.stage && blob == other.blob; }
  };

  Key KeyOf(const Room& room, std::int64_t bytes) const {
    return {.stage = room.stage, .blob = by_blob_ ? room.blob : "", .bytes = bytes};
  }

  void Free(int home) { free_.emplace(KeyOf(rooms_[home], bytes_[row_of_[home]]), row_of_[home]); }

  // The smallest one that has room, otherwise the largest.
  int TakeRow(const Room& room) {
    const Key key = KeyOf(room, room.bytes);
    auto found = free_.lower_bound(key);
    if (found == free_.end() || !key.MayShareWith(found->first)) {
      if (found == free_.begin() || !key.MayShareWith(std::prev(found)->first)) {
        bytes_.push_back(room.bytes);
        return static_cast<int>(bytes_.size()) - 1;
      }
      --found;
    }
    const int row = found->second;
    free_.erase(found);
    bytes_[row] = std::max(bytes_[row], room.bytes);
    return row;
  }

  const std::vector<Room>& rooms_;
  const bool by_blob_;
  std::vector<int> row_of_;  // by home
  std::vector<std::int64_t> bytes_;
  std::multimap<Key, int> free_;
  std::priority_queue<std::pair<int, int>, std::vector<std::pair<int, int>>, std::greater<>> used_;  // until, home
};

class Placer {
 public:
  Placer(const StepGraph& graph, std::int64_t ring_rows, bool all_kept, StepPlan* plan)
      : graph_(graph),
        ring_rows_(ring_rows),
        all_kept_(all_kept),
        plan_(*plan),
        rooms_(RoomsOf(graph)),
        rows_(rooms_, TakingTurns(), /*by_blob=*/ring_rows > 1),
        base_of_row_(rows_.bytes().size(), -1) {}

  void Run() {
    plan_.num_bases = graph_.num_bases;
    plan_.dynamic_lists.assign(graph_.num_lists, true);
    for (size_t h = 0; h < graph_.homes.size(); ++h) plan_.slots.push_back(SlotOf(static_cast<int>(h)));
  }

 private:
  bool TakesTurns(const Home& home) const { return home.kind == Home::Kind::kTemporary && !home.kept && !all_kept_; }

  std::vector<int> TakingTurns() const {
    std::vector<int> homes;
    for (size_t h = 0; h < graph_.homes.size(); ++h) {
      if (TakesTurns(graph_.homes[h])) homes.push_back(static_cast<int>(h));
    }
    return homes;
  }

  Slot SlotOf(int h) {
    const Home& home = graph_.homes[h];
    const Room& room = rooms_[h];
    switch (home.kind) {
      case Home::Kind::kOutside: return home.slot;
      case Home::Kind::kDynamic: return BlobSlot(home, room);
      case Home::Kind::kLocal: return {.blob = room.blob, .storage_class = StorageClass::kLocal};
      case Home::Kind::kOnce:
        return {.blob = room.blob,
                .storage_class = StorageClass::kShared,
                .base = AddPiece(room.bytes, 1),
                .bytes = room.bytes};
      case Home::Kind::kTemporary: break;
    }
    if (TakesTurns(home)) return RingSlot(room, rows_.RowOf(h));
    return {.blob = room.blob,
            .storage_class = StorageClass::kStacked,
            .base = AddPiece(room.bytes, /*rows=*/0),
            .row_bytes = room.bytes,
            .bytes = room.bytes};
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
    const bool turns = ring_rows_ > 1;  // otherwise every step uses the one row
    const std::int64_t row_bytes = turns ? StepPlan::AlignedBytes(rows_.bytes()[row]) : rows_.bytes()[row];
    int& base = base_of_row_[row];
    if (base < 0) base = AddPiece(row_bytes, ring_rows_);
    return {.blob = room.blob,
            .storage_class = StorageClass::kRing,
            .base = base,
            .row_bytes = turns ? row_bytes : 0,
            .ring_rows = turns ? ring_rows_ : 0,
            .bytes = room.bytes};
  }

  int AddPiece(std::int64_t row_bytes, std::int64_t rows) {
    plan_.arena.push_back({.base = plan_.num_bases, .row_bytes = row_bytes, .rows = rows});
    return plan_.num_bases++;
  }

  const StepGraph& graph_;
  const std::int64_t ring_rows_;
  const bool all_kept_;
  StepPlan& plan_;
  const std::vector<Room> rooms_;
  const RowSharing rows_;
  std::vector<int> base_of_row_;
};

}  // namespace

void PlaceHomes(const StepGraph& graph, std::int64_t ring_rows, bool all_kept, StepPlan* plan) {
  Placer(graph, ring_rows, all_kept, plan).Run();
}

}  // namespace stepnet

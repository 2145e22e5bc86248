#include "stepnet/compiler/place.h"

#include <algorithm>

namespace stepnet {
namespace {

// What is said of a home, of all its values.
struct Room {
  std::string blob;  // of the first value
  std::int64_t bytes = 0;
};

std::vector<Room> RoomsOf(const StepGraph& graph) {
  std::vector<Room> rooms(graph.homes.size());
  for (const StepValue& value : graph.values) {
    Room& room = rooms[value.home];
    if (room.blob.empty()) room.blob = value.blob;
    if (!value.dynamic) room.bytes = std::max(room.bytes, value.info.size_bytes());
  }
  return rooms;
}

Slot ArenaSlotOf(const Home& home, const Room& room, std::int64_t ring_rows, bool all_kept, StepPlan* plan) {
  const int base = plan->num_bases++;
  if (home.kind == Home::Kind::kOnce) {
    plan->arena.push_back({.base = base, .row_bytes = room.bytes});
    return {.blob = room.blob, .storage_class = StorageClass::kShared, .base = base, .bytes = room.bytes};
  }
  const bool is_stacked = home.kept || all_kept;
  const bool turns = !is_stacked && ring_rows > 1;  // otherwise every step uses the one row
  const std::int64_t row_bytes = turns ? StepPlan::AlignedBytes(room.bytes) : room.bytes;
  plan->arena.push_back({.base = base, .row_bytes = row_bytes, .rows = is_stacked ? 0 : ring_rows});
  return {.blob = room.blob,
          .storage_class = is_stacked ? StorageClass::kStacked : StorageClass::kRing,
          .base = base,
          .row_bytes = is_stacked || turns ? row_bytes : 0,
          .ring_rows = turns ? ring_rows : 0,
          .bytes = room.bytes};
}

}  // namespace

void PlaceHomes(const StepGraph& graph, std::int64_t ring_rows, bool all_kept, StepPlan* plan) {
  plan->num_bases = graph.num_bases;
  plan->dynamic_lists.assign(graph.num_lists, true);
  const std::vector<Room> rooms = RoomsOf(graph);
  for (size_t h = 0; h < graph.homes.size(); ++h) {
    const Home& home = graph.homes[h];
    if (home.kind == Home::Kind::kOutside) {
      plan->slots.push_back(home.slot);
    } else if (home.kind != Home::Kind::kDynamic) {
      plan->slots.push_back(ArenaSlotOf(home, rooms[h], ring_rows, all_kept, plan));
    } else {
      const bool is_new = home.list < 0;
      plan->slots.push_back({.blob = rooms[h].blob,
                             .storage_class = StorageClass::kDynamic,
                             .base = is_new ? static_cast<int>(plan->dynamic_lists.size()) : home.list,
                             .row_bytes = is_new && home.kept ? 1 : 0});
      if (is_new) plan->dynamic_lists.push_back(home.kept);
    }
  }
}

}  // namespace stepnet

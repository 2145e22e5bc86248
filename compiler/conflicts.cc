#include "stepnet/compiler/conflicts.h"

#include <algorithm>
#include <limits>
#include <tuple>
#include <utility>

#include "stepnet/core/access_order.h"
#include "stepnet/core/cancellation.h"

namespace stepnet {
namespace {

// Conflicts in more steps than these are replaced by one in the first of them and by keeping the earlier instruction in
// order with itself, which implies the rest.
constexpr std::int64_t kMaxDeltas = 8;

// More ways of looking at one piece of memory are not told apart.
constexpr size_t kMaxWays = 64;

constexpr std::int64_t kMaxSteps = std::numeric_limits<std::int32_t>::max();  // of a run

std::int64_t FloorDivide(std::int64_t a, std::int64_t b) { return a / b - (a % b != 0 && (a < 0) != (b < 0) ? 1 : 0); }

// The steps delta >= 0 in which `later` of step k + delta shares a byte with `earlier` of step k; last < first: none.
struct Deltas {
  std::int64_t first = 0;
  std::int64_t last = -1;
};

// Shared bytes where later.begin + stride * delta lies in (earlier.begin - later.bytes, earlier.begin + earlier.bytes).
Deltas DeltasOf(const MemoryAccess& earlier, const MemoryAccess& later) {
  const bool is_alike = earlier.stride == later.stride && earlier.ring == 0 && later.ring == 0;
  if (!is_alike) return {.first = 0, .last = kEver};  // one of them sees all rows
  const std::int64_t low = earlier.begin - later.begin - later.bytes + 1;
  const std::int64_t high = earlier.begin - later.begin + earlier.bytes - 1;
  const std::int64_t stride = later.stride;
  if (stride == 0) return low <= 0 && high >= 0 ? Deltas{.first = 0, .last = kEver} : Deltas{};
  Deltas deltas;
  deltas.first = stride > 0 ? -FloorDivide(-low, stride) : -FloorDivide(high, -stride);
  deltas.last = stride > 0 ? FloorDivide(high, stride) : FloorDivide(-low, -stride);
  deltas.first = std::max<std::int64_t>(deltas.first, 0);
  return deltas;
}

// The bytes that `later` of step k + delta shares with `earlier` of step k; 0 where only a run knows.
std::int64_t SharedBytes(const MemoryAccess& earlier, const MemoryAccess& later, std::int64_t delta) {
  if (earlier.stride != later.stride) return std::min(earlier.bytes, later.bytes);  // one of them sees all rows
  std::int64_t begin = later.begin + later.stride * delta;
  if (later.ring != 0) begin -= FloorDivide(begin - earlier.begin + later.ring / 2, later.ring) * later.ring;
  const std::int64_t end = std::min(earlier.begin + earlier.bytes, begin + later.bytes);
  return end < kEver ? end - std::max(earlier.begin, begin) : 0;
}

DependencyKind KindOf(const MemoryAccess& earlier, const MemoryAccess& later) {
  if (earlier.writes && later.writes) return DependencyKind::kWriteAfterWrite;
  return earlier.writes ? DependencyKind::kReadAfterWrite : DependencyKind::kWriteAfterRead;
}

// An access by an instruction.
struct User {
  int instruction = 0;
  MemoryAccess access;
};

// An edge, and the users that it is between.
struct Conflict {
  Dependency edge;
  size_t earlier = 0;
  size_t later = 0;
};

class ConflictFinder {
 public:
  explicit ConflictFinder(const std::vector<std::vector<MemoryAccess>>& accesses) {
    std::vector<User> all;
    for (size_t i = 0; i < accesses.size(); ++i) {
      for (const MemoryAccess& access : accesses[i]) {
        if (access.bytes > 0) all.push_back({static_cast<int>(i), access});
      }
    }
    const auto memory_of = [](const User& user) { return user.access.memory; };
    std::ranges::stable_sort(all, {}, memory_of);
    for (auto begin = all.cbegin(); begin != all.cend();) {
      const auto end = std::ranges::upper_bound(begin, all.cend(), memory_of(*begin), {}, memory_of);
      if (std::any_of(begin, end, [](const User& user) { return user.access.writes; })) {
        users_.assign(begin, end);
        FindThoseOfMemory();
        num_before_ += users_.size();
      }
      begin = end;
    }
  }

  std::vector<Dependency> Take() {
    std::ranges::sort(found_, {}, [](const Conflict& c) {
      return std::tuple(c.edge.from, c.edge.delta, c.edge.to, c.edge.kind, c.earlier, c.later);
    });
    std::vector<Dependency> edges;
    for (const Conflict& conflict : found_) {
      if (edges.empty() || !(edges.back() == conflict.edge)) edges.push_back(conflict.edge);
    }
    return edges;
  }

 private:
  // Compares users_ with each other.
  void FindThoseOfMemory() {
    if (!MoveAlike()) {
      const auto num_writers = std::ranges::count_if(users_, [](const User& user) { return user.access.writes; });
      if (static_cast<size_t>(num_writers) <= kMaxWays) return ComparePairs();
    } else if (const std::vector<std::int64_t> bytes = BytesToLookAt(); bytes.size() <= kMaxWays) {
      for (const std::int64_t byte : bytes) FollowByte(byte);
      return;
    }
    for (User& user : users_) {
      user.access = {
          .memory = user.access.memory, .writes = user.access.writes, .bytes = kEver, .slot = user.access.slot};
    }
    FollowByte(0);
  }

  // Whether all go through the memory at one pace and none sees so many rows that a pair conflicts in many steps.
  bool MoveAlike() const {
    const MemoryAccess& first = users_.front().access;
    return std::ranges::all_of(users_, [&](const User& user) {
      const MemoryAccess& access = user.access;
      const bool is_narrow = !MovesOn(access) || access.bytes <= std::abs(access.stride) * (kMaxDeltas / 2);
      return access.stride == first.stride && access.ring == first.ring && is_narrow;
    });
  }

  // Whether each step touches other bytes.
  static bool MovesOn(const MemoryAccess& access) { return access.stride != 0 && access.ring == 0; }

  // After so many steps the same bytes are touched again; 0: never. Rows of a ring are never crossed.
  static std::int64_t PeriodOf(const MemoryAccess& access) {
    if (MovesOn(access)) return 0;
    return access.stride == 0 ? 1 : access.ring / std::abs(access.stride);
  }

  // One byte of each range of bytes that are touched alike: where one begins or ends; of rows, of one row.
  std::vector<std::int64_t> BytesToLookAt() const {
    std::vector<std::int64_t> bytes;
    const std::int64_t first = users_.front().access.begin, row = std::abs(users_.front().access.stride);
    for (const User& user : users_) {
      for (const std::int64_t at : {user.access.begin, user.access.begin + user.access.bytes}) {
        bytes.push_back(row != 0 ? at - FloorDivide(at - first, row) * row : at);
      }
    }
    std::ranges::sort(bytes);
    bytes.erase(std::unique(bytes.begin(), bytes.end()), bytes.end());
    return bytes;
  }

  // That a user touches the byte in some step.
  struct Touch {
    std::int64_t step = 0;
    size_t user = 0;
  };

  // All that touch the byte, in program order; where that comes again, once.
  std::vector<Touch> TouchesOf(std::int64_t byte) const {
    std::vector<Touch> touches;
    touches.reserve(2 * users_.size());
    for (size_t u = 0; u < users_.size(); ++u) {
      const MemoryAccess& access = users_[u].access;
      const std::int64_t from_begin = byte - access.begin;  // of step 0
      const std::int64_t row = std::abs(access.stride);
      if (row == 0) {
        if (from_begin >= 0 && from_begin < access.bytes) touches.push_back({.step = 0, .user = u});
        continue;
      }
      const std::int64_t last = FloorDivide(from_begin, row);
      if (access.ring != 0) {
        if (from_begin - last * row >= access.bytes) continue;
        const std::int64_t period = PeriodOf(access), step = access.stride > 0 ? last : -last;
        touches.push_back({.step = step - FloorDivide(step, period) * period, .user = u});
        continue;
      }
      // In step k it is from_begin - k * stride, in [0, bytes).
      for (std::int64_t k = FloorDivide(from_begin - access.bytes, row) + 1; k <= last; ++k) {
        touches.push_back({.step = access.stride > 0 ? k : -k, .user = u});
      }
    }
    std::ranges::sort(touches, {}, [this](const Touch& touch) {
      return std::tuple(touch.step, users_[touch.user].instruction, users_[touch.user].access.writes, touch.user);
    });
    return touches;
  }

  // The conflicts of neighbours in the order of the run.
  void FollowByte(std::int64_t byte) {
    std::vector<Touch> touches = TouchesOf(byte);
    const std::int64_t period = PeriodOf(users_.front().access);
    if (period > 0) {  // what follows is the same again, with what comes before
      const size_t once = touches.size();
      for (size_t i = 0; i < once; ++i) touches.push_back({.step = touches[i].step + period, .user = touches[i].user});
    }
    const auto node_of = [this](const Touch& touch) { return std::pair(touch.step, users_[touch.user].instruction); };
    AccessOrder<Touch, decltype(node_of)> order(node_of);
    const auto add_edge = [&](const Touch& earlier, const Touch& later) {
      const bool counts = period == 0 || later.step >= period;
      if (counts) Add(earlier.user, later.user, later.step - earlier.step);
    };
    for (const Touch& touch : touches) {
      CheckCancelled();
      if (users_[touch.user].access.writes) {
        order.Write(touch, add_edge);
      } else {
        order.Read(touch, add_edge);
      }
    }
  }

  // Any two of which one writes.
  void ComparePairs() {
    for (size_t writer = 0; writer < users_.size(); ++writer) {
      CheckCancelled();
      if (!users_[writer].access.writes) continue;
      for (size_t other = 0; other < users_.size(); ++other) {
        Compare(writer, other);
        if (!users_[other].access.writes) Compare(other, writer);
      }
    }
  }

  void Compare(size_t earlier, size_t later) {
    const MemoryAccess &a = users_[earlier].access, &b = users_[later].access;
    Deltas deltas = DeltasOf(a, b);
    // In one step, program order decides.
    const bool comes_later = users_[earlier].instruction < users_[later].instruction;
    if (!comes_later) deltas.first = std::max<std::int64_t>(deltas.first, 1);
    if (deltas.first > kMaxSteps) return;
    if (deltas.last - deltas.first >= kMaxDeltas) {
      Add(earlier, later, deltas.first);
      Conflict self = found_.back();
      self.edge.to = self.edge.from;
      self.edge.delta = 1;
      found_.push_back(self);
      return;
    }
    for (std::int64_t delta = deltas.first; delta <= deltas.last; ++delta) Add(earlier, later, delta);
  }

  void Add(size_t earlier, size_t later, std::int64_t delta) {
    if (delta > kMaxSteps) return;
    const MemoryAccess &a = users_[earlier].access, &b = users_[later].access;
    found_.push_back({.edge = {.from = users_[earlier].instruction,
                               .to = users_[later].instruction,
                               .delta = static_cast<int>(delta),
                               .kind = KindOf(a, b),
                               .from_slot = a.slot,
                               .to_slot = b.slot,
                               .bytes = SharedBytes(a, b, delta)},
                      .earlier = num_before_ + earlier,
                      .later = num_before_ + later});
  }

  std::vector<User> users_;  // of the memory at hand, by instruction
  size_t num_before_ = 0;    // users of other memory
  std::vector<Conflict> found_;
};

}  // namespace

std::vector<Dependency> FindConflicts(const std::vector<std::vector<MemoryAccess>>& accesses) {
  return ConflictFinder(accesses).Take();
}

}  // namespace stepnet

#include "stepnet/executor/dependencies.h"

#include <algorithm>
#include <limits>
#include <map>
#include <set>
#include <tuple>
#include <utility>

namespace stepnet {
namespace {

// Conflicts in more steps than these are replaced by one in the first of them and by keeping the earlier instruction in
// order with itself, which implies the rest.
constexpr std::int64_t kMostDeltas = 8;

// More steps than a run has, and more bytes than there are.
constexpr std::int64_t kEver = std::numeric_limits<std::int64_t>::max() / 4;

std::int64_t FloorDivide(std::int64_t a, std::int64_t b) { return a / b - (a % b != 0 && (a < 0) != (b < 0) ? 1 : 0); }

// The steps delta >= 0 in which `later` of step k + delta shares a byte with `earlier` of step k.
struct Deltas {
  std::int64_t first = 0;
  std::int64_t last = -1;   // before first: none
  std::int64_t period = 0;  // of a ring: the same again every `period` steps
};

// Without rings: shared bytes where later.begin + stride * delta lies in (earlier.begin - later.bytes, earlier.begin +
// earlier.bytes).
Deltas DeltasOf(const MemoryAccess& earlier, const MemoryAccess& later) {
  if (earlier.bytes <= 0 || later.bytes <= 0) return {};
  if (earlier.ring != 0 || later.ring != 0) {
    // Rows of a ring are never crossed: the same row comes back after ring / stride steps.
    const bool overlap = earlier.begin < later.begin + later.bytes && later.begin < earlier.begin + earlier.bytes;
    return overlap ? Deltas{.first = 0, .last = 0, .period = earlier.ring / std::abs(earlier.stride)} : Deltas{};
  }
  const std::int64_t low = earlier.begin - later.begin - later.bytes + 1;
  const std::int64_t high = earlier.begin - later.begin + earlier.bytes - 1;
  if (earlier.stride != later.stride) return {.first = 0, .last = kEver};  // one of them sees all rows
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
  const std::int64_t begin = later.begin + (later.ring != 0 ? 0 : later.stride * delta);
  const std::int64_t end = std::min(earlier.begin + earlier.bytes, begin + later.bytes);
  return end < kEver ? end - std::max(earlier.begin, begin) : 0;
}

DependencyKind KindOf(const MemoryAccess& earlier, const MemoryAccess& later) {
  if (earlier.writes && later.writes) return DependencyKind::kWriteAfterWrite;
  return earlier.writes ? DependencyKind::kReadAfterWrite : DependencyKind::kWriteAfterRead;
}

class Finder {
 public:
  explicit Finder(const std::vector<std::vector<MemoryAccess>>& accesses)
      : num_instructions_(static_cast<int>(accesses.size())) {
    for (int i = 0; i < num_instructions_; ++i) {
      for (const MemoryAccess& access : accesses[i]) by_memory_[access.memory].emplace_back(i, &access);
    }
  }

  Dependencies Run() {
    for (const auto& [memory, users] : by_memory_) {
      const bool is_written = std::ranges::any_of(users, [](const auto& user) { return user.second->writes; });
      if (!is_written) continue;
      for (const auto& [from, earlier] : users) {
        for (const auto& [to, later] : users) {
          if (earlier->writes || later->writes) Compare(from, *earlier, to, *later);
        }
      }
    }
    std::ranges::stable_sort(edges_, {}, [](const Dependency& d) { return std::tuple(d.from, d.delta, d.to, d.kind); });
    edges_.erase(std::unique(edges_.begin(), edges_.end()), edges_.end());
    Reduce();
    Dependencies result{.num_instructions = num_instructions_, .edges = std::move(edges_)};
    for (const Dependency& edge : result.edges) result.max_delta = std::max(result.max_delta, edge.delta);
    return result;
  }

 private:
  void Add(int from, const MemoryAccess& earlier, int to, const MemoryAccess& later, std::int64_t delta) {
    if (delta > std::numeric_limits<std::int32_t>::max()) return;  // more steps than a run has
    edges_.push_back({.from = from,
                      .to = to,
                      .delta = static_cast<int>(delta),
                      .kind = KindOf(earlier, later),
                      .from_slot = earlier.slot,
                      .to_slot = later.slot,
                      .bytes = SharedBytes(earlier, later, delta)});
  }

  void Compare(int from, const MemoryAccess& earlier, int to, const MemoryAccess& later) {
    Deltas deltas = DeltasOf(earlier, later);
    if (deltas.last < deltas.first) return;
    if (from >= to && deltas.first == 0) {  // in one step, program order decides
      if (deltas.period > 0) {
        deltas.first = deltas.last = deltas.period;
      } else if (++deltas.first > deltas.last) {
        return;
      }
    } else if (deltas.period > 0) {
      Add(from, earlier, to, later, deltas.period);
    }
    if (deltas.last - deltas.first >= kMostDeltas) {
      Add(from, earlier, to, later, deltas.first);
      Add(from, earlier, from, earlier, 1);
      edges_.back().kind = KindOf(earlier, later);
      edges_.back().to_slot = later.slot;
      edges_.back().bytes = SharedBytes(earlier, later, deltas.first);
      return;
    }
    for (std::int64_t delta = deltas.first; delta <= deltas.last; ++delta) Add(from, earlier, to, later, delta);
  }

  // Removes edges that a path of other edges with the same sum of deltas implies.
  void Reduce() {
    std::vector<std::vector<int>> out(num_instructions_);
    for (size_t e = 0; e < edges_.size(); ++e) out[edges_[e].from].push_back(static_cast<int>(e));
    std::vector<bool> removed(edges_.size(), false);
    for (int from = 0; from < num_instructions_; ++from) ReduceFrom(from, out, &removed);
    size_t kept = 0;
    for (size_t e = 0; e < edges_.size(); ++e) {
      if (!removed[e]) edges_[kept++] = edges_[e];
    }
    edges_.resize(kept);
  }

  // Walks from the nearest successors on, in the order in which a serial run reaches them; a successor that the walk
  // has reached already through a nearer one is implied.
  void ReduceFrom(int from, const std::vector<std::vector<int>>& out, std::vector<bool>* removed) const {
    constexpr size_t kMostVisits = 200'000;  // nets that would take longer keep edges that do no harm
    if (out[from].size() < 2) return;
    const auto position = [&](std::int64_t delta, int to) { return delta * num_instructions_ + to; };
    std::int64_t furthest = 0;
    for (const int e : out[from]) furthest = std::max(furthest, position(edges_[e].delta, edges_[e].to));
    std::set<std::int64_t> reached;  // positions behind a direct successor
    size_t visits = 0;
    for (const int e : out[from]) {
      const std::int64_t start = position(edges_[e].delta, edges_[e].to);
      if (reached.contains(start)) {
        (*removed)[e] = true;
        continue;
      }
      std::vector<std::int64_t> stack = {start};
      while (!stack.empty()) {
        const std::int64_t at = stack.back();
        stack.pop_back();
        for (const int next : out[static_cast<size_t>(at % num_instructions_)]) {
          const std::int64_t to = position(at / num_instructions_ + edges_[next].delta, edges_[next].to);
          if (to > furthest || !reached.insert(to).second) continue;
          if (++visits > kMostVisits) return;
          stack.push_back(to);
        }
      }
    }
  }

  const int num_instructions_;
  std::map<int, std::vector<std::pair<int, const MemoryAccess*>>> by_memory_;
  std::vector<Dependency> edges_;
};

class AccessCollector {
 public:
  // With `of_steps` what each instruction touches in one step, also where it runs for many at once.
  AccessCollector(const StepPlan& plan, bool of_steps) : plan_(plan), of_steps_(of_steps) {}

  std::vector<std::vector<MemoryAccess>> Run() {
    for (size_t i = 0; i < plan_.instructions.size(); ++i) {
      const Instruction& instruction = plan_.instructions[i];
      accesses_.emplace_back();
      for (const Operand& input : instruction.inputs) Add(instruction, input, /*writes=*/false);
      for (const Operand& output : instruction.outputs) Add(instruction, output, /*writes=*/true);
      // A dynamic operator remembers the shapes of its last run, so two steps of it are never under way at once.
      if (instruction.dynamic) AddOwn(Whole(Own(static_cast<int>(i))));
      const bool reaches_out = instruction.node && instruction.node->init.schema().manages_outputs;
      if (reaches_out || instruction.has_side_effects) AddOwn(Whole(Own(-1)));
    }
    return std::move(accesses_);
  }

 private:
  // Pieces of memory: bases, dynamic lists, then one for each instruction and one for the world outside.
  int Own(int i) const { return plan_.num_bases + static_cast<int>(plan_.dynamic_lists.size()) + 1 + i; }
  static MemoryAccess Whole(int memory) { return {.memory = memory, .writes = true, .bytes = 1}; }
  void AddOwn(MemoryAccess access) { accesses_.back().push_back(access); }

  void Add(const Instruction& instruction, const Operand& operand, bool writes) {
    const Slot& slot = plan_.slots[operand.slot];
    if (instruction.steps_at_once == kAllSteps && operand.rows) {  // how many rows only a run knows
      AddOwn({.memory = slot.base, .writes = writes, .begin = 0, .stride = 0, .bytes = kEver, .slot = operand.slot});
      return;
    }
    const std::int64_t steps = operand.rows && !of_steps_ ? instruction.steps_at_once : 1;
    const std::int64_t direction = plan_.backward ? -steps : steps;
    if (slot.storage_class == StorageClass::kDynamic) {
      AddOwn({.memory = plan_.num_bases + slot.base,
              .writes = writes,
              .begin = 0,
              .stride = plan_.dynamic_lists[slot.base] ? direction : 0,
              .bytes = 1,
              .slot = operand.slot});
      return;
    }
    AddOwn({.memory = slot.base,
            .writes = writes,
            .begin = slot.BeginInBase(),
            .stride = slot.row_bytes * direction,
            .bytes = operand.info.shape.size() * DTypeBytes(operand.info.dtype) * steps,
            .ring = slot.ring_rows * slot.row_bytes,
            .slot = operand.slot});
  }

  const StepPlan& plan_;
  const bool of_steps_;
  std::vector<std::vector<MemoryAccess>> accesses_;
};

// What is touched in `steps` steps, as one access; all of a ring, whichever rows those steps use.
MemoryAccess OverSteps(MemoryAccess access, std::int64_t steps) {
  if (access.ring != 0) {
    access.begin = access.stride = 0;
    access.bytes = std::exchange(access.ring, 0);
    return access;
  }
  const std::int64_t way = (steps - 1) * access.stride;
  access.begin += std::min<std::int64_t>(way, 0);
  access.bytes += std::abs(way);
  access.stride *= steps;
  return access;
}

}  // namespace

const char* DependencyKindName(DependencyKind kind) {
  switch (kind) {
    case DependencyKind::kReadAfterWrite: return "read after write";
    case DependencyKind::kWriteAfterRead: return "write after read";
    case DependencyKind::kWriteAfterWrite: return "write after write";
  }
  return "unknown";
}

bool Dependencies::Orders(int from, int to, int delta) const {
  std::set<std::pair<int, int>> reached;
  std::vector<std::pair<int, int>> stack = {{from, 0}};
  while (!stack.empty()) {
    const auto [at, steps] = stack.back();
    stack.pop_back();
    for (const Dependency& edge : edges) {
      if (edge.from != at || steps + edge.delta > delta) continue;
      if (edge.to == to && steps + edge.delta == delta) return true;
      if (reached.emplace(edge.to, steps + edge.delta).second) stack.emplace_back(edge.to, steps + edge.delta);
    }
  }
  return false;
}

std::vector<std::vector<MemoryAccess>> AccessesOf(const StepPlan& plan) {
  return AccessCollector(plan, /*of_steps=*/false).Run();
}

Dependencies FindDependencies(const std::vector<std::vector<MemoryAccess>>& accesses) { return Finder(accesses).Run(); }

Dependencies FindDependencies(const StepPlan& plan, const Stage& stage) {
  std::vector<std::vector<MemoryAccess>> accesses = AccessesOf(plan);
  for (int i = 0; i < static_cast<int>(accesses.size()); ++i) {
    if (i < stage.begin || i >= stage.end) accesses[i].clear();
  }
  Dependencies dependencies = FindDependencies(accesses);
  if (stage.steps_at_once == kAllSteps) {
    std::erase_if(dependencies.edges, [](const Dependency& edge) { return edge.delta > 0; });
    dependencies.max_delta = 0;
  }
  return dependencies;
}

Dependencies FindChunkDependencies(const StepPlan& plan) {
  const std::vector<std::vector<MemoryAccess>> of_steps = AccessCollector(plan, /*of_steps=*/true).Run();
  std::vector<std::vector<MemoryAccess>> accesses(plan.stages.size());
  for (size_t s = 0; s < plan.stages.size(); ++s) {
    const Stage& stage = plan.stages[s];
    if (stage.steps_at_once == kAllSteps) continue;
    for (int i = stage.begin; i < stage.end; ++i) {
      for (const MemoryAccess& access : of_steps[i]) accesses[s].push_back(OverSteps(access, plan.chunk_steps));
    }
  }
  return FindDependencies(accesses);
}

}  // namespace stepnet

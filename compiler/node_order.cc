#include "stepnet/compiler/node_order.h"

#include <algorithm>
#include <limits>
#include <map>
#include <utility>

#include "stepnet/compiler/components.h"
#include "stepnet/core/access_order.h"
#include "stepnet/core/expansion.h"
#include "stepnet/core/formulas/formula_cache.h"
#include "stepnet/nets/side_effects.h"

namespace stepnet {
namespace {

// Operators without a formula may throw, or do what lasts, but for those that say that they are sums; regions only
// where they check values.
bool MayFailOrLast(const StepGraph& graph, const StepNode& node) {
  const auto is_so = [&](const OperatorCall& call, const std::vector<int>& values) {
    const Kernel* kernel = call.schema().FindKernel(graph.target->device);
    if (HasSideEffects(call) || kernel == nullptr) return true;
    const std::vector<TensorInfo> inputs = graph.InfosOf(values);
    return MayFindBadValues(ShapeQuery(call, inputs), *kernel);
  };
  if (node.by_blobs) return true;
  if (node.kind == StepNode::Kind::kCall) {
    if (!node.call->schema().expansion) return true;
    const std::vector<TensorInfo> inputs = graph.InfosOf(node.inputs);
    const ShapeQuery query(*node.call, inputs);
    return Expansion(query).sums().empty();
  }
  if (!node.RunsOperators()) return false;
  if (node.IsOneOperator()) return is_so(*node.call, node.inputs);
  return std::ranges::any_of(node.calls(), [&](const RegionCall& call) {
    std::vector<int> values;
    for (const int operand : call.inputs) values.push_back(node.ValueOf(operand));
    return is_so(*call.call, values);
  });
}

// Who follows whom, of nodes that it is told of in their order.
class ByteOrder {
 public:
  ByteOrder(const StepGraph& graph, size_t num_nodes)
      : graph_(graph), followers_(num_nodes), by_home_(graph.homes.size()), homes_at_(graph.num_bases) {}

  void Add(int number, const StepNode& node) {
    const auto follow = [this](int earlier, int later) { followers_[earlier].push_back(later); };
    const auto read = [&](int value) {
      WithOverlaps(graph_.values[value].home, [&](AccessOrder<int>& home) { home.Read(number, follow); });
    };
    const auto write = [&](int value) {
      WithOverlaps(graph_.values[value].home, [&](AccessOrder<int>& home) { home.Write(number, follow); });
    };
    std::ranges::for_each(node.inputs, read);
    if (node.packed != kNoValue) read(node.packed);
    std::ranges::for_each(node.given(), write);
  }

  std::vector<std::vector<int>> Take() { return std::move(followers_); }

 private:
  // Calls `use` for all memory that has bytes in common with that of the home, of what has been used.
  template <typename Use>
  void WithOverlaps(int home, const Use& use) {
    use(by_home_[home]);
    const Home& memory = graph_.homes[home];
    if (memory.kind != Home::Kind::kOutside) return;
    std::vector<int>& others = homes_at_[memory.slot.base];
    for (const int other : others) {
      if (other != home && ShareBytes(graph_.homes[other], memory)) use(by_home_[other]);
    }
    if (std::ranges::count(others, home) == 0) others.push_back(home);
  }

  const StepGraph& graph_;
  std::vector<std::vector<int>> followers_;
  std::vector<AccessOrder<int>> by_home_;
  std::vector<std::vector<int>> homes_at_;  // outside, by base
};

}  // namespace

std::vector<std::vector<int>> FollowersByBytes(const StepGraph& graph, int begin, int end) {
  ByteOrder order(graph, static_cast<size_t>(end - begin));
  for (int n = begin; n < end; ++n) order.Add(n - begin, graph.nodes[n]);
  return order.Take();
}

std::vector<std::vector<int>> FollowersOf(const StepGraph& graph, int begin, int end) {
  std::vector<std::vector<int>> followers = FollowersByBytes(graph, begin, end);
  int last = -1;
  for (int n = begin; n < end; ++n) {
    if (!MayFailOrLast(graph, graph.nodes[n])) continue;
    if (last >= 0) followers[last].push_back(n - begin);
    last = n - begin;
  }
  return followers;
}

std::vector<int> CyclesOf(const StepGraph& graph, int begin, int end, const std::vector<std::vector<int>>& followers) {
  // What a step writes to rows outside others read in steps to come: all of one base by way of one more node.
  struct Base {
    std::vector<std::pair<int, std::int64_t>> writers = {}, readers = {};  // node, byte
  };
  constexpr std::int64_t kEver = std::numeric_limits<std::int64_t>::max();
  std::map<int, Base> bases;
  for (int n = begin; n < end; ++n) {
    const auto note = [&](int value, bool writes) {
      const Home& home = graph.homes[graph.values[value].home];
      if (home.kind != Home::Kind::kOutside) return;
      Base& base = bases[home.slot.base];
      std::int64_t byte = graph.backward ? -home.slot.BeginInBase() : home.slot.BeginInBase();
      if (home.slot.row_bytes == 0) byte = writes ? kEver : -kEver;  // all steps see the same bytes
      (writes ? base.writers : base.readers).emplace_back(n - begin, byte);
    };
    for (const int input : graph.nodes[n].inputs) note(input, /*writes=*/false);
    for (const int output : graph.nodes[n].given()) {
      note(output, /*writes=*/true);
      if (graph.values[output].added) note(output, /*writes=*/false);
    }
  }
  std::vector<std::vector<int>> edges = followers;
  constexpr auto kByte = &std::pair<int, std::int64_t>::second;
  for (const auto& [number, base] : bases) {
    if (base.writers.empty() || base.readers.empty()) continue;
    const std::int64_t first = std::ranges::min(base.readers, {}, kByte).second;
    const std::int64_t last = std::ranges::max(base.writers, {}, kByte).second;
    const auto between = static_cast<int>(edges.size());
    edges.emplace_back();
    for (const auto& [node, byte] : base.writers) {
      if (byte > first) edges[node].push_back(between);
    }
    for (const auto& [node, byte] : base.readers) {
      if (byte < last) edges[between].push_back(node);
    }
  }
  std::vector<int> cycles(followers.size(), kNoCycle);
  int cycle = 0;
  for (const std::vector<int>& component : StronglyConnectedComponents(edges)) {
    if (component.size() == 1) continue;
    for (const int n : component) {
      if (n < std::ssize(cycles)) cycles[n] = cycle;
    }
    ++cycle;
  }
  return cycles;
}

std::vector<std::pair<int, int>> WaitsOfNextStep(const StepGraph& graph, int begin, int end) {
  constexpr size_t kMaxWaits = 64;
  const auto rows_of = [&](int value) -> const Slot* {
    const Home& home = graph.homes[graph.values[value].home];
    return home.kind == Home::Kind::kOutside && home.slot.row_bytes != 0 ? &home.slot : nullptr;
  };
  std::map<int, std::vector<std::pair<int, const Slot*>>> writers;  // by base
  for (int n = begin; n < end; ++n) {
    for (const int value : graph.nodes[n].given()) {
      if (const Slot* rows = rows_of(value)) writers[rows->base].emplace_back(n, rows);
    }
  }
  std::vector<std::pair<int, int>> waits;
  for (int n = begin; n < end; ++n) {
    for (const int value : graph.nodes[n].inputs) {
      const Slot* rows = rows_of(value);
      if (rows == nullptr) continue;
      Slot next = *rows;
      next.offset += graph.backward ? -1 : 1;
      for (const auto& [writer, written] : writers[rows->base]) {
        if (waits.size() == kMaxWaits) return waits;
        if (written->row_bytes == next.row_bytes && ShareBytes(*written, next)) waits.emplace_back(writer, n);
      }
    }
  }
  return waits;
}

NodePrecedence::NodePrecedence(int num_nodes) : in_turn_(true), num_chains_(1), chain_of_(num_nodes, 0) {}

NodePrecedence::NodePrecedence(const std::vector<std::vector<int>>& followers)
    : chain_of_(followers.size(), kNone), last_before_(followers.size()) {
  std::vector<int> ends;                                   // by chain, its last node so far
  std::vector<std::vector<int>> before(followers.size());  // by node, those that it follows
  for (size_t n = 0; n < followers.size(); ++n) {
    for (const int follower : followers[n]) before[follower].push_back(static_cast<int>(n));
  }
  for (size_t n = 0; n < followers.size(); ++n) {
    std::vector<int>& last = last_before_[n];
    for (const int earlier : before[n]) {
      const std::vector<int>& theirs = last_before_[earlier];
      last.resize(std::max(last.size(), theirs.size()), kNone);
      for (size_t c = 0; c < theirs.size(); ++c) last[c] = std::max(last[c], theirs[c]);
      const int chain = chain_of_[earlier];
      if (chain == kNone) continue;
      last.resize(std::max(last.size(), static_cast<size_t>(chain) + 1), kNone);
      last[chain] = std::max(last[chain], earlier);
    }
    const auto is_end = [&](int earlier) { return chain_of_[earlier] != kNone && ends[chain_of_[earlier]] == earlier; };
    const auto longest = std::ranges::find_if(before[n], is_end);
    if (longest != before[n].end()) {
      chain_of_[n] = chain_of_[*longest];
    } else if (num_chains_ < kMaxChains) {
      chain_of_[n] = num_chains_++;
      ends.push_back(kNone);
    } else {
      continue;
    }
    ends[chain_of_[n]] = static_cast<int>(n);
  }
}

int NodePrecedence::LastBefore(int node, int chain) const {
  if (in_turn_) return node - 1;
  const std::vector<int>& last = last_before_[node];
  return chain < static_cast<int>(last.size()) ? last[chain] : kNone;
}

}  // namespace stepnet

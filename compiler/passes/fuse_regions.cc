// How nodes are chosen: as many as can be are put in front of a region, so that when one is taken, what it could be
// joined with is there. It grows by what reads its values, by what gives others to the same readers, and by what reads
// the same as it and is waited for with it: what is joined that way was waited for together anyway. What has nothing to
// do with it stays apart and may run beside it. Regions begin with what most products and the like wait for, one behind
// the other: what is wanted later can be joined with what those give. Among these the nodes of the fewest elements come
// first: what many rows share is computed once, before the region that reads it, unless it is so little that to compute
// it with each of them takes no longer.
#include "stepnet/compiler/passes/fuse_regions.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "stepnet/compiler/node_order.h"
#include "stepnet/compiler/passes/passes.h"
#include "stepnet/compiler/region_node_kernel.h"
#include "stepnet/compiler/region_nodes.h"
#include "stepnet/compiler/uses.h"
#include "stepnet/core/cancellation.h"
#include "stepnet/core/formulas/formula_cache.h"
#include "stepnet/core/strings.h"
#include "stepnet/nets/side_effects.h"

namespace stepnet {
namespace {

// What bounds the work on a region, however large a step is: how many nodes are looked at for each operator that a
// region may have, and how often it is tried without one of them before it is cut in half.
constexpr size_t kNodesForEachCall = 4;
constexpr int kMaxTries = 3;
// So many regions are cut, one after the other, before the next ones begin small.
constexpr int kCutsBeforeSmall = 2;

// Whether something of all rows is added up, which is known when all are done: what the first dimension has apart is
// not apart in a sum.
bool AddsUpAllRows(const Region& region) {
  const auto first = std::ranges::find_if(region.sizes, [](std::int64_t size) { return size != 1; });
  const auto d = static_cast<size_t>(std::min<std::ptrdiff_t>(first - region.sizes.begin(), kRegionDims - 1));
  return std::ranges::any_of(region.outputs, [&](const RegionOutput& output) {
    return output.kind == RegionOutputKind::kSums && output.memory.strides[d] == 0;
  });
}

bool HasSums(const Region& region) {
  return std::ranges::any_of(region.outputs,
                             [](const RegionOutput& output) { return output.kind == RegionOutputKind::kSums; });
}

// Whether the node may be a region, if its operator says what it computes. Sums may be, which are calls where they
// stand alone.
bool MayBeRegion(const StepNode& node) {
  if (node.kind == StepNode::Kind::kRegion) return node.IsOneOperator();
  return node.kind == StepNode::Kind::kCall && node.call->schema().expansion;
}

}  // namespace

const char* WhyAlone(const StepGraph& graph, const StepNode& node, Joining* joining) {
  if (node.kind == StepNode::Kind::kProduct) return "products are not fused with other operators";
  if (node.by_blobs) return "its shapes are found anew in each step";
  if (!MayBeRegion(node)) return "it has no formula";
  if (HasSideEffects(*node.call)) return "it does more than to compute";
  if (std::ssize(node.inputs) + std::ssize(node.outputs) > graph.target->max_region_operands) {
    return "it has more operands than a region may have";
  }
  for (const int output : node.outputs) {
    if (output == kNoValue) return "an output of it is left out";
    if (graph.values[output].added) return "it adds to what is there";
  }
  const std::vector<TensorInfo> inputs = graph.InfosOf(node.inputs);
  const ShapeQuery query(*node.call, inputs);
  try {
    const Kernel* const kernel = node.call->schema().FindKernel(graph.target->device);
    if (kernel != nullptr && MayFindBadValues(query, *kernel)) return "it checks values";
    const auto parts = FindParts(query);
    if (parts->parts.empty()) return "it has no formula for such inputs";
    for (const RegionPart& part : parts->parts) {
      const bool has_sums = HasSums(part.region);
      if (has_sums && (graph.target->device != DeviceKind::kCpu || AddsUpAllRows(part.region))) {
        return "it adds up over rows, which is known when all are done";
      }
      joining->gives_sums |= has_sums;
      joining->elements = std::max(joining->elements, part.region.NumElements());
    }
    // Rows of no elements and no rows look alike.
    return joining->elements == 0 ? "it computes nothing" : nullptr;
  } catch (const ValueUnknown&) {
    return "a shape of it follows from values that are not known before the run";
  }
}

std::optional<RegionObstacle> ObstacleOf(const StepGraph& graph, std::span<const StepNode* const> nodes,
                                         std::span<const int> own) {
  const StepNode region = RegionOf(graph, nodes, own);
  const RegionNodeKernelSpec spec = SpecOf(graph, region);
  return RegionNodeKernel::FindObstacle(spec, spec.inputs, graph.target->device);
}

namespace {

// Joins the regions of one loop.
class LoopFuser {
 public:
  LoopFuser(StepGraph* graph, const Uses& uses, int begin, int end)
      : graph_(*graph),
        uses_(uses),
        begin_(begin),
        max_calls_(static_cast<size_t>(graph->target->max_region_operators)),
        elements_(static_cast<size_t>(end - begin)),
        gives_sums_(elements_.size()) {
    for (int n = begin; n < end; ++n) {
      CheckCancelled();
      Joining joining;
      const bool may_join = WhyAlone(graph_, graph_.nodes[n], &joining) == nullptr;
      elements_[n - begin] = may_join ? joining.elements : kCannotJoin;
      gives_sums_[n - begin] = joining.gives_sums;
    }
  }

  // Puts the nodes into another order; returns what is to become one.
  std::vector<NodeRange> Run() {
    if (std::ranges::count(elements_, kCannotJoin) + 2 > std::ssize(elements_)) return {};
    FindOrder();
    std::vector<NodeRange> ranges;
    std::vector<int> order;
    const auto put = [&](int n) {
      order.push_back(n);
      Put(n);
    };
    while (!ready_.empty() || !ready_to_join_.empty()) {
      CheckCancelled();
      if (!ready_.empty()) {
        put(*ready_.begin());
        continue;
      }
      const std::vector<int> group = Group(ready_to_join_.begin()->node);
      const auto first = begin_ + static_cast<int>(order.size());
      std::ranges::for_each(group, put);
      if (group.size() > 1) ranges.push_back({first, first + static_cast<int>(group.size())});
    }
    if (!ranges.empty()) MoveNodes(order);
    return ranges;
  }

 private:
  static constexpr std::int64_t kCannotJoin = -1;

  // In the order in which regions begin.
  struct Seed {
    int fewer_waits;
    std::int64_t elements;
    int node;
    auto operator<=>(const Seed&) const = default;
  };

  // Sets of nodes, of which there is one at a time.
  struct Marks {
    std::vector<int> of;  // by node: the last one that it is in
    int now = 0;

    bool contains(int n) const { return of[n] == now; }
    bool Add(int n) { return std::exchange(of[n], now) != now; }
  };

  size_t max_near() const { return kNodesForEachCall * max_calls_; }
  const StepNode& NodeAt(int n) const { return graph_.nodes[begin_ + n]; }
  // The node of the loop that gives the value, from 0; -1: none of them does.
  int ProducerOf(int value) const {
    const int n = graph_.values[value].producer - begin_;
    return n >= 0 && n < static_cast<int>(elements_.size()) ? n : -1;
  }

  void FindOrder() {
    const auto size = static_cast<int>(elements_.size());
    followers_ = FollowersOf(graph_, begin_, begin_ + size);
    missing_.assign(elements_.size(), 0);
    in_group_.assign(elements_.size(), 0);
    is_put_.assign(elements_.size(), false);
    behind_.of.assign(elements_.size(), 0);
    visited_.of.assign(elements_.size(), 0);
    for (const std::vector<int>& others : followers_) {
      for (const int n : others) ++missing_[n];
    }
    FindWaits();
    for (int n = 0; n < size; ++n) {
      if (missing_[n] == 0) AddReady(n);
      for (const int input : NodeAt(n).inputs) {
        if (MayJoin(n)) readers_[input].push_back(n);
      }
    }
  }

  // How many nodes that may not join others wait for each, one behind the other. Followers come behind in the loop.
  void FindWaits() {
    waits_.assign(elements_.size(), 0);
    for (int n = static_cast<int>(elements_.size()) - 1; n >= 0; --n) {
      for (const int follower : followers_[n]) {
        waits_[n] = std::max(waits_[n], waits_[follower] + (MayJoin(follower) ? 0 : 1));
      }
    }
  }

  bool MayJoin(int n) const { return elements_[n] != kCannotJoin; }
  Seed SeedOf(int n) const { return {-waits_[n], elements_[n], n}; }

  void AddReady(int n) {
    if (MayJoin(n)) {
      ready_to_join_.insert(SeedOf(n));
    } else {
      ready_.insert(n);
    }
  }

  // `n` is in its place: others may be ready now.
  void Put(int n) {
    is_put_[n] = true;
    ready_.erase(n);
    ready_to_join_.erase(SeedOf(n));
    for (const int follower : followers_[n]) {
      if (--missing_[follower] == 0) AddReady(follower);
    }
  }

  void MoveNodes(const std::vector<int>& order) {
    if (std::ranges::is_sorted(order)) return;
    std::vector<StepNode> nodes;
    nodes.reserve(order.size());
    for (const int n : order) nodes.push_back(std::move(graph_.nodes[begin_ + n]));
    std::ranges::move(nodes, graph_.nodes.begin() + begin_);
  }

  // Nodes that become one region, `seed` first, each before those that must come behind it. Where one region after the
  // other has been cut, the next ones are tried with twice as many nodes as came of the last one.
  std::vector<int> Group(int seed) {
    const size_t first_max = num_cut_ < kCutsBeforeSmall ? max_calls_ : 2 * last_size_;
    size_t max_calls = first_max;
    std::set<int> left_out;
    for (int tries = 0;; ++tries) {
      CheckCancelled();
      std::vector<int> group = Grow(seed, left_out, max_calls);
      const std::optional<RegionObstacle> obstacle = group.size() > 1 ? FindObstacle(group) : std::nullopt;
      if (!obstacle) {
        const bool is_cut = max_calls < first_max || group.size() == first_max;
        num_cut_ = is_cut ? num_cut_ + 1 : 0;
        last_size_ = group.size();
        return group;
      }
      if (tries < kMaxTries) {
        LeaveOut(*obstacle, group, &left_out);
      } else {
        max_calls = group.size() / 2;
      }
    }
  }

  // What stands in the way; where that is the first node, from which the group grows, what would compute it too often,
  // or the last one. Of two numbers of elements that do not go together all nodes of the one stay.
  void LeaveOut(const RegionObstacle& obstacle, const std::vector<int>& group, std::set<int>* left_out) const {
    const int at = group[obstacle.call];
    const bool is_like_first = elements_[at] == elements_[group[0]];
    const std::int64_t others = is_like_first ? obstacle.region_elements : elements_[at];
    const auto is_larger = [&](int n) { return elements_[n] > elements_[at]; };
    const auto is_other = [&](int n) { return elements_[n] == others; };
    const auto leave_out = [&](const auto& is) {
      std::ranges::copy_if(group, std::inserter(*left_out, left_out->end()), is);
    };
    if (obstacle.repeats && is_like_first && std::ranges::any_of(group, is_larger)) {
      leave_out(is_larger);
    } else if (obstacle.region_elements > 0 && !is_other(group[0]) && std::ranges::any_of(group, is_other)) {
      leave_out(is_other);
    } else {
      left_out->insert(obstacle.call > 0 ? at : group.back());
    }
  }

  std::vector<int> Grow(int seed, const std::set<int>& left_out, size_t max_calls) {
    std::vector<int> group;
    std::set<int> near = {seed}, looked_at = {seed}, sums;
    while (group.size() < max_calls) {
      const auto next = std::ranges::find_if(near, [&](int n) { return missing_[n] == in_group_[n]; });
      if (next == near.end()) break;
      const int n = *next;
      near.erase(next);
      if (left_out.contains(n) || std::ranges::any_of(NodeAt(n).inputs, [&](int v) { return sums.contains(v); })) {
        continue;
      }
      group.push_back(n);
      if (gives_sums_[n]) sums.insert(NodeAt(n).outputs.begin(), NodeAt(n).outputs.end());
      for (const int follower : followers_[n]) ++in_group_[follower];
      for (const int output : NodeAt(n).outputs) {
        const auto readers = readers_.find(output);
        if (readers == readers_.end()) continue;
        for (const int reader : readers->second) AddNear(reader, &looked_at, &near);
      }
      for (const int input : NodeAt(n).inputs) AddOtherReaders(input, n, &looked_at, &near);
    }
    for (const int n : group) {
      for (const int follower : followers_[n]) in_group_[follower] = 0;
    }
    return group;
  }

  // What else reads a value that `n` of the region reads, over as many elements, where something waits for both:
  // what has nothing to do with each other, as layers that read one input, can run beside each other. As many of them
  // as are near.
  void AddOtherReaders(int value, int n, std::set<int>* looked_at, std::set<int>* near) {
    const auto readers = readers_.find(value);
    if (readers == readers_.end() || readers->second.size() < 2) return;
    ++behind_.now;
    int last = n;
    VisitBehind(n, std::ssize(elements_), [&](int follower) {
      last = std::max(last, follower);
      return behind_.Add(follower), false;
    });
    size_t num_readers = 0;
    for (const int reader : readers->second) {
      if (is_put_[reader] || elements_[reader] != elements_[n] || looked_at->contains(reader)) continue;
      if (++num_readers > max_near() || looked_at->size() >= max_near()) break;
      if (VisitBehind(reader, last + 1, [&](int follower) { return behind_.contains(follower); }))
        AddNear(reader, looked_at, near);
    }
  }

  // Calls fn(n) for nodes up to `end` that wait for one, as many as are near, until it returns true, and returns
  // whether it did.
  template <typename Fn>
  bool VisitBehind(int node, std::ptrdiff_t end, const Fn& fn) {
    ++visited_.now;
    std::vector<int> to_visit = {node};
    for (size_t i = 0; i < to_visit.size() && to_visit.size() < max_near(); ++i) {
      for (const int follower : followers_[to_visit[i]]) {
        if (follower >= end || !visited_.Add(follower)) continue;
        if (fn(follower)) return true;
        to_visit.push_back(follower);
      }
    }
    return false;
  }

  // A node that reads a value of the region, and those that it waits for.
  void AddNear(int reader, std::set<int>* looked_at, std::set<int>* near) const {
    std::vector<int> to_add = {reader};
    while (!to_add.empty() && looked_at->size() < max_near()) {
      const int n = to_add.back();
      to_add.pop_back();
      if (is_put_[n] || !MayJoin(n) || !looked_at->insert(n).second) continue;
      near->insert(n);
      for (const int input : NodeAt(n).inputs) {
        if (const int producer = ProducerOf(input); producer >= 0) to_add.push_back(producer);
      }
    }
  }

  std::optional<RegionObstacle> FindObstacle(const std::vector<int>& group) const {
    std::vector<const StepNode*> nodes;
    for (const int n : group) nodes.push_back(&NodeAt(n));
    return ObstacleOf(graph_, nodes, OwnValues(graph_, uses_, nodes));
  }

  StepGraph& graph_;
  const Uses& uses_;
  const int begin_;
  const size_t max_calls_;  // of a region
  // An element for each node of the loop.
  std::vector<std::int64_t> elements_;
  std::vector<bool> gives_sums_;
  std::vector<std::vector<int>> followers_;
  std::vector<bool> is_put_;   // in its place
  Marks behind_;               // what waits for the node of which other readers are looked for
  Marks visited_;              // what VisitBehind has come to
  std::vector<int> missing_;   // how many each waits for that are not
  std::vector<int> in_group_;  // and of them in the group that grows
  std::set<int> ready_;        // those that wait for none, and may not join others
  std::set<Seed> ready_to_join_;
  std::vector<int> waits_;
  std::map<int, std::vector<int>> readers_;  // by value
  int num_cut_ = 0;                          // regions, one after the other, up to the last one
  size_t last_size_ = 0;
};

bool CanRunRegions(DeviceKind device) {
  return device == DeviceKind::kCpu || GetDeviceSpec(device).make_region != nullptr;
}

// Regions of a loop of which one reads what the other gives become one, with the same bits: values that only they use
// are in no memory, and a step has fewer instructions. Nodes between them are put before or behind them, where bytes
// allow that.
bool FuseRegions(StepGraph* graph) {
  if (!CanRunRegions(graph->target->device)) return false;
  std::vector<Stage> stages = graph->stages;
  if (stages.empty()) stages = {{.begin = 0, .end = static_cast<int>(graph->nodes.size())}};
  const Uses uses(*graph);
  std::vector<NodeRange> ranges;
  for (const Stage& stage : stages) {
    if (stage.steps_at_once == 1 || stage.is_behind)
      std::ranges::move(LoopFuser(graph, uses, stage.begin, stage.end).Run(), std::back_inserter(ranges));
  }
  if (ranges.empty()) return false;
  graph->FindProducers();
  FormRegions(ranges, graph);
  return true;
}

const PassRegistration registration({.name = "fuse_regions", .place = 210, .opt_level = 1, .run = FuseRegions});

}  // namespace

bool MayJoinOthers(const StepGraph& graph, const StepNode& node) {
  Joining joining;
  return node.body != nullptr || WhyAlone(graph, node, &joining) == nullptr;
}

}  // namespace stepnet

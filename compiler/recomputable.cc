#include "stepnet/compiler/recomputable.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "stepnet/core/cancellation.h"
#include "stepnet/core/cost.h"
#include "stepnet/core/formulas/formula_cache.h"
#include "stepnet/nets/net_blobs.h"
#include "stepnet/nets/side_effects.h"
#include "stepnet/proto/net.pb.h"

namespace stepnet {
namespace {

// Whether the node computes one element or row after the other, and nothing else.
bool IsCheap(const StepGraph& graph, const StepNode& node) {
  if (node.kind == StepNode::Kind::kMove) return true;
  const OperatorSchema& schema = node.call->schema();
  if (schema.formula) return true;
  if (!schema.expansion) return false;
  const std::vector<TensorInfo> inputs = graph.InfosOf(node.inputs);
  const ShapeQuery query(*node.call, inputs);
  const Expansion expansion(query);
  return expansion.products().empty() && !expansion.parts().empty();
}

// How many times the bytes of what a value follows from it has where it follows from less, and how many of its bytes a
// microsecond computes again, by estimate: those of some operators one after the other. Keeping means to write it to
// memory and to read it from there, at some bytes a nanosecond. No figures of a Target: what a run keeps says how much
// memory it takes, which shall be the same everywhere (docs/performance.md has what it gives).
constexpr std::int64_t kTimesLess = 4;
constexpr double kMinBytesForTime = 1e3;

class RecomputableFinder {
 public:
  RecomputableFinder(const StepGraph& graph, const RecurrentSpec& spec, const std::set<int>& bases)
      : graph_(graph), again_(graph, bases) {
    const NetDef& backward = *spec.BackwardStep();
    for (const std::string& blob : BlobsReadFirst(backward)) may_be_left_.insert(blob);
    for (const std::string& blob : BlobsReadForShape(backward)) may_be_left_.erase(blob);
    for (const OperatorDef& op : backward.op()) {
      for (const std::string& output : op.output()) may_be_left_.erase(output);
      const OperatorSchema& schema = GetOperator(op.type());
      for (int i = 0; i < op.input_size(); ++i) {
        if (!schema.formula && !schema.ReadsShapeAlone(i)) may_be_left_.erase(op.input(i));
      }
    }
    for (const Link& link : spec.backward_links) may_be_left_.erase(spec.Renamed(link.internal));
  }

  std::vector<RecomputedValue> Run() const {
    std::vector<RecomputedValue> cheap, others;
    std::set<std::string> gone;  // what follows from less
    std::map<std::set<int>, std::pair<RecomputedValue, std::set<int>>> by_products;
    for (size_t n = 0; n < graph_.nodes.size(); ++n) {
      CheckCancelled();
      RecomputedValue value = LeftOf(graph_.nodes[n]);
      if (value.bytes == 0) continue;
      const std::set<int> nodes = again_.NodesOf(static_cast<int>(n), {});
      if (nodes.empty()) continue;
      std::set<int> products;
      std::ranges::copy_if(nodes, std::inserter(products, products.end()),
                           [&](int node) { return !IsCheap(graph_, graph_.nodes[node]); });
      if (products.empty()) {
        Finish(nodes, &value);
        value.follows_from_less = FollowsFromLess(value, again_.NodesOf(static_cast<int>(n), gone));
        if (value.follows_from_less) gone.insert(value.blobs.begin(), value.blobs.end());
        cheap.push_back(std::move(value));
        continue;
      }
      auto& [all, nodes_of_all] = by_products[products];
      all.bytes += value.bytes;
      std::ranges::move(value.blobs, std::back_inserter(all.blobs));
      nodes_of_all.insert(nodes.begin(), nodes.end());
    }
    for (auto& [products, of_products] : by_products) {
      Finish(of_products.second, &of_products.first);
      others.push_back(std::move(of_products.first));
    }
    std::ranges::stable_sort(cheap, std::ranges::greater(), &RecomputedValue::BytesForTime);
    std::ranges::stable_partition(cheap, &RecomputedValue::follows_from_less);
    std::ranges::stable_sort(others, std::ranges::greater(), &RecomputedValue::BytesForTime);
    std::ranges::move(others, std::back_inserter(cheap));
    return cheap;
  }

 private:
  // What need not be kept of what the node gives.
  RecomputedValue LeftOf(const StepNode& node) const {
    RecomputedValue value;
    for (const int output : node.given()) {
      const std::string& blob = graph_.values[output].blob;
      if (!again_.IsKeptBlob(output) || !may_be_left_.contains(blob)) continue;
      value.blobs.push_back(blob);
      value.bytes += graph_.values[output].info.size_bytes();
    }
    return value;
  }

  void Finish(const std::set<int>& nodes, RecomputedValue* value) const {
    for (const int n : nodes) {
      const StepNode& node = graph_.nodes[n];
      if (node.kind != StepNode::Kind::kMove) value->microseconds += Microseconds(node);
      for (const int output : node.given()) {
        const std::string& blob = graph_.values[output].blob;
        if (!again_.IsKeptBlob(output)) value->along_way.push_back(blob);
      }
    }
  }

  // Whether a value does, which the nodes give where others that do are not kept.
  bool FollowsFromLess(const RecomputedValue& value, const std::set<int>& nodes) const {
    double microseconds = 0;
    for (const int n : nodes) {
      if (graph_.nodes[n].kind != StepNode::Kind::kMove) microseconds += Microseconds(graph_.nodes[n]);
    }
    return value.bytes >= kTimesLess * BytesOfSources(nodes) &&
           static_cast<double>(value.bytes) >= kMinBytesForTime * microseconds;
  }

  // What the step has of its own, of what the nodes read and do not give: parameters stay in the caches.
  std::int64_t BytesOfSources(const std::set<int>& nodes) const {
    std::set<int> sources;
    for (const int n : nodes) {
      for (const int input : graph_.nodes[n].inputs) {
        if (!nodes.contains(graph_.values[input].producer)) sources.insert(input);
      }
    }
    std::int64_t bytes = 0;
    for (const int value : sources) {
      const Home& home = graph_.homes[graph_.values[value].home];
      const bool is_of_step =
          home.kind == Home::Kind::kTemporary || (home.kind == Home::Kind::kOutside && home.slot.row_bytes > 0);
      if (is_of_step) bytes += graph_.values[value].info.size_bytes();
    }
    return bytes;
  }

  double Microseconds(const StepNode& node) const {
    std::vector<int> given;
    for (const int output : node.given()) given.push_back(output);
    const std::vector<TensorInfo> inputs = graph_.InfosOf(node.inputs), outputs = graph_.InfosOf(given);
    return EstimateMicroseconds(EstimateCost(*node.call, inputs, outputs), *graph_.target);
  }

  const StepGraph& graph_;
  const StepAgain again_;
  std::set<std::string> may_be_left_;  // blobs of which the steps back read values, by formulas alone
};

}  // namespace

std::set<std::string> BlobsOf(std::span<const RecomputedValue> values) {
  std::set<std::string> blobs;
  for (const RecomputedValue& value : values) blobs.insert(value.blobs.begin(), value.blobs.end());
  return blobs;
}

std::int64_t BytesOf(std::span<const RecomputedValue> values) {
  std::int64_t bytes = 0;
  for (const RecomputedValue& value : values) bytes += value.bytes;
  return bytes;
}

StepAgain::StepAgain(const StepGraph& forward, std::set<int> bases)
    : graph_(forward),
      bases_(std::move(bases)),
      values_of_(forward.homes.size()),
      runs_for_many_steps_(forward.nodes.size(), false) {
  for (size_t v = 0; v < graph_.values.size(); ++v) {
    const StepValue& value = graph_.values[v];
    values_of_[value.home].push_back(static_cast<int>(v));
    const Home& home = graph_.homes[value.home];
    if (value.producer >= 0 && home.kind == Home::Kind::kOutside) written_[home.slot.base].insert(value.home);
  }
  for (const Stage& stage : graph_.stages) {
    for (int n = stage.begin; n < stage.end; ++n) runs_for_many_steps_[n] = stage.steps_at_once != 1;
  }
}

bool StepAgain::IsKeptBlob(int value) const {
  const StepValue& v = graph_.values[value];
  const auto last = graph_.last.find(v.blob);
  return !v.outside && last != graph_.last.end() && last->second == value && IsLastInHome(value) &&
         graph_.HomeOf(value).kind == Home::Kind::kTemporary && graph_.HomeOf(value).kept;
}

// Whether the step back finds the value in memory, as the step forward had it.
bool StepAgain::IsThere(int value, const std::set<std::string>& gone) const {
  switch (graph_.HomeOf(value).kind) {
    case Home::Kind::kOnce: return true;
    case Home::Kind::kOutside:
      return bases_.contains(graph_.HomeOf(value).slot.base) && IsLastInHome(value) && Stays(value);
    case Home::Kind::kTemporary: return IsKeptBlob(value) && !gone.contains(graph_.values[value].blob);
    default: return false;
  }
}

bool StepAgain::IsLastInHome(int value) const {
  const StepValue& v = graph_.values[value];
  return std::ranges::none_of(values_of_[v.home],
                              [&](int other) { return graph_.values[other].producer > v.producer; });
}

// Whether the rows outside hold the value from then on: neither this step nor a later one writes there again.
bool StepAgain::Stays(int value) const {
  const Home& home = graph_.HomeOf(value);
  const std::int64_t end = home.slot.BeginInBase() + home.slot.bytes;
  const auto homes = written_.find(home.slot.base);
  if (homes == written_.end()) return true;
  return std::ranges::none_of(homes->second, [&](int other) {
    const Home& written = graph_.homes[other];
    if (&written == &home) return home.slot.bytes > home.slot.row_bytes;
    return home.slot.row_bytes == 0 || written.slot.row_bytes == 0 || written.slot.BeginInBase() < end;
  });
}

// What a value is added to.
int StepAgain::Predecessor(int value) const {
  const StepValue& v = graph_.values[value];
  int found = kNoValue;
  for (const int other : values_of_[v.home]) {
    const int producer = graph_.values[other].producer;
    if (producer < v.producer && (found == kNoValue || producer > graph_.values[found].producer)) found = other;
  }
  return found;
}

bool StepAgain::MayRunAgain(int n) const {
  const StepNode& node = graph_.nodes[n];
  if (node.by_blobs || node.kind == StepNode::Kind::kPack) return false;
  if (node.kind == StepNode::Kind::kMove) return true;
  if (!node.IsOneOperator() || HasSideEffects(*node.call)) return false;
  const Kernel* kernel = node.call->schema().FindKernel(graph_.target->device);
  const std::vector<TensorInfo> inputs = graph_.InfosOf(node.inputs);
  if (kernel == nullptr || MayFindBadValues(ShapeQuery(*node.call, inputs), *kernel)) return false;
  return node.kind == StepNode::Kind::kProduct ? !runs_for_many_steps_[n] : IsCheap(graph_, node);
}

std::set<int> StepAgain::NodesOf(int node, const std::set<std::string>& gone) const {
  std::set<int> nodes;
  std::vector<int> to_look_at = {node};
  while (!to_look_at.empty()) {
    const int n = to_look_at.back();
    to_look_at.pop_back();
    if (!nodes.insert(n).second) continue;
    if (nodes.size() > kMaxNodes || !MayRunAgain(n)) return {};
    std::vector<int> needed;  // that are given again
    for (const int input : graph_.nodes[n].inputs) {
      if (!IsThere(input, gone)) needed.push_back(input);
    }
    for (const int output : graph_.nodes[n].given()) {
      if (graph_.values[output].added) needed.push_back(Predecessor(output));
    }
    for (const int value : needed) {
      const int producer = value == kNoValue ? -1 : graph_.values[value].producer;
      if (producer < 0) return {};
      to_look_at.push_back(producer);
    }
  }
  return nodes;
}

StepGraph StepAgain::PartThatGives(const std::set<std::string>& blobs) const {
  std::vector<bool> gone(graph_.nodes.size(), true);
  std::set<int> given;  // values
  StepGraph part = graph_;
  part.last.clear();
  for (const std::string& blob : blobs) {
    const int value = graph_.last.at(blob);
    part.last.emplace(blob, value);
    for (const int n : NodesOf(graph_.values[value].producer, blobs)) gone[n] = false;
  }
  for (size_t n = 0; n < part.nodes.size(); ++n) {
    if (gone[n]) continue;
    part.nodes[n].net = graph_.name;
    for (const int output : part.nodes[n].given()) given.insert(output);
  }
  // Where a home holds what is there as well, what is given again lies elsewhere.
  std::map<int, int> home_of;  // by home of the step forward
  for (const int value : given) {
    const int before = graph_.values[value].home;
    const auto [found, is_new] = home_of.emplace(before, static_cast<int>(part.homes.size()));
    if (is_new) part.homes.emplace_back();
    part.values[value].home = found->second;
  }
  part.stages.clear();
  part.before.clear();
  part.after.clear();
  part.Erase(gone);
  return part;
}

std::vector<RecomputedValue> FindRecomputable(const StepGraph& forward, const RecurrentSpec& spec,
                                              const std::set<int>& bases) {
  return RecomputableFinder(forward, spec, bases).Run();
}

}  // namespace stepnet

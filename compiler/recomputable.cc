#include "stepnet/compiler/recomputable.h"

#include <algorithm>
#include <set>

#include "stepnet/compiler/uses.h"
#include "stepnet/core/cost.h"
#include "stepnet/nets/side_effects.h"
#include "stepnet/proto/net.pb.h"

namespace stepnet {
namespace {

class RecomputableFinder {
 public:
  RecomputableFinder(const StepGraph& graph, const RecurrentSpec& spec)
      : graph_(graph), uses_(graph), readers_(graph.values.size()) {
    for (size_t n = 0; n < graph.nodes.size(); ++n) {
      for (const int input : graph.nodes[n].inputs) readers_[input].push_back(static_cast<int>(n));
    }
    for (const OperatorDef& op : spec.BackwardStep().op()) {
      written_back_.insert(op.output().begin(), op.output().end());
      const OperatorSchema& schema = GetOperator(op.type());
      for (int i = 0; i < op.input_size(); ++i) {
        if (!schema.formula && !schema.ReadsShapeAlone(i)) read_by_others_.insert(op.input(i));
      }
    }
    for (const Link& link : spec.backward_links) written_back_.insert(spec.Renamed(link.internal));
  }

  std::vector<RecomputedValue> Run() const {
    std::vector<RecomputedValue> found;
    for (size_t n = 0; n < graph_.nodes.size(); ++n) {
      RecomputedValue value;
      std::set<int> nodes;
      for (const int output : graph_.nodes[n].given()) {
        if (!IsKept(output)) continue;
        value.blobs.push_back(graph_.values[output].blob);
        value.bytes += graph_.values[output].info.size_bytes();
      }
      if (value.bytes == 0 || !MayBeLeft(static_cast<int>(n)) || !Collect(static_cast<int>(n), &nodes)) continue;
      for (const int node : nodes) {
        value.microseconds += Microseconds(graph_.nodes[node]);
        for (const int output : graph_.nodes[node].given()) {
          if (!IsKept(output)) value.along_way.push_back(graph_.values[output].blob);
        }
      }
      found.push_back(std::move(value));
    }
    std::ranges::stable_sort(found, std::ranges::greater(), &RecomputedValue::BytesForTime);
    return found;
  }

 private:
  const Home& HomeOf(int value) const { return graph_.homes[graph_.values[value].home]; }
  bool IsKept(int value) const { return HomeOf(value).kind == Home::Kind::kTemporary && HomeOf(value).kept; }

  // Whether the blob of that name ends the step as this value, and names nothing else in the step back.
  bool IsWhatBlobIs(int value) const {
    const std::string& blob = graph_.values[value].blob;
    const auto last = graph_.last.find(blob);
    return !graph_.values[value].outside && last != graph_.last.end() && last->second == value &&
           !written_back_.contains(blob);
  }

  // Whether an operator computes one element or row after the other, and nothing else.
  bool IsCheap(const StepNode& node) const {
    if (!node.IsOneOperator() || node.by_blobs || HasSideEffects(*node.call)) return false;
    const OperatorSchema& schema = node.call->schema();
    if (schema.formula) return true;
    if (!schema.expansion) return false;
    const std::vector<TensorInfo> inputs = graph_.InfosOf(node.inputs);
    const ShapeQuery query(*node.call, inputs);
    const Expansion expansion(query);
    return expansion.products().empty() && !expansion.parts().empty();
  }

  // Whether nobody who reads what the node gives would do it otherwise if it were not kept.
  bool MayBeLeft(int n) const {
    const auto is_indifferent = [&](int reader) {
      const StepNode& node = graph_.nodes[reader];
      if (node.kind == StepNode::Kind::kMove) return !graph_.values[node.outputs[0]].added;
      return IsCheap(node) && !AddsItsInputs(graph_, node);
    };
    return std::ranges::all_of(graph_.nodes[n].given(), [&](int value) {
      return std::ranges::all_of(readers_[value], is_indifferent) &&
             !(IsKept(value) && read_by_others_.contains(graph_.values[value].blob));
    });
  }

  // Adds the nodes that must run for the node to run in a step back. Returns whether they can.
  bool Collect(int n, std::set<int>* nodes) const {
    if (n < 0) return false;
    if (nodes->contains(n)) return true;
    const StepNode& node = graph_.nodes[n];
    const auto is_alone = [&](int value) {
      return IsWhatBlobIs(value) && HomeOf(value).kind == Home::Kind::kTemporary &&
             uses_.NumValues(graph_.values[value].home) == 1;
    };
    if (!IsCheap(node) || !std::ranges::all_of(node.given(), is_alone)) return false;
    const auto is_there = [&](int value) { return IsThere(value) || Collect(graph_.values[value].producer, nodes); };
    if (!std::ranges::all_of(node.inputs, is_there)) return false;
    nodes->insert(n);
    return true;
  }

  // Whether the step back finds the value under its name, as the step forward had it.
  bool IsThere(int value) const {
    if (!IsWhatBlobIs(value)) return false;
    return IsKept(value) || (HomeOf(value).kind == Home::Kind::kOutside && Stays(value));
  }

  // Whether the rows outside hold the value from then on: neither this step nor a later one writes there again.
  bool Stays(int value) const {
    const Home& home = HomeOf(value);
    const std::int64_t end = home.slot.BeginInBase() + home.slot.bytes;
    return std::ranges::none_of(graph_.values, [&](const StepValue& other) {
      const Home& written = graph_.homes[other.home];
      if (other.producer < 0 || written.kind != Home::Kind::kOutside || written.slot.base != home.slot.base) {
        return false;
      }
      if (&written == &home) return home.slot.bytes > home.slot.row_bytes;
      return home.slot.row_bytes == 0 || written.slot.row_bytes == 0 || written.slot.BeginInBase() < end;
    });
  }

  double Microseconds(const StepNode& node) const {
    const std::vector<TensorInfo> inputs = graph_.InfosOf(node.inputs), outputs = graph_.InfosOf(node.outputs);
    return EstimateMicroseconds(EstimateCost(*node.call, inputs, outputs), *graph_.target);
  }

  const StepGraph& graph_;
  const Uses uses_;
  std::vector<std::vector<int>> readers_;  // by value
  std::set<std::string> written_back_;     // names that the step back gives values of its own
  std::set<std::string> read_by_others_;   // there, by operators that have no formula, as products
};

}  // namespace

std::set<std::string> BlobsOf(std::span<const RecomputedValue> values) {
  std::set<std::string> blobs;
  for (const RecomputedValue& value : values) {
    blobs.insert(value.blobs.begin(), value.blobs.end());
    blobs.insert(value.along_way.begin(), value.along_way.end());
  }
  return blobs;
}

std::int64_t BytesOf(std::span<const RecomputedValue> values) {
  std::int64_t bytes = 0;
  for (const RecomputedValue& value : values) bytes += value.bytes;
  return bytes;
}

std::vector<RecomputedValue> FindRecomputable(const StepGraph& imported, const RecurrentSpec& spec) {
  return RecomputableFinder(imported, spec).Run();
}

}  // namespace stepnet

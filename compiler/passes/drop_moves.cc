#include <algorithm>

#include "stepnet/compiler/passes/passes.h"

namespace stepnet {
namespace {

// Which nodes use which memory, while nodes and what they use change.
class MemoryUses {
 public:
  struct Use {
    int node = 0;
    int value = 0;  // that the node reads or gives
  };

  explicit MemoryUses(const StepGraph& graph) : graph_(graph), uses_(graph.num_bases + graph.homes.size()) {
    for (size_t n = 0; n < graph.nodes.size(); ++n) {
      const StepNode& node = graph.nodes[n];
      const auto note = [&](int value) { Of(value).push_back({.node = static_cast<int>(n), .value = value}); };
      std::ranges::for_each(node.inputs, note);
      std::ranges::for_each(node.given(), note);
    }
  }

  void Add(const Use& use) {
    std::vector<Use>& uses = Of(use.value);
    uses.insert(std::ranges::upper_bound(uses, use.node, {}, &Use::node), use);
  }
  // To be told before the graph is changed.
  void Remove(const Use& use) {
    std::erase_if(Of(use.value), [&](const Use& other) { return other.node == use.node && other.value == use.value; });
  }

  // Who uses bytes of the value in nodes [begin, end), in their order.
  std::vector<Use> Find(int value, int begin, int end) const {
    const std::vector<Use>& uses = uses_[NumberOf(value)];
    std::vector<Use> found;
    for (auto use = std::ranges::lower_bound(uses, begin, {}, &Use::node); use != uses.end() && use->node < end;
         ++use) {
      const int a = graph_.values[value].home, b = graph_.values[use->value].home;
      if (a == b || ShareBytes(graph_.homes[a], graph_.homes[b])) found.push_back(*use);
    }
    return found;
  }

 private:
  // Memory outside that may be shared has one number, and so has each home of the step.
  int NumberOf(int value) const {
    const int h = graph_.values[value].home;
    const Home& home = graph_.homes[h];
    return home.kind == Home::Kind::kOutside ? home.slot.base : graph_.num_bases + h;
  }
  std::vector<Use>& Of(int value) { return uses_[NumberOf(value)]; }

  const StepGraph& graph_;
  std::vector<std::vector<Use>> uses_;
};

using Use = MemoryUses::Use;

// Whether the node copies a blob of the step, to another one or to memory outside.
bool CopiesBlob(const StepGraph& graph, const StepNode& node) {
  if (node.kind != StepNode::Kind::kMove) return false;
  const StepValue &from = graph.values[node.inputs[0]], &to = graph.values[node.outputs[0]];
  const bool is_of_step = !from.outside && !from.dynamic && !to.dynamic;
  return is_of_step && !to.added && from.home != to.home && from.info == to.info;
}

class MoveDropper {
 public:
  explicit MoveDropper(StepGraph* graph) : graph_(*graph), uses_(*graph), gone_(graph->nodes.size(), false) {}

  bool Run() {
    for (size_t n = 0; n < graph_.nodes.size(); ++n) {
      if (CopiesBlob(graph_, graph_.nodes[n])) Drop(static_cast<int>(n));
    }
    if (!std::ranges::count(gone_, true)) return false;
    graph_.Erase(gone_);
    return true;
  }

 private:
  int NumNodes() const { return static_cast<int>(graph_.nodes.size()); }
  bool IsTemporary(int value) const {
    return graph_.HomeOf(value).kind == Home::Kind::kTemporary && !graph_.HomeOf(value).kept;
  }
  bool IsGivenBy(const Use& use) const { return graph_.values[use.value].producer == use.node; }
  bool AreInOneHome(int a, int b) const { return graph_.values[a].home == graph_.values[b].home; }

  void Drop(int n) {
    const int from = graph_.nodes[n].inputs[0], to = graph_.nodes[n].outputs[0];
    const bool may_give = MayGive(n, from, to);
    if (!may_give && (graph_.values[to].outside || !MayRead(n, from, to))) return;
    uses_.Remove({.node = n, .value = from});
    uses_.Remove({.node = n, .value = to});
    may_give ? Give(from, to) : Read(from, to);
    gone_[n] = true;
  }

  // Whether the operator that gives `from` can give `to` in its place: nothing but node n sees the one, and nobody uses
  // the memory of the other before that.
  bool MayGive(int n, int from, int to) const {
    const int producer = graph_.values[from].producer;
    if (!IsTemporary(from) || producer < 0 || !graph_.nodes[producer].RunsOperators()) return false;
    return uses_.Find(from, 0, NumNodes()).size() == 2 && uses_.Find(to, producer, n).empty();
  }

  void Give(int from, int to) {
    const int producer = graph_.values[from].producer;
    std::ranges::replace(graph_.nodes[producer].outputs, from, to);
    uses_.Remove({.node = producer, .value = from});
    uses_.Add({.node = producer, .value = to});
    graph_.values[to].producer = producer;
    graph_.ForgetLast(from);
  }

  std::vector<int> ReadersOf(int n, int value) const {
    std::vector<int> readers;
    for (const Use& use : uses_.Find(value, n + 1, NumNodes())) {
      if (use.value == value) readers.push_back(use.node);
    }
    return readers;
  }

  // Whether the memory of `to`, which node n gives, shows it to nobody but those who read the value.
  bool IsSeenByReadersAlone(int n, int to) const {
    const std::vector<Use> uses = uses_.Find(to, n + 1, NumNodes());
    const auto next =
        std::ranges::find_if(uses, [&](const Use& use) { return IsGivenBy(use) && AreInOneHome(use.value, to); });
    if (next == uses.end()) return IsTemporary(to);
    if (graph_.values[next->value].added) return false;
    return std::ranges::none_of(uses, [&](const Use& use) {
      return use.node <= next->node && !IsGivenBy(use) && !AreInOneHome(use.value, to);
    });
  }

  // Whether those who read `to` can read `from` instead, which stays until they have.
  bool MayRead(int n, int from, int to) const {
    if (!IsSeenByReadersAlone(n, to)) return false;
    const std::vector<int> readers = ReadersOf(n, to);
    const auto must_overwrite = [&](int reader) {
      const StepNode& node = graph_.nodes[reader];
      return node.RunsOperators() && std::ranges::any_of(node.call->schema().enforced_in_place, [&](const auto& pair) {
               return pair.first < static_cast<int>(node.inputs.size()) && node.inputs[pair.first] == to;
             });
    };
    if (std::ranges::any_of(readers, must_overwrite)) return false;
    return readers.empty() || std::ranges::none_of(uses_.Find(from, n + 1, readers.back() + 1),
                                                   [&](const Use& use) { return IsGivenBy(use); });
  }

  void Read(int from, int to) {
    const int n = graph_.values[to].producer;
    for (const int reader : ReadersOf(n, to)) {
      std::ranges::replace(graph_.nodes[reader].inputs, to, from);
      uses_.Remove({.node = reader, .value = to});
      uses_.Add({.node = reader, .value = from});
    }
    graph_.ForgetLast(to);
  }

  StepGraph& graph_;
  MemoryUses uses_;
  std::vector<bool> gone_;  // nodes
};

// A move in the step goes where nobody needs both the value and its copy: the operator before it gives the copy, also
// to memory outside, or the operators behind it read the value. It stays where both are seen from outside, or one of
// them is overwritten while the other is read. Sums of gradients in which nothing is summed, and outputs of steps, are
// such moves. Rounds otherwise where an operator comes to add its term to a sum.
bool DropMoves(StepGraph* graph) {
  const auto copies = [&](const StepNode& node) { return CopiesBlob(*graph, node); };
  return std::ranges::any_of(graph->nodes, copies) && MoveDropper(graph).Run();
}

const PassRegistration registration({.name = "drop_moves", .place = 20, .opt_level = 0, .run = DropMoves});

}  // namespace
}  // namespace stepnet

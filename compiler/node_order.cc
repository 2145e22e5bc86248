#include "stepnet/compiler/node_order.h"

#include <algorithm>
#include <map>

#include "stepnet/core/formula_cache.h"
#include "stepnet/nets/side_effects.h"

namespace stepnet {
namespace {

class NodeOrder {
 public:
  NodeOrder(const StepGraph& graph, int begin, int end)
      : graph_(graph), begin_(begin), followers_(static_cast<size_t>(end - begin)) {}

  void Add(int node) {
    const StepNode& added = graph_.nodes[node];
    current_ = node - begin_;
    for (const int input : added.inputs) Read(input);
    if (added.packed != kNoValue) Read(added.packed);
    for (const int output : added.given()) Write(output);
    if (!MayFailOrLast(added)) return;
    Follow(last_of_world_);
    last_of_world_ = current_;
  }

  std::vector<std::vector<int>> Take() { return std::move(followers_); }

 private:
  // Who has used memory, so far.
  struct Users {
    int writer = -1;           // the last one
    std::vector<int> readers;  // since then
  };

  // Operators without a formula may throw, or do what lasts; regions only where they check values.
  bool MayFailOrLast(const StepNode& node) const {
    const auto is_so = [&](const OperatorCall& call, const std::vector<int>& values) {
      const Kernel* kernel = call.schema().FindKernel(graph_.target->device);
      if (HasSideEffects(call) || kernel == nullptr) return true;
      const std::vector<TensorInfo> inputs = graph_.InfosOf(values);
      return MayFindBadValues(ShapeQuery(call, inputs), *kernel);
    };
    if (node.kind == StepNode::Kind::kCall || node.by_blobs) return true;
    if (!node.RunsOperators()) return false;
    if (node.IsOneOperator()) return is_so(*node.call, node.inputs);
    return std::ranges::any_of(node.calls(), [&](const RegionCall& call) {
      std::vector<int> values;
      for (const int operand : call.inputs) values.push_back(node.ValueOf(operand));
      return is_so(*call.call, values);
    });
  }

  void Follow(int other) {
    if (other >= 0 && other != current_) followers_[other].push_back(current_);
  }

  // Calls `use` for all memory that has bytes in common with that of the value, which is the first.
  template <typename Use>
  void WithOverlaps(int value, const Use& use) {
    const int home = graph_.values[value].home;
    use(users_[home]);
    const Home& memory = graph_.homes[home];
    if (memory.kind != Home::Kind::kOutside) return;
    std::vector<int>& others = homes_at_[memory.slot.base];
    for (const int other : others) {
      if (other != home && ShareBytes(graph_.homes[other], memory)) use(users_[other]);
    }
    if (std::ranges::count(others, home) == 0) others.push_back(home);
  }

  void Read(int value) {
    WithOverlaps(value, [this](const Users& users) { Follow(users.writer); });
    users_[graph_.values[value].home].readers.push_back(current_);
  }

  void Write(int value) {
    WithOverlaps(value, [this](const Users& users) {
      Follow(users.writer);
      for (const int reader : users.readers) Follow(reader);
    });
    users_[graph_.values[value].home] = {.writer = current_, .readers = {}};
  }

  const StepGraph& graph_;
  const int begin_;
  int current_ = 0;
  int last_of_world_ = -1;
  std::vector<std::vector<int>> followers_;
  std::map<int, Users> users_;                // by home
  std::map<int, std::vector<int>> homes_at_;  // outside, by base
};

}  // namespace

std::vector<std::vector<int>> FollowersOf(const StepGraph& graph, int begin, int end) {
  NodeOrder order(graph, begin, end);
  for (int n = begin; n < end; ++n) order.Add(n);
  return order.Take();
}

}  // namespace stepnet

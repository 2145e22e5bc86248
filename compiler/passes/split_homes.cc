#include <algorithm>
#include <map>

#include "stepnet/compiler/passes/passes.h"

namespace stepnet {
namespace {

// Values that follow in one home, each made of what was there before it.
struct ValueChain {
  std::vector<int> values;
  bool stays = false;  // the first one is made of what was there, or names say where it is
};

class HomeSplitter {
 public:
  explicit HomeSplitter(StepGraph* graph) : graph_(*graph), turns_(graph->homes.size()) {}

  bool Run() {
    FindTurns();
    const size_t num_homes = graph_.homes.size();
    for (size_t h = 0; h < turns_.size(); ++h) {
      if (turns_[h].size() > 1) Split(static_cast<int>(h));
    }
    return graph_.homes.size() > num_homes;
  }

 private:
  void FindTurns() {
    std::map<int, std::pair<int, size_t>> turn_of;  // by value: home, turn
    for (const StepNode& node : graph_.nodes) {
      for (const int input : node.inputs) {
        const auto read = turn_of.find(input);
        if (node.by_blobs && read != turn_of.end()) turns_[read->second.first][read->second.second].stays = true;
      }
      for (const int v : node.given()) {
        const StepValue& value = graph_.values[v];
        std::vector<ValueChain>& turns = turns_[value.home];
        const bool is_made_in_place =
            value.added || std::ranges::any_of(node.inputs, [&](int i) { return graph_.values[i].home == value.home; });
        if (turns.empty() || !is_made_in_place) turns.push_back({.stays = is_made_in_place || node.by_blobs});
        turns.back().values.push_back(v);
        turn_of[v] = {value.home, turns.size() - 1};
      }
    }
  }

  // One turn keeps the home; each other gets one of its own, which ends with the step. The first one keeps it, but
  // where somebody sees the home after the step, as rows outside and what is kept, the last one does.
  void Split(int h) {
    std::vector<ValueChain>& turns = turns_[h];
    const Home::Kind kind = graph_.homes[h].kind;
    const bool is_seen = kind == Home::Kind::kOutside || graph_.homes[h].kept;
    if (kind == Home::Kind::kOutside ? IsSeenOtherwise(h) : kind != Home::Kind::kTemporary) return;
    const auto begin = turns.begin() + (is_seen ? 0 : 1), end = turns.end() - (is_seen ? 1 : 0);
    for (const ValueChain& turn : std::ranges::subrange(begin, end)) {
      if (is_seen && turn.stays) continue;
      for (const int value : turn.values) graph_.values[value].home = static_cast<int>(graph_.homes.size());
      graph_.homes.push_back({.kind = Home::Kind::kTemporary});
    }
  }

  // Whether other values show some of its bytes in a step, or what is there is a sum.
  bool IsSeenOtherwise(int h) const {
    const Home& home = graph_.homes[h];
    if (home.starts_at_zero) return true;
    for (size_t other = 0; other < graph_.homes.size(); ++other) {
      if (static_cast<int>(other) != h && ShareBytes(graph_.homes[other], home)) return true;
    }
    return false;
  }

  StepGraph& graph_;
  std::vector<std::vector<ValueChain>> turns_;  // by home
};

// Values of one blob that are not made of each other get homes of their own: a name that is used again orders nothing,
// and what a step leaves in it alone lives where it is seen later.
bool SplitHomes(StepGraph* graph) { return HomeSplitter(graph).Run(); }

const PassRegistration registration({.name = "split_homes", .place = 40, .opt_level = 0, .run = SplitHomes});

}  // namespace
}  // namespace stepnet

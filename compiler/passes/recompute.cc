#include <algorithm>
#include <iterator>
#include <map>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "stepnet/compiler/passes/passes.h"

namespace stepnet {
namespace {

// Which of the stages use the homes of a graph.
class StagesOfHomes {
 public:
  explicit StagesOfHomes(const StepGraph& graph) : stages_(graph.homes.size()) {
    for (const Stage& stage : graph.stages) {
      for (int n = stage.begin; n < stage.end; ++n) {
        for (const int value : graph.nodes[n].inputs) stages_[graph.values[value].home].insert(&stage);
        for (const int value : graph.nodes[n].given()) stages_[graph.values[value].home].insert(&stage);
      }
    }
  }

  // Whether a row that steps use in turn is not enough: stages use it that are several, or take several steps at once.
  bool AreApart(int home) const {
    const std::set<const Stage*>& stages = stages_[home];
    return stages.size() > 1 || (stages.size() == 1 && (*stages.begin())->steps_at_once != 1);
  }

 private:
  std::vector<std::set<const Stage*>> stages_;  // by home
};

bool KeepLess(StepGraph* graph) {
  const StagesOfHomes stages(*graph);
  for (const std::string& blob : graph->not_kept) {
    const int home = graph->values[graph->last.at(blob)].home;
    graph->homes[home].kept = false;
    graph->homes[home].passed = stages.AreApart(home);
  }
  graph->not_kept.clear();
  return true;
}

// Puts a part of the step forward into a step back.
class PartInserter {
 public:
  PartInserter(const Recomputation& recomputation, StepGraph* graph)
      : part_(recomputation.part), given_(recomputation.given), graph_(*graph), first_home_(graph->homes.size()) {}

  void Run() {
    AddValues();
    ReadWhatIsGiven();
    InsertNodes();
    const StagesOfHomes stages(graph_);
    for (size_t h = first_home_; h < graph_.homes.size(); ++h) {
      Home& home = graph_.homes[h];
      home.kept = home.kind == Home::Kind::kTemporary && stages.AreApart(static_cast<int>(h));
    }
    graph_.Erase(std::vector<bool>(graph_.nodes.size(), false));
  }

 private:
  void AddValues() {
    graph_.homes.insert(graph_.homes.end(), part_.homes.begin(), part_.homes.end());
    for (StepValue value : part_.values) {
      value.home += static_cast<int>(first_home_);
      value.version = -1;
      value_of_.push_back(value.producer < 0 ? SourceOf(std::move(value)) : graph_.AddValue(std::move(value)));
    }
  }

  // The value for memory outside, as it is before the step: the one that the step back has, or a new one.
  int SourceOf(StepValue value) {
    const Slot& slot = graph_.homes[value.home].slot;
    const auto has_name = [&](const StepValue& other) {
      return other.producer < 0 && other.blob == value.blob && other.outside == value.outside;
    };
    const auto is_same = [&](const StepValue& other) {
      const Home& home = graph_.homes[other.home];
      return has_name(other) && home.kind == Home::Kind::kOutside && other.info == value.info &&
             home.slot.base == slot.base && home.slot.offset == slot.offset && home.slot.row_bytes == slot.row_bytes &&
             home.slot.bytes == slot.bytes;
    };
    const auto found = std::ranges::find_if(graph_.values, is_same);
    if (found != graph_.values.end()) return static_cast<int>(found - graph_.values.begin());
    // One name in one place is one piece of memory.
    if (std::ranges::any_of(graph_.values, has_name)) value.blob += " of " + part_.name;
    return graph_.AddValue(std::move(value));
  }

  // Readers of memory that is not there read what is given again.
  void ReadWhatIsGiven() {
    std::map<int, int> now;
    for (size_t v = 0; v < graph_.values.size(); ++v) {
      const Home& home = graph_.homes[graph_.values[v].home];
      if (home.kind != Home::Kind::kOutside) continue;
      const auto found = given_.find(home.slot.base);
      if (found != given_.end()) now.emplace(static_cast<int>(v), value_of_[found->second]);
    }
    const auto replace = [&](int& value) {
      if (const auto found = now.find(value); found != now.end()) value = found->second;
    };
    for (StepNode& node : graph_.nodes) std::ranges::for_each(node.inputs, replace);
    for (auto& [blob, value] : graph_.last) replace(value);
  }

  // Each node goes to the first loop that reads what it gives. Where that is first read for many steps at once, the
  // node is in a loop of its own before. What nobody reads is not computed.
  void InsertNodes() {
    std::vector<StepNode> nodes = NodesOfPart();
    const bool is_one_loop = graph_.stages.empty();
    if (is_one_loop) graph_.stages = {{.begin = 0, .end = static_cast<int>(graph_.nodes.size())}};
    const std::vector<std::optional<size_t>> stage_of = StagesOf(nodes);
    std::vector<StepNode> all;
    std::vector<Stage> stages;
    for (size_t s = 0; s < graph_.stages.size(); ++s) {
      Stage stage = graph_.stages[s];
      const auto begin = static_cast<int>(all.size());
      for (size_t n = 0; n < nodes.size(); ++n) {
        if (stage_of[n] == s) all.push_back(std::move(nodes[n]));
      }
      if (stage.steps_at_once != 1 && begin < std::ssize(all)) {
        stages.push_back({.begin = begin, .end = static_cast<int>(all.size())});
      }
      const auto first = graph_.nodes.begin() + stage.begin, last = graph_.nodes.begin() + stage.end;
      stage.begin = stage.steps_at_once == 1 ? begin : static_cast<int>(all.size());
      all.insert(all.end(), std::make_move_iterator(first), std::make_move_iterator(last));
      stage.end = static_cast<int>(all.size());
      stages.push_back(stage);
    }
    graph_.nodes = std::move(all);
    graph_.stages = is_one_loop ? std::vector<Stage>() : std::move(stages);
    graph_.FindProducers();
    std::erase_if(graph_.last, [&](const auto& of_blob) {
      const StepValue& value = graph_.values[of_blob.second];
      return value.producer < 0 && graph_.homes[value.home].kind == Home::Kind::kTemporary;
    });
  }

  std::vector<StepNode> NodesOfPart() const {
    std::vector<StepNode> nodes = part_.nodes;
    const auto renumber = [&](int& value) {
      if (value != kNoValue) value = value_of_[value];
    };
    for (StepNode& node : nodes) {
      std::ranges::for_each(node.inputs, renumber);
      std::ranges::for_each(node.outputs, renumber);
      renumber(node.packed);
    }
    return nodes;
  }

  // By node of the part: the first stage that reads what it gives, or what something gives that reads that; nothing
  // where nobody does.
  std::vector<std::optional<size_t>> StagesOf(const std::vector<StepNode>& nodes) const {
    std::map<int, size_t> first;  // by home, as what is added to is read, too
    const auto read = [&](int value, size_t stage) {
      const auto [found, is_new] = first.emplace(graph_.values[value].home, stage);
      found->second = std::min(found->second, stage);
    };
    for (size_t s = 0; s < graph_.stages.size(); ++s) {
      const Stage& stage = graph_.stages[s];
      for (int n = stage.begin; n < stage.end; ++n) {
        for (const int input : graph_.nodes[n].inputs) read(input, s);
      }
    }
    std::vector<std::optional<size_t>> stage_of(nodes.size());
    for (size_t n = nodes.size(); n-- > 0;) {
      for (const int output : nodes[n].given()) {
        const auto found = first.find(graph_.values[output].home);
        if (found != first.end()) stage_of[n] = std::min(stage_of[n].value_or(found->second), found->second);
      }
      if (!stage_of[n]) continue;
      for (const int input : nodes[n].inputs) read(input, *stage_of[n]);
    }
    return stage_of;
  }

  const StepGraph& part_;
  const std::map<int, int>& given_;
  StepGraph& graph_;
  const size_t first_home_;
  std::vector<int> value_of_;  // by value of the part
};

// Where memory is short, a step forward does not keep what steps back can compute again, and these do so
// (compiler/recomputable.h). Behind all passes that decide how anything is rounded, so that bits stay those of runs
// that keep it: a step back takes nodes of the step forward as they are.
bool Recompute(StepGraph* graph) {
  if (!graph->not_kept.empty()) return KeepLess(graph);
  if (graph->recomputation == nullptr) return false;
  const std::shared_ptr<const Recomputation> recomputation = std::exchange(graph->recomputation, nullptr);
  PartInserter(*recomputation, graph).Run();
  return true;
}

const PassRegistration registration(
    {.name = "recompute", .place = 205, .opt_level = 0, .required = true, .run = Recompute});

}  // namespace
}  // namespace stepnet

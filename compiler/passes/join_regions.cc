// Regions of a loop that stand one behind the other and cannot be one become one kernel where the device has such
// kernels and they keep groups apart (compiler/joined_regions.h): between two steps' products there is one then.
#include <algorithm>
#include <set>
#include <utility>
#include <vector>

#include "stepnet/compiler/joined_regions.h"
#include "stepnet/compiler/node_order.h"
#include "stepnet/compiler/passes/fuse_regions.h"
#include "stepnet/compiler/passes/passes.h"
#include "stepnet/compiler/region_nodes.h"
#include "stepnet/core/cancellation.h"

namespace stepnet {
namespace {

// Joins the regions of one loop.
class LoopJoiner {
 public:
  LoopJoiner(StepGraph* graph, int begin, int end)
      : graph_(*graph), begin_(begin), followers_(FollowersOf(*graph, begin, end)), is_put_(followers_.size(), false) {}

  // Puts nodes that become one behind each other, and makes the first of them that one; notes the others as gone.
  void Run(std::vector<bool>* gone) {
    std::vector<StepNode> nodes;
    for (int n = 0; n < std::ssize(followers_); ++n) {
      CheckCancelled();
      if (is_put_[n]) continue;
      const std::vector<int> group = GroupOf(n);
      if (group.size() > 1) {
        nodes.push_back(Joined(group));
        std::fill_n(gone->begin() + begin_ + std::ssize(nodes), group.size() - 1, true);
        nodes.resize(nodes.size() + group.size() - 1);
      } else {
        nodes.push_back(std::move(NodeAt(n)));
      }
      for (const int put : group) is_put_[put] = true;
    }
    std::ranges::move(nodes, graph_.nodes.begin() + begin_);
  }

 private:
  StepNode& NodeAt(int n) { return graph_.nodes[begin_ + n]; }

  // The node, and those behind it that become one kernel with it: each waits for one of them, and for nothing that
  // stands between. What waits for none of them may run beside it.
  std::vector<int> GroupOf(int first) {
    std::vector<int> group;
    std::vector<StepNode> regions;
    std::set<int> behind;   // what waits for one of the group
    std::set<int> waiting;  // for what stands between, and comes behind the group
    std::int64_t operators = 0, operands = 0;
    for (int n = first; n < std::ssize(followers_); ++n) {
      if (is_put_[n]) continue;
      const bool joins = (group.empty() || behind.contains(n)) && !waiting.contains(n) && MayJoin(n);
      if (joins) {
        const StepNode* const nodes[] = {&NodeAt(n)};
        regions.push_back(RegionOf(graph_, nodes));
        operators += std::ssize(regions.back().calls());
        operands += std::ssize(regions.back().inputs) + std::ssize(regions.back().outputs);
        const bool is_too_much =
            operators > graph_.target->max_region_operators || operands > graph_.target->max_region_operands;
        if (regions.size() == 1 || (!is_too_much && JoinedRegions::Of(graph_, regions))) {
          group.push_back(n);
          behind.insert(followers_[n].begin(), followers_[n].end());
          continue;
        }
        regions.pop_back();
      }
      if (group.empty()) return {n};
      waiting.insert(followers_[n].begin(), followers_[n].end());
    }
    return group;
  }

  bool MayJoin(int n) {
    const StepNode& node = NodeAt(n);
    return node.kind != StepNode::Kind::kProduct && node.RunsOperators() && MayJoinOthers(graph_, node);
  }

  StepNode Joined(const std::vector<int>& group) {
    std::vector<const StepNode*> nodes;
    std::vector<int> begins;
    std::ptrdiff_t num_calls = 0;
    for (const int n : group) {
      if (num_calls > 0) begins.push_back(static_cast<int>(num_calls));
      num_calls += std::max<std::ptrdiff_t>(std::ssize(NodeAt(n).calls()), 1);
      nodes.push_back(&NodeAt(n));
    }
    return JoinedNodeOf(RegionOf(graph_, nodes), std::move(begins));
  }

  StepGraph& graph_;
  const int begin_;
  const std::vector<std::vector<int>> followers_;
  std::vector<bool> is_put_;
};

bool JoinRegions(StepGraph* graph) {
  if (graph->target->max_group_elements == 0 || GetDeviceSpec(graph->target->device).make_region == nullptr)
    return false;
  std::vector<Stage> stages = graph->stages;
  if (stages.empty()) stages = {{.begin = 0, .end = static_cast<int>(graph->nodes.size())}};
  std::vector<bool> gone(graph->nodes.size(), false);
  for (const Stage& stage : stages) {
    if (stage.steps_at_once == 1 && !stage.is_behind) LoopJoiner(graph, stage.begin, stage.end).Run(&gone);
  }
  if (std::ranges::find(gone, true) == gone.end()) return false;
  graph->FindProducers();
  graph->Erase(gone);
  return true;
}

const PassRegistration registration({.name = "join_regions", .place = 220, .opt_level = 1, .run = JoinRegions});

}  // namespace
}  // namespace stepnet

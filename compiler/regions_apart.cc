#include "stepnet/compiler/regions_apart.h"

#include <algorithm>
#include <optional>

#include "stepnet/compiler/node_order.h"
#include "stepnet/compiler/passes/fuse_regions.h"
#include "stepnet/compiler/region_nodes.h"
#include "stepnet/compiler/uses.h"
#include "stepnet/core/strings.h"

namespace stepnet {
namespace {

std::vector<const OperatorCall*> CallsOf(std::span<const StepNode* const> nodes) {
  std::vector<const OperatorCall*> calls;
  for (const StepNode* node : nodes) {
    if (node->call != nullptr) calls.push_back(node->call.get());
    for (const RegionCall& call : node->calls()) calls.push_back(call.call.get());
  }
  return calls;
}

// Names the type of the operator in place of the whole of it.
std::string ShortText(const RegionObstacle& obstacle, const OperatorCall& call) {
  const std::string whole = call.Text();
  return obstacle.what.starts_with(whole) ? call.type() + obstacle.what.substr(whole.size()) : obstacle.what;
}

}  // namespace

RegionsApart::RegionsApart(const StepGraph& graph, int begin, int end)
    : graph_(graph), begin_(begin), followers_(FollowersOf(graph, begin, end)), leaders_(followers_.size()) {
  for (size_t n = 0; n < followers_.size(); ++n) {
    for (const int follower : followers_[n]) leaders_[follower].push_back(static_cast<int>(n));
  }
}

std::string RegionsApart::Why(int giver, int reader) const {
  for (const int n : {giver, reader}) {
    const StepNode& node = graph_.nodes[n];
    Joining joining;
    const char* const why = node.body != nullptr ? nullptr : WhyAlone(graph_, node, &joining);
    if (why == nullptr) continue;
    return node.kind == StepNode::Kind::kProduct ? why : StrCat(node.call->type(), " stays apart: ", why);
  }
  if (const int between = Between(giver, reader); between >= 0) {
    const bool is_product = graph_.nodes[between].kind == StepNode::Kind::kProduct;
    return StrCat(is_product ? "product " : "instruction ", between, ", which waits for ", giver,
                  ", lies between them");
  }
  return WhyNotJoined(giver, reader);
}

std::string RegionsApart::WhyNotJoined(int giver, int reader) const {
  const StepNode &first = graph_.nodes[giver], &second = graph_.nodes[reader];
  const StepNode* const nodes[] = {&first, &second};
  const std::vector<const OperatorCall*> calls = CallsOf(nodes);
  const int most = graph_.target->max_region_operators;
  if (std::ssize(calls) > most) return StrCat("they have ", calls.size(), " operators, and a region at most ", most);
  const std::vector<int> own = OwnValues(graph_, Uses(graph_), nodes);
  const std::optional<RegionObstacle> obstacle = ObstacleOf(graph_, nodes, own);
  if (!obstacle) return WhyNotWithOthers(giver, reader);
  // Whether it is what must be there afterwards that stands in the way.
  std::vector<int> given(first.given().begin(), first.given().end());
  std::vector<std::string> kept;
  for (const int value : given) {
    const bool is_read = std::ranges::count(second.inputs, value) > 0;
    if (is_read && !std::ranges::binary_search(own, value)) kept.push_back(graph_.values[value].blob);
  }
  std::ranges::sort(given);
  std::string what = ShortText(*obstacle, *calls[obstacle->call]);
  if (kept.empty() || ObstacleOf(graph_, nodes, given)) return what;
  return StrCat(Join(kept, ", "), kept.size() == 1 ? " is" : " are", " needed in memory, too, and ", what);
}

bool RegionsApart::Reads(int later, int earlier) const {
  return std::ranges::any_of(graph_.nodes[earlier].given(),
                             [&](int value) { return std::ranges::count(graph_.nodes[later].inputs, value) > 0; });
}

// The two alone could be one: regions are made of all that is near and can run, and something else is in the way.
std::string RegionsApart::WhyNotWithOthers(int giver, int reader) const {
  for (int n = reader - 1; n > giver; --n) {
    if (MayJoinOthers(graph_, graph_.nodes[n]) || !Reads(reader, n)) continue;
    return StrCat("the two could be, but ", reader, " waits for ", n, ", too, and ", giver, " runs before that");
  }
  const Uses uses(graph_);
  for (int n = begin_; n < begin_ + std::ssize(followers_); ++n) {
    const bool is_read = n < reader && Reads(reader, n);
    if (n == giver || n == reader || !MayJoinOthers(graph_, graph_.nodes[n]) ||
        (!is_read && (n < giver || !Reads(n, giver))))
      continue;
    std::vector<int> numbers = {giver, reader, n};
    std::ranges::sort(numbers);
    std::vector<const StepNode*> nodes;
    for (const int number : numbers) nodes.push_back(&graph_.nodes[number]);
    const std::optional<RegionObstacle> obstacle = ObstacleOf(graph_, nodes, OwnValues(graph_, uses, nodes));
    if (!obstacle) continue;
    return StrCat("the two could be, but a region is made of all that is near, and with ", n,
                  is_read ? StrCat(", which ", reader, " reads, too: ") : StrCat(", which reads ", giver, ", too: "),
                  ShortText(*obstacle, *CallsOf(nodes)[obstacle->call]));
  }
  return "the two could be, but what is near them had to be cut into small regions";
}

std::vector<bool> RegionsApart::Behind(int node) const {
  std::vector<bool> is_behind(followers_.size(), false);
  std::vector<int> to_visit = {node - begin_};
  while (!to_visit.empty()) {
    const int n = to_visit.back();
    to_visit.pop_back();
    for (const int follower : followers_[n]) {
      if (is_behind[follower]) continue;
      is_behind[follower] = true;
      to_visit.push_back(follower);
    }
  }
  return is_behind;
}

// A node that waits for one and that the other waits for, a product if there is one; -1: none.
int RegionsApart::Between(int giver, int reader) const {
  const std::vector<bool> is_behind = Behind(giver);
  std::vector<bool> is_before(followers_.size(), false);
  int between = -1;
  std::vector<int> to_visit = {reader - begin_};
  while (!to_visit.empty()) {
    const int n = to_visit.back();
    to_visit.pop_back();
    for (const int leader : leaders_[n]) {
      if (!is_behind[leader] || is_before[leader]) continue;
      is_before[leader] = true;
      to_visit.push_back(leader);
      between = begin_ + leader;
      if (graph_.nodes[between].kind == StepNode::Kind::kProduct) return between;
    }
  }
  return between;
}

}  // namespace stepnet

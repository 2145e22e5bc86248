#include "stepnet/compiler/summed_products.h"

#include <numeric>

#include "stepnet/core/cancellation.h"

namespace stepnet {
namespace {

constexpr std::int64_t kWorkOfTerm = 50;

// The terms of a sum, in their order; none where the node is something else.
std::vector<int> TermsOf(const StepGraph& graph, const StepNode& node, const Uses& uses) {
  std::vector<int> terms;
  const bool is_product = node.kind == StepNode::Kind::kProduct;
  if (is_product || !node.IsOneOperator() || node.outputs.size() != 1 || node.outputs[0] == kNoValue) return terms;
  CountWork(kWorkOfTerm * std::ssize(node.inputs));
  for (const int input : node.inputs) {
    if (uses.IsTermAlone(input, node.outputs[0])) terms.push_back(input);
  }
  if (!terms.empty() && !AddsItsInputs(graph, node)) terms.clear();
  return terms;
}

}  // namespace

SummedProducts::SummedProducts(const StepGraph& graph, const Uses& uses, NodesInLoop* in_loop)
    : terms_(graph.values.size()), totals_(graph.values.size()) {
  std::iota(totals_.begin(), totals_.end(), 0);
  // Behind the nodes that read them: who adds a term to a total knows of what that is a term.
  std::vector<std::vector<int>> terms_of(graph.nodes.size());
  for (size_t n = graph.nodes.size(); n-- > 0;) {
    terms_of[n] = TermsOf(graph, graph.nodes[n], uses);
    for (const int term : terms_of[n]) totals_[term] = totals_[graph.nodes[n].outputs[0]];
  }
  struct Visit {
    int value = 0;
    bool is_end = false;
  };
  std::vector<Visit> left;
  for (const StepNode& last : graph.nodes) {
    for (const int output : last.given()) {
      if (!IsTerm(output)) left.push_back({.value = output});
    }
    while (!left.empty()) {
      CountWork(kWorkOfTerm);
      const auto [value, is_end] = left.back();
      left.pop_back();
      Terms& terms = terms_[value];
      if (is_end) {
        terms.outside.end = outside_.size();
        terms.in_loop.end = in_loop_.size();
        continue;
      }
      terms.outside.begin = outside_.size();
      terms.in_loop.begin = in_loop_.size();
      left.push_back({.value = value, .is_end = true});
      const int n = graph.values[value].producer;
      if (graph.nodes[n].kind == StepNode::Kind::kProduct) (in_loop->Contains(n) ? in_loop_ : outside_).Add(n);
      for (size_t i = terms_of[n].size(); i-- > 0;) left.push_back({.value = terms_of[n][i]});
    }
  }
}

std::optional<int> SummedProducts::Take(const Terms& terms) {
  const std::optional<int> node = outside_.Take(terms.outside);
  return node ? node : in_loop_.Take(terms.in_loop);
}

void SummedProducts::List::Add(int node) {
  nodes_.push_back(node);
  next_.push_back(size());
}

std::optional<int> SummedProducts::List::Take(Range range) {
  int at = range.begin;
  while (next_[at] != at) {
    CountWork(1);
    at = next_[at] = next_[next_[at]];
  }
  if (at >= range.end) return std::nullopt;
  next_[at] = at + 1;
  return nodes_[at];
}

}  // namespace stepnet

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include "stepnet/compiler/passes/passes.h"
#include "stepnet/compiler/region_nodes.h"
#include "stepnet/compiler/uses.h"
#include "stepnet/compiler/weight_products.h"

namespace stepnet {
namespace {

class InPlaceAdder {
 public:
  explicit InPlaceAdder(StepGraph* graph)
      : graph_(*graph),
        uses_(*graph),
        written_(WrittenBases(*graph)),
        adds_inputs_(graph->nodes.size()),
        gone_(graph->nodes.size(), false),
        products_(*graph),
        in_loop_(*graph) {}

  // Puts a term that no step waits for before one that is to be added to it. Returns whether it has.
  bool OrderTerms() {
    std::map<int, int> comes_before;  // by node, the one that it is to stand before
    for (const StepNode& node : graph_.nodes) {
      if (!IsSumOfTwo(node)) continue;
      const auto [first, last] = TermsOf(node);
      const int sum = node.outputs[0];
      const bool is_first_added = IsOnlyRead(first, sum) && IsOnlyRead(last, sum) && CanAdd(graph_, first) &&
                                  uses_.IsApart(last) && ProducerOf(first) != ProducerOf(last);
      if (is_first_added && MayComeBefore(first, last) && WouldComeIntoLoop(first, last)) {
        // A gradient gives a term of several sums.
        const auto [at, is_new] = comes_before.emplace(ProducerOf(last), ProducerOf(first));
        if (!is_new) at->second = std::min(at->second, ProducerOf(first));
      }
    }
    if (comes_before.empty()) return false;
    MoveUp(comes_before);
    return true;
  }

  bool Run() {
    for (size_t n = 0; n < graph_.nodes.size(); ++n) {
      const StepNode& node = graph_.nodes[n];
      if (!IsSumOfTwo(node)) continue;
      const int sum = node.outputs[0];
      const auto [first, last] = TermsOf(node);
      if (!IsOnlyRead(last, sum) || !CanAdd(graph_, last)) continue;
      if (SumsWhatRegionGives(graph_, uses_, graph_.nodes[ProducerOf(last)])) continue;
      if (!mergeable_) FindMergeable();
      if (IsOnlyReadOrSum(first, sum) && ProducerOf(first) != ProducerOf(last)) {
        if (WouldComeIntoLoop(first, last) || KeepsFromMerging(first) || KeepsFromMerging(last)) continue;
        graph_.ForgetLast(first);
        PutWith(first, sum);
      } else if (IsThereForAllSteps(first, sum)) {
        copies_.emplace(ProducerOf(last), Copy{.term = first, .sum = sum});
      } else {
        continue;
      }
      AddTo(last, sum);
      gone_[n] = true;
    }
    if (!std::ranges::count(gone_, true)) return false;
    InsertCopies();
    graph_.Erase(gone_);
    return true;
  }

 private:
  struct Copy {
    int term = kNoValue;
    int sum = kNoValue;
  };

  // Products of one key.
  struct Mergeable {
    int num = 0;
    std::int64_t bytes = 0;
    std::set<std::string> partners = {};  // keys of what they are added to; "" of those that are added to nothing
  };

  int ProducerOf(int value) const { return graph_.values[value].producer; }

  // The two terms of a sum, in the order in which they are given.
  std::pair<int, int> TermsOf(const StepNode& sum) const {
    const auto [a, b] = std::pair(sum.inputs[0], sum.inputs[1]);
    return ProducerOf(a) > ProducerOf(b) ? std::pair(b, a) : std::pair(a, b);
  }

  bool IsSumOfTwo(const StepNode& node) const {
    if (!node.IsOneOperator() || node.inputs.size() != 2 || node.inputs[0] == node.inputs[1]) return false;
    const int sum = node.outputs[0];
    if (sum == kNoValue || graph_.values[sum].dynamic || !AddsItsTwoInputs(node)) return false;
    const int home = graph_.values[sum].home;
    const auto is_there = [&](int value) { return graph_.values[value].home == home; };
    // Nets often write a sum over one of its terms.
    const auto num_values = 1 + std::ranges::count_if(node.inputs, is_there);
    return graph_.homes[home].kind == Home::Kind::kTemporary && uses_.NumValues(home) == num_values;
  }

  bool AddsItsTwoInputs(const StepNode& node) const {
    std::optional<bool>& adds = adds_inputs_[&node - graph_.nodes.data()];
    if (!adds) adds = AddsItsInputs(graph_, node);
    return *adds;
  }

  // A term that nobody else sees, of an operator that is still there.
  bool IsOnlyRead(int term, int sum) const { return uses_.IsTermAlone(term, sum) && !gone_[ProducerOf(term)]; }

  // The same of a sum that this pass has made: it goes on.
  bool IsOnlyReadOrSum(int term, int sum) const {
    if (!sums_.contains(term)) return IsOnlyRead(term, sum);
    return graph_.values[term].info == graph_.values[sum].info && uses_.IsTemporary(term) &&
           uses_.NumReaders(term) == 1;
  }

  // Whether no step waits for what gives `last`, which may run for many steps at once, but for what gives `first`.
  bool WouldComeIntoLoop(int first, int last) {
    return !in_loop_.Contains(ProducerOf(last)) && in_loop_.Contains(ProducerOf(first));
  }

  // Whether what gives `last` may run before what gives `first`: what it reads is there, and stays as it is.
  bool MayComeBefore(int first, int last) const {
    return std::ranges::all_of(graph_.nodes[ProducerOf(last)].inputs, [&](int input) {
      const int home = graph_.values[input].home;
      const bool stays = graph_.homes[home].kind == Home::Kind::kOutside
                             ? !written_.contains(graph_.homes[home].slot.base)
                             : uses_.NumValues(home) == 1;
      return stays && ProducerOf(input) < ProducerOf(first);
    });
  }

  // Whether the value is a product that could become one with others of the same value, but not all of them are added
  // to a product of one other value, so that the sums could become one, too.
  bool KeepsFromMerging(int value) {
    const StepNode& node = graph_.nodes[ProducerOf(value)];
    if (!products_.Contains(node)) return false;
    const Mergeable& of_key = mergeable_->at(products_.KeyOf(node));
    return of_key.num > 1 && of_key.bytes <= graph_.target->max_bytes_to_merge && of_key.partners.size() > 1;
  }

  void FindMergeable() {
    mergeable_.emplace();
    for (const StepNode& node : graph_.nodes) {
      if (!products_.Contains(node)) continue;
      Mergeable& of_key = (*mergeable_)[products_.KeyOf(node)];
      ++of_key.num;
      of_key.bytes += products_.WeightBytes(node);
    }
    if (std::ranges::none_of(*mergeable_, [](const auto& entry) { return entry.second.num > 1; })) return;
    std::map<int, std::string> partner_of;  // by value, where it is one of two that are added up
    for (const StepNode& node : graph_.nodes) {
      if (!IsSumOfTwo(node)) continue;
      for (const int k : {0, 1}) {
        const int other = ProducerOf(node.inputs[1 - k]);
        const bool is_product = other >= 0 && products_.Contains(graph_.nodes[other]);
        partner_of[node.inputs[k]] = is_product ? products_.KeyOf(graph_.nodes[other]) : "another";
      }
    }
    for (const StepNode& node : graph_.nodes) {
      if (products_.Contains(node)) (*mergeable_)[products_.KeyOf(node)].partners.insert(partner_of[node.outputs[0]]);
    }
  }

  void PutWith(int first, int sum) {
    const int home = graph_.values[first].home;
    graph_.homes[home].kept = graph_.homes[graph_.values[sum].home].kept;
    graph_.values[sum].home = home;
  }

  // Whether rows of a sequence that no step writes hold as much as the sum, on a target that copies them for many steps
  // at once.
  bool IsThereForAllSteps(int term, int sum) const {
    const StepValue& value = graph_.values[term];
    const Home& home = graph_.homes[value.home];
    return graph_.target->takes_all_over_time && value.producer < 0 && !value.dynamic &&
           home.kind == Home::Kind::kOutside && home.slot.row_bytes != 0 && !written_.contains(home.slot.base) &&
           value.info == graph_.values[sum].info;
  }

  // What gave `last` adds to what is where the sum is to be.
  void AddTo(int last, int sum) {
    graph_.ForgetLast(last);
    std::ranges::replace(graph_.nodes[ProducerOf(last)].outputs, last, sum);
    graph_.values[sum].added = true;
    graph_.values[sum].producer = ProducerOf(last);
    sums_.insert(sum);
  }

  void MoveUp(const std::map<int, int>& comes_before) {
    std::multimap<int, int> moved;  // nodes, by the one that they are to stand before
    for (const auto& [node, other] : comes_before) moved.emplace(other, node);
    std::vector<StepNode> nodes;
    for (int n = 0; n < static_cast<int>(graph_.nodes.size()); ++n) {
      const auto [begin, end] = moved.equal_range(n);
      for (auto at = begin; at != end; ++at) nodes.push_back(std::move(graph_.nodes[at->second]));
      if (!comes_before.contains(n)) nodes.push_back(std::move(graph_.nodes[n]));
    }
    graph_.nodes = std::move(nodes);
    graph_.FindProducers();
  }

  // A copy of each term of `copies_`, to where the node that it stands before adds the other one.
  void InsertCopies() {
    std::vector<StepNode> nodes;
    std::vector<bool> gone;
    for (size_t n = 0; n < graph_.nodes.size(); ++n) {
      const auto [begin, end] = copies_.equal_range(static_cast<int>(n));
      for (auto copy = begin; copy != end; ++copy) {
        const StepValue& sum = graph_.values[copy->second.sum];
        const std::string& name = graph_.values[copy->second.term].blob;
        const int value = graph_.AddValue({.blob = name, .info = sum.info, .home = sum.home});
        nodes.push_back({.kind = StepNode::Kind::kMove, .inputs = {copy->second.term}, .outputs = {value}});
        gone.push_back(false);
      }
      nodes.push_back(std::move(graph_.nodes[n]));
      gone.push_back(gone_[n]);
    }
    graph_.nodes = std::move(nodes);
    gone_ = std::move(gone);
  }

  StepGraph& graph_;
  const Uses uses_;
  const std::set<int> written_;                           // bases
  mutable std::vector<std::optional<bool>> adds_inputs_;  // by node, once somebody has asked
  std::vector<bool> gone_;                                // by node
  std::set<int> sums_;                                    // values that were made so
  const WeightProducts products_;
  std::optional<std::map<std::string, Mergeable>> mergeable_;  // as the nodes were
  NodesInLoop in_loop_;
  std::multimap<int, Copy> copies_;  // by the node that they stand before
};

// Where an operator adds up two values, and the later of them comes from one that can add, that adds to the other where
// the sum is to be, which rounds otherwise. Behind what takes away unread values: nothing reads the first one any more.
// Where the other is of a sequence from outside, on targets that take copies of many steps at once, it is copied there.
// A product that may run for many steps at once does not come into the loop so: it comes before the other term, which
// is added to it. Nor is anything added where that would keep products of one value from becoming one (merge_products).
bool AddInPlace(StepGraph* graph) {
  InPlaceAdder adder(graph);
  if (!adder.OrderTerms()) return adder.Run();
  InPlaceAdder(graph).Run();
  return true;
}

const PassRegistration registration({.name = "add_in_place", .place = 130, .opt_level = 2, .run = AddInPlace});

}  // namespace
}  // namespace stepnet

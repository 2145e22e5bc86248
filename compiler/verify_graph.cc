#include "stepnet/compiler/verify_graph.h"

#include <algorithm>
#include <bit>
#include <functional>
#include <iterator>
#include <span>

#include "stepnet/compiler/verify_moves.h"
#include "stepnet/compiler/verify_recomputation.h"
#include "stepnet/compiler/verify_stages.h"
#include "stepnet/compiler/verify_sums.h"
#include "stepnet/core/cancellation.h"

namespace stepnet {
namespace {

// Names of values. Graphs are verified after each pass: an entry costs no allocation.
class NameSet {
 public:
  explicit NameSet(size_t max_size) : table_(std::bit_ceil(2 * max_size + 1)) {}

  // False where there is a value of this name, which lives as long as the set does.
  bool Insert(const StepValue& value) {
    const size_t hash = std::hash<std::string>()(value.blob) + 31 * static_cast<size_t>(value.version);
    for (size_t i = hash;; ++i) {
      const StepValue*& entry = table_[i % table_.size()];
      if (entry == nullptr) {
        entry = &value;
        return true;
      }
      const bool is_same =
          entry->version == value.version && entry->outside == value.outside && entry->blob == value.blob;
      if (is_same) return false;
    }
  }

 private:
  std::vector<const StepValue*> table_;
};

class Verifier {
 public:
  Verifier(const StepGraph& graph, bool thorough, OperatorVerifier* operators)
      : graph_(graph),
        thorough_(thorough),
        operators_(*operators),
        held_(graph.homes.size(), kNoValue),
        is_given_(graph.values.size(), false) {}

  void Run() {
    CheckValues();
    constexpr std::int64_t kWork = 5'000;  // of one node
    for (size_t n = 0; n < graph_.nodes.size(); ++n) {
      CountWork(kWork);
      CheckNode(static_cast<int>(n));
    }
    for (size_t v = 0; v < graph_.values.size(); ++v) {
      const int value = static_cast<int>(v);
      if (!is_given_[v]) Throw(StrCat(graph_.NameOf(value), " names a producer that does not give it"));
    }
    for (const auto& [blob, value] : graph_.last) {
      const StepValue& v = ValueAt(value);
      if (v.blob != blob || v.outside) Throw(StrCat("\"", blob, "\" ends as ", graph_.NameOf(value)));
      if (!is_given_[value]) Throw(StrCat(graph_.NameOf(value), " is the last of its blob, and nothing gives it"));
    }
    VerifyMoves(graph_);
    VerifySums(graph_);
    VerifyRecomputation(graph_);
    CheckNumbers();
    VerifyStages(graph_, thorough_);
    CheckSums();
  }

 private:
  [[noreturn]] static void Throw(std::string what) { throw GraphFault{std::move(what)}; }
  [[noreturn]] void ThrowOf(int node, const std::string& what) const { ThrowOfNode(graph_, node, what); }

  void CheckBase(int base) const {
    if (base < 0 || base >= graph_.num_bases) Throw(StrCat("there is no base ", base));
  }

  // An operator of a node: the node's own, or one of a region of several.
  struct NumberedCall {
    int op_index = -1;
    int node = -1;
    const OperatorCall* call = nullptr;
    const RegionCall* of_region = nullptr;
  };

  // What runs an operator's kernel has its number: one node, or several that give a part of its outputs or a term of
  // its sum each. Nodes that only copy, which passes put beside products that they join, may have the number of such a
  // product. What is computed again was looked at where it was computed first.
  void CheckNumbers() const {
    std::vector<NumberedCall> calls;
    calls.reserve(graph_.nodes.size());
    for (size_t n = 0; n < graph_.nodes.size(); ++n) {
      const StepNode& node = graph_.nodes[n];
      if (node.IsOneOperator() && node.net.empty()) {
        calls.push_back({node.op_index, static_cast<int>(n), node.call.get()});
      }
      for (const RegionCall& call : node.calls()) {
        if (call.net.empty()) calls.push_back({call.op_index, static_cast<int>(n), call.call.get(), &call});
      }
    }
    std::ranges::stable_sort(calls, {}, &NumberedCall::op_index);
    for (size_t i = 1; i < calls.size(); ++i) {
      for (size_t k = i; k-- > 0 && calls[k].op_index == calls[i].op_index;) {
        if (OnlyCopies(calls[k]) || OnlyCopies(calls[i]) || ArePartsOfOne(calls[k], calls[i])) continue;
        ThrowOf(calls[i].node, StrCat("@", calls[i].op_index, " is ", calls[k].call->Text(), ", too"));
      }
    }
  }

  bool OnlyCopies(const NumberedCall& of) const {
    return graph_.nodes[of.node].kind == StepNode::Kind::kRegion && !of.call->schema().formula;
  }

  bool ArePartsOfOne(const NumberedCall& a, const NumberedCall& b) const {
    if (a.of_region != nullptr || b.of_region != nullptr) return false;
    const StepNode &first = graph_.nodes[a.node], &second = graph_.nodes[b.node];
    if (HavePartsOfOneWeight(first, second)) return true;
    if (a.call->type() != b.call->type()) return false;
    if (AddsTo(second, first)) return true;
    if (first.inputs != second.inputs || first.outputs.size() != second.outputs.size()) return false;
    for (size_t o = 0; o < first.outputs.size(); ++o) {
      if (first.outputs[o] != kNoValue && second.outputs[o] != kNoValue) return false;
    }
    return true;
  }

  // Whether the node adds a term to the sum that the other one has a term of.
  bool AddsTo(const StepNode& node, const StepNode& other) const {
    if (node.outputs.size() != 1 || other.outputs.size() != 1) return false;
    const int term = node.outputs[0], sum = other.outputs[0];
    return term != kNoValue && sum != kNoValue && graph_.values[term].added &&
           graph_.values[term].home == graph_.values[sum].home;
  }

  // Whether some of what they read are different parts of one weight, cut once for all steps.
  bool HavePartsOfOneWeight(const StepNode& a, const StepNode& b) const {
    for (const int of_a : PartsRead(a)) {
      for (const int of_b : PartsRead(b)) {
        if (of_a != of_b && graph_.values[of_a].producer == graph_.values[of_b].producer) return true;
      }
    }
    return false;
  }

  // What the node reads of what is cut once for all steps, also of what lies side by side.
  std::vector<int> PartsRead(const StepNode& node) const {
    std::vector<int> parts;
    for (const int input : node.inputs) {
      const int giver = graph_.values[input].producer;
      if (giver < 0 || !graph_.GivesOnce(graph_.nodes[giver])) continue;
      const StepNode& made = graph_.nodes[giver];
      const bool is_joined =
          made.IsOneOperator() && made.inputs.size() > 1 && OnlyCopies({.node = giver, .call = made.call.get()});
      const std::span<const int> read = is_joined ? std::span(made.inputs) : std::span(&input, 1);
      std::ranges::copy_if(read, std::back_inserter(parts),
                           [&](int part) { return graph_.values[part].producer >= 0; });
    }
    return parts;
  }

  const StepValue& ValueAt(int value) const {
    if (value < 0 || value >= static_cast<int>(graph_.values.size())) Throw(StrCat("there is no value ", value));
    return graph_.values[value];
  }

  void CheckValues() {
    NameSet names(graph_.values.size());
    for (size_t v = 0; v < graph_.values.size(); ++v) {
      const StepValue& value = graph_.values[v];
      const auto name = [&] { return graph_.NameOf(static_cast<int>(v)); };
      if (!names.Insert(value)) Throw(name() + " is there twice");
      if (value.home < 0 || value.home >= static_cast<int>(graph_.homes.size())) Throw(name() + " has no home");
      const Home& home = graph_.homes[value.home];
      const bool is_tensor = home.kind != Home::Kind::kDynamic;
      if (home.kind == Home::Kind::kOutside) CheckBase(home.slot.base);
      if (is_tensor && value.dynamic && home.kind != Home::Kind::kOutside) Throw(name() + " has a home of one size");
      if (home.kind == Home::Kind::kOutside && !value.dynamic && value.info.size_bytes() > home.slot.bytes) {
        Throw(StrCat(name(), " is ", value.info.Description(), ", in memory of ", home.slot.bytes, " bytes"));
      }
      const std::int64_t item = value.dynamic ? 1 : DTypeBytes(value.info.dtype);
      if (home.kind == Home::Kind::kOutside && home.slot.row_bytes % item != 0) {
        Throw(StrCat(name(), " is ", value.info.Description(), ", in rows of ", home.slot.row_bytes, " bytes"));
      }
      if (home.kind == Home::Kind::kOutside && home.slot.row_bytes != 0 && home.slot.offset < 0) {
        Throw(StrCat(name(), " begins at row ", home.slot.offset, " in the first step; there are none below 0"));
      }
      if (value.producer >= 0) continue;
      is_given_[v] = true;
      held_[value.home] = static_cast<int>(v);
    }
  }

  void CheckNode(int n) {
    const StepNode& node = graph_.nodes[n];
    try {
      CheckValuesOf(node, n);
      switch (node.kind) {
        case StepNode::Kind::kCall:
        case StepNode::Kind::kRegion:
        case StepNode::Kind::kProduct: return operators_.Check(graph_, node);
        case StepNode::Kind::kMove: return CheckMove(node);
        case StepNode::Kind::kPack: return CheckPack(node);
      }
    } catch (const GraphFault& fault) {
      ThrowOf(n, fault.what);
    }
  }

  void CheckValuesOf(const StepNode& node, int n) {
    for (const int input : node.inputs) CheckRead(input);
    for (const int local : node.locals()) CheckLocal(local, n);
    if (node.packed != kNoValue) CheckRead(node.packed);
    for (const int output : node.given()) {
      if (ValueAt(output).producer != n) Throw(StrCat("it is not the producer of ", graph_.NameOf(output)));
      if (is_given_[output]) Throw(graph_.NameOf(output) + " is given twice");
      is_given_[output] = true;
      held_[graph_.values[output].home] = output;
      if (graph_.homes[graph_.values[output].home].kind == Home::Kind::kLocal) {
        Throw(StrCat(graph_.NameOf(output), " is in no memory and an output"));
      }
    }
  }

  void CheckRead(int value) const {
    const StepValue& v = ValueAt(value);
    if (!is_given_[value]) Throw(StrCat(graph_.NameOf(value), " is read before it is given"));
    if (graph_.homes[v.home].kind == Home::Kind::kLocal) {
      Throw(StrCat(graph_.NameOf(value), " is read and is in no memory"));
    }
    const int held = held_[v.home];
    if (held == value) return;
    Throw(StrCat(graph_.NameOf(value), " is read when ", graph_.NameOf(held), " is in its place"));
  }

  void CheckLocal(int value, int n) {
    const StepValue& v = ValueAt(value);
    if (v.producer != n) Throw(StrCat("it is not the producer of ", graph_.NameOf(value)));
    if (graph_.homes[v.home].kind != Home::Kind::kLocal) Throw(StrCat(graph_.NameOf(value), " is in memory"));
    if (is_given_[value]) Throw(graph_.NameOf(value) + " is given twice");
    is_given_[value] = true;
  }

  // One input and one output, which it gives.
  static bool HasOneOfEach(const StepNode& node) {
    return node.inputs.size() == 1 && node.outputs.size() == 1 && node.outputs.front() != kNoValue;
  }

  void CheckMove(const StepNode& node) const {
    if (!HasOneOfEach(node)) Throw("a move has one input and one output");
    const StepValue &from = graph_.values[node.inputs[0]], &to = graph_.values[node.outputs[0]];
    const bool fits = from.info.dtype == to.info.dtype && from.info.shape.size() == to.info.shape.size();
    if (fits || from.dynamic || to.dynamic) return;
    Throw(StrCat(graph_.NameOf(node.inputs[0]), ", ", from.info.Description(), ", is moved to ",
                 graph_.NameOf(node.outputs[0]), ", ", to.info.Description()));
  }

  void CheckPack(const StepNode& node) const {
    if (node.call == nullptr || node.inputs.empty() || node.outputs.size() != 1 || node.outputs[0] == kNoValue)
      Throw("a packing has inputs, one output and a call that it is for");
    const Kernel* kernel = node.call->schema().FindKernel(graph_.target->device);
    if (kernel == nullptr || !kernel->packing) Throw(StrCat(node.call->type(), " packs nothing"));
    if (graph_.homes[graph_.values[node.outputs[0]].home].kind != Home::Kind::kOnce) {
      Throw(StrCat(graph_.NameOf(node.outputs[0]), " is packed and not the same in all steps"));
    }
  }

  std::vector<bool> BasesClearedWithoutStepsAlone() const {
    std::vector<bool> is_cleared(graph_.num_bases, false);
    for (const RowMove& move : graph_.before) {
      if (move.only_without_steps) is_cleared[move.to.base] = true;
    }
    return is_cleared;
  }

  // Memory to which nodes do nothing but add is cleared in every run. Where it is cleared in runs of no steps alone, it
  // is written once for all steps before anything else sees it.
  void CheckSums() const {
    for (const Home& home : graph_.homes) {
      if (!home.starts_at_zero) continue;
      const auto clears = [&](const RowMove& move) {
        return move.kind == RowMove::Kind::kZero && move.to.base == home.slot.base && move.to.IsWhole() &&
               !move.only_without_steps;
      };
      if (std::ranges::none_of(graph_.before, clears)) {
        Throw(StrCat("base ", home.slot.base, " starts from zero, and nothing clears it before the first step"));
      }
    }
    std::vector<bool> is_unwritten = BasesClearedWithoutStepsAlone();
    size_t s = 0;
    for (size_t n = 0; n < graph_.nodes.size(); ++n) {
      while (s < graph_.stages.size() && graph_.stages[s].end <= static_cast<int>(n)) ++s;
      const bool is_once = s < graph_.stages.size() && graph_.stages[s].steps_at_once == kAllSteps;
      for (const int input : graph_.nodes[n].inputs) {
        if (IsOf(is_unwritten, input))
          ThrowOf(static_cast<int>(n), graph_.NameOf(input) + " is read before it is cleared or written");
      }
      for (const int output : graph_.nodes[n].given()) {
        const StepValue& value = graph_.values[output];
        const Home& home = graph_.homes[value.home];
        if (home.starts_at_zero && !value.added) {
          ThrowOf(static_cast<int>(n), graph_.NameOf(output) + " is written where terms are added to zeros");
        }
        if (!IsOf(is_unwritten, output)) continue;
        const bool is_whole = !value.dynamic && value.info.size_bytes() == home.slot.bytes;
        if (value.added || !is_once || !is_whole) {
          ThrowOf(
              static_cast<int>(n),
              graph_.NameOf(output) + " is the first in memory that nothing clears, and does not write all of it once");
        }
        is_unwritten[home.slot.base] = false;
      }
    }
  }

  // Whether the value is in memory outside for whose base it holds.
  bool IsOf(const std::vector<bool>& bases, int value) const {
    const Home& home = graph_.homes[graph_.values[value].home];
    return home.kind == Home::Kind::kOutside && bases[home.slot.base];
  }

  const StepGraph& graph_;
  const bool thorough_;
  OperatorVerifier& operators_;
  std::vector<int> held_;  // by home: the value that it holds
  std::vector<bool> is_given_;
};

// What passes leave as it is: `now` was made of `before`.
void CheckWhatStays(const StepGraph& before, const StepGraph& now) {
  if (now.name != before.name) throw GraphFault{StrCat("it is named \"", before.name, "\" before the pass")};
  if (now.backward != before.backward) {
    throw GraphFault{StrCat("steps run ", before.backward ? "backward" : "forward", " before the pass")};
  }
  if (now.num_bases != before.num_bases || now.lent != before.lent || now.num_lists != before.num_lists ||
      now.target != before.target) {
    throw GraphFault{"there is other memory outside before the pass, or another target"};
  }
  // Copies of what is lent are added, and what steps write themselves need not be there.
  const auto is_alike = [](const RowMove& a, const RowMove& b) {
    return a.kind == b.kind && a.to == b.to && a.from == b.from;
  };
  for (const auto& [moves_before, moves] :
       {std::pair(&before.before, &now.before), std::pair(&before.after, &now.after)}) {
    auto next = moves->begin();
    for (const RowMove& move : *moves_before) {
      next = std::find_if(next, moves->end(), [&](const RowMove& other) { return is_alike(move, other); });
      if (next == moves->end()) throw GraphFault{StrCat("the pass has taken away ", RowMoveText(move))};
      ++next;
    }
  }
}

}  // namespace

void GraphVerifier::Verify(const StepGraph& graph, const std::string& pass) {
  try {
    Verifier(graph, thorough_, &operators_).Run();
    if (before_) CheckWhatStays(*before_, graph);
    if (thorough_) order_.Check(graph);
  } catch (const GraphFault& fault) {
    throw Error(ErrorCode::kInternal, StrCat("after the pass ", pass, ": ", fault.what)).At({.net = graph.name});
  }
  if (before_) return;
  StepGraph& first = before_.emplace();
  first.name = graph.name;
  first.backward = graph.backward;
  first.target = graph.target;
  first.num_bases = graph.num_bases;
  first.lent = graph.lent;
  first.num_lists = graph.num_lists;
  first.before = graph.before;
  first.after = graph.after;
}

void VerifyGraph(const StepGraph& graph, const std::string& pass) { GraphVerifier().Verify(graph, pass); }

}  // namespace stepnet

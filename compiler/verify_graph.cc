#include "stepnet/compiler/verify_graph.h"

#include <algorithm>
#include <bit>
#include <functional>

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
  Verifier(const StepGraph& graph, const std::string& pass)
      : graph_(graph), pass_(pass), held_(graph.homes.size(), kNoValue), is_given_(graph.values.size(), false) {}

  void Run() {
    CheckValues();
    for (size_t n = 0; n < graph_.nodes.size(); ++n) CheckNode(static_cast<int>(n));
    for (const auto& [blob, value] : graph_.last) {
      const StepValue& v = ValueAt(value);
      if (v.blob != blob || v.outside) Throw(StrCat("\"", blob, "\" ends as ", graph_.NameOf(value)));
      if (!is_given_[value]) Throw(StrCat(graph_.NameOf(value), " is the last of its blob, and nothing gives it"));
    }
    CheckStages();
    for (const std::vector<RowMove>* moves : {&graph_.before, &graph_.after}) {
      for (const RowMove& move : *moves) CheckRowMove(move);
    }
  }

 private:
  [[noreturn]] void Throw(const std::string& what) const {
    throw Error(ErrorCode::kInternal, StrCat("after the pass ", pass_, ": ", what)).At({.net = graph_.name});
  }

  void CheckRowMove(const RowMove& move) const {
    const bool has_source = move.kind == RowMove::Kind::kCopy || move.kind == RowMove::Kind::kAdd;
    for (const BaseRows* rows : {&move.to, &move.from}) {
      if (rows == &move.from && !has_source) continue;
      if (rows->base < 0 || rows->base >= graph_.num_bases) Throw(StrCat("there is no base ", rows->base));
    }
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
      if (is_tensor && value.dynamic && home.kind != Home::Kind::kOutside) Throw(name() + " has a home of one size");
      if (home.kind == Home::Kind::kOutside && !value.dynamic && value.info.size_bytes() > home.slot.bytes) {
        Throw(StrCat(name(), " is ", value.info.Description(), ", in memory of ", home.slot.bytes, " bytes"));
      }
      if (value.producer >= 0) continue;
      is_given_[v] = true;
      held_[value.home] = static_cast<int>(v);
    }
  }

  void CheckNode(int n) {
    const StepNode& node = graph_.nodes[n];
    for (const int input : node.inputs) CheckRead(input, n);
    for (const int local : node.locals()) CheckLocal(local, n);
    if (node.packed != kNoValue) CheckRead(node.packed, n);
    for (const int output : graph_.Given(node)) {
      if (ValueAt(output).producer != n) Throw(StrCat("node ", n, " is not the producer of ", graph_.NameOf(output)));
      if (is_given_[output]) Throw(graph_.NameOf(output) + " is given twice");
      is_given_[output] = true;
      held_[graph_.values[output].home] = output;
      if (graph_.homes[graph_.values[output].home].kind == Home::Kind::kLocal) {
        Throw(StrCat(graph_.NameOf(output), " is in no memory and an output of node ", n));
      }
    }
    switch (node.kind) {
      case StepNode::Kind::kCall: return CheckCall(node);
      case StepNode::Kind::kRegion: return CheckRegionNode(node, n);
      case StepNode::Kind::kProduct: return CheckProducts(node);
      case StepNode::Kind::kMove: return CheckMove(node);
      case StepNode::Kind::kPack: {
        const bool is_pack = node.call != nullptr && node.inputs.size() == 1 && graph_.Given(node).size() == 1;
        if (!is_pack) Throw("a packing has one input, one output and a call that it is for");
      }
    }
  }

  void CheckRead(int value, int n) const {
    const StepValue& v = ValueAt(value);
    if (!is_given_[value]) Throw(StrCat("node ", n, " reads ", graph_.NameOf(value), " before it is given"));
    if (graph_.homes[v.home].kind == Home::Kind::kLocal) {
      Throw(StrCat("node ", n, " reads ", graph_.NameOf(value), ", which is in no memory"));
    }
    const int held = held_[v.home];
    if (held == value) return;
    Throw(StrCat("node ", n, " reads ", graph_.NameOf(value), " when ", graph_.NameOf(held), " is in its place"));
  }

  void CheckCall(const StepNode& node) const {
    if (node.call == nullptr || node.def == nullptr) Throw("a call has no operator");
    const bool is_whole =
        node.inputs.size() == node.call->inputs().size() && node.outputs.size() == node.call->outputs().size();
    if (!is_whole)
      Throw(StrCat(node.call->Text(), " has ", node.inputs.size(), " inputs and ", node.outputs.size(),
                   " outputs in the graph"));
    const Kernel* kernel = node.call->schema().FindKernel(graph_.target->device);
    for (size_t o = 0; o < node.outputs.size(); ++o) {
      if (node.outputs[o] == kNoValue || !graph_.values[node.outputs[o]].added) continue;
      const bool can_add = kernel != nullptr && std::ranges::count(kernel->can_add, static_cast<int>(o)) > 0;
      if (!can_add) Throw(StrCat(node.call->type(), " cannot add to ", graph_.NameOf(node.outputs[o])));
    }
  }

  void CheckProducts(const StepNode& node) const {
    CheckCall(node);
    if (node.by_blobs) Throw(StrCat(node.call->type(), " is a product of what has no known shape"));
    if (node.products.size() != node.outputs.size()) {
      Throw(StrCat(node.call->type(), " says of ", node.products.size(), " outputs what they are; it has ",
                   node.outputs.size()));
    }
    std::vector<TensorInfo> inputs;
    for (const int input : node.inputs) inputs.push_back(graph_.values[input].info);
    for (size_t o = 0; o < node.outputs.size(); ++o) {
      if (node.outputs[o] == kNoValue || !node.products[o]) continue;
      const std::string problem = ProductProblem(*node.products[o], inputs, graph_.values[node.outputs[o]].info);
      if (!problem.empty()) Throw(StrCat(graph_.NameOf(node.outputs[o]), " is no such product: ", problem));
    }
  }

  // Whether an operator may be one of a region's.
  static bool HasParts(const OperatorCall& call) { return call.schema().formula || call.schema().expansion; }

  void CheckLocal(int value, int n) {
    const StepValue& v = ValueAt(value);
    if (v.producer != n) Throw(StrCat("node ", n, " is not the producer of ", graph_.NameOf(value)));
    if (graph_.homes[v.home].kind != Home::Kind::kLocal) Throw(StrCat(graph_.NameOf(value), " is in memory"));
    if (is_given_[value]) Throw(graph_.NameOf(value) + " is given twice");
    is_given_[value] = true;
  }

  void CheckRegionNode(const StepNode& node, int n) const {
    if (node.IsOneOperator()) {
      if (!HasParts(*node.call)) Throw(StrCat(node.call->type(), " has no formula and is a region"));
      return CheckCall(node);
    }
    if (node.calls().empty()) Throw(StrCat("node ", n, " is a region of no operator"));
    if (node.by_blobs || node.packed != kNoValue) Throw("a region of several operators has operands of known shape");
    CheckCallsOf(node);
  }

  // Each operator reads what is there by then, and all that the region gives is given once.
  void CheckCallsOf(const StepNode& node) const {
    const size_t num_inputs = node.inputs.size(),
                 num_operands = num_inputs + node.outputs.size() + node.locals().size();
    std::vector<bool> is_there(num_operands, false), is_overwritten(num_operands, false);
    std::fill_n(is_there.begin(), num_inputs, true);
    const auto check = [&](int operand, bool is_there_before) {
      const bool is_known = operand >= 0 && operand < static_cast<int>(num_operands);
      if (!is_known || is_there[operand] != is_there_before || is_overwritten[operand]) {
        Throw(StrCat("operators of a region do not read what is there, or give what is: ",
                     is_known ? graph_.NameOf(node.ValueOf(operand)) : StrCat("operand ", operand)));
      }
    };
    for (const RegionCall& call : node.calls()) {
      if (call.call == nullptr || call.def == nullptr) Throw("a region has no operator");
      if (!HasParts(*call.call)) Throw(StrCat(call.call->type(), " has no formula and is in a region"));
      const bool is_whole =
          call.inputs.size() == call.call->inputs().size() && call.outputs.size() == call.call->outputs().size();
      if (!is_whole) Throw(StrCat(call.call->Text(), " has other operands in its region"));
      for (const int input : call.inputs) check(input, true);
      for (const int output : call.outputs) {
        check(output, false);
        is_there[output] = true;
        const StepValue& given = graph_.values[node.ValueOf(output)];
        if (given.added) Throw(StrCat(call.call->type(), " cannot add to ", graph_.NameOf(node.ValueOf(output))));
        for (int other = 0; other < static_cast<int>(num_operands); ++other) {
          const bool was_there = is_there[other] && other != output;
          if (was_there && graph_.values[node.ValueOf(other)].home == given.home) is_overwritten[other] = true;
        }
      }
    }
    const auto missing = std::ranges::find(is_there, false);
    if (missing == is_there.end()) return;
    const int value = node.ValueOf(static_cast<int>(missing - is_there.begin()));
    Throw(StrCat("no operator of a region gives ", graph_.NameOf(value)));
  }

  void CheckMove(const StepNode& node) const {
    if (node.inputs.size() != 1 || graph_.Given(node).size() != 1) Throw("a move has one input and one output");
    const StepValue &from = graph_.values[node.inputs[0]], &to = graph_.values[node.outputs[0]];
    const bool fits = from.info.dtype == to.info.dtype && from.info.shape.size() == to.info.shape.size();
    if (fits || from.dynamic || to.dynamic) return;
    Throw(StrCat(graph_.NameOf(node.inputs[0]), ", ", from.info.Description(), ", is moved to ",
                 graph_.NameOf(node.outputs[0]), ", ", to.info.Description()));
  }

  void CheckStages() const {
    if (graph_.stages.empty()) return;
    int end = 0;
    for (const GraphStage& stage : graph_.stages) {
      if (stage.begin != end || stage.end < stage.begin) Throw("stages are not in the order of the nodes");
      end = stage.end;
    }
    if (end != static_cast<int>(graph_.nodes.size())) Throw("some nodes are in no stage");
  }

  const StepGraph& graph_;
  const std::string& pass_;
  std::vector<int> held_;  // by home: the value that it holds
  std::vector<bool> is_given_;
};

}  // namespace

void VerifyGraph(const StepGraph& graph, const std::string& pass) { Verifier(graph, pass).Run(); }

}  // namespace stepnet

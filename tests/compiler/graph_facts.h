// FactsOf: all that a StepGraph says, one thing a line, whatever numbers its values and homes have. Two graphs are
// equal where their facts are; unlike their texts, these know nothing of what can be read back.
#pragma once

#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include "stepnet/compiler/step_graph.h"
#include "stepnet/core/strings.h"
#include "stepnet/proto/net.pb.h"

namespace stepnet {

class GraphFacts {
 public:
  explicit GraphFacts(const StepGraph& graph) : graph_(graph), home_names_(graph.homes.size()) {
    for (size_t v = 0; v < graph.values.size(); ++v) {
      std::string& name = home_names_[graph.values[v].home];
      const std::string of_value = NameOf(static_cast<int>(v));
      if (name.empty() || of_value < name) name = of_value;
    }
  }

  std::vector<std::string> All(bool is_part = false) {
    Add("step ", graph_.name, ", backward ", graph_.backward, ", on ", DeviceKindName(graph_.target->device));
    if (!is_part) AddMemory();
    AddValues();
    for (const Stage& stage : graph_.stages) {
      Add("nodes ", stage.begin, " to ", stage.end, ": ", StageTitle(stage), ", behind ", stage.is_behind);
    }
    for (const StepNode& node : graph_.nodes) AddNode(node);
    for (const RowMove& move : graph_.before) AddMove("before: ", move);
    for (const RowMove& move : graph_.after) AddMove("after: ", move);
    for (const auto& [blob, value] : graph_.last) Add(blob, " ends as ", NameOf(value));
    for (const std::string& blob : graph_.not_kept) Add(blob, " is not kept");
    if (graph_.recomputation != nullptr) {
      GraphFacts part(graph_.recomputation->part);
      for (const std::string& fact : part.All(/*is_part=*/true)) Add("part: ", fact);
      for (const auto& [base, value] : graph_.recomputation->given) Add("in place of ", base, ": ", part.NameOf(value));
    }
    return std::move(facts_);
  }

 private:
  template <typename... Args>
  void Add(const Args&... args) {
    facts_.push_back(StrCat(args...));
  }

  std::string NameOf(int value) const {
    if (value == kNoValue) return "none";
    const StepValue& v = graph_.values[value];
    return StrCat(v.outside ? "outside " : "", v.blob, " version ", v.version);
  }
  std::string NamesOf(const std::vector<int>& values) const {
    std::vector<std::string> names;
    for (const int value : values) names.push_back(NameOf(value));
    return Join(names, ", ");
  }

  void AddMemory() {
    Add(graph_.num_bases, " bases, ", graph_.num_lists, " lists");
    for (const int base : graph_.lent) Add(base, " is lent");
    for (const int base : graph_.in_turns) Add(base, " may be used in turns");
  }

  void AddValues() {
    std::vector<std::string> facts;
    for (size_t v = 0; v < graph_.values.size(); ++v) {
      const StepValue& value = graph_.values[v];
      facts.push_back(StrCat(NameOf(static_cast<int>(v)), ": ", value.dynamic ? "dynamic" : InfoText(value.info),
                             " in the home of ", home_names_[value.home], ", given by ", value.producer, ", added ",
                             value.added));
    }
    for (size_t h = 0; h < graph_.homes.size(); ++h) facts.push_back(HomeText(graph_.homes[h], home_names_[h]));
    std::ranges::sort(facts);
    for (const std::string& fact : facts) Add(fact);
  }

  static std::string InfoText(const TensorInfo& info) {
    std::string text = info.Description();
    if (!info.value.defined()) return text;
    for (std::int64_t i = 0; i < info.value.size(); ++i) {
      text += info.dtype == DType::kInt64 ? StrCat(" ", info.value.data<std::int64_t>()[i])
                                          : StrCat(" ", info.value.data<std::int32_t>()[i]);
    }
    return text + " known";
  }

  static std::string HomeText(const Home& home, const std::string& name) {
    const Slot& slot = home.slot;
    return StrCat("home of ", name, ": kind ", static_cast<int>(home.kind), ", kept ", home.kept, ", passed ",
                  home.passed, ", zero ", home.starts_at_zero, ", list ", home.list,
                  home.kind == Home::Kind::kOutside
                      ? StrCat(", ", StorageClassName(slot.storage_class), " at ", slot.base, ", ", slot.offset,
                               " + t of ", slot.row_bytes, ", ring ", slot.ring_rows, ", ", slot.bytes, " bytes")
                      : "");
  }

  std::string ProductText(const Product& product) const {
    const auto factor = [](const ProductFactor& of) { return StrCat(of.input, of.shape, of.transposed); };
    return StrCat(factor(product.left), product.right ? factor(*product.right) : "", product.bias);
  }

  template <typename Call>
  static std::string CallText(const Call& of) {
    OperatorDef arguments = *of.def;
    arguments.clear_input();
    arguments.clear_output();
    return StrCat(of.call->type(), " @", of.op_index, " of ", of.net, " ", arguments.ShortDebugString());
  }

  void AddNode(const StepNode& node) {
    std::string products;
    for (const auto& product : node.products) products += product ? ProductText(*product) : "nothing";
    Add("node of kind ", static_cast<int>(node.kind), ", ", node.op_index, ": ", NamesOf(node.outputs), " of ",
        NamesOf(node.inputs), " with ", NameOf(node.packed), ", by blobs ", node.by_blobs, ", ", products,
        node.IsOneOperator() ? CallText(node) : "");
    if (node.body == nullptr) return;
    for (const RegionCall& call : node.calls()) {
      std::vector<int> inputs, outputs;
      for (const int input : call.inputs) inputs.push_back(node.ValueOf(input));
      for (const int output : call.outputs) outputs.push_back(node.ValueOf(output));
      Add("call ", CallText(call), ": ", NamesOf(outputs), " of ", NamesOf(inputs));
    }
    for (const int begin : node.body->begins) Add("a region begins with call ", begin);
    Add("locals ", NamesOf(node.body->locals));
  }

  void AddMove(const char* when, const RowMove& move) {
    const auto rows = [&](const BaseRows& of) {
      return StrCat(of.name, " ", of.base, of.sum < 0 ? "" : home_names_[of.sum], " ", RowRangeText(of));
    };
    Add(when, rows(move.to), " ", RowMoveName(move.kind), " ", move.HasSource() ? rows(move.from) : "",
        move.only_without_steps ? " without steps" : "");
  }

  const StepGraph& graph_;
  std::vector<std::string> home_names_;
  std::vector<std::string> facts_;
};

inline std::vector<std::string> FactsOf(const StepGraph& graph) { return GraphFacts(graph).All(); }

// The first thing that one graph says and the other does not; "": they are equal.
inline std::string Difference(const StepGraph& a, const StepGraph& b) {
  const std::vector<std::string> of_a = FactsOf(a), of_b = FactsOf(b);
  const auto [in_a, in_b] = std::ranges::mismatch(of_a, of_b);
  if (in_a == of_a.end() && in_b == of_b.end()) return "";
  return StrCat(in_a == of_a.end() ? "nothing" : *in_a, "\nand not\n", in_b == of_b.end() ? "nothing" : *in_b);
}

}  // namespace stepnet

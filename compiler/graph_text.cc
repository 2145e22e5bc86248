#include "stepnet/compiler/graph_text.h"

#include <google/protobuf/text_format.h>

#include <algorithm>

#include "stepnet/compiler/step_plan.h"
#include "stepnet/proto/net.pb.h"

namespace stepnet {
namespace {

bool IsWordCharacter(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '/';
}

// As it is where it can be told from what follows, otherwise in quotes.
std::string Word(const std::string& name) {
  const bool is_bare =
      !name.empty() && !(name[0] >= '0' && name[0] <= '9') && name != "_" && std::ranges::all_of(name, IsWordCharacter);
  if (is_bare) return name;
  std::string text = "\"";
  for (const char c : name) {
    constexpr char kDigits[] = "0123456789abcdef";
    const auto byte = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') {
      text += StrCat("\\", c);
    } else if (byte < 0x20 || byte >= 0x7f) {
      text += StrCat("\\x", kDigits[byte / 16], kDigits[byte % 16]);
    } else {
      text += c;
    }
  }
  return text + "\"";
}

class GraphPrinter {
 public:
  explicit GraphPrinter(const StepGraph& graph) : graph_(graph), first_of_home_(graph.homes.size(), kNoValue) {}

  std::string Run() {
    std::string text = StrCat(graph_.backward ? "backward " : "", "step ", Word(graph_.name), " {\n");
    text += RowMovesText("before the first step", graph_.before);
    for (size_t v = 0; v < graph_.values.size(); ++v) {
      if (graph_.values[v].producer < 0) text += StrCat("  ", ResultText(static_cast<int>(v)), "\n");
    }
    for (size_t n = 0; n < graph_.nodes.size(); ++n) {
      for (const GraphStage& stage : graph_.stages) {
        if (stage.begin == static_cast<int>(n)) text += StrCat("  ", StageText(stage), ":\n");
      }
      const StepNode& node = graph_.nodes[n];
      std::vector<std::string> results;
      for (const int output : node.outputs) results.push_back(output == kNoValue ? "_" : ResultText(output));
      text += StrCat("  ", Join(results, ", "), results.empty() ? "= " : " = ", OperationText(node), "\n");
    }
    return text + RowMovesText("after the last step", graph_.after) + "}\n";
  }

 private:
  static std::string RowMovesText(const char* title, const std::vector<RowMove>& moves) {
    std::string text = moves.empty() ? "" : StrCat("  ", title, ":\n");
    for (const RowMove& move : moves) {
      const bool adds = move.kind == RowMove::Kind::kAdd;
      text += StrCat("  ", RowsText(move.to), adds ? " += " : " = ");
      switch (move.kind) {
        case RowMove::Kind::kCopy:
        case RowMove::Kind::kAdd: text += RowsText(move.from); break;
        default: text += RowMoveName(move.kind); break;
      }
      text += move.only_without_steps ? ", in runs of no steps\n" : "\n";
    }
    return text;
  }

  static std::string RowsText(const BaseRows& rows) {
    const std::string text = StrCat("^", Word(rows.name), " at ", rows.base);
    return rows.IsWhole() ? text : StrCat(text, "[", RowRangeText(rows), "]");
  }

  static std::string StageText(const GraphStage& stage) {
    const std::string title = StageTitle({.steps_at_once = stage.steps_at_once, .schedule = nullptr});
    return stage.min_steps > 0 ? StrCat(title, ", in runs of ", stage.min_steps, " steps or more") : title;
  }

  std::string NameOf(int value) const {
    const StepValue& v = graph_.values[value];
    const std::string name = (v.outside ? "^" : "") + Word(v.blob);
    return v.version == 0 ? name : StrCat(name, ".", v.version);
  }

  std::string ResultText(int value) {
    const StepValue& v = graph_.values[value];
    return StrCat(NameOf(value), ": ", v.dynamic ? "unknown" : v.info.Description(), HomeText(value));
  }

  std::string HomeText(int value) {
    const StepValue& v = graph_.values[value];
    const Home& home = graph_.homes[v.home];
    const std::string added = v.added ? " added" : "";
    if (home.kind == Home::Kind::kOutside) {
      return StrCat(added, " at ", PlaceText(home.slot, v), home.from_zero ? " from zero" : "",
                    home.lent ? " lent" : "");
    }
    int& first = first_of_home_[v.home];
    if (first != kNoValue) return StrCat(added, " in ", NameOf(first));
    first = value;
    const std::string kept = home.kept ? " kept" : "";
    switch (home.kind) {
      case Home::Kind::kOnce: return added + " once";
      case Home::Kind::kDynamic:
        return StrCat(added, kept, home.list < 0 ? " blob" : StrCat(" blob of list ", home.list));
      default: return added + kept;
    }
  }

  static std::string PlaceText(const Slot& slot, const StepValue& value) {
    std::string text = StrCat(slot.base);
    if (slot.storage_class == StorageClass::kLinked) {
      const char* sign = slot.offset < 0 ? " - " : " + ";
      const std::string row = slot.offset == 0 ? "t" : StrCat("(t", sign, std::abs(slot.offset), ")");
      text += StrCat("[", slot.row_bytes, " * ", row, "]");
    }
    if (value.dynamic || slot.bytes != value.info.size_bytes()) text += StrCat(", ", slot.bytes, " bytes");
    return text;
  }

  std::string OperationText(const StepNode& node) const {
    if (node.kind == StepNode::Kind::kMove) return NameOf(node.inputs[0]);
    if (node.kind == StepNode::Kind::kPack) return StrCat("packed ", NameOf(node.inputs[0]), " for @", node.op_index);
    std::vector<std::string> inputs;
    for (const int input : node.inputs) inputs.push_back(NameOf(input));
    return StrCat(Word(node.call->type()), "(", Join(inputs, ", "), ")",
                  node.packed == kNoValue ? "" : " with " + NameOf(node.packed), node.by_blobs ? " by blobs" : "", " @",
                  node.op_index, " {", ArgumentsText(*node.def), "}");
  }

  // All of an operator but its type, inputs and outputs, on one line.
  static std::string ArgumentsText(const OperatorDef& def) {
    OperatorDef rest = def;
    rest.clear_type();
    rest.clear_input();
    rest.clear_output();
    rest.DiscardUnknownFields();
    google::protobuf::TextFormat::Printer printer;
    printer.SetSingleLineMode(true);
    std::string text;
    printer.PrintToString(rest, &text);
    while (text.ends_with(' ')) text.pop_back();
    return text;
  }

  const StepGraph& graph_;
  std::vector<int> first_of_home_;  // value that the text says it of
};

}  // namespace

std::string GraphText(const StepGraph& graph) { return GraphPrinter(graph).Run(); }

}  // namespace stepnet

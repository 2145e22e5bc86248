#include "stepnet/compiler/graph_text.h"

#include <google/protobuf/text_format.h>

#include <algorithm>
#include <set>

#include "stepnet/core/cancellation.h"
#include "stepnet/proto/net.pb.h"

namespace stepnet {
namespace {

bool IsWordCharacter(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '/';
}

// The name as it is where it can be told from what follows, otherwise in quotes. Types of operators may have dots: a
// parenthesis follows them.
std::string Word(const std::string& name, bool is_type = false) {
  const auto is_part = [&](char c) { return IsWordCharacter(c) || (is_type && c == '.'); };
  const bool is_bare =
      !name.empty() && !(name[0] >= '0' && name[0] <= '9') && name != "_" && std::ranges::all_of(name, is_part);
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

// "{2, 3}": elements that are known before any run (TensorInfo::value), which are whole numbers.
std::string KnownText(const TensorInfo& info) {
  if (!info.value.defined()) return "";
  std::vector<std::string> elements;
  for (std::int64_t i = 0; i < info.value.size(); ++i) {
    elements.push_back(info.dtype == DType::kInt64 ? StrCat(info.value.data<std::int64_t>()[i])
                                                   : StrCat(info.value.data<std::int32_t>()[i]));
  }
  return StrCat(" {", Join(elements, ", "), "}");
}

class GraphPrinter {
 public:
  explicit GraphPrinter(const StepGraph& graph) : graph_(graph), first_of_home_(graph.homes.size(), kNoValue) {}

  std::string Run() {
    const auto rest = [this] { return StrCat(LastText(), NotKeptText(), OtherMemoryText()); };
    if (graph_.recomputation == nullptr) return StepText(rest);
    const Recomputation& again = *graph_.recomputation;
    const auto given = [&] {
      std::string text;
      for (const auto& [base, value] : again.given) {
        text += StrCat("  in place of base ", base, ": ", GraphPrinter(again.part).NameOf(value), "\n");
      }
      return text;
    };
    return StrCat(StepText(rest), "again ", GraphPrinter(again.part).StepText(given));
  }

 private:
  // Gives the text of the step; `rest` that of the lines behind those of nodes.
  template <typename Rest>
  std::string StepText(const Rest& rest) {
    const DeviceKind device = graph_.target->device;
    const std::string place = device == DeviceKind::kCpu ? "" : StrCat(" on ", DeviceKindName(device));
    std::string text = StrCat(graph_.backward ? "backward " : "", "step ", Word(graph_.name), place, " {\n");
    text += RowMovesText("before the first step", graph_.before);
    for (size_t v = 0; v < graph_.values.size(); ++v) {
      if (graph_.values[v].producer < 0) text += StrCat("  ", ResultText(static_cast<int>(v)), "\n");
    }
    constexpr std::int64_t kWork = 10'000;  // of one node
    for (size_t n = 0; n < graph_.nodes.size(); ++n) {
      CountWork(kWork);
      for (const Stage& stage : graph_.stages) {
        if (stage.begin == static_cast<int>(n)) text += StrCat("  ", StageTitle(stage), ":\n");
      }
      text += NodeText(graph_.nodes[n]);
    }
    return StrCat(text, rest(), RowMovesText("after the last step", graph_.after), "}\n");
  }

  std::string RowMovesText(const char* title, const std::vector<RowMove>& moves) const {
    std::string text = moves.empty() ? "" : StrCat("  ", title, ":\n");
    for (const RowMove& move : moves) {
      const std::string to = RowsText(move.to) + (graph_.in_turns.contains(move.to.base) ? " in turns" : "");
      const char* const lent = move.kind == RowMove::Kind::kGive ? "" : LentText(move.from.base);
      const std::string from = move.HasSource() ? RowsText(move.from) + lent : "";
      text += StrCat("  ", RowMoveText(move, to, from), move.only_without_steps ? ", in runs of no steps\n" : "\n");
    }
    return text;
  }

  // Names what blobs end as, where that is not the last value that the text gives them.
  std::string LastText() const {
    std::vector<std::string> items;
    for (const auto& [blob, mentioned] : last_mentioned_) {
      const auto last = graph_.last.find(blob);
      if (last == graph_.last.end()) {
        items.push_back(StrCat("no ", Word(blob)));
      } else if (last->second != mentioned) {
        items.push_back(NameOf(last->second));
      }
    }
    return items.empty() ? "" : StrCat("  at the end: ", Join(items, ", "), "\n");
  }

  std::string NotKeptText() const {
    std::vector<std::string> blobs;
    for (const std::string& blob : graph_.not_kept) blobs.push_back(Word(blob));
    return blobs.empty() ? "" : StrCat("  not kept: ", Join(blobs, ", "), "\n");
  }

  // Names what the graph is given beside what its other lines mention: of what the caller does not own the last one
  // says how many there are.
  std::string OtherMemoryText() const {
    std::set<int> bases, lists;  // of which lines say all
    std::set<int> unlent;        // bases of which lines do not say that they are lent
    for (const Home& home : graph_.homes) {
      if (home.kind == Home::Kind::kOutside) bases.insert(home.slot.base);
      if (home.kind == Home::Kind::kDynamic) lists.insert(home.list);
    }
    for (const std::vector<RowMove>* moves : {&graph_.before, &graph_.after}) {
      for (const RowMove& move : *moves) {
        const bool gives = move.kind == RowMove::Kind::kGive;
        (gives || move.kind == RowMove::Kind::kLend ? bases : unlent).insert(move.to.base);
        if (move.HasSource()) (gives ? unlent : bases).insert(move.from.base);
      }
    }
    std::vector<std::string> items;
    for (int base = 0; base < graph_.num_bases; ++base) {
      const bool is_lent = graph_.lent.contains(base), is_last = base == graph_.num_bases - 1;
      const bool is_said = bases.contains(base) || (unlent.contains(base) && !is_lent);
      if (!is_said && (is_lent || is_last)) items.push_back(StrCat(base, LentText(base)));
    }
    const int last_list = graph_.num_lists - 1;
    if (last_list >= 0 && !lists.contains(last_list)) items.push_back(StrCat("list ", last_list));
    return items.empty() ? "" : StrCat("  other memory outside: ", Join(items, ", "), "\n");
  }

  const char* LentText(int base) const { return graph_.lent.contains(base) ? " lent" : ""; }

  // Names the sum by the first value that a node gives it.
  std::string SumText(int home) const {
    for (const StepNode& node : graph_.nodes) {
      for (const int value : node.given()) {
        if (graph_.values[value].home == home) return NameOf(value);
      }
    }
    const auto any = std::ranges::find(graph_.values, home, &StepValue::home);
    return any == graph_.values.end() ? "\"\"" : NameOf(static_cast<int>(any - graph_.values.begin()));
  }

  std::string RowsText(const BaseRows& rows) const {
    if (rows.sum >= 0) return SumText(rows.sum);
    const std::string text = StrCat("^", Word(rows.name), " at ", rows.base);
    return rows.IsWhole() ? text : StrCat(text, "[", RowRangeText(rows), "]");
  }

  std::string NodeText(const StepNode& node) {
    const bool is_block = node.RunsOperators() && !node.IsOneOperator();
    if (!is_block) return StrCat("  ", ResultsText(node.outputs), OperationText(node), "\n");
    std::string text = "  region {\n";
    for (size_t k = 0; k < node.calls().size(); ++k) {
      const RegionCall& call = node.calls()[k];
      if (std::ranges::count(node.body->begins, static_cast<int>(k)) > 0) text += "  } then {\n";
      std::vector<int> inputs, outputs;
      for (const int input : call.inputs) inputs.push_back(node.ValueOf(input));
      for (const int output : call.outputs) outputs.push_back(node.ValueOf(output));
      text += StrCat("    ", ResultsText(outputs), Word(call.call->type(), true), "(", NamesOf(inputs), ")",
                     PlaceInNet(call), " {", ArgumentsText(*call.def), "}\n");
    }
    return text + "  }\n";
  }

  // What stands before an operation.
  std::string ResultsText(const std::vector<int>& outputs) {
    std::vector<std::string> results;
    for (const int output : outputs) results.push_back(output == kNoValue ? "_" : ResultText(output));
    return Join(results, ", ") + (results.empty() ? "= " : " = ");
  }

  std::string NamesOf(const std::vector<int>& values) const {
    std::vector<std::string> names;
    for (const int value : values) names.push_back(NameOf(value));
    return Join(names, ", ");
  }

  std::string NameOf(int value) const {
    const StepValue& v = graph_.values[value];
    const std::string name = (v.outside ? "^" : "") + Word(v.blob);
    return v.version == 0 ? name : StrCat(name, ".", v.version);
  }

  std::string ResultText(int value) {
    const StepValue& v = graph_.values[value];
    if (!v.outside) last_mentioned_[v.blob] = value;
    const std::string info = v.dynamic ? "unknown" : v.info.Description() + KnownText(v.info);
    return StrCat(NameOf(value), ": ", info, HomeText(value));
  }

  std::string HomeText(int value) {
    const StepValue& v = graph_.values[value];
    const Home& home = graph_.homes[v.home];
    const std::string added = v.added ? " added" : "";
    int& first = first_of_home_[v.home];
    if (home.kind == Home::Kind::kOutside && (!v.outside || first == kNoValue)) {
      first = value;
      return StrCat(added, " at ", PlaceText(home.slot, v), home.starts_at_zero ? " from zero" : "",
                    LentText(home.slot.base));
    }
    if (first != kNoValue) return StrCat(added, " in ", NameOf(first));
    first = value;
    const std::string kept = home.kept ? " kept" : "";
    switch (home.kind) {
      case Home::Kind::kOnce: return added + " once";
      case Home::Kind::kSum: return added + " summed";
      case Home::Kind::kLocal: return added + " local";
      case Home::Kind::kDynamic:
        return StrCat(added, kept, home.list < 0 ? " blob" : StrCat(" blob of list ", home.list));
      default: return added + (home.passed ? " passed" : kept);
    }
  }

  static std::string PlaceText(const Slot& slot, const StepValue& value) {
    const bool is_all = !value.dynamic && slot.bytes == value.info.size_bytes();
    return is_all ? AddressText(slot) : StrCat(AddressText(slot), ", ", slot.bytes, " bytes");
  }

  std::string OperationText(const StepNode& node) const {
    if (node.kind == StepNode::Kind::kMove) return NameOf(node.inputs[0]);
    if (node.kind == StepNode::Kind::kPack) return StrCat("packed ", NamesOf(node.inputs), " for @", node.op_index);
    const std::string kind = node.kind == StepNode::Kind::kRegion    ? "region "
                             : node.kind == StepNode::Kind::kProduct ? ProductsText(node)
                                                                     : "";
    return StrCat(kind, Word(node.call->type(), true), "(", NamesOf(node.inputs), ")",
                  node.packed == kNoValue ? "" : " with " + NameOf(node.packed), node.by_blobs ? " by blobs" : "",
                  PlaceInNet(node), " {", ArgumentsText(*node.def), "}");
  }

  // " @3", of an operator of another net than the step net " @3 of lstm_step".
  template <typename T>
  static std::string PlaceInNet(const T& of) {
    return StrCat(" @", of.op_index, of.net.empty() ? "" : StrCat(" of ", Word(of.net)));
  }

  std::string ProductsText(const StepNode& node) const {
    std::vector<std::string> products;
    for (const std::optional<Product>& product : node.products) {
      products.push_back(product ? ProductText(node, *product) : "_");
    }
    return StrCat("product ", Join(products, "; "), " by ");
  }

  std::string ProductText(const StepNode& node, const Product& product) const {
    const auto factor = [&](const ProductFactor& of) {
      return StrCat(NameOf(node.inputs[of.input]), " ", of.shape, of.transposed ? "^T" : "");
    };
    if (!product.right) return "sum " + factor(product.left);
    const std::string bias = product.bias < 0 ? "" : " + " + NameOf(node.inputs[product.bias]);
    return StrCat(factor(product.left), " * ", factor(*product.right), bias);
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
  std::vector<int> first_of_home_;             // value that the text says it of
  std::map<std::string, int> last_mentioned_;  // by blob, so far
};

}  // namespace

std::string GraphText(const StepGraph& graph) { return GraphPrinter(graph).Run(); }

}  // namespace stepnet

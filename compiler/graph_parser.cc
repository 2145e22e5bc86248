// ParseGraph: reads what GraphText writes, line by line.
#include <algorithm>

#include "stepnet/compiler/graph_line_items.h"
#include "stepnet/compiler/graph_line_operation.h"
#include "stepnet/compiler/graph_line_reader.h"
#include "stepnet/compiler/graph_text.h"
#include "stepnet/compiler/region_nodes.h"
#include "stepnet/core/device.h"
#include "stepnet/proto/net.pb.h"

namespace stepnet {
namespace {

class GraphParser {
 public:
  GraphParser(const std::string& text, const RunOptions& options) : text_(text), options_(options) {}

  StepGraph Run() {
    ParseStep();
    if (text_.starts_with("again ")) ParseAgain();
    if (!text_.empty()) NextLine().Throw("the graph has ended");
    return std::move(graph_);
  }

 private:
  struct Name {
    std::string blob;
    int version = 0;
    bool outside = false;
    auto operator<=>(const Name&) const = default;
  };

  // A move that clears a sum of the steps.
  struct Sum {
    Name name;
    std::vector<RowMove>* moves;
    size_t move;
    LineReader line;
  };

  // A parser of the part of a step forward that the step of `whole`, which has been read, computes again.
  explicit GraphParser(const GraphParser* whole)
      : text_(whole->text_), number_(whole->number_), options_(whole->options_), lent_(whole->lent_), is_part_(true) {
    graph_.num_bases = whole->graph_.num_bases;
    graph_.lent = whole->graph_.lent;
  }

  // Both see the same memory outside.
  void ParseAgain() {
    GraphParser part(this);
    part.ParseStep();
    part.graph_.last.clear();
    text_ = part.text_;
    number_ = part.number_;
    graph_.num_bases = part.graph_.num_bases;
    graph_.lent = part.graph_.lent;
    graph_.recomputation = std::make_shared<const Recomputation>(
        Recomputation{.part = std::move(part.graph_), .given = std::move(part.given_)});
  }

  void ParseStep() {
    try {
      ParseLines();
      FindWhatIsPacked();
      FindSums();
    } catch (const Error& error) {
      // What makes shapes and operators knows no lines.
      if (error.code() == ErrorCode::kSyntaxError || error.code() == ErrorCode::kCancelled) throw;
      throw Error(error.code(), StrCat("line ", number_, " of a step graph: ", error.message()));
    }
  }

  void ParseLines() {
    LineReader header = NextLine();
    if (is_part_) header.Expect("again ");
    graph_.backward = header.Skip("backward ");
    header.Expect("step ");
    graph_.name = header.Word();
    SetDevice(header.Skip(" on ") ? ParseDevice(header.Word()).kind : DeviceKind::kCpu);
    header.Expect(" {");
    ExpectEnd(header);
    first_line_ = number_ + 1;
    for (;;) {
      LineReader line = NextLine();
      if (line.Skip("}")) {
        ExpectEnd(line);
        EndRowMoves(line);
        EndStage(line);
        return;
      }
      line.Expect("  ");
      if (ParseRowMove(line)) {
        ExpectEnd(line);
        continue;
      }
      if (row_moves_ == &graph_.after) line.Throw("row moves after the last step come last");
      EndRowMoves(line);
      if (is_part_ ? ParseGiven(line) : ParseLast(line) || ParseNotKept(line) || ParseOtherMemory(line)) {
        // it is one
      } else if (line.Skip("region {")) {
        ExpectEnd(line);
        ParseRegion();
      } else if (line.StartsWith("in each step") || line.StartsWith("for ") || line.StartsWith("once for all steps") ||
                 line.StartsWith("once behind all steps")) {
        ParseStage(line);
      } else {
        ParseDefinition(line);
      }
      ExpectEnd(line);
    }
  }

  // Passes ask the target what is worth doing. A device may have several.
  void SetDevice(DeviceKind kind) {
    if (options_.target->device != kind) options_.target = GetDeviceSpec(kind).target;
    graph_.target = options_.target;
  }

  LineReader NextLine() {
    ++number_;
    if (text_.empty()) LineReader("", number_).Throw("the graph does not end");
    const size_t end = std::min(text_.find('\n'), text_.size());
    const std::string_view line = text_.substr(0, end);
    text_.remove_prefix(std::min(end + 1, text_.size()));
    return {line, number_};
  }

  static void ExpectEnd(const LineReader& line) {
    if (!line.AtEnd()) line.Throw("the line should have ended");
  }

  // Throws where the text that is printed would not have the stage.
  void EndStage(const LineReader& line) const {
    if (!graph_.stages.empty() && graph_.stages.back().begin == NextNode()) line.Throw("the stage before has no line");
  }

  void ParseStage(LineReader& line) {
    EndStage(line);
    Stage stage = ReadStage(line);
    stage.begin = stage.end = NextNode();
    graph_.stages.push_back(stage);
  }

  // False, with nothing read, where the line is none and no title of some.
  bool ParseRowMove(LineReader& line) {
    if (line.Skip("before the first step:")) {
      if (number_ != first_line_) line.Throw("row moves before the first step come first");
      return (row_moves_ = &graph_.before) != nullptr;
    }
    if (line.Skip("after the last step:")) {
      if (row_moves_ == &graph_.after) line.Throw("row moves after the last step have begun");
      EndRowMoves(line);
      return (row_moves_ = &graph_.after) != nullptr;
    }
    if (row_moves_ == nullptr || line.StartsWith("=")) return false;
    LineReader ahead = line;
    const Name name = ParseName(ahead);
    if (ahead.Skip(" = zero") && ahead.AtEnd()) {
      sums_.push_back({.name = name, .moves = row_moves_, .move = row_moves_->size(), .line = line});
      row_moves_->push_back({.kind = RowMove::Kind::kZero, .to = {.name = name.blob}});
      line = ahead;
      return true;
    }
    if (!name.outside || !ahead.StartsWith(" at ")) return false;
    RowMove move{.to = ParseRows(line)};
    if (line.Skip(" in turns")) graph_.in_turns.insert(move.to.base);
    if (line.Skip(" += ")) {
      move.kind = RowMove::Kind::kAdd;
      move.from = ParseSource(line);
    } else {
      line.Expect(" = ");
      if (line.StartsWith("^")) {
        move.from = ParseSource(line);
      } else if (line.Skip(RowMoveName(RowMove::Kind::kZero))) {
        move.kind = RowMove::Kind::kZero;
      } else if (line.Skip(RowMoveName(RowMove::Kind::kLend))) {
        move.kind = RowMove::Kind::kLend;
        SayLent(move.to.base, true, line);
      } else if (line.Skip(RowMoveName(RowMove::Kind::kGive))) {
        move.kind = RowMove::Kind::kGive;
        SayLent(move.to.base, true, line);
        line.Expect(" ");
        move.from = ParseRows(line);
      } else {
        line.Expect(RowMoveName(RowMove::Kind::kNumbers));
        move.kind = RowMove::Kind::kNumbers;
      }
    }
    move.only_without_steps = line.Skip(", in runs of no steps");
    row_moves_->push_back(std::move(move));
    return true;
  }

  // Says that the moves before the first step, or those after the last one, have ended.
  void EndRowMoves(const LineReader& line) {
    if (row_moves_ != nullptr && row_moves_->empty()) line.Throw("no row move stands before");
    row_moves_ = nullptr;
  }

  // Which blobs end as what, where that is not the last value that the text gives them.
  bool ParseLast(LineReader& line) {
    if (!line.Skip("at the end: ")) return false;
    do {
      if (LineReader ahead = line; ahead.Skip("no ")) {
        line = ahead;
        if (const std::string blob = line.Word(); graph_.last.erase(blob) == 0) {
          line.Throw(StrCat("\"", blob, "\" has no value at the end"));
        }
      } else {
        const int value = ParseUse(line);
        if (graph_.values[value].outside) line.Throw("what is outside is no blob of the step");
        graph_.last[graph_.values[value].blob] = value;
      }
    } while (line.Skip(", "));
    return true;
  }

  // Reads what memory is too short for.
  bool ParseNotKept(LineReader& line) {
    if (!line.Skip("not kept: ")) return false;
    do {
      const LineReader at = line;
      const std::string blob = line.Word();
      if (!graph_.last.contains(blob)) at.Throw("what is not kept has no value at the end");
      graph_.not_kept.insert(blob);
    } while (line.Skip(", "));
    return true;
  }

  // Reads what no other line mentions.
  bool ParseOtherMemory(LineReader& line) {
    if (!line.Skip("other memory outside: ")) return false;
    do {
      if (line.Skip("list ")) {
        graph_.num_lists = std::max(graph_.num_lists, line.Index() + 1);
        continue;
      }
      const int base = line.Index();
      graph_.num_bases = std::max(graph_.num_bases, base + 1);
      ParseLent(base, line);
    } while (line.Skip(", "));
    return true;
  }

  // Reads a base of the step back in place of which a value of the part is read.
  bool ParseGiven(LineReader& line) {
    if (!line.Skip("in place of base ")) return false;
    const int base = line.Index();
    graph_.num_bases = std::max(graph_.num_bases, base + 1);
    line.Expect(": ");
    if (!given_.emplace(base, ParseUse(line)).second) line.Throw("something is read in place of that base already");
    return true;
  }

  BaseRows ParseSource(LineReader& line) {
    BaseRows rows = ParseRows(line);
    ParseLent(rows.base, line);
    return rows;
  }

  void ParseLent(int base, LineReader& line) { SayLent(base, line.Skip(" lent"), line); }

  void SayLent(int base, bool is_lent, const LineReader& line) {
    if (lent_.emplace(base, is_lent).first->second != is_lent) {
      line.Throw(StrCat("base ", base, " is lent in one line and not in another"));
    }
    if (is_lent) graph_.lent.insert(base);
  }

  BaseRows ParseRows(LineReader& line) {
    BaseRows rows = ReadRows(line);
    graph_.num_bases = std::max(graph_.num_bases, rows.base + 1);
    return rows;
  }

  int NextNode() const { return static_cast<int>(graph_.nodes.size()); }

  void ParseDefinition(LineReader& line) {
    std::vector<int> results = ParseResults(line);
    if (results.size() == 1 && line.AtEnd()) return;  // it is there before the step
    AddNode(ParseNode(line, std::move(results)));
  }

  std::vector<int> ParseResults(LineReader& line) {
    std::vector<int> results;
    if (line.StartsWith("= ")) return results;
    do {
      results.push_back(line.StartsWith("_,") || line.StartsWith("_ =") ? (line.Expect("_"), kNoValue)
                                                                        : ParseResult(line));
    } while (line.Skip(", "));
    return results;
  }

  StepNode ParseNode(LineReader& line, std::vector<int> results) {
    if (!results.empty()) line.Expect(" ");
    line.Expect("= ");
    StepNode node = ReadOperation(line, [this](LineReader& of) { return ParseUse(of); });
    for (const int result : results) {
      if (result != kNoValue) graph_.values[result].producer = NextNode();
    }
    node.outputs = std::move(results);
    if (node.kind == StepNode::Kind::kMove) node.by_blobs = IsOfBlobs(node);
    MakeCall(&node);
    return node;
  }

  bool IsOfBlobs(const StepNode& node) const {
    const auto is_blob = [&](int value) {
      return graph_.homes[graph_.values[value].home].kind == Home::Kind::kDynamic;
    };
    return std::ranges::any_of(node.inputs, is_blob) || std::ranges::any_of(node.given(), is_blob);
  }

  void AddNode(StepNode node) {
    graph_.nodes.push_back(std::move(node));
    if (!graph_.stages.empty()) graph_.stages.back().end = NextNode();
  }

  // The lines of a region of several operators, each of which ends as a call does, and of those that run behind it in
  // the same node.
  void ParseRegion() {
    std::vector<StepNode> calls;
    std::vector<int> begins;
    for (;;) {
      LineReader line = NextLine();
      if (line.Skip("  } then {")) {
        begins.push_back(static_cast<int>(calls.size()));
        ExpectEnd(line);
        continue;
      }
      if (line.Skip("  }")) {
        ExpectEnd(line);
        break;
      }
      line.Expect("    ");
      std::vector<int> results = ParseResults(line);
      calls.push_back(ParseNode(line, std::move(results)));
      if (calls.back().kind != StepNode::Kind::kCall) line.Throw("a region is made of operators");
      ExpectEnd(line);
    }
    std::vector<const StepNode*> nodes;
    for (const StepNode& call : calls) nodes.push_back(&call);
    AddNode(JoinedNodeOf(RegionOf(graph_, nodes), std::move(begins)));
  }

  static Name ParseName(LineReader& line) {
    Name name;
    name.outside = line.Skip("^");
    name.blob = line.Word();
    if (line.Skip(".")) name.version = line.Index();
    return name;
  }

  int ParseUse(LineReader& line) {
    const Name name = ParseName(line);
    return FindValue(name, line);
  }

  int FindValue(const Name& name, const LineReader& line) const {
    const auto found = values_.find(name);
    if (found == values_.end()) line.Throw(StrCat("\"", name.blob, "\" has no such value so far"));
    return found->second;
  }

  int ParseResult(LineReader& line) {
    const Name name = ParseName(line);
    if (values_.contains(name)) line.Throw(StrCat("\"", name.blob, "\" has this value already"));
    line.Expect(": ");
    StepValue value{.blob = name.blob, .version = name.version, .outside = name.outside};
    value.dynamic = line.Skip("unknown");
    if (!value.dynamic) value.info = ReadTensorInfo(line);
    value.added = line.Skip(" added");
    value.home = ParseHome(line, value);
    const int index = graph_.AddValue(value);
    values_[name] = index;
    if (!name.outside) graph_.last[name.blob] = index;
    return index;
  }

  int AddHome(Home home) {
    graph_.homes.push_back(std::move(home));
    return static_cast<int>(graph_.homes.size()) - 1;
  }

  int ParseHome(LineReader& line, const StepValue& value) {
    if (line.Skip(" in ")) return graph_.values[ParseUse(line)].home;
    if (line.Skip(" at ")) return ParseOutside(line, value);
    if (line.Skip(" once")) return AddHome({.kind = Home::Kind::kOnce});
    if (line.Skip(" summed")) return AddHome({.kind = Home::Kind::kSum});
    if (line.Skip(" local")) return AddHome({.kind = Home::Kind::kLocal});
    if (line.Skip(" passed")) return AddHome({.passed = true});
    Home home{.kept = line.Skip(" kept")};
    if (line.Skip(" blob")) {
      home.kind = Home::Kind::kDynamic;
      if (line.Skip(" of list ")) home.list = line.Index();
      graph_.num_lists = std::max(graph_.num_lists, home.list + 1);
    }
    return AddHome(home);
  }

  // Values of one blob in one place have one home.
  int ParseOutside(LineReader& line, const StepValue& value) {
    Slot slot = ReadPlace(line);
    slot.blob = value.blob;
    graph_.num_bases = std::max(graph_.num_bases, slot.base + 1);
    slot.bytes = value.dynamic ? 0 : value.info.size_bytes();
    // Else another result follows: names do not begin with digits.
    if (LineReader ahead = line; ahead.Skip(", ") && ahead.AtNumber()) {
      line = ahead;
      slot.bytes = line.IntegerUpTo(kMaxValueBytes);
      line.Expect(" bytes");
    }
    const bool starts_at_zero = line.Skip(" from zero");
    ParseLent(slot.base, line);
    for (const StepValue& other : graph_.values) {
      const Home& home = graph_.homes[other.home];
      const bool is_same = other.blob == value.blob && !other.outside && !value.outside &&
                           home.kind == Home::Kind::kOutside && home.starts_at_zero == starts_at_zero &&
                           AddressText(home.slot) == AddressText(slot) && home.slot.bytes == slot.bytes;
      if (is_same) return other.home;
    }
    return AddHome({.kind = Home::Kind::kOutside, .slot = slot, .starts_at_zero = starts_at_zero});
  }

  // The call, by the names of its values.
  void MakeCall(StepNode* node) const {
    if (!node->RunsOperators()) return;
    OperatorDef def = *node->def;
    for (const int input : node->inputs) def.add_input(graph_.values[input].blob);
    for (const int output : node->outputs) def.add_output(output == kNoValue ? "_" : graph_.values[output].blob);
    node->def = std::make_shared<const OperatorDef>(def);
    node->call = std::make_shared<const OperatorCall>(def, options_);
  }

  // Values of sums come behind the moves that clear them.
  void FindSums() {
    for (const Sum& sum : sums_) {
      BaseRows& rows = (*sum.moves)[sum.move].to;
      rows.sum = graph_.values[FindValue(sum.name, sum.line)].home;
    }
  }

  // What a packing is for may come behind it.
  void FindWhatIsPacked() {
    for (StepNode& pack : graph_.nodes) {
      if (pack.kind != StepNode::Kind::kPack) continue;
      // Several nodes may have its number: the one that reads what it makes, if there is one.
      const auto has_number = [&](const StepNode& node) {
        return node.IsOneOperator() && node.op_index == pack.op_index;
      };
      const auto reads = [&](const StepNode& node) {
        return has_number(node) && node.packed != kNoValue && std::ranges::count(pack.outputs, node.packed) > 0;
      };
      auto user = std::ranges::find_if(graph_.nodes, reads);
      if (user == graph_.nodes.end()) user = std::ranges::find_if(graph_.nodes, has_number);
      if (user == graph_.nodes.end()) {
        throw Error(ErrorCode::kSyntaxError, StrCat("a step graph packs for @", pack.op_index, ", which is not there"));
      }
      pack.call = user->call;
      pack.def = user->def;
    }
  }

  std::string_view text_;
  int number_ = 0;
  RunOptions options_;
  std::map<Name, int> values_;
  std::map<int, bool> lent_;  // by base, what lines have said so far
  StepGraph graph_;
  int first_line_ = 0;                         // behind the header
  std::vector<RowMove>* row_moves_ = nullptr;  // that lines of row moves belong to
  std::vector<Sum> sums_;
  const bool is_part_ = false;
  std::map<int, int> given_;  // by base, of a part
};

}  // namespace

StepGraph ParseGraph(const std::string& text, const RunOptions& options) { return GraphParser(text, options).Run(); }

}  // namespace stepnet

// ParseGraph: reads what GraphText writes, line by line.
#include <algorithm>
#include <limits>

#include "stepnet/compiler/graph_text.h"
#include "stepnet/compiler/line_items.h"
#include "stepnet/compiler/line_reader.h"
#include "stepnet/compiler/region_nodes.h"
#include "stepnet/core/device.h"
#include "stepnet/core/index_of.h"
#include "stepnet/proto/net.pb.h"

namespace stepnet {
namespace {

constexpr int kFirstLine = 2;  // behind the header
constexpr std::int64_t kMaxRowBytes = kMaxValueBytes;
constexpr std::int64_t kMaxSteps = std::numeric_limits<int>::max();
constexpr std::int64_t kMaxStepsAtOnce = 1 << 20;

class GraphParser {
 public:
  GraphParser(const std::string& text, const RunOptions& options) : text_(text), options_(options) {}

  StepGraph Run() {
    try {
      Parse();
      return std::move(graph_);
    } catch (const Error& error) {
      // What makes shapes and operators knows no lines.
      if (error.code() == ErrorCode::kSyntaxError || error.code() == ErrorCode::kCancelled) throw;
      throw Error(error.code(), StrCat("line ", number_, " of a step graph: ", error.message()));
    }
  }

 private:
  void Parse() {
    graph_.target = options_.target;
    LineReader header = NextLine();
    graph_.backward = header.Skip("backward ");
    header.Expect("step ");
    graph_.name = header.Word();
    if (header.Skip(" on ")) SetDevice(header.Word());
    header.Expect(" {");
    ExpectEnd(header);
    for (;;) {
      LineReader line = NextLine();
      if (line.Skip("}")) {
        ExpectEnd(line);
        EndRowMoves(line);
        EndStage(line);
        break;
      }
      line.Expect("  ");
      if (ParseRowMove(line)) {
        ExpectEnd(line);
        continue;
      }
      if (row_moves_ == &graph_.after) line.Throw("row moves after the last step come last");
      EndRowMoves(line);
      if (ParseLast(line)) {
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
    if (!text_.empty()) NextLine().Throw("the graph has ended");
    Finish();
  }

  // Passes ask the target what is worth doing.
  void SetDevice(const std::string& name) {
    graph_.target = options_.target = GetDeviceSpec(ParseDevice(name).kind).target;
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
    Stage stage{.begin = NextNode(), .end = NextNode()};
    stage.is_behind = line.Skip("once behind all steps");
    if (stage.is_behind || line.Skip("once for all steps")) {
      stage.steps_at_once = kAllSteps;
    } else if (line.Skip("for ")) {
      stage.steps_at_once = line.IntegerUpTo(kMaxStepsAtOnce);
      if (stage.steps_at_once < 1) line.Throw("a stage is for no step");
      line.Expect(" steps at once");
    } else {
      line.Expect("in each step");
    }
    if (line.Skip(", in runs of ")) {
      stage.min_steps = line.IntegerUpTo(kMaxSteps);
      line.Expect(" steps or more");
    }
    line.Expect(":");
    graph_.stages.push_back(stage);
  }

  // False, with nothing read, where the line is none and no title of some.
  bool ParseRowMove(LineReader& line) {
    if (line.Skip("before the first step:")) {
      if (number_ != kFirstLine) line.Throw("row moves before the first step come first");
      return (row_moves_ = &graph_.before) != nullptr;
    }
    if (line.Skip("after the last step:")) {
      if (row_moves_ == &graph_.after) line.Throw("row moves after the last step have begun");
      EndRowMoves(line);
      return (row_moves_ = &graph_.after) != nullptr;
    }
    LineReader ahead = line;
    if (row_moves_ == nullptr || !ahead.StartsWith("^")) return false;
    ParseName(ahead);
    if (!ahead.StartsWith(" at ")) return false;
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

  // Behind the moves before the first step, or those after the last one.
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
    line.Expect("^");
    BaseRows rows{.name = line.Word()};
    line.Expect(" at ");
    rows.base = line.Index();
    graph_.num_bases = std::max(graph_.num_bases, rows.base + 1);
    if (!line.Skip("[")) return rows;
    rows.begins_at_steps = line.Skip("T");
    if (!rows.begins_at_steps || line.Skip("+")) rows.begin = line.Integer();
    line.Expect(":");
    if (!line.StartsWith("]")) rows.end = line.Integer();
    line.Expect("]");
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
    StepNode node = ParseOperation(line);
    for (const int result : results) {
      if (result != kNoValue) graph_.values[result].producer = NextNode();
    }
    node.outputs = std::move(results);
    MakeCall(&node);
    return node;
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

  struct Name {
    std::string blob;
    int version = 0;
    bool outside = false;
    auto operator<=>(const Name&) const = default;
  };

  static Name ParseName(LineReader& line) {
    Name name;
    name.outside = line.Skip("^");
    name.blob = line.Word();
    if (line.Skip(".")) name.version = line.Index();
    return name;
  }

  int ParseUse(LineReader& line) {
    const Name name = ParseName(line);
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
    Slot slot{.blob = value.blob, .storage_class = StorageClass::kShared, .base = line.Index()};
    graph_.num_bases = std::max(graph_.num_bases, slot.base + 1);
    if (line.Skip("[")) {
      slot.storage_class = StorageClass::kLinked;
      slot.row_bytes = line.IntegerUpTo(kMaxRowBytes);
      line.Expect(" * ");
      if (line.Skip("(t ")) {
        const bool minus = line.Skip("- ");
        if (!minus) line.Expect("+ ");
        const std::int64_t rows = line.IntegerUpTo(kMaxSteps);
        slot.offset = minus ? -rows : rows;
        line.Expect(")");
      } else {
        line.Expect("t");
      }
      line.Expect("]");
    }
    slot.dtype = value.info.dtype;
    slot.bytes = value.dynamic ? 0 : value.info.size_bytes();
    // Else another result follows: names do not begin with digits.
    if (LineReader ahead = line; ahead.Skip(", ") && ahead.AtNumber()) {
      line = ahead;
      slot.bytes = line.IntegerUpTo(kMaxRowBytes);
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

  StepNode ParseOperation(LineReader& line) {
    if (LineReader ahead = line; ahead.Skip("packed ") && !ahead.AtEnd()) {
      line = ahead;
      StepNode node{.kind = StepNode::Kind::kPack};
      do {
        node.inputs.push_back(ParseUse(line));
      } while (line.Skip(", "));
      line.Expect(" for @");
      node.op_index = line.Index();
      return node;
    }
    StepNode node;
    if (LineReader ahead = line; ahead.Skip("region ") && !ahead.AtEnd()) {
      line = ahead;
      node.kind = StepNode::Kind::kRegion;
    } else if (ahead = line; ahead.Skip("product ") && !ahead.AtEnd()) {
      line = ahead;
      node.kind = StepNode::Kind::kProduct;
      node.products = ParseProducts(line);
    }
    LineReader ahead = line;
    if (ahead.StartsWith("^") || (static_cast<void>(ahead.Word(true)), !ahead.StartsWith("("))) {
      return {.kind = StepNode::Kind::kMove, .inputs = {ParseUse(line)}};
    }
    const auto def = std::make_shared<OperatorDef>();
    const std::string type = line.Word(true);
    line.Expect("(");
    while (!line.Skip(")")) {
      if (!node.inputs.empty()) line.Expect(", ");
      node.inputs.push_back(ParseUse(line));
    }
    FindFactors(line, &node);
    if (line.Skip(" with ")) node.packed = ParseUse(line);
    node.by_blobs = line.Skip(" by blobs");
    line.Expect(" @");
    node.op_index = line.Index();
    if (line.Skip(" of ")) node.net = line.Word();
    ReadArguments(line, def.get());
    def->set_type(type);
    node.def = def;
    return node;
  }

  // Reads products of values, which stand where an operator has inputs.
  std::vector<std::optional<Product>> ParseProducts(LineReader& line) {
    std::vector<std::optional<Product>> products;
    do {
      std::optional<Product>& product = products.emplace_back();
      if (line.StartsWith("_;") || line.StartsWith("_ ")) {
        line.Expect("_");
        continue;
      }
      product.emplace();
      if (line.StartsWith("sum ") && !line.StartsWith("sum [")) {
        line.Expect("sum ");
        product->left = ParseFactor(line);
        continue;
      }
      product->left = ParseFactor(line);
      line.Expect(" * ");
      product->right = ParseFactor(line);
      if (line.Skip(" + ")) product->bias = ParseUse(line);
    } while (line.Skip("; "));
    line.Expect(" by ");
    return products;
  }

  ProductFactor ParseFactor(LineReader& line) {
    ProductFactor factor{.input = ParseUse(line)};
    factor.shape = ReadShape(line);
    factor.transposed = line.Skip("^T");
    return factor;
  }

  static void FindFactors(const LineReader& line, StepNode* node) {
    const auto find = [&](int* input) {
      *input = IndexOf(node->inputs, *input);
      if (*input < 0) line.Throw("a product is of what the operator does not read");
    };
    for (std::optional<Product>& product : node->products) {
      if (!product) continue;
      find(&product->left.input);
      if (product->right) find(&product->right->input);
      if (product->bias >= 0) find(&product->bias);
    }
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

  // What a packing is for may come behind it.
  void Finish() {
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
  std::vector<RowMove>* row_moves_ = nullptr;  // that lines of row moves belong to
};

}  // namespace

StepGraph ParseGraph(const std::string& text, const RunOptions& options) { return GraphParser(text, options).Run(); }

}  // namespace stepnet

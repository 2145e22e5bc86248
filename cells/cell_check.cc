// What can be known to be wrong with a cell before its sizes are known.
#include "stepnet/cells/cell_check.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "stepnet/cells/cell_advice.h"
#include "stepnet/cells/cell_reader.h"
#include "stepnet/cells/size_arguments.h"
#include "stepnet/cells/size_expression.h"
#include "stepnet/core/cancellation.h"
#include "stepnet/core/operator.h"
#include "stepnet/nets/net_check.h"
#include "stepnet/nets/op_arguments.h"

namespace stepnet {
namespace {

constexpr size_t kMaxShown = 100;  // messages about one cell

std::string MoreText(size_t count) { return StrCat("… and ", count, " more"); }

class CellChecker {
 public:
  explicit CellChecker(const CellSource& source) : source_(source), cell_(source.def) {}

  // What is wrong, or nothing.
  std::optional<Error> Run() {
    if (cell_.name().empty()) Report(CellPart::kCell, 0, "the cell has no name");
    if (cell_.input_size() == 0) Report(CellPart::kCell, 0, "the cell has no input, whose steps it could run over");
    if (cell_.output_size() == 0) Report(CellPart::kCell, 0, "the cell has no output");
    CheckSizes();
    CheckNames();
    CheckOperators();
    CheckOutputs();
    CheckUse();
    CheckStates();
    CheckOptions();
    CheckEffects();
    if (problems_.empty()) CheckUseOfSizes();  // a misspelled size is one that nothing uses, too
    if (problems_.empty()) return {};
    if (more_ > 0) problems_.push_back(MoreText(more_));
    return Error(CodeOfFaults(), Join(problems_, "\n"));
  }

  // Behind Run: whether all that is wrong is that nothing reads something, of which all is told.
  bool is_unread_alone() const { return more_ == 0 && num_unread_ == problems_.size(); }

 private:
  // Whatever is wrong with a text is a syntax error; a message that a program made has no syntax. Options from
  // elsewhere are looked at when the cell's own were right.
  ErrorCode CodeOfFaults() const {
    if (source_.options_from != nullptr) return ErrorCode::kInvalidArgument;
    return source_.places.empty() ? ErrorCode::kInvalidNet : ErrorCode::kSyntaxError;
  }
  // Later ones are counted: to tell of each where it is takes as long as to read the cell, and nobody reads so many.
  void Report(CellPart part, int index, const std::string& message) {
    CheckCancelled();
    if (IsFull()) {
      ++more_;
      return;
    }
    problems_.push_back(source_.Fault(part, index, message));
  }

  void ReportUnread(CellPart part, int index, const std::string& message) {
    Report(part, index, message);
    ++num_unread_;
  }

  bool IsFull() const { return problems_.size() >= kMaxShown; }
  // DidYouMean for a message of which something will be shown.
  template <typename Names>
  std::string Hint(const std::string& name, const Names& known) const {
    return IsFull() ? "" : DidYouMean(name, {known.begin(), known.end()});
  }

  void CheckSizes() {
    for (int i = 0; i < cell_.size_size(); ++i) {
      const CellSize& size = cell_.size(i);
      if (size.name().empty()) Report(CellPart::kSize, i, "a size has no name");
      if (!sizes_.insert(size.name()).second) {
        Report(CellPart::kSize, i, StrCat("the size ", size.name(), " is declared twice"));
      }
      if (size.name() == "B" || size.name() == "T") {
        Report(CellPart::kSize, i,
               StrCat(size.name(), " stands for the ", size.name() == "B" ? "batch" : "steps",
                      ", which shapes are declared without, and cannot be a size of the cell"));
      }
      if (size.has_value() && size.value() <= 0) {
        Report(CellPart::kSize, i, StrCat("the size ", size.name(), " is ", size.value(), ", must be above 0"));
      }
    }
  }

  void CheckUseOfSizes() {
    for (int i = 0; i < cell_.size_size(); ++i) {
      if (used_sizes_.contains(cell_.size(i).name())) continue;
      Report(CellPart::kSize, i, StrCat("nothing uses the size ", cell_.size(i).name()));
    }
  }

  template <typename Message>
  void CheckShape(CellPart part, int index, const Message& message) {
    std::set<std::string> names;
    for (const std::string& dimension : message.shape()) {
      try {
        names.merge(Set(NamesInSize(dimension)));
      } catch (const Error& error) {
        Report(part, index, error.message());
      }
    }
    if (part == CellPart::kCapture) {
      names.erase("B");
    } else if (names.contains("B") || names.contains("T")) {
      Report(part, index, WithoutBatch(part, message));
      names.erase("B");
      names.erase("T");
    }
    CheckSizeNames(part, index, StrCat("the shape of \"", message.name(), "\""), names);
  }

  // What to write in place of a shape with the batch or the steps.
  template <typename Message>
  static std::string WithoutBatch(CellPart part, const Message& message) {
    std::vector<std::string> item(message.shape().begin(), message.shape().end());
    std::erase_if(item, [](const std::string& dimension) { return dimension == "B" || dimension == "T"; });
    const std::string shape = StrCat(message.name(), "[", Join(item, ", "), "]");
    std::string text = part == CellPart::kParameter
                           ? StrCat("\"", message.name(), "\" is the same for all items and steps, ", shape,
                                    ": it has no dimension of the batch, B, or of steps, T")
                           : StrCat("\"", message.name(), "\" is declared by the shape of an item in a step, ", shape,
                                    ": the batch, B, and the steps, T, are implied");
    if (part == CellPart::kInput && item.empty()) {
      text +=
          StrCat("; the lengths of sequences are no input that the cell declares: option lengths = ", message.name());
    }
    return text;
  }

  static std::set<std::string> Set(const std::vector<std::string>& names) { return {names.begin(), names.end()}; }

  void CheckSizeNames(CellPart part, int index, const std::string& what, const std::set<std::string>& names) {
    used_sizes_.insert(names.begin(), names.end());
    for (const std::string& name : names) {
      if (sizes_.contains(name)) continue;
      const std::string hint = Hint(name, sizes_);
      Report(part, index,
             StrCat(what, " has a size ", name, ", which the cell does not declare",
                    hint.empty() ? StrCat("; add: size ", name) : hint));
    }
  }

  // The names in the operator's arguments; returns whether there are any expressions, of which only sizes tell whether
  // they are right (CellLayer).
  bool CheckExpressions(CellPart part, int index, const OperatorDef& op) {
    const IsSize is_size = [&](const std::string& name) { return sizes_.contains(name); };
    const std::vector<ArgumentExpression> expressions = ExpressionsOf(op, is_size);
    for (const auto& [spec, text] : expressions) {
      try {
        std::set<std::string> names = Set(NamesInArgument(*spec, text));
        const std::string what = StrCat("the argument \"", spec->name, "\" of ", op.type());
        for (const char* implied : {"B", "T"}) {
          if (sizes_.contains(implied) || names.erase(implied) == 0) continue;
          Report(part, index, StrCat(what, " has ", implied, AdviceOnBatch(implied), AdviceOnBatch(op, spec->name)));
        }
        CheckSizeNames(part, index, what, names);
      } catch (const Error& error) {
        Report(part, index, error.message());
      }
    }
    return !expressions.empty();
  }

  void Declare(CellPart part, int index, const std::string& name) {
    if (name.empty()) return Report(part, index, "a name is missing");
    if (name == "timestep") return Report(part, index, "\"timestep\" is the number of the step");
    if (!names_.insert(name).second) Report(part, index, StrCat("the name \"", name, "\" is taken already"));
  }

  void CheckNames() {
    for (int i = 0; i < cell_.input_size(); ++i) {
      Declare(CellPart::kInput, i, cell_.input(i).name());
      CheckShape(CellPart::kInput, i, cell_.input(i));
    }
    for (int i = 0; i < cell_.state_size(); ++i) {
      Declare(CellPart::kState, i, cell_.state(i).name());
      Declare(CellPart::kState, i, PreviousOf(cell_.state(i)));
      CheckShape(CellPart::kState, i, cell_.state(i));
      if (cell_.state(i).shape().empty()) {
        const std::string& name = cell_.state(i).name();
        Report(CellPart::kState, i,
               StrCat("the state \"", name, "\" has no dimensions; ", name, "[1] is one number an item"));
      }
    }
    for (int i = 0; i < cell_.capture_size(); ++i) {
      Declare(CellPart::kCapture, i, cell_.capture(i).name());
      CheckShape(CellPart::kCapture, i, cell_.capture(i));
    }
    for (int i = 0; i < cell_.parameter_size(); ++i) {
      Declare(CellPart::kParameter, i, cell_.parameter(i).name());
      CheckShape(CellPart::kParameter, i, cell_.parameter(i));
      CheckInitializer(i);
    }
  }

  void CheckInitializer(int i) {
    const CellParameter& parameter = cell_.parameter(i);
    if (!parameter.has_initializer()) return;
    const OperatorDef& fill = parameter.initializer();
    try {
      const OperatorSchema& schema = GetOperator(fill.type());
      if (fill.input_size() > 0 || schema.min_inputs() > 0 || schema.FindArgument("shape") == nullptr) {
        Report(CellPart::kInitializer, i,
               StrCat(fill.type(), " cannot fill a parameter: it makes no tensor of a shape"));
      }
      if (FindArgument(fill, "shape") != nullptr) {
        Report(CellPart::kInitializer, i,
               StrCat("\"", parameter.name(), "\" has a shape already; its initializer needs none"));
      } else if (!CheckExpressions(CellPart::kInitializer, i, fill)) {
        const OperatorCall call(fill);  // throws for other arguments
      }
    } catch (const Error& error) {
      Report(CellPart::kInitializer, i, error.message());
    }
  }

  void CheckOperators() {
    known_ = {"timestep"};
    for (const CellInput& input : cell_.input()) known_.insert(input.name());
    for (const CellState& state : cell_.state()) known_.insert(PreviousOf(state));
    for (const CellCapture& capture : cell_.capture()) known_.insert(capture.name());
    for (const CellParameter& parameter : cell_.parameter()) known_.insert(parameter.name());
    const std::set<std::string> given = known_;
    for (int k = 0; k < cell_.op_size(); ++k) {
      const OperatorDef& op = cell_.op(k);
      std::set<std::string> missing;
      for (const std::string& input : op.input()) {
        read_.insert(input);
        if (known_.contains(input) || !missing.insert(input).second) continue;
        Report(
            CellPart::kOperator, k,
            StrCat("`", OperatorText(op), "` reads \"", input, "\", which is no input, state or parameter and which ",
                   "no operator before it writes", Hint(input, known_)));
      }
      for (const std::string& output : op.output()) {
        if (given.contains(output)) {
          Report(CellPart::kOperator, k,
                 StrCat("`", OperatorText(op), "` writes \"", output, "\", which a step is given"));
        }
        known_.insert(output);
        written_.insert(output);
      }
    }
    // Types, arity and arguments, as in any net.
    NetDef step;
    std::vector<int> places;  // operator of the step → of the cell
    for (int k = 0; k < cell_.op_size(); ++k) {
      if (CheckExpressions(CellPart::kOperator, k, cell_.op(k))) continue;
      *step.add_op() = cell_.op(k);
      places.push_back(k);
    }
    for (const NetProblem& problem : CheckNet(step)) {
      const int k = problem.op_index < 0 ? 0 : places[problem.op_index];
      const std::string advice = AdviceOnOneInput(cell_.op(k));  // as to Max(x, axis=-1)
      Report(CellPart::kOperator, k,
             problem.op_text.empty()
                 ? problem.message
                 : StrCat("`", problem.op_text, "`: ", problem.message, advice.empty() ? "" : "; ", advice));
    }
  }

  // The names of what the cell's net reads.
  std::set<std::string> NamesOutside() const {
    std::set<std::string> names = {cell_.options().lengths(), cell_.options().mask()};
    for (const CellInput& input : cell_.input()) names.insert(input.name());
    for (const CellCapture& capture : cell_.capture()) names.insert(capture.name());
    for (const CellParameter& parameter : cell_.parameter()) names.insert(parameter.name());
    return names;
  }

  void CheckOutputs() {
    const std::set<std::string> outside = NamesOutside();
    std::set<std::string> names;
    for (int i = 0; i < cell_.output_size(); ++i) {
      const CellOutput& output = cell_.output(i);
      if (!written_.contains(output.blob())) {
        Report(CellPart::kOutput, i,
               StrCat("the output \"", output.blob(), "\" is written by no operator", Hint(output.blob(), written_)));
      }
      if (!names.insert(NameOf(output)).second) {
        Report(CellPart::kOutput, i, StrCat("two outputs are called \"", NameOf(output), "\""));
      }
      if (outside.contains(NameOf(output))) {
        Report(CellPart::kOutput, i, StrCat("the output \"", NameOf(output), "\" has the name of what the net reads"));
      }
      read_.insert(output.blob());
    }
    if (cell_.output_size() > 0 && cell_.output(0).last()) {
      Report(CellPart::kOutput, 0, "the first output must be of every step");
    }
  }

  // Products by a value of the step, where a parameter may have been meant: nothing reads that one then.
  void CheckProducts() {
    const std::set<std::string> of_the_step = BlobsOfTheStep(cell_);
    for (int k = 0; k < cell_.op_size(); ++k) {
      const std::string advice = AdviceOnTwoValues(source_, k, of_the_step);
      if (!advice.empty()) Report(CellPart::kOperator, k, advice);
    }
  }

  void CheckUse() {
    const auto is_unread = [&](const CellParameter& parameter) { return !read_.contains(parameter.name()); };
    if (std::ranges::any_of(cell_.parameter(), is_unread)) CheckProducts();
    for (int i = 0; i < cell_.parameter_size(); ++i) {
      if (read_.contains(cell_.parameter(i).name())) continue;
      ReportUnread(CellPart::kParameter, i, StrCat("nothing reads the parameter \"", cell_.parameter(i).name(), "\""));
    }
    for (int i = 0; i < cell_.capture_size(); ++i) {
      if (read_.contains(cell_.capture(i).name())) continue;
      ReportUnread(CellPart::kCapture, i, StrCat("nothing reads \"", cell_.capture(i).name(), "\""));
    }
    for (int i = 0; i < cell_.input_size(); ++i) {
      const std::string& name = cell_.input(i).name();
      if (read_.contains(name) || name == cell_.options().lengths() || name == cell_.options().mask()) continue;
      ReportUnread(CellPart::kInput, i, StrCat("nothing reads the input \"", name, "\""));
    }
  }

  void CheckProbability(CellPart part, int index, const char* name, float value) {
    if (value >= 0 && value < 1) return;
    Report(part, index, StrCat(name, " is ", value, ", must be at least 0 and below 1"));
  }

  void CheckStates() {
    for (int i = 0; i < cell_.state_size(); ++i) {
      const CellState& state = cell_.state(i);
      const auto report = [&](CellPart part, int index, const std::string& message) {
        Report(part, index, StrCat("the state \"", state.name(), "\" ", message));
      };
      if (!written_.contains(state.name())) report(CellPart::kState, i, "is written by no operator");
      if (state.window() < 1) {
        report(CellPart::kStateOption, StateOption(i, CellState::kWindowFieldNumber),
               StrCat("has a window of ", state.window(), ", must be at least 1"));
      }
      CheckProbability(CellPart::kStateOption, StateOption(i, CellState::kDropoutFieldNumber), "dropout",
                       state.dropout());
      CheckProbability(CellPart::kStateOption, StateOption(i, CellState::kZoneoutFieldNumber), "zoneout",
                       state.zoneout());
      const std::string& initial = state.initial();
      const std::optional<float> number = FloatOf(initial);
      const float zoneout = state.has_zoneout() ? state.zoneout() : cell_.options().zoneout();
      if (number && std::isinf(*number) && zoneout > 0) {
        report(CellPart::kStateOption, StateOption(i, CellState::kInitialFieldNumber),
               StrCat("starts at ", initial,
                      ", of which zoneout keeps a part in every step when not training; start it at a number as -1e30, "
                      "or leave it out: state ",
                      state.name(), " initial=", initial, " zoneout=0"));
      }
      if (initial != "given" && initial != "learned" && (!number || std::isnan(*number))) {
        report(CellPart::kStateOption, StateOption(i, CellState::kInitialFieldNumber),
               StrCat("has the initial value \"", initial,
                      "\", must be a number, given (an input) or learned (a parameter)",
                      DidYouMean(initial, {"given", "learned"})));
      }
    }
  }

  bool IsRead(const CellState& state) const { return read_.contains(PreviousOf(state)); }

  // What is said, and would do nothing without an error.
  void CheckEffects() {
    const auto is_given = [](float probability) { return probability > 0 && probability < 1; };  // others are faults
    const CellOptions& options = cell_.options();
    const auto report = [&](int field, const std::string& message) { Report(CellPart::kOptions, field, message); };
    for (int i = 0; i < cell_.state_size(); ++i) {
      const CellState& state = cell_.state(i);
      if (!is_given(state.dropout()) || IsRead(state)) continue;
      Report(CellPart::kStateOption, StateOption(i, CellState::kDropoutFieldNumber),
             StrCat("dropout is of what the step reads of the state, and it never reads \"", state.name(), "\""));
    }
    if (is_given(options.recurrent_dropout())) {
      const std::string problem = RecurrentDropoutProblem();
      if (!problem.empty()) report(CellOptions::kRecurrentDropoutFieldNumber, "recurrent_dropout is of " + problem);
    }
    if (is_given(options.zoneout()) && cell_.state_size() == 0) {
      report(CellOptions::kZoneoutFieldNumber, "zoneout is of all states, and the cell has none");
    }
    if (options.layers() != 1) return;
    if (is_given(options.dropout())) {
      report(
          CellOptions::kDropoutFieldNumber,
          "dropout is between layers, and the cell has one; in the step it is Dropout(…), of a state that steps hand "
          "on: state NAME dropout=…");
    }
    if (options.residual()) {
      report(CellOptions::kResidualFieldNumber, "residual adds from the second layer on, and the cell has one");
    }
  }

  std::string RecurrentDropoutProblem() const {
    if (cell_.state_size() == 0) return "the first state, and the cell has none";
    const CellState& state = cell_.state(0);
    const std::string first = StrCat("the first state, \"", state.name(), "\", ");
    if (state.has_dropout()) return first + "which has a dropout of its own";
    if (IsRead(state)) return "";
    return first + "which the step never reads; of another one it is: state NAME dropout=…";
  }

  void CheckOptions() {
    const CellOptions& options = cell_.options();
    const auto report = [&](int field, const std::string& message) { Report(CellPart::kOptions, field, message); };
    constexpr std::int64_t kMaxLayers = 1000;
    if (options.layers() < 1 || options.layers() > kMaxLayers) {
      report(CellOptions::kLayersFieldNumber,
             StrCat("layers is ", options.layers(), ", must be between 1 and ", kMaxLayers));
    }
    CheckProbability(CellPart::kOptions, CellOptions::kDropoutFieldNumber, "dropout", options.dropout());
    CheckProbability(CellPart::kOptions, CellOptions::kRecurrentDropoutFieldNumber, "recurrent_dropout",
                     options.recurrent_dropout());
    CheckProbability(CellPart::kOptions, CellOptions::kZoneoutFieldNumber, "zoneout", options.zoneout());
    if (options.has_lengths() && options.has_mask())
      report(CellOptions::kMaskFieldNumber, "a cell has lengths or a mask, not both");
    if (options.has_beyond_length() && !options.has_lengths() && !options.has_mask()) {
      report(CellOptions::kBeyondLengthFieldNumber, "beyond_length needs lengths or a mask: all steps count otherwise");
    }
    const auto check_name = [&](int field, const std::string& name) {
      if (name.empty() || !names_.contains(name)) return;
      const bool is_input = std::ranges::count(cell_.input(), name, [](const auto& input) { return input.name(); }) > 0;
      const std::string advice =
          is_input ? "; the option itself declares it, so that it does not stand among the inputs" : "";
      report(field, StrCat("the name \"", name, "\" is taken already", advice));
    };
    check_name(CellOptions::kLengthsFieldNumber, options.lengths());
    check_name(CellOptions::kMaskFieldNumber, options.mask());
  }

  const CellSource& source_;
  const CellDef& cell_;
  std::set<std::string> sizes_;
  std::set<std::string> used_sizes_;  // by shapes and arguments
  std::set<std::string> names_;       // declared
  std::set<std::string> known_;       // that an operator may read
  std::set<std::string> written_;     // by operators
  std::set<std::string> read_;
  std::vector<std::string> problems_;
  size_t more_ = 0;        // problems beyond kMaxShown
  size_t num_unread_ = 0;  // problems of ReportUnread
};

}  // namespace

void CheckCell(const CellSource& cell) {
  if (const std::optional<Error> fault = CellChecker(cell).Run()) throw *fault;
}

std::optional<Error> UnreadFault(const CellSource& cell) {
  CellChecker checker(cell);
  std::optional<Error> fault = checker.Run();
  if (fault && !checker.is_unread_alone()) throw *fault;
  return fault;
}

std::vector<std::string> WarningsOf(const CellSource& cell) {
  std::set<std::string> read;
  for (const OperatorDef& op : cell.def.op()) read.insert(op.input().begin(), op.input().end());
  for (const CellState& state : cell.def.state()) read.insert(state.name());
  for (const CellOutput& output : cell.def.output()) read.insert(output.blob());
  const std::set<std::string> of_the_step = BlobsOfTheStep(cell.def);
  std::vector<std::string> warnings;
  size_t found = 0;  // of which as many are told as of problems, for the same reason
  const auto warn_of = [&](CellPart part, int index, const std::string& message) {
    if (++found <= kMaxShown) warnings.push_back(cell.Fault(part, index, message));
  };
  const auto warn = [&](int k, const std::string& message) { warn_of(CellPart::kOperator, k, message); };
  for (int i = 0; i < cell.def.state_size(); ++i) {
    const CellState& state = cell.def.state(i);
    if (state.window() == 1 || !cell.def.options().has_mask()) continue;
    warn_of(CellPart::kStateOption, StateOption(i, CellState::kWindowFieldNumber),
            StrCat("the state \"", state.name(), "\" has window=", state.window(),
                   ", of which steps that the mask leaves out take rows, too: the newest row comes again in each; ",
                   AdviceOnWindow(state)));
  }
  const auto is_read = [&](const std::string& blob) { return read.contains(blob); };
  const auto is_of_the_step = [&](const std::string& blob) { return of_the_step.contains(blob); };
  for (int k = 0; k < cell.def.op_size(); ++k) {
    const OperatorDef& op = cell.def.op(k);
    if (std::ranges::none_of(op.output(), is_read)) {
      warn(k, StrCat("nothing reads what `", OperatorText(op), "` writes"));
    } else if (const std::string advice = AdviceOnOneInput(op); !advice.empty()) {
      warn(k, advice);
    } else if (std::ranges::any_of(op.input(), is_of_the_step)) {
      if (const std::string advice = AdviceOnAxis(op); !advice.empty()) warn(k, advice);
    }
  }
  if (found > kMaxShown) warnings.push_back(MoreText(found - kMaxShown));
  return warnings;
}

}  // namespace stepnet

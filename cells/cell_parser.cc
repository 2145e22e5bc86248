// The short form of cells: a parser by recursive descent that writes operators as it goes.
#include <algorithm>
#include <optional>
#include <set>

#include "stepnet/cells/cell.h"
#include "stepnet/cells/cell_advice.h"
#include "stepnet/cells/cell_argument_reader.h"
#include "stepnet/cells/cell_options.h"
#include "stepnet/cells/cell_step_writer.h"
#include "stepnet/cells/size_expression.h"
#include "stepnet/core/exact_number.h"
#include "stepnet/core/name_characters.h"
#include "stepnet/core/operator.h"
#include "stepnet/io/proto_io.h"

namespace stepnet {
namespace {

class CellParser : private CellArgumentReader {
 public:
  CellParser(const std::string& text, const std::string& what)
      : CellArgumentReader(text, what, [this](const std::string& name) { return SizesOf(source_.def)(name); }) {
    source_.file = what;
    source_.text = text;
    if (!doc().empty()) source_.def.set_doc(doc());
  }

  CellSource Run() {
    Header();
    SkipNewlines();
    while (!Next().Is('}')) {
      Statement();
      if (!Next().Is('}')) TakeSeparator();
      SkipNewlines();
    }
    Take();
    SkipNewlines();
    if (Next().kind != CellToken::kEnd) Fail(StrCat(Next().Description(), " behind the end of the cell"));
    return std::move(source_);
  }

 private:
  void Mark(CellPart part, int index, const CellToken& token) {
    source_.places[{part, index}] = {token.line, token.column};
  }

  // --- declarations

  void Header() {
    SkipNewlines();
    if (!Next().IsName("cell")) {
      Fail(StrCat("\"cell\" is expected, not ", Next().Description(), DidYouMean(Next().text, {"cell"})));
    }
    Mark(CellPart::kCell, 0, Take());
    source_.def.set_name(ExpectName("the name of the cell"));
    Expect('(');
    Declarations(CellPart::kInput, source_.def.mutable_input(), "an input");
    if (!Next().Is(';')) {
      const std::string advice =
          Next().Is(')') ? StrCat("; a cell without states has it, too: cell ", source_.def.name(), "(…;)") : "";
      Fail(StrCat("';' is expected between inputs and states, not ", Next().Description(), advice));
    }
    Take();
    if (!Next().Is(')') && !Next().Is(';')) Declarations(CellPart::kState, source_.def.mutable_state(), "a state");
    if (TakeIf(';')) Declarations(CellPart::kCapture, source_.def.mutable_capture(), "a tensor");
    Expect(')');
    Expect('{');
    for (const CellInput& input : source_.def.input()) step_.Declare(input.name(), StepBlob::kInput, 0);
    for (const CellState& state : source_.def.state()) step_.DeclareState(state.name());
    for (const CellCapture& capture : source_.def.capture()) {
      step_.Declare(capture.name(), StepBlob::kShared, capture.shape_size());
    }
  }

  // `a, b[H], c[4*H]`: names without a shape have the next one.
  template <typename Messages>
  void Declarations(CellPart part, Messages* messages, const char* what) {
    int first_without = messages->size();
    do {
      const CellToken& token = Next();
      CheckNew(token);
      Mark(part, messages->size(), token);
      auto* message = messages->Add();
      message->set_name(ExpectName(what));
      if (!Next().Is('[')) continue;
      const std::vector<std::string> shape = Dimensions();
      for (; first_without < messages->size(); ++first_without) {
        messages->Mutable(first_without)->mutable_shape()->Assign(shape.begin(), shape.end());
      }
    } while (TakeIf(','));
    if (first_without < messages->size()) {
      Fail(StrCat("\"", messages->Get(messages->size() - 1).name(), "\" needs a shape, as in x[D]"));
    }
  }

  void CheckNew(const CellToken& token) {
    if (token.kind == CellToken::kName && !names_.insert(token.text).second) {
      FailAt(token, StrCat("\"", token.text, "\" is declared twice"));
    }
  }

  void Statement() {
    const bool is_declaration = Next(1).kind == CellToken::kName;
    if (is_declaration && Next().IsName("size")) return SizeStatement();
    if (is_declaration && Next().IsName("param")) return ParameterStatement();
    if (is_declaration && Next().IsName("state")) return StateStatement();
    if (is_declaration && Next().IsName("output")) return OutputStatement();
    if (is_declaration && Next().IsName("option")) return OptionStatement();
    if (Next().Is('/') && Next(1).Is('/')) Fail("a comment begins with #, not with //");
    const bool is_assignment = Next(1).Is('=') || Next(1).Is(',');
    const std::string advice = Next().kind == CellToken::kName && !is_assignment ? AdviceOnWord(Next().text) : "";
    if (is_declaration || !advice.empty()) {
      const std::vector<std::string> known = {"size", "param", "state", "output", "option"};
      Fail(StrCat("\"", Next().text, "\" is no statement", advice.empty() ? DidYouMean(Next().text, known) : advice));
    }
    Assignment();
  }

  void SizeStatement() {
    Take();
    Mark(CellPart::kSize, source_.def.size_size(), Next());
    CheckNew(Next());
    CellSize& size = *source_.def.add_size();
    size.set_name(ExpectName("the name of a size"));
    if (!TakeIf('=')) return;
    const CellToken& token = Next();
    const std::string text = SizeText();
    if (const std::vector<std::string> names = NamesInSize(text); !names.empty()) {
      FailAt(token, StrCat("a size is a number and does not follow from ", names[0], "; write ", text,
                           " where it is needed, as in param w[", text, "]"));
    }
    size.set_value(At(token, [&] { return EvaluateSize(text, {}); }));
  }

  // `param w[4*H, D] = UniformFill(min=-0.1, max=0.1)`, or a number.
  void ParameterStatement() {
    Take();
    Mark(CellPart::kParameter, source_.def.parameter_size(), Next());
    CheckNew(Next());
    CellParameter& parameter = *source_.def.add_parameter();
    parameter.set_name(ExpectName("the name of a parameter"));
    if (!Next().Is('[')) {
      Fail(StrCat("the shape of the parameter is expected, not ", Next().Description(), "; one number is param ",
                  parameter.name(), Next().Is('=') ? "[] = …" : "[]"));
    }
    const std::vector<std::string> shape = Dimensions();
    parameter.mutable_shape()->Assign(shape.begin(), shape.end());
    // A single element is no bias of a product: it is repeated, as a number is.
    const bool is_single = shape.size() == 1 && shape.front() == "1";
    step_.Declare(parameter.name(), StepBlob::kShared, is_single ? 0 : parameter.shape_size());
    if (!TakeIf('=')) return;
    OperatorDef& fill = *parameter.mutable_initializer();
    const bool is_number = Next().IsName("sqrt") || (IsSizeName(Next().text) && !Next(1).Is('('));
    const bool is_type = Next().kind == CellToken::kName && !is_number;
    if (is_type) {
      fill.set_type(FillType());
      if (TakeIf('(')) {
        CheckFillNames(fill);
        ArgumentList(&fill);
      }
    } else {
      fill.set_type("ConstantFill");
      Argument& value = *fill.add_arg();
      value.set_name("value");
      InitialNumber(&fill, &value);
    }
  }

  std::string FillType() {
    const CellToken& type = Take();
    Mark(CellPart::kInitializer, source_.def.parameter_size() - 1, type);
    if (FindOperator(type.text) != nullptr) return type.text;
    std::vector<std::string> fills = OperatorTypes();
    std::erase_if(fills, [](const std::string& name) { return !name.ends_with("Fill"); });
    const std::string nearest = DidYouMean(type.text, fills);
    FailAt(type, StrCat("no operator type \"", type.text, "\"", nearest.empty() ? "; " + FillsText() : nearest));
  }

  // `0.1`, `1/sqrt(H)`: of a parameter, which is of floats.
  void InitialNumber(OperatorDef* fill, Argument* value) {
    const CellToken& first = Next();
    const std::string text = ValueText();
    const std::vector<std::string> names = At(first, [&] { return NamesInNumber(text); });
    if (names.empty()) return SetWritten(At(first, [&] { return EvaluateNumber(text, {}); }), value);
    CheckSizes(first, names, "");
    value->set_s(text);
    Argument& dtype = *fill->add_arg();
    dtype.set_name("dtype");
    dtype.set_i(TensorProto::FLOAT);
  }

  // `state c initial=given window=3 dropout=0.2 zoneout=0.1`
  void StateStatement() {
    Take();
    const CellToken& token = Next();
    const std::string name = ExpectName("the name of a state");
    auto* states = source_.def.mutable_state();
    const auto state = std::ranges::find(*states, name, [](const CellState& s) { return s.name(); });
    if (state == states->end()) {
      FailAt(token, StrCat("the cell has no state \"", name, "\"", DidYouMean(name, StateNames())));
    }
    while (Next().kind == CellToken::kName) {
      const CellToken& key = Take();
      Expect('=');
      if (!given_.insert(name + " " + key.text).second)
        FailAt(key, StrCat(key.text, " of \"", name, "\" is given twice"));
      if (const auto* field = CellState::descriptor()->FindFieldByName(key.text)) {
        const auto index = static_cast<int>(state - states->begin());
        Mark(CellPart::kStateOption, StateOption(index, field->number()), key);
      }
      if (key.text == "initial") {
        state->set_initial(InitialValue());
      } else if (key.text == "window") {
        state->set_window(ExpectInteger());
      } else if (key.text == "dropout") {
        state->set_dropout(ExpectFloat());
      } else if (key.text == "zoneout") {
        state->set_zoneout(ExpectFloat());
      } else {
        const bool is_option = CellOptions::descriptor()->FindFieldByName(key.text) != nullptr;
        const std::string nearest = DidYouMean(key.text, {"initial", "window", "dropout", "zoneout"});
        const std::string option = StrCat(", which is an option of the cell: option ", key.text, " = …");
        FailAt(key, StrCat("a state has no \"", key.text, "\"", is_option ? option : nearest,
                           nearest.empty() ? "; it has initial, window, dropout and zoneout" : ""));
      }
    }
  }

  std::string InitialValue() {
    const std::string sign = Next(1).IsName("inf") && TakeIf('-') ? "-" : "";
    const std::string value = Next().kind == CellToken::kName ? sign + Take().text : ExpectNumber();
    const bool is_whole = Next().kind == CellToken::kName || Next().kind == CellToken::kNewline || Next().Is(';');
    if (!is_whole && !Next().Is('}')) {
      Fail(
          StrCat("initial is a number as it is written, given (an input) or learned (a parameter), not an expression: ",
                 Next().Description(), " follows ", value));
    }
    return value;
  }

  std::vector<std::string> StateNames() const {
    std::vector<std::string> names;
    for (const CellState& state : source_.def.state()) names.push_back(state.name());
    return names;
  }

  // `output c last as c_end`
  void OutputStatement() {
    Take();
    Mark(CellPart::kOutput, source_.def.output_size(), Next());
    CellOutput& output = *source_.def.add_output();
    output.set_blob(ExpectName("a blob"));
    if (Next().IsName("last")) {
      Take();
      output.set_last(true);
    }
    if (Next().IsName("as")) {
      Take();
      output.set_name(ExpectName("a name"));
    }
  }

  void OptionStatement() {
    Take();
    TakeCellOption(*this, &source_);
  }

  // --- the step

  void CheckType(const CellToken& token) const {
    if (FindOperator(token.text) != nullptr) return;
    const size_t dot = token.text.rfind('.');
    const std::string value = dot == std::string::npos ? "" : token.text.substr(0, dot);
    const std::string advice =
        step_.Has(value) ? AdviceOnMethod(token.text.substr(dot + 1), value) : AdviceOnType(token.text);
    if (!advice.empty()) FailAt(token, StrCat("no operator type \"", token.text, "\"", advice));
    At(token, [&] { GetOperator(token.text); });
  }

  // Calls `body`, whose operators, and faults, come from `token`.
  template <typename Body>
  auto Write(const CellToken& token, const Body& body) {
    step_.SetPlace({.line = token.line, .column = token.column});
    return At(token, body);
  }

  void MarkWrite(const CellToken& target) {
    for (int i = 0; i < source_.def.state_size(); ++i) {
      if (source_.def.state(i).name() == target.text) Mark(CellPart::kStateWrite, i, target);
    }
  }

  // How a statement that begins with this word looks; null for other words.
  static const char* FormOf(const std::string& word) {
    if (word == "size") return "size H = 128";
    if (word == "param") return "param w[4*H, D]";
    if (word == "state") return "state c initial=0";
    if (word == "output") return "output h";
    if (word == "option") return "option layers = 2";
    return nullptr;
  }

  [[noreturn]] void FailBehindTarget(const CellToken& target) const {
    std::string advice;
    if (Next().Is('[')) advice = StrCat("; a blob is written whole, without an index: ", target.text, " = …");
    const bool is_sign = Next().Is('+') || Next().Is('-') || Next().Is('*') || Next().Is('/') || Next().Is('@');
    if (is_sign && Next(1).Is('=')) {
      advice = StrCat("; write ", target.text, " = ", target.text, " ", Next().text, " …");
    }
    if (const char* form = FormOf(target.text)) advice = StrCat("; as a statement it is `", form, "`");
    Fail(StrCat("'=' is expected, not ", Next().Description(), advice));
  }

  // `i, f = Split(…)` or `h = expression`
  void Assignment() {
    const CellToken& first = Next();
    std::vector<const CellToken*> targets;
    do {
      targets.push_back(&Next());
      ExpectName("a blob");
    } while (TakeIf(','));
    for (const CellToken* target : targets) MarkWrite(*target);
    if (!Next().Is('=')) FailBehindTarget(*targets.back());
    Take();
    SkipLineBreaks();
    step_.Begin(targets.front()->text);
    const int first_op = step_.num_ops();
    const StepOperand value = Sum(/*depth=*/0);
    std::vector<std::string> names;
    for (const CellToken* target : targets) names.push_back(target->text);
    Write(first, [&] { step_.Assign(value, names); });
    for (int k = first_op; k < step_.num_ops(); ++k) {
      source_.places[{CellPart::kOperator, source_.def.op_size()}] = {step_.place(k).line, step_.place(k).column};
      *source_.def.add_op() = step_.op(k);
    }
  }

  StepOperand Sum(int depth) {
    StepOperand left = Product(depth);
    while (Next().Is('+') || Next().Is('-')) {
      const CellToken& sign = Take();
      SkipLineBreaks();
      const StepOperand right = Product(depth);
      left = Write(sign, [&] { return step_.Binary(sign.text[0], left, right); });
    }
    FailIfCompared();
    return left;
  }

  StepOperand Product(int depth) {
    StepOperand left = Factor(depth);
    while (Next().Is('*') || Next().Is('/') || Next().Is('@')) {
      const CellToken& sign = Take();
      if (sign.Is('*') && Next().Is('*')) FailAt(sign, "powers are Sqr(x) and Pow(x, exponent=3), not x ** 3");
      if (sign.Is('/') && Next().Is('/')) FailAt(sign, "a comment begins with #, and x // y is Floor(x / y)");
      SkipLineBreaks();
      const StepOperand right = Factor(depth);
      left = Write(sign, [&] { return step_.Binary(sign.text[0], left, right); });
    }
    return left;
  }

  StepOperand Factor(int depth) {
    constexpr int kMaxNesting = 200;
    if (depth > kMaxNesting) Fail("the expression nests too deep");
    const CellToken& token = Next();
    if (TakeIf('-')) {
      const StepOperand value = Factor(depth + 1);
      return Write(token, [&] { return step_.Negative(value); });
    }
    if (TakeIf('(')) {
      const StepOperand value = Sum(depth + 1);
      Expect(')');
      return value;
    }
    if (token.kind == CellToken::kNumber) return StepOperand::Number(ToDouble(Take()));
    if (token.kind != CellToken::kName) Fail(StrCat("a value is expected, not ", token.Description()));
    Take();
    if (Next().Is('(')) return token.IsName("sqrt") ? Root(token, depth) : Call(token, depth);
    if (Next().Is('[')) Fail("a value is not indexed; parts of it are Slice(x, starts=[…], ends=[…])");
    if (IsSizeName(token.text)) {
      if (step_.Has(token.text)) FailAt(token, StrCat(token.text, " is a size and a blob; give one another name"));
      return StepOperand::OfSizes(token.text);
    }
    return At(token, [&] { return StepOperand::Blob(step_.Read(token.text)); });
  }

  // `sqrt(H)`, of numbers as in arguments.
  StepOperand Root(const CellToken& token, int depth) {
    Take();
    const StepOperand value = Sum(depth + 1);
    Expect(')');
    return Write(token, [&] { return step_.Root(value); });
  }

  // `Type(inputs…, argument=value…)`
  StepOperand Call(const CellToken& type, int depth) {
    CheckType(type);
    Take();
    OperatorDef op;
    op.set_type(type.text);
    const bool takes_numbers = StepWriter::TakesNumbers(type.text);
    std::vector<StepOperand> inputs;
    bool ends = false;
    while (!ends && !Next().Is(')') && !(Next().kind == CellToken::kName && Next(1).Is('='))) {
      const CellToken& token = Next();
      if (token.Is('[')) Fail(StrCat("the inputs of ", type.text, " are no list: ", type.text, "(a, b, …)"));
      const StepOperand input = Sum(depth + 1);
      if (input.kind == StepOperand::kNumber && type.text == "Sqrt") FailAt(token, "the root of a number is sqrt(…)");
      const bool is_filled = input.kind == StepOperand::kNumber && takes_numbers;
      if (input.IsPlainNumber() && !is_filled)
        CheckNoArgument(token, type.text, std::ssize(inputs), input.number, depth);
      inputs.push_back(is_filled ? input : StepOperand::Blob(Write(token, [&] { return step_.AsBlob(input); })));
      ends = !TakeIf(',');
    }
    if (ends) Expect(')');
    for (const std::string& input : Write(type, [&] { return step_.Filled(std::move(inputs)); })) op.add_input(input);
    if (!ends) ArgumentList(&op);
    return Write(type, [&] { return step_.Call(std::move(op)); });
  }

  // Throws for a number beside the inputs that an operator needs, where other languages have arguments without names:
  // `Clip(x, -1, 1)`, `Clip(-1, x)`. Whatever it reads, the operand is an error.
  void CheckNoArgument(const CellToken& token, const std::string& type, std::ptrdiff_t num_before, double first,
                       int depth) {
    const OperatorSchema& schema = GetOperator(type);
    std::vector<double> numbers = {first};
    auto num_inputs = static_cast<int>(num_before);
    while (TakeIf(',') && !Next().Is(')') && !Next(1).Is('=')) {
      const StepOperand next = Sum(depth + 1);
      if (next.IsPlainNumber()) {
        numbers.push_back(next.number);
      } else {
        ++num_inputs;
      }
    }
    if (num_inputs < schema.min_inputs()) return;  // an input that needs a shape
    FailUnlessNamed(token, WithNames(schema, /*has_inputs=*/true, numbers));
  }

  CellSource source_;
  StepWriter step_;
  std::set<std::string> names_;  // declared
  std::set<std::string> given_;  // "STATE KEY"
};

}  // namespace

CellSource ParseShortCell(const std::string& text, const std::string& what) {
  PrepareMessages();
  return CellParser(text, what).Run();
}

}  // namespace stepnet

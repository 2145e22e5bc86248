#include <algorithm>
#include <cctype>
#include <charconv>
#include <optional>
#include <set>

#include "stepnet/cells/cell.h"
#include "stepnet/cells/size_arguments.h"
#include "stepnet/cells/size_expression.h"
#include "stepnet/core/error.h"
#include "stepnet/core/exact_number.h"
#include "stepnet/core/name_characters.h"
#include "stepnet/core/operator.h"

namespace stepnet {
namespace {

[[noreturn]] void Refuse(const std::string& what) {
  throw Error(ErrorCode::kInvalidArgument, StrCat("the short form of cells cannot say ", what));
}

const std::string& Name(const std::string& name) {
  const auto is_part = [](char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_' || c == '.'; };
  if (name.empty() || std::isdigit(static_cast<unsigned char>(name[0])) != 0 || name[0] == '.' ||
      !std::ranges::all_of(name, is_part)) {
    Refuse(StrCat("the name \"", name, "\""));
  }
  return name;
}

// The shortest text that reads as the same number and not as an integer.
template <typename Number>
std::string FloatText(Number value) {
  std::string text = ShortestText(value);
  if (text.find_first_not_of("-0123456789") == std::string::npos) text += ".0";
  if (text.find_first_of("in") != std::string::npos) Refuse(StrCat("the number ", text));
  return text;
}

std::string StringText(const std::string& value) {
  std::string text = "\"";
  for (const char c : value) {
    if (c == '\n') Refuse("a string of several lines");
    if (c == '"' || c == '\\') text += '\\';
    text += c;
  }
  return text + "\"";
}

// How many of the argument's fields that hold a value hold one.
int NumValues(const Argument& argument) {
  return (argument.has_f() || argument.has_t()) + argument.has_i() + argument.has_s() + (argument.floats_size() > 0) +
         (argument.ints_size() > 0) + (argument.strings_size() > 0);
}

// Expressions of sizes stand without quotes.
std::string ArgumentText(const Argument& argument, const ArgumentSpec* spec, const IsSize& is_size) {
  const auto string_text = [&](const std::string& text) {
    if (spec == nullptr || !IsSizeExpression(*spec, text, is_size)) return StringText(text);
    NamesInArgument(*spec, text);  // throws for what is no expression
    return text;
  };
  if (argument.has_n() || argument.nets_size() > 0) Refuse(StrCat("the argument ", argument.name(), ", a net"));
  const std::optional<double> number = DoubleOf(argument);
  const std::vector<double> numbers = DoublesOf(argument);
  if ((argument.has_t() && !number && numbers.empty()) || argument.tensors_size() > 0 || argument.qtensors_size() > 0) {
    Refuse(StrCat("the argument ", argument.name(), ", a tensor"));
  }
  if (NumValues(argument) > 1) Refuse(StrCat("the argument ", argument.name(), ", which has values of several types"));
  if (number) return FloatText(*number);
  if (argument.has_f()) return FloatText(argument.f());
  if (argument.has_i()) return StrCat(argument.i());
  if (argument.has_s()) return string_text(argument.s());
  std::vector<std::string> items;
  for (const double item : numbers) items.push_back(FloatText(item));
  for (const float item : argument.floats()) items.push_back(FloatText(item));
  for (const std::int64_t item : argument.ints()) items.push_back(StrCat(item));
  for (const std::string& item : argument.strings()) items.push_back(string_text(item));
  return StrCat("[", Join(items, ", "), "]");
}

// Throws for all fields of an operator but those that a call says.
void CheckFields(const OperatorDef& op) {
  const std::set<int> said = {OperatorDef::kTypeFieldNumber, OperatorDef::kInputFieldNumber,
                              OperatorDef::kOutputFieldNumber, OperatorDef::kArgFieldNumber};
  std::vector<const google::protobuf::FieldDescriptor*> fields;
  op.GetReflection()->ListFields(op, &fields);
  for (const google::protobuf::FieldDescriptor* field : fields) {
    if (!said.contains(field->number())) Refuse(StrCat("the ", field->name(), " of ", op.type()));
  }
}

std::string CallText(const OperatorDef& op, const IsSize& is_size) {
  CheckFields(op);
  const OperatorSchema* const schema = FindOperator(op.type());
  std::vector<std::string> items;
  for (const std::string& input : op.input()) items.push_back(Name(input));
  for (const Argument& argument : op.arg()) {
    const ArgumentSpec* const spec = schema == nullptr ? nullptr : schema->FindArgument(argument.name());
    items.push_back(StrCat(Name(argument.name()), "=", ArgumentText(argument, spec, is_size)));
  }
  return StrCat(Name(op.type()), "(", Join(items, ", "), ")");
}

template <typename Message>
std::string Declared(const Message& message) {
  for (const std::string& dimension : message.shape()) NamesInSize(dimension);  // throws for what is no size
  const std::vector<std::string> shape(message.shape().begin(), message.shape().end());
  return StrCat(Name(message.name()), "[", Join(shape, ", "), "]");
}

template <typename Messages>
std::string DeclaredList(const Messages& messages) {
  std::vector<std::string> items;
  for (const auto& message : messages) items.push_back(Declared(message));
  return Join(items, ", ");
}

std::string StateText(const CellState& state) {
  if (state.has_previous() && state.previous() != state.name() + "_prev") {
    Refuse(StrCat("\"", state.previous(), "\", a name of the previous \"", state.name(), "\" other than ", state.name(),
                  "_prev"));
  }
  std::string text;
  if (state.has_initial()) {
    float number = 0;
    const char* const end = state.initial().data() + state.initial().size();
    const bool is_number = std::from_chars(state.initial().data(), end, number).ptr == end;
    text += " initial=" + (is_number ? state.initial() : Name(state.initial()));
  }
  if (state.has_window()) text += StrCat(" window=", state.window());
  if (state.has_dropout()) text += " dropout=" + FloatText(state.dropout());
  if (state.has_zoneout()) text += " zoneout=" + FloatText(state.zoneout());
  return text.empty() ? "" : StrCat("  state ", state.name(), text, "\n");
}

void PrintOptions(const CellOptions& options, std::string* text) {
  std::vector<const google::protobuf::FieldDescriptor*> fields;
  const google::protobuf::Reflection& get = *options.GetReflection();
  get.ListFields(options, &fields);
  for (const google::protobuf::FieldDescriptor* field : fields) {
    using Field = google::protobuf::FieldDescriptor;
    std::string value;
    switch (field->cpp_type()) {
      case Field::CPPTYPE_INT64: value = StrCat(get.GetInt64(options, field)); break;
      case Field::CPPTYPE_FLOAT: value = FloatText(get.GetFloat(options, field)); break;
      case Field::CPPTYPE_BOOL: value = get.GetBool(options, field) ? "true" : "false"; break;
      case Field::CPPTYPE_STRING: value = Name(get.GetString(options, field)); break;
      default: value = InLowerCase(get.GetEnum(options, field)->name());
    }
    *text += StrCat("  option ", field->name(), " = ", value, "\n");
  }
}

}  // namespace

std::string PrintShortCell(const CellDef& cell) {
  std::string text;
  const IsSize is_size = SizesOf(cell);
  if (cell.has_doc()) {
    std::istringstream lines(cell.doc());
    lines.exceptions(std::ios::badbit);
    for (std::string line; std::getline(lines, line);) text += line.empty() ? "#\n" : "# " + line + "\n";
  }
  text += StrCat("cell ", Name(cell.name()), "(", DeclaredList(cell.input()), "; ", DeclaredList(cell.state()),
                 cell.capture_size() > 0 ? "; " : "", DeclaredList(cell.capture()), ") {\n");
  for (const CellSize& size : cell.size()) {
    text += StrCat("  size ", Name(size.name()), size.has_value() ? StrCat(" = ", size.value()) : "", "\n");
  }
  for (const CellParameter& parameter : cell.parameter()) {
    if (parameter.initializer().output_size() > 0)
      Refuse(StrCat("the output of the initializer of ", parameter.name()));
    text += StrCat("  param ", Declared(parameter),
                   parameter.has_initializer() ? " = " + CallText(parameter.initializer(), is_size) : "", "\n");
  }
  for (const CellState& state : cell.state()) text += StateText(state);
  for (const OperatorDef& op : cell.op()) {
    if (op.output_size() == 0) Refuse(StrCat(op.type(), " without outputs"));
    std::vector<std::string> outputs;
    for (const std::string& output : op.output()) outputs.push_back(Name(output));
    text += StrCat("  ", Join(outputs, ", "), " = ", CallText(op, is_size), "\n");
  }
  for (const CellOutput& output : cell.output()) {
    text += StrCat("  output ", Name(output.blob()), output.last() ? " last" : "",
                   output.has_name() ? " as " + Name(output.name()) : "", "\n");
  }
  PrintOptions(cell.options(), &text);
  return text + "}\n";
}

}  // namespace stepnet

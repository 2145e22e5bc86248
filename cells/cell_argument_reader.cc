#include "stepnet/cells/cell_argument_reader.h"

#include <algorithm>
#include <optional>

#include "stepnet/cells/cell_advice.h"
#include "stepnet/cells/size_expression.h"
#include "stepnet/core/exact_number.h"

namespace stepnet {
namespace {

bool IsFloat(const ArgumentSpec* spec) {
  return spec != nullptr && (spec->type == ArgumentType::kFloat || spec->type == ArgumentType::kFloats);
}

bool IsList(const ArgumentSpec* spec) {
  return spec != nullptr && (spec->type == ArgumentType::kFloats || spec->type == ArgumentType::kInts);
}

}  // namespace

void CellArgumentReader::FailUnlessNamed(const CellToken& token, const std::string& named) const {
  if (!named.empty()) FailAt(token, "arguments of operators are named: " + named);
}

void CellArgumentReader::FailIfCompared() const {
  if (Next().Is('=') && Next(1).Is('=')) Fail("EQ(a, b) compares, not a == b; LT(a, b), LE, GT and GE do, too");
}

void CellArgumentReader::CheckFillNames(const OperatorDef& fill) const {
  std::vector<double> numbers;
  size_t at = 0;
  while (Next(at).kind == CellToken::kNumber || (Next(at).Is('-') && Next(at + 1).kind == CellToken::kNumber)) {
    const double sign = Next(at).Is('-') ? -1 : 1;
    at += sign < 0 ? 1 : 0;
    numbers.push_back(sign * ToDouble(Next(at)));
    ++at;
    if (Next(at).Is(',')) ++at;
  }
  if (!numbers.empty()) FailUnlessNamed(Next(), WithNames(GetOperator(fill.type()), /*has_inputs=*/false, numbers));
}

void CellArgumentReader::ArgumentList(OperatorDef* op) {
  while (!Next().Is(')')) {
    const CellToken& token = Next();
    const std::string name = ExpectName("an argument");
    FailIfCompared();
    Expect('=');
    for (const Argument& other : op->arg()) {
      if (other.name() == name) FailAt(token, StrCat("the argument ", name, " is given twice"));
    }
    const ArgumentSpec* spec = GetOperator(op->type()).FindArgument(name);
    Argument& argument = *op->add_arg();
    argument.set_name(name);
    if (TakeIf('[')) {
      ListValue(spec, &argument);
    } else {
      Value(spec, &argument);
    }
    if (!TakeIf(',')) break;
  }
  Expect(')');
}

std::string CellArgumentReader::StringValue(const ArgumentSpec* spec) {
  const CellToken& token = Take();
  if (spec == nullptr || !IsSizeExpression(*spec, token.text, is_size_)) return token.text;
  FailAt(token, StrCat("the argument ", spec->name, " takes numbers and expressions of sizes, without quotes"));
}

std::string CellArgumentReader::NumberText(const ArgumentSpec* spec) {
  const CellToken& token = Next();
  std::string text = ValueText();
  if (spec != nullptr && !FloatOf(text)) At(token, [&] { NamesInArgument(*spec, text); });
  return text;
}

void CellArgumentReader::CheckSizes(const CellToken& token, const std::vector<std::string>& names,
                                    const char* hint) const {
  for (const std::string& name : names) {
    if (!IsSizeName(name)) FailAt(token, StrCat("there is no size ", name, " so far", AdviceOnBatch(name), hint));
  }
}

void CellArgumentReader::Value(const ArgumentSpec* spec, Argument* argument) {
  const CellToken& token = Next();
  if (token.kind == CellToken::kString) return argument->set_s(StringValue(spec));
  if (token.IsName("true") || token.IsName("false")) return argument->set_i(Take().text == "true" ? 1 : 0);
  if (token.IsName("True")) FailAt(token, "write true, not True");
  if (token.IsName("False")) FailAt(token, "write false, not False");
  const std::string text = NumberText(spec);
  if (IsList(spec)) FailAt(token, StrCat("the argument ", spec->name, " takes a list: ", spec->name, "=[", text, "]"));
  const std::optional<float> number = FloatOf(text);
  const std::optional<std::int64_t> integer = IntegerOf(text);
  if (number && (IsFloat(spec) || !integer)) {
    SetWritten(*RealOf(text), argument);
  } else if (integer) {
    argument->set_i(*integer);
  } else {
    if (spec != nullptr && spec->type == ArgumentType::kAny)
      CheckSizes(token, NamesInNumber(text), "; a string stands in quotes");
    argument->set_s(text);
  }
}

void CellArgumentReader::ListValue(const ArgumentSpec* spec, Argument* argument) {
  std::vector<std::string> texts;
  bool all_strings = true;
  while (!Next().Is(']')) {
    if (Next().kind == CellToken::kString) {
      texts.push_back(StringValue(spec));
    } else {
      texts.push_back(NumberText(spec));
      all_strings = false;
    }
    if (!TakeIf(',')) break;
  }
  Expect(']');
  const bool numbers = !all_strings && std::ranges::all_of(texts, [](const auto& t) { return FloatOf(t).has_value(); });
  const bool integers = std::ranges::all_of(texts, [](const auto& t) { return IntegerOf(t).has_value(); });
  if (numbers && (IsFloat(spec) || !integers)) {
    std::vector<double> values;
    for (const std::string& text : texts) values.push_back(IsFloat(spec) ? *FloatOf(text) : *RealOf(text));
    SetWritten(values, argument);
  } else if (numbers) {
    for (const std::string& text : texts) argument->add_ints(*IntegerOf(text));
  } else {
    argument->mutable_strings()->Assign(texts.begin(), texts.end());
  }
}

}  // namespace stepnet

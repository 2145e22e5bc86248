#include "stepnet/cells/cell_reader.h"

#include <algorithm>
#include <charconv>

#include "stepnet/cells/cell_advice.h"
#include "stepnet/cells/size_expression.h"
#include "stepnet/cells/source_line.h"
#include "stepnet/core/strings.h"

namespace stepnet {
namespace {

template <typename Number>
std::optional<Number> NumberOf(const std::string& text) {
  Number value = 0;
  const auto [end, fault] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (fault != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

}  // namespace

std::optional<std::int64_t> IntegerOf(const std::string& text) { return NumberOf<std::int64_t>(text); }
std::optional<float> FloatOf(const std::string& text) { return NumberOf<float>(text); }
std::optional<double> RealOf(const std::string& text) { return NumberOf<double>(text); }

const CellToken& CellReader::Next(size_t ahead) const {
  return tokens_.tokens[std::min(at_ + ahead, tokens_.tokens.size() - 1)];
}

const CellToken& CellReader::Take() {
  const CellToken& token = Next();
  if (at_ + 1 < tokens_.tokens.size()) ++at_;
  return token;
}

bool CellReader::TakeIf(char c) {
  if (!Next().Is(c)) return false;
  Take();
  return true;
}

void CellReader::SkipNewlines() {
  while (Next().kind == CellToken::kNewline || Next().Is(';')) Take();
}

void CellReader::TakeSeparator() {
  if (Next().kind != CellToken::kNewline && !Next().Is(';')) {
    std::string advice = Next().kind == CellToken::kName ? AdviceOnWord(Next().text) : "";
    if (advice.empty() && Next().kind == CellToken::kName) advice = "; the next one begins in a new line or behind ';'";
    Fail(StrCat("the end of the statement is expected, not ", Next().Description(), advice));
  }
  Take();
}

void CellReader::SkipLineBreaks() {
  while (Next().kind == CellToken::kNewline) Take();
}

void CellReader::Expect(char c) {
  const std::string advice = Next().kind == CellToken::kName ? AdviceOnWord(Next().text) : "";
  if (!Next().Is(c)) Fail(StrCat("'", c, "' is expected, not ", Next().Description(), advice));
  Take();
}

std::string CellReader::ExpectName(const char* what) {
  if (Next().kind != CellToken::kName) Fail(StrCat(what, " is expected, not ", Next().Description()));
  return Take().text;
}

std::string CellReader::ExpectNumber() {
  const std::string sign = TakeIf('-') ? "-" : "";
  if (Next().kind != CellToken::kNumber) Fail(StrCat("a number is expected, not ", Next().Description()));
  return sign + Take().text;
}

std::int64_t CellReader::ExpectInteger() {
  const CellToken& first = Next();
  if (first.kind == CellToken::kName) {
    Fail(StrCat("an integer is expected, not ", first.Description(), ": sizes cannot stand here, as they may change"));
  }
  const std::string text = ExpectNumber();
  const std::optional<std::int64_t> value = IntegerOf(text);
  if (!value) FailAt(first, StrCat("an integer is expected, not ", text));
  return *value;
}

float CellReader::ExpectFloat() {
  const CellToken& first = Next();
  const std::string text = ExpectNumber();
  const std::optional<float> value = FloatOf(text);
  if (!value) FailAt(first, StrCat(text, " is beyond what a float can hold"));
  return *value;
}

double CellReader::ToDouble(const CellToken& token) const {
  const std::optional<double> value = NumberOf<double>(token.text);
  if (!value) FailAt(token, StrCat(token.text, " is beyond what a number can be"));
  return *value;
}

std::vector<std::string> CellReader::Dimensions() {
  std::vector<std::string> dimensions;
  Expect('[');
  if (TakeIf(']')) return dimensions;
  do {
    dimensions.push_back(SizeText());
  } while (TakeIf(','));
  Expect(']');
  return dimensions;
}

std::string CellReader::SizeText() {
  const CellToken& first = Next();
  const std::string text = ExpressionText();
  At(first, [&] { NamesInSize(text); });
  return text;
}

// A size or a number: its caller knows which form it must have.
std::string CellReader::ExpressionText() {
  const CellToken& first = Next();
  std::string text;
  int depth = 0;
  bool had_operand = false;
  while (true) {
    const CellToken& token = Next();
    const bool is_operand = token.kind == CellToken::kName || token.kind == CellToken::kNumber;
    const bool opens = token.Is('(');
    const bool closes = token.Is(')');
    const bool is_sign = token.Is('+') || token.Is('-');
    if (!is_operand && !opens && !closes && !is_sign && !token.Is('*') && !token.Is('/')) break;
    const bool calls = opens && text.ends_with("sqrt");
    if (had_operand && (is_operand || opens) && !calls) break;
    if (closes && depth-- == 0) break;
    if (opens) ++depth;
    text += is_sign && had_operand ? " " + token.text + " " : token.text;
    had_operand = is_operand || closes;
    Take();
  }
  if (text.empty()) Fail(StrCat("a size is expected, not ", first.Description()));
  return text;
}

std::string CellReader::ValueText() {
  const CellToken& first = Next();
  const size_t sign = first.Is('-') ? 1 : 0;
  const CellToken& behind = Next(sign + 1);
  const bool ends = behind.kind == CellToken::kNewline || behind.kind == CellToken::kEnd ||
                    (behind.text.size() == 1 && std::string(",)];}").find(behind.text) != std::string::npos);
  const bool is_number = Next(sign).kind == CellToken::kNumber && ends;
  if (!is_number) {
    const std::string text = ExpressionText();
    At(first, [&] { NamesInNumber(text); });
    return text;
  }
  const std::string text = ExpectNumber();
  if (!FloatOf(text)) FailAt(first, StrCat(text, " is beyond what a float can hold"));
  return text;
}

// Behind a bracket that is not closed words have another meaning than they were written for: the place to look at is
// where it was opened.
void CellReader::FailAt(const CellToken& token, const std::string& why) const {
  if (const auto& open = tokens_.not_closed) {
    const bool is_behind = std::pair(token.line, token.column) >= std::pair(open->line, open->column);
    const bool is_in_next_line = !open->token.Is('{') && token.line > open->token.line;
    if (is_behind || is_in_next_line) Throw(open->token, open->message);
  }
  Throw(token, why);
}

void CellReader::Throw(const CellToken& token, const std::string& why) const {
  throw Error(ErrorCode::kSyntaxError, StrCat(what_, ":", token.line, ":", token.column, ": ", why,
                                              SourceLine(text_, token.line, token.column)));
}

}  // namespace stepnet

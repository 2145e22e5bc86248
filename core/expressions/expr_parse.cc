// A parser by recursive descent. How deep it may go is limited: texts come from outside.
#include <algorithm>
#include <charconv>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>

#include "stepnet/core/error.h"
#include "stepnet/core/expressions/expr_text.h"
#include "stepnet/core/name_characters.h"
#include "stepnet/core/strings.h"

namespace stepnet {
namespace {

constexpr int kMaxDepth = 100;

// The dtype of that name where expressions know it.
std::optional<DType> ExprDTypeNamed(std::string_view name) {
  const std::optional<DType> dtype = DTypeNamed(name);
  switch (dtype.value_or(DType::kString)) {
    case DType::kFloat:
    case DType::kDouble:
    case DType::kInt32:
    case DType::kInt64:
    case DType::kBool:
    case DType::kFloat16:
    case DType::kBFloat16: return dtype;
    default: return {};
  }
}

class Parser {
 public:
  explicit Parser(std::string_view text) : text_(text) {}

  std::vector<Expr> Parse() {
    for (;;) {
      while (Skip(), at_ < text_.size() && text_[at_] == '\n') ++at_;
      if (at_ == text_.size()) return std::move(roots_);
      ParseLine();
      Skip();
      if (at_ < text_.size() && text_[at_] != '\n') Fail(at_, "expected the end of the line");
    }
  }

 private:
  struct Sign {
    ExprOp op;
    int precedence;
    bool swaps;  // a > b is b < a
  };

  [[noreturn]] void Fail(size_t at, const std::string& what) const {
    throw Error(ErrorCode::kSyntaxError, StrCat(PlaceOf(at), what));
  }

  std::string PlaceOf(size_t at) const {
    const std::string_view before = text_.substr(0, at);
    const auto line = std::ranges::count(before, '\n') + 1;
    const size_t begin = before.rfind('\n');
    return StrCat(line, ":", at - (begin == std::string_view::npos ? 0 : begin + 1) + 1, ": ");
  }

  // Spaces and comments and, between parentheses, ends of lines.
  void Skip() {
    for (; at_ < text_.size(); ++at_) {
      if (text_[at_] == '#') at_ = std::min(text_.find('\n', at_), text_.size());
      if (at_ == text_.size()) return;
      const char c = text_[at_];
      if (c != ' ' && c != '\t' && c != '\r' && !(c == '\n' && depth_ > 0)) return;
    }
  }

  bool Take(std::string_view token) {
    Skip();
    if (!text_.substr(at_).starts_with(token)) return false;
    at_ += token.size();
    return true;
  }
  void Expect(std::string_view token) {
    if (!Take(token)) Fail(at_, StrCat("expected \"", token, "\""));
  }

  // The name that stands here, or "".
  std::string_view TakeName() {
    Skip();
    const size_t begin = at_;
    if (at_ < text_.size() && IsNameStart(text_[at_])) {
      while (at_ < text_.size() && (IsNameStart(text_[at_]) || IsDigit(text_[at_]))) ++at_;
    }
    return text_.substr(begin, at_ - begin);
  }

  int TakeInt() {
    Skip();
    int value = 0;
    const auto [end, error] = std::from_chars(text_.data() + at_, text_.data() + text_.size(), value);
    if (error != std::errc()) Fail(at_, "expected a number below 2147483648");
    at_ = static_cast<size_t>(end - text_.data());
    return value;
  }

  std::string TakeQuoted() {
    Expect("\"");
    std::string value;
    for (; at_ < text_.size() && text_[at_] != '"' && text_[at_] != '\n'; ++at_) {
      if (text_[at_] != '\\') {
        value += text_[at_];
        continue;
      }
      const std::string_view escape = text_.substr(at_, 4);
      int byte = 0;
      if (escape.starts_with("\\\"") || escape.starts_with("\\\\")) {
        value += escape[1];
        ++at_;
      } else if (escape.size() == 4 && escape[1] == 'x' &&
                 std::from_chars(escape.data() + 2, escape.data() + 4, byte, 16).ptr == escape.data() + 4) {
        value += static_cast<char>(byte);
        at_ += 3;
      } else {
        Fail(at_, "expected \\\", \\\\ or \\xNN");
      }
    }
    Expect("\"");
    return value;
  }

  void ParseLine() {
    const size_t begin = at_;
    const std::string_view name = TakeName();
    if (name == "in") return ParseInput();
    if (name == "out") {
      roots_.push_back(Typed(begin, ParseExpr(1)));
      return;
    }
    if (name.empty()) Fail(begin, "expected \"in\", \"out\" or a name");
    Expect("=");
    Define(begin, std::string(name), Typed(begin, ParseExpr(1)));
  }

  void ParseInput() {
    const int number = TakeInt();
    Skip();
    const size_t begin = at_;
    const bool is_quoted = at_ < text_.size() && text_[at_] == '"';
    const std::string name = is_quoted ? TakeQuoted() : std::string(TakeName());
    if (!is_quoted && name.empty()) Fail(begin, "expected the name of an input");
    Expect(":");
    const DType dtype = ParseDType();
    inputs_.push_back(At(begin, [&] { return Expr::Input(number, name, dtype); }));
    const Expr& known = numbers_.emplace(number, inputs_.back()).first->second;
    if (!known.Is(inputs_.back())) {
      Fail(begin, StrCat("there is an input ", number, " of another name or dtype already"));
    }
    if (!is_quoted) Define(begin, name, inputs_.back());
  }

  DType ParseDType() {
    Skip();
    const size_t begin = at_;
    const std::optional<DType> dtype = ExprDTypeNamed(TakeName());
    if (!dtype) Fail(begin, "expected float, double, int32, int64, bool, float16 or bfloat16");
    return *dtype;
  }

  void Define(size_t at, const std::string& name, Expr value) {
    if (ConstantNamed(name)) Fail(at, StrCat(name, " is a number; an input of that name has it in quotes"));
    if (!names_.emplace(name, std::move(value)).second) Fail(at, StrCat("there is a ", name, " already"));
  }

  Expr Typed(size_t at, Expr expr) const {
    if (expr->op == ExprOp::kLiteral) Fail(at, "nothing says of what dtype the number is; write float(1)");
    return expr;
  }

  // What `build` makes; errors are at `at`.
  template <typename Build>
  Expr At(size_t at, const Build& build) const {
    try {
      return build();
    } catch (const Error& error) {
      if (error.code() == ErrorCode::kCancelled) throw;
      const bool is_of_text = error.code() == ErrorCode::kInternal;  // what a program must not say
      throw Error(is_of_text ? ErrorCode::kInvalidArgument : error.code(), PlaceOf(at) + error.message());
    }
  }

  std::optional<Sign> TakeSign(int min_precedence) {
    Skip();
    const std::string_view rest = text_.substr(at_);
    // Those of two characters come before their beginnings.
    constexpr std::pair<std::string_view, Sign> kSigns[] = {
        {"||", {ExprOp::kOr, 1, false}},        {"&&", {ExprOp::kAnd, 2, false}},
        {"==", {ExprOp::kEqual, 3, false}},     {"!=", {ExprOp::kNotEqual, 3, false}},
        {"<=", {ExprOp::kLessEqual, 3, false}}, {">=", {ExprOp::kLessEqual, 3, true}},
        {"<", {ExprOp::kLess, 3, false}},       {">", {ExprOp::kLess, 3, true}},
        {"+", {ExprOp::kAdd, 4, false}},        {"-", {ExprOp::kSubtract, 4, false}},
        {"*", {ExprOp::kMultiply, 5, false}},   {"/", {ExprOp::kDivide, 5, false}},
        {"%", {ExprOp::kMod, 5, false}},
    };
    for (const auto& [token, sign] : kSigns) {
      if (!rest.starts_with(token)) continue;
      if (sign.precedence < min_precedence) return {};
      at_ += token.size();
      return sign;
    }
    return {};
  }

  // Everything that binds at least as strongly as that.
  Expr ParseExpr(int min_precedence) {
    const Deeper deeper(this);
    Expr left = ParseUnary();
    for (;;) {
      Skip();
      const size_t begin = at_;
      const std::optional<Sign> sign = TakeSign(min_precedence);
      if (!sign) return left;
      const Expr right = ParseExpr(sign->precedence + 1);
      left = At(begin, [&] {
        const Expr operands[] = {sign->swaps ? right : left, sign->swaps ? left : right};
        return MakeExpr(sign->op, operands);
      });
    }
  }

  Expr ParseUnary() {
    Skip();
    const size_t begin = at_;
    if (at_ + 1 < text_.size() && text_[at_] == '-' && IsDigit(text_[at_ + 1])) return ParseNumber();
    for (const auto& [token, op] : {std::pair("-", ExprOp::kNegate), std::pair("!", ExprOp::kNot)}) {
      if (!Take(token)) continue;
      const Deeper deeper(this);
      const Expr operand = ParseUnary();
      return At(begin, [&] { return MakeExpr(op, {&operand, 1}); });
    }
    return ParsePrimary();
  }

  Expr ParseNumber() {
    const size_t begin = at_;
    const char* first = text_.data() + at_;
    const char* last = text_.data() + text_.size();
    std::int64_t whole = 0;
    double value = 0;
    const auto as_whole = std::from_chars(first, last, whole);
    const auto as_double = std::from_chars(first, last, value);
    if (as_double.ec != std::errc()) Fail(begin, "the number is beyond the range of double");
    at_ = static_cast<size_t>(as_double.ptr - text_.data());
    if (as_whole.ec != std::errc() || as_whole.ptr != as_double.ptr) return Expr(value);
    return Expr(whole);
  }

  Expr ParsePrimary() {
    Skip();
    const size_t begin = at_;
    if (at_ < text_.size() && IsDigit(text_[at_])) return ParseNumber();
    if (Take("(")) {
      ++depth_;
      Expr inner = ParseExpr(1);
      Expect(")");
      --depth_;
      return inner;
    }
    if (Take("$")) {
      const int line = TakeInt();
      if (line < 0 || line >= static_cast<int>(inputs_.size())) Fail(begin, StrCat("there is no input line ", line));
      return inputs_[line];
    }
    const std::string name(TakeName());
    if (name.empty()) Fail(begin, "expected an expression");
    if (std::optional<Expr> constant = ConstantNamed(name)) return *std::move(constant);
    if (Take("(")) {
      ++depth_;
      Expr call = ParseCall(begin, name);
      --depth_;
      return call;
    }
    const auto found = names_.find(name);
    if (found == names_.end()) {
      std::vector<std::string> names;
      for (const auto& [known, unused] : names_) names.push_back(known);
      Fail(begin, StrCat("nothing is named ", name, DidYouMean(name, names)));
    }
    return found->second;
  }

  static std::optional<Expr> ConstantNamed(std::string_view name) {
    if (name == "true" || name == "false") return Expr(name == "true");
    if (name == "inf") return Expr(std::numeric_limits<double>::infinity());
    if (name == "nan") return Expr(std::numeric_limits<double>::quiet_NaN());
    return {};
  }

  static std::optional<ExprOp> FunctionNamed(std::string_view name) {
    for (const ExprSyntax& syntax : ExprSyntaxes()) {
      const bool is_leaf = syntax.op == ExprOp::kInput || syntax.op == ExprOp::kConstant ||
                           syntax.op == ExprOp::kLiteral || syntax.op == ExprOp::kCast;
      if (syntax.precedence == 0 && !is_leaf && name == syntax.name) return syntax.op;
    }
    return {};
  }

  // After the opening parenthesis.
  Expr ParseCall(size_t begin, const std::string& name) {
    ExprParts parts;
    std::optional<ExprOp> op = FunctionNamed(name);
    if (const std::optional<DType> dtype = ExprDTypeNamed(name)) {
      op = ExprOp::kCast;
      parts.dtype = *dtype;
    }
    if (!op) {
      std::vector<std::string> names;
      for (const ExprSyntax& syntax : ExprSyntaxes()) names.emplace_back(syntax.name);
      Fail(begin, StrCat("there is no function ", name, DidYouMean(name, names)));
    }
    std::vector<Expr> operands;
    std::string message;
    if (*op == ExprOp::kIndex) {
      parts.number = TakeInt();
      Expect(")");
    } else {
      if (*op == ExprOp::kUniform) {
        parts.dtype = ParseDType();
        Expect(",");
      }
      do {
        if (*op == ExprOp::kRequire && operands.size() == 1 && message.empty() && (Skip(), At('"'))) {
          message = TakeQuoted();
        } else {
          operands.push_back(ParseExpr(1));
        }
        if (operands.size() > kMaxExprOperands) Fail(begin, StrCat(name, " has too many operands"));
      } while (Take(","));
      Expect(")");
    }
    parts.text = message;
    return At(begin, [&] { return MakeExpr(*op, operands, parts); });
  }

  bool At(char c) const { return at_ < text_.size() && text_[at_] == c; }

  // Counts how deep the parser is.
  class Deeper {
   public:
    explicit Deeper(Parser* parser) : parser_(parser) {
      if (++parser->nesting_ > kMaxDepth) parser->Fail(parser->at_, "the expression is nested too deeply");
    }
    ~Deeper() { --parser_->nesting_; }
    Deeper(const Deeper&) = delete;
    Deeper& operator=(const Deeper&) = delete;

   private:
    Parser* parser_;
  };

  std::string_view text_;
  size_t at_ = 0;
  int depth_ = 0;    // of parentheses
  int nesting_ = 0;  // of calls of the parser
  std::vector<Expr> inputs_;
  std::map<int, Expr> numbers_;  // of inputs
  std::map<std::string, Expr> names_;
  std::vector<Expr> roots_;
};

}  // namespace

std::vector<Expr> ParseExprs(std::string_view text) { return Parser(text).Parse(); }

}  // namespace stepnet

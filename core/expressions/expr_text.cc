#include "stepnet/core/expressions/expr_text.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <set>
#include <unordered_map>

#include "stepnet/core/expressions/expr_functions.h"
#include "stepnet/core/expressions/expr_table.h"
#include "stepnet/core/stored_float.h"
#include "stepnet/core/strings.h"

namespace stepnet {
namespace {

constexpr ExprSyntax kOwnSyntaxes[] = {
    {ExprOp::kOr, "||", 1},
    {ExprOp::kAnd, "&&", 2},
    {ExprOp::kEqual, "==", 3},
    {ExprOp::kNotEqual, "!=", 3},
    {ExprOp::kLess, "<", 3},
    {ExprOp::kLessEqual, "<=", 3},
    {ExprOp::kAdd, "+", 4},
    {ExprOp::kSubtract, "-", 4},
    {ExprOp::kMultiply, "*", 5},
    {ExprOp::kDivide, "/", 5},
    {ExprOp::kMod, "%", 5},
    {ExprOp::kNegate, "-", kUnaryPrecedence},
    {ExprOp::kNot, "!", kUnaryPrecedence},
    {ExprOp::kMin, "min", 0},
    {ExprOp::kMax, "max", 0},
    {ExprOp::kPow, "pow", 0},
    {ExprOp::kMulAdd, "mul_add", 0},
    {ExprOp::kAbs, "abs", 0},
    {ExprOp::kSign, "sign", 0},
    {ExprOp::kSqrt, "sqrt", 0},
    {ExprOp::kExp, "exp", 0},
    {ExprOp::kLog, "log", 0},
    {ExprOp::kTanh, "tanh", 0},
    {ExprOp::kSigmoid, "sigmoid", 0},
    {ExprOp::kErfc, "erfc", 0},
    {ExprOp::kWhere, "where", 0},
    {ExprOp::kRequire, "require", 0},
    {ExprOp::kUniform, "uniform", 0},
    {ExprOp::kIndex, "index", 0},
    {ExprOp::kRowSum, "row_sum", 0},
    {ExprOp::kRowMax, "row_max", 0},
    {ExprOp::kCast, "cast", 0},
    {ExprOp::kInput, "input", 0},
    {ExprOp::kConstant, "constant", 0},
    {ExprOp::kLiteral, "number", 0},
};

// The syntaxes of all ops: those above, and those of the functions of the table.
constexpr auto kSyntaxes = [] {
  std::array<ExprSyntax, std::size(kOwnSyntaxes) + std::size(kExprFunctions)> all = {};
  auto next = std::ranges::copy(kOwnSyntaxes, all.begin()).out;
  for (const ExprFunction& function : kExprFunctions) *next++ = {function.op, function.name, 0};
  return all;
}();

constexpr int kMaxNesting = 12;    // of what is printed in one line
constexpr size_t kMaxLength = 90;  // of what is printed within something else
constexpr int kMaxSummary = 3;     // levels of a summary

// The text of an expression, or of what stands for it.
struct Piece {
  std::string text;
  int precedence = kPrimaryPrecedence;
  int nesting = 0;
};

std::string Quoted(std::string_view text) {
  std::string quoted = "\"";
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') {
      quoted += {'\\', c};
    } else if (byte < 0x20 || byte == 0x7f) {
      constexpr char kDigits[] = "0123456789abcdef";
      quoted += {'\\', 'x', kDigits[byte / 16], kDigits[byte % 16]};
    } else {
      quoted += c;
    }
  }
  return quoted + '"';
}

template <typename T>
std::string FloatText(T value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value > 0 ? "inf" : "-inf";
  std::string shortest = ShortestText(value);
  // Texts are read as double and rounded to float: where that ends at another number, all digits stand there.
  double read = 0;
  std::from_chars(shortest.data(), shortest.data() + shortest.size(), read);
  if (static_cast<T>(read) != value) shortest = FloatText(static_cast<double>(value));
  return value == 0 && std::signbit(value) ? "-0.0" : shortest;
}

std::string LiteralText(const ExprNode& node) {
  return ScalarText({.dtype = node.is_whole ? DType::kInt64 : DType::kDouble, .bits = node.bits});
}

// Whether the number that operand i is takes its dtype from where it stands.
bool TakesDType(ExprOp op, std::span<const ExprNode* const> operands, int i) {
  if (operands[i]->dtype == DType::kBool || op == ExprOp::kUniform) return true;
  const auto [begin, end] = SameDType(op, static_cast<int>(operands.size()));
  if (i < begin || i >= end || op == ExprOp::kCast) return false;
  for (int k = begin; k < end; ++k) {
    if (operands[k]->op != ExprOp::kConstant && operands[k]->op != ExprOp::kLiteral) return true;
  }
  return false;
}

// A number by itself, with its dtype.
std::string TypedNumber(const ExprNode& node) {
  if (node.op == ExprOp::kLiteral) return LiteralText(node);
  const std::string text = ScalarText({.dtype = node.dtype, .bits = node.bits});
  return node.dtype == DType::kBool ? text : StrCat(node.dtype, "(", text, ")");
}

std::string Parenthesised(const Piece& piece, bool needs) { return needs ? "(" + piece.text + ")" : piece.text; }

Piece FunctionText(ExprOp op, DType dtype, int number, std::string_view text, std::span<const Piece> operands) {
  std::vector<std::string> arguments;
  if (op == ExprOp::kUniform) arguments.push_back(DTypeName(dtype));
  if (op == ExprOp::kIndex) arguments.push_back(StrCat(number));
  for (const Piece& operand : operands) arguments.push_back(operand.text);
  if (op == ExprOp::kRequire) arguments.insert(arguments.begin() + 1, Quoted(text));
  return {.text = StrCat(op == ExprOp::kCast ? DTypeName(dtype) : ExprOpName(op), "(", Join(arguments, ", "), ")")};
}

// An operator or a function of what is printed already.
Piece TextOf(ExprOp op, DType dtype, int number, std::string_view text, std::span<const ExprNode* const> operands,
             std::span<Piece> pieces) {
  int nesting = 0;
  for (size_t i = 0; i < pieces.size(); ++i) {
    const ExprNode& operand = *operands[i];
    if (operand.op == ExprOp::kConstant && TakesDType(op, operands, static_cast<int>(i))) {
      pieces[i].text = ScalarText({.dtype = operand.dtype, .bits = operand.bits});
      if (pieces[i].text.starts_with('-')) pieces[i].precedence = kUnaryPrecedence;
    }
    nesting = std::max(nesting, pieces[i].nesting + 1);
  }
  const ExprSyntax& syntax = SyntaxOf(op);
  Piece piece;
  if (syntax.precedence == 0) {
    piece = FunctionText(op, dtype, number, text, pieces);
  } else if (syntax.precedence == kUnaryPrecedence) {
    // - - x would be read as well, but not by people; a number behind - would become a negative number.
    piece = {.text = syntax.name + Parenthesised(pieces[0], pieces[0].precedence <= kUnaryPrecedence),
             .precedence = kUnaryPrecedence};
  } else {
    const bool compares = syntax.precedence == 3;
    const int left = syntax.precedence + (compares ? 1 : 0);
    piece = {.text = StrCat(Parenthesised(pieces[0], pieces[0].precedence < left), " ", syntax.name, " ",
                            Parenthesised(pieces[1], pieces[1].precedence <= syntax.precedence)),
             .precedence = syntax.precedence};
  }
  piece.nesting = nesting;
  return piece;
}

bool IsLeaf(const ExprNode& node) {
  return node.op == ExprOp::kInput || node.op == ExprOp::kConstant || node.op == ExprOp::kLiteral ||
         node.op == ExprOp::kIndex;
}

// Whether a name may stand wherever its input is used. Others stand in one place: texts come from outside, and a long
// name that is used often would be printed as the square of its length.
bool IsPlainName(std::string_view name) {
  constexpr size_t kMaxBytes = 40;
  static const std::set<std::string_view> kTaken = {"in", "out", "true", "false", "nan", "inf"};
  if (name.empty() || name.size() > kMaxBytes || kTaken.contains(name) || (name[0] >= '0' && name[0] <= '9'))
    return false;
  for (const char c : name) {
    const bool is_letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
    if (!is_letter && !(c >= '0' && c <= '9') && c != '_') return false;
  }
  return true;
}

class Printer {
 public:
  explicit Printer(std::span<const Expr> roots) : roots_(roots), nodes_(ExprNodes(roots)) {}

  std::string Print() {
    PrintInputs();
    for (const ExprNode* node : nodes_) {
      for (const ExprNode* operand : node->Operands()) ++uses_[operand];
    }
    for (const Expr& root : roots_) ++uses_[root.node()];
    for (const ExprNode* node : nodes_) PrintNode(*node);
    for (const Expr& root : roots_) out_ << "out " << pieces_[root.node()].text << "\n";
    return std::move(out_).str();
  }

 private:
  void PrintInputs() {
    std::unordered_map<std::string, int> count;
    for (const ExprNode* node : nodes_) {
      if (node->op == ExprOp::kInput) ++count[node->text];
    }
    int line = 0;
    for (const ExprNode* node : nodes_) {
      if (node->op != ExprOp::kInput) continue;
      const bool is_plain = count[node->text] == 1 && IsPlainName(node->text);
      out_ << "in " << node->number << " " << (is_plain ? node->text : Quoted(node->text)) << ": " << node->dtype
           << "\n";
      pieces_[node].text = is_plain ? node->text : StrCat("$", line);
      if (is_plain) names_.insert(node->text);
      ++line;
    }
  }

  void PrintNode(const ExprNode& node) {
    if (node.op == ExprOp::kInput) return;
    Piece& piece = pieces_[&node];
    if (node.op == ExprOp::kConstant || node.op == ExprOp::kLiteral) {
      piece.text = TypedNumber(node);
      return;
    }
    std::vector<Piece> operands;
    for (const ExprNode* operand : node.Operands()) operands.push_back(pieces_[operand]);
    piece = TextOf(node.op, node.dtype, node.number, node.text, node.Operands(), operands);
    if (IsLeaf(node) || (uses_[&node] == 1 && piece.nesting < kMaxNesting && piece.text.size() < kMaxLength)) return;
    std::string name;
    do name = StrCat("t", next_name_++);
    while (names_.contains(name));
    out_ << name << " = " << piece.text << "\n";
    piece = {.text = std::move(name)};
  }

  std::span<const Expr> roots_;
  std::vector<const ExprNode*> nodes_;
  std::unordered_map<const ExprNode*, int> uses_;
  std::unordered_map<const ExprNode*, Piece> pieces_;
  std::set<std::string> names_;
  int next_name_ = 0;
  TextStream out_;
};

Piece Summary(const ExprNode& node, int levels) {
  if (node.op == ExprOp::kInput) return {.text = node.text};
  if (node.op == ExprOp::kConstant || node.op == ExprOp::kLiteral) return {.text = TypedNumber(node)};
  if (levels == 0) return {.text = "…"};
  std::vector<Piece> operands;
  for (const ExprNode* operand : node.Operands()) operands.push_back(Summary(*operand, levels - 1));
  return TextOf(node.op, node.dtype, node.number, node.text, node.Operands(), operands);
}

}  // namespace

std::span<const ExprSyntax> ExprSyntaxes() { return kSyntaxes; }

const ExprSyntax& SyntaxOf(ExprOp op) {
  for (const ExprSyntax& syntax : kSyntaxes) {
    if (syntax.op == op) return syntax;
  }
  return kSyntaxes[0];
}

const char* ExprOpName(ExprOp op) { return SyntaxOf(op).name; }

std::string ScalarText(const ExprScalar& value) {
  switch (value.dtype) {
    case DType::kFloat: return FloatText(value.As<float>());
    case DType::kFloat16:
    case DType::kBFloat16: return FloatText(Loaded(value));
    case DType::kDouble: return FloatText(value.As<double>());
    case DType::kInt32: return StrCat(value.As<std::int32_t>());
    case DType::kInt64: return StrCat(value.As<std::int64_t>());
    default: return value.As<bool>() ? "true" : "false";
  }
}

std::string PrintExprs(std::span<const Expr> roots) { return Printer(roots).Print(); }
std::string PrintExpr(const Expr& root) { return PrintExprs({&root, 1}); }

std::string ExprSummary(const Expr& expr) { return Summary(*expr, kMaxSummary).text; }

std::string ExprSummary(ExprOp op, std::span<const Expr> operands, const ExprParts& parts) {
  std::vector<const ExprNode*> nodes;
  std::vector<Piece> pieces;
  for (const Expr& operand : operands) {
    nodes.push_back(operand.node());
    pieces.push_back(Summary(*operand, kMaxSummary - 1));
  }
  return TextOf(op, parts.dtype, parts.number, parts.text, nodes, pieces).text;
}

}  // namespace stepnet

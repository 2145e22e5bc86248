#include "stepnet/core/formulas/formula_names.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <unordered_map>

#include "stepnet/core/error.h"
#include "stepnet/core/expressions/expr_scalar.h"
#include "stepnet/core/name_characters.h"
#include "stepnet/core/number_text.h"
#include "stepnet/core/stored_float.h"
#include "stepnet/core/strings.h"

namespace stepnet {
namespace {

// What formulas make of a number before expressions see it.
struct Form {
  double (*of)(double);
  Expr (*make)(const Expr&);
};
constexpr Form kForms[] = {
    {[](double v) { return v; }, [](const Expr& v) { return v; }},
    {[](double v) { return -v; }, [](const Expr& v) { return -v; }},
    {[](double v) { return 1 - v; }, [](const Expr& v) { return 1 - v; }},
    {[](double v) { return 1 + v; }, [](const Expr& v) { return 1 + v; }},
    {[](double v) { return 1 / v; }, [](const Expr& v) { return 1 / v; }},
    {[](double v) { return 1 / (1 - v); }, [](const Expr& v) { return 1 / (1 - v); }},
    {[](double v) { return v - 1; }, [](const Expr& v) { return v - 1; }},
    {[](double v) { return v * v; }, [](const Expr& v) { return v * v; }},
    {[](double v) { return 2 * v; }, [](const Expr& v) { return 2 * v; }},
};
// And of two.
struct PairForm {
  double (*of)(double, double);
  Expr (*make)(const Expr&, const Expr&);
};
constexpr PairForm kPairForms[] = {
    {[](double a, double b) { return a * b; }, [](const Expr& a, const Expr& b) { return a * b; }},
    {[](double a, double b) { return a - b; }, [](const Expr& a, const Expr& b) { return a - b; }},
    {[](double a, double b) { return a - b + 1; }, [](const Expr& a, const Expr& b) { return a - b + 1; }},
};

// Numbers have been rounded to float, maybe more than once.
bool IsAbout(double value, double known) {
  if (!std::isfinite(known)) return value == known || (std::isnan(value) && std::isnan(known));
  return std::abs(value - known) <= 1e-6 * std::abs(known);
}

double ValueOf(const ExprNode& constant) { return DoubleOf({.dtype = constant.dtype, .bits = constant.bits}); }

using Nodes = std::vector<const ExprNode*>;  // that stand in the same place, one of each graph

bool AreAlike(const Nodes& nodes) {
  const ExprNode& first = *nodes[0];
  return std::ranges::all_of(nodes, [&](const ExprNode* node) {
    return node->op == first.op && node->dtype == first.dtype && node->number == first.number &&
           node->num_operands == first.num_operands && (node->op != ExprOp::kInput || node->text == first.text);
  });
}

// One graph in place of several that differ by constants and messages alone; what stands in place of these is asked.
// Nothing where they differ otherwise, or nothing stands there.
std::optional<std::vector<Expr>> Merged(std::span<const FormulaReading> readings,
                                        const std::function<std::optional<Expr>(const Nodes&)>& constant,
                                        const std::function<std::optional<std::string>(const Nodes&)>& message) {
  std::vector<Nodes> roots(readings[0].roots.size());
  for (const FormulaReading& reading : readings) {
    if (reading.roots.size() != roots.size()) return {};
    for (size_t i = 0; i < roots.size(); ++i) roots[i].push_back(reading.roots[i].node());
  }
  std::map<Nodes, Expr> merged;
  for (std::vector<Nodes> todo(roots.rbegin(), roots.rend()); !todo.empty();) {
    const Nodes nodes = todo.back();
    const ExprNode& first = *nodes[0];
    if (!AreAlike(nodes)) return {};
    std::vector<Expr> operands;
    const size_t above = todo.size();
    for (int k = 0; k < first.num_operands; ++k) {
      Nodes operand;
      for (const ExprNode* node : nodes) operand.push_back(node->operands[k]);
      const auto found = merged.find(operand);
      found == merged.end() ? todo.push_back(std::move(operand)) : operands.push_back(found->second);
    }
    std::reverse(todo.begin() + static_cast<std::ptrdiff_t>(above), todo.end());  // the first one comes first
    if (todo.size() > above) continue;
    todo.pop_back();
    std::optional<Expr> made = Expr::Of(&first);
    if (first.op == ExprOp::kConstant) {
      made = constant(nodes);
    } else if (!operands.empty()) {
      const std::optional<std::string> text = message(nodes);
      if (!text) return {};
      made = MakeExpr(first.op, operands, {.dtype = first.dtype, .number = first.number, .text = *text});
    }
    if (!made) return {};
    merged.emplace(nodes, *std::move(made));
  }
  std::vector<Expr> graph;
  for (const Nodes& root : roots) graph.push_back(merged.at(root));
  return graph;
}

class Naming {
 public:
  Naming(std::span<const FormulaReading> readings, const std::set<std::string>& taken)
      : readings_(readings), taken_(taken), next_input_(0) {
    for (const ExprNode* node : ExprNodes(readings[0].roots)) {
      if (node->op == ExprOp::kInput) next_input_ = std::max(next_input_, node->number + 1);
    }
  }

  std::optional<NamedFormula> Run() {
    std::optional<std::vector<Expr>> roots = Merged(
        readings_, [&](const Nodes& nodes) { return Constant(nodes); },
        [&](const Nodes& nodes) { return Message(nodes); });
    if (!roots) return {};
    result_.roots = *std::move(roots);
    return std::move(result_);
  }

 private:
  // Whether the number that `of` makes of a reading is the value there, for all of them.
  template <typename Of>
  bool Is(const std::vector<double>& values, const Of& of) const {
    for (size_t i = 0; i < values.size(); ++i) {
      if (!IsAbout(values[i], of(readings_[i].numbers))) return false;
    }
    return true;
  }

  std::optional<Expr> Constant(const Nodes& nodes) {
    if (std::ranges::all_of(nodes, [&](const ExprNode* node) { return node == nodes[0]; })) return Expr::Of(nodes[0]);
    const DType dtype = nodes[0]->dtype;
    if (dtype == DType::kBool) return {};
    std::vector<double> values;
    for (const ExprNode* node : nodes) values.push_back(ValueOf(*node));
    const NumberNames& names = readings_[0].numbers;
    for (const Form& form : kForms) {
      for (size_t k = 0; k < names.size(); ++k) {
        const auto of = [&](const NumberNames& numbers) { return form.of(numbers[k].second); };
        if (Is(values, of)) return form.make(Named(names[k].first, dtype));
      }
    }
    for (const PairForm& form : kPairForms) {
      for (size_t a = 0; a < names.size(); ++a) {
        for (size_t b = 0; b < names.size(); ++b) {
          const auto of = [&](const NumberNames& numbers) { return form.of(numbers[a].second, numbers[b].second); };
          if (Is(values, of)) return form.make(Named(names[a].first, dtype), Named(names[b].first, dtype));
        }
      }
    }
    if (const std::optional<std::string> size = Size(values)) return Named(*size, dtype);
    return {};
  }

  // A message, in which whole numbers may stand.
  std::optional<std::string> Message(const Nodes& nodes) {
    std::vector<std::string_view> rest;
    for (const ExprNode* node : nodes) rest.push_back(node->text);
    const auto are_alike = [](const auto& items) { return std::ranges::count(items, items[0]) == std::ssize(items); };
    std::string text;
    while (!are_alike(rest)) {
      std::vector<std::string> before, digits;
      std::vector<double> values;
      for (std::string_view& one : rest) {
        const auto begin = std::ranges::find_if(one, IsDigit);
        const auto end = std::find_if_not(begin, one.end(), IsDigit);
        if (begin == end) return {};
        before.emplace_back(one.begin(), begin);
        digits.emplace_back(begin, end);
        values.push_back(std::stod(digits.back()));
        one = {end, one.end()};
      }
      if (!are_alike(before)) return {};
      const std::optional<std::string> number = are_alike(values) ? digits[0] : NameOf(values);
      if (!number) return {};
      text += before[0] + *number;
    }
    return text.append(rest[0]);
  }

  std::optional<std::string> NameOf(const std::vector<double>& values) {
    for (size_t k = 0; k < readings_[0].numbers.size(); ++k) {
      if (!Is(values, [&](const NumberNames& numbers) { return numbers[k].second; })) continue;
      const std::string& name = readings_[0].numbers[k].first;
      result_.names.insert(name);
      return name;
    }
    return Size(values);
  }

  // The name of a number that follows from shapes alone.
  std::optional<std::string> Size(const std::vector<double>& values) {
    if (values[0] != values[1]) return {};
    std::string& name = sizes_[values];
    if (!name.empty()) return name;
    do name = StrCat("size", ++num_sizes_);
    while (taken_.contains(name));
    result_.sizes.emplace_back(name, values[0]);
    return name;
  }

  // One input has one dtype.
  Expr Named(const std::string& name, DType dtype) {
    result_.names.insert(name);
    Expr& input = inputs_[name];
    if (!input.defined()) input = Expr::Input(next_input_++, name, dtype);
    return Cast(dtype, input);
  }

  const std::span<const FormulaReading> readings_;
  const std::set<std::string>& taken_;
  int next_input_;
  int num_sizes_ = 0;
  std::map<std::string, Expr> inputs_;
  std::map<std::vector<double>, std::string> sizes_;
  NamedFormula result_;
};

// Whether the message is that of the names with numbers in place of these.
bool IsMessage(std::string_view named, std::string_view message, const NumberNames& numbers) {
  while (!named.empty() && !message.empty()) {
    if (named[0] == message[0]) {
      named.remove_prefix(1);
      message.remove_prefix(1);
      continue;
    }
    const auto stands_here = [&](const auto& number) {
      return named.starts_with(number.first) && message.starts_with(NumberText(number.second));
    };
    const auto number = std::ranges::find_if(numbers, stands_here);
    if (number == numbers.end()) return false;
    named.remove_prefix(number->first.size());
    message.remove_prefix(NumberText(number->second).size());
  }
  return named.empty() && message.empty();
}

// The expressions with these numbers in place of their names. Throws kTypeMismatch where one has another dtype.
std::vector<Expr> WithNumbers(const NamedFormula& formula, const NumberNames& numbers) {
  std::unordered_map<const ExprNode*, Expr> made;
  for (const ExprNode* node : ExprNodes(formula.roots)) {
    const auto is_it = [&](const auto& number) { return number.first == node->text; };
    const auto number = std::ranges::find_if(numbers, is_it);
    std::vector<Expr> operands;
    for (const ExprNode* operand : node->Operands()) operands.push_back(made.at(operand));
    if (node->op == ExprOp::kInput && number != numbers.end()) {
      made.emplace(node, Expr::Constant(node->dtype, number->second));
    } else if (operands.empty()) {
      made.emplace(node, Expr::Of(node));
    } else {
      const ExprParts parts{.dtype = node->dtype, .number = node->number, .text = node->text};
      made.emplace(node, MakeExpr(node->op, operands, parts));
    }
  }
  std::vector<Expr> roots;
  for (const Expr& root : formula.roots) roots.push_back(made.at(root.node()));
  return roots;
}

}  // namespace

std::optional<NamedFormula> NameNumbers(std::span<const FormulaReading> readings, const std::set<std::string>& taken) {
  return Naming(readings, taken).Run();
}

Likeness LikenessOf(const NamedFormula& formula, const FormulaReading& reading) {
  NumberNames numbers = reading.numbers;
  numbers.insert(numbers.end(), formula.sizes.begin(), formula.sizes.end());
  std::vector<Expr> roots;
  try {
    roots = WithNumbers(formula, numbers);
  } catch (const Error& error) {
    if (error.code() == ErrorCode::kCancelled) throw;
    return Likeness::kOther;
  }
  bool has_other_numbers = false;
  const FormulaReading both[] = {{.roots = std::move(roots), .numbers = {}}, reading};
  const auto alike = Merged(
      both,
      [&](const Nodes& nodes) -> std::optional<Expr> {
        has_other_numbers |= !IsAbout(ValueOf(*nodes[1]), ValueOf(*nodes[0]));
        return Expr::Of(nodes[0]);
      },
      [&](const Nodes& nodes) -> std::optional<std::string> {
        if (!IsMessage(nodes[0]->text, nodes[1]->text, numbers)) return {};
        return nodes[0]->text;
      });
  if (!alike) return Likeness::kOther;
  return has_other_numbers ? Likeness::kOtherNumbers : Likeness::kSame;
}

}  // namespace stepnet

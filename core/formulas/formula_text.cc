// Numbers of a formula have names no more once it has been asked. So it is asked with numbers that nobody writes, which
// are found again in its constants; twice with others, since a constant that is made of an argument in a way that is
// not known here must not be printed as if it were one.
#include "stepnet/core/formulas/formula_text.h"

#include <algorithm>
#include <cmath>
#include <set>
#include <sstream>
#include <unordered_map>

#include "stepnet/core/expressions/expr_scalar.h"
#include "stepnet/core/expressions/expr_text.h"
#include "stepnet/core/formulas/formula_sample.h"
#include "stepnet/core/index_of.h"
#include "stepnet/core/stored_float.h"

namespace stepnet {
namespace {

using Arguments = std::map<std::string, ArgumentValue>;

// A name for a number.
struct Symbol {
  std::string name;
  double value = 0;
};

// What formulas make of an argument before expressions see it.
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

// Expressions with the names of numbers in place of these.
class Naming {
 public:
  Naming(std::vector<Symbol> symbols, int num_inputs) : symbols_(std::move(symbols)), next_input_(num_inputs) {}

  std::vector<Expr> Name(std::span<const Expr> roots) {
    for (const ExprNode* node : ExprNodes(roots)) named_.emplace(node, NamedNode(*node));
    std::vector<Expr> named;
    for (const Expr& root : roots) named.push_back(named_.at(root.node()));
    return named;
  }

 private:
  Expr NamedNode(const ExprNode& node) {
    if (node.op == ExprOp::kConstant) return NamedConstant(node);
    std::vector<Expr> operands;
    for (const ExprNode* operand : node.Operands()) operands.push_back(named_.at(operand));
    if (operands.empty()) return Expr::Of(&node);
    const std::string text = NamedText(node.text);
    return MakeExpr(node.op, operands, {.dtype = node.dtype, .number = node.number, .text = text});
  }

  // A message, in which sizes may stand.
  std::string NamedText(std::string text) const {
    for (const Symbol& symbol : symbols_) {
      if (symbol.value != std::floor(symbol.value)) continue;
      const std::string number = std::to_string(static_cast<std::int64_t>(symbol.value));
      for (size_t at = 0; (at = text.find(number, at)) != std::string::npos; at += symbol.name.size()) {
        text.replace(at, number.size(), symbol.name);
      }
    }
    return text;
  }

  Expr NamedConstant(const ExprNode& node) {
    const double value = DoubleOf({.dtype = node.dtype, .bits = node.bits});
    for (const Form& form : kForms) {
      for (const Symbol& symbol : symbols_) {
        if (IsAbout(value, form.of(symbol.value))) return form.make(Named(symbol, node.dtype));
      }
    }
    for (const Symbol& a : symbols_) {
      for (const Symbol& b : symbols_) {
        if (!IsAbout(value, a.value * b.value)) continue;
        return Named(a, node.dtype) * Named(b, node.dtype);
      }
    }
    return Expr::Of(&node);
  }

  static bool IsAbout(double value, double known) { return std::abs(value - known) <= 1e-6 * std::abs(known); }

  // One input has one dtype.
  Expr Named(const Symbol& symbol, DType dtype) {
    Expr& input = inputs_[symbol.name];
    if (!input.defined()) input = Expr::Input(next_input_++, symbol.name, dtype);
    return Cast(dtype, input);
  }

  const std::vector<Symbol> symbols_;
  int next_input_;
  std::map<std::string, Expr> inputs_;
  std::unordered_map<const ExprNode*, Expr> named_;
};

// The lines of the formula's expressions, each output by its name.
std::string TextOf(const OperatorSchema& schema, const FormulaRegion& formula, std::vector<Symbol> symbols) {
  for (const auto& [name, size] : {std::pair("num_elements", kSampleRows * kSampleColumns),
                                   std::pair("row_size", kSampleColumns), std::pair("num_rows", kSampleRows)}) {
    symbols.push_back({.name = name, .value = static_cast<double>(size)});
  }
  const std::vector<Expr> roots = formula.region.Roots();
  std::istringstream lines(
      PrintExprs(Naming(std::move(symbols), static_cast<int>(formula.region.inputs.size())).Name(roots)));
  std::vector<std::string> items;
  size_t outputs = 0;
  int block = 0;
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with("in ")) continue;
    if (line.starts_with("out ")) {
      line = line.substr(4);
      if (outputs < formula.outputs.size()) {
        const bool is_sum = formula.region.outputs[outputs].kind == RegionOutputKind::kSums;
        const int output = formula.outputs[outputs++];
        const bool has_blocks = std::ranges::count(formula.outputs, output) > 1;
        block = outputs > 1 && formula.outputs[outputs - 2] == output ? block + 1 : 0;
        const size_t last = schema.outputs.size() - 1;
        const std::string name = static_cast<size_t>(output) <= last ? schema.outputs[output].name : StrCat(output);
        line = StrCat(name, has_blocks ? StrCat("_", block) : "", " = ",
                      is_sum ? StrCat("sum_over_rows(", line, ")") : line);
      } else if (!line.starts_with("require(")) {
        continue;  // it stands above by a name of its own
      }
    }
    items.push_back(line);
  }
  return Join(items, "; ");
}

bool IsNumber(const ArgumentSpec& spec) {
  return spec.type == ArgumentType::kFloat || spec.type == ArgumentType::kNumber || spec.type == ArgumentType::kInt;
}

ArgumentValue NumberFor(const ArgumentSpec& spec, double value) {
  if (spec.type == ArgumentType::kInt) return {.i = static_cast<std::int64_t>(value)};
  return {.f = value};
}

// A number for argument k that the declaration allows and nobody writes; others for another `round`.
double RareNumber(const ArgumentSpec& spec, size_t k, int round) {
  const auto place = static_cast<double>(k + 1);
  if (spec.type == ArgumentType::kInt) return 104729 + 2 * (place + 1000 * round);
  const double low = spec.constraint.min.value_or(spec.constraint.max.value_or(1) - 1);
  const double high = spec.constraint.max.value_or(low + 1);
  return static_cast<float>(low + (high - low) * (0.3137 + 0.0173 * place + 0.1091 * round));
}

// Values for an argument without default, the first that the operator takes.
std::vector<ArgumentValue> RequiredValues(const ArgumentSpec& spec) {
  std::vector<ArgumentValue> values;
  for (const std::string& one : spec.constraint.one_of) values.push_back({.s = one});
  for (const char* one : {"int32", "float"}) values.push_back({.s = one});
  for (const int one : {1, 0, 2}) values.push_back({.i = one});
  values.push_back({.f = 1});
  return values;
}

bool IsRepeated(const OperatorSchema& schema, const std::string& input) {
  const std::optional<FormulaRegion> sample = SampleRepeated(schema, input);
  return sample && sample->region.NumElements() == kSampleRows * kSampleColumns;
}

// Whether the gradient of an input is a sum where the input is repeated, and there alone.
bool IsSummed(const OperatorSchema& gradient, const std::string& input) {
  const auto has_elements = [&](const std::optional<FormulaRegion>& sample, bool otherwise) {
    for (size_t o = 0; sample && o < sample->outputs.size(); ++o) {
      if (gradient.outputs[sample->outputs[o]].name != StrCat("d", input)) continue;
      return sample->region.outputs[o].kind == RegionOutputKind::kElements;
    }
    return otherwise;
  };
  return has_elements(SampleFormula(gradient), false) && !has_elements(SampleRepeated(gradient, input), true);
}

// What an argument is called in texts: otherwise than inputs and functions, as those of Clip, which are min and max.
std::string SymbolOf(const OperatorSchema& schema, const ArgumentSpec& spec) {
  const bool is_other = IndexOf(schema.inputs, spec.name, &Formal::name) >= 0 ||
                        std::ranges::find(ExprSyntaxes(), spec.name, &ExprSyntax::name) != ExprSyntaxes().end();
  return StrCat(is_other ? "arg_" : "", spec.name);
}

class FormulaPrinter {
 public:
  explicit FormulaPrinter(const OperatorSchema& schema, SampleRequest request = {})
      : schema_(schema), request_(std::move(request)), given_(request_.arguments) {}

  // What is said before the formula, and the formula, "" where there is none.
  std::pair<std::string, std::string> Print() {
    if (!schema_.formula || !GiveRequired()) return {};
    NameNumbers();
    std::vector<std::string> said;
    for (const ArgumentSpec& spec : schema_.arguments) {
      const auto value = given_.find(spec.name);
      const auto is_it = [&](size_t k) { return schema_.arguments[k].name == spec.name; };
      if (value == given_.end() || std::ranges::any_of(named_, is_it)) continue;
      const bool is_truth = spec.type == ArgumentType::kBool && value->second.i;
      said.push_back(StrCat(spec.name, " = ",
                            is_truth ? (*value->second.i != 0 ? "true" : "false") : value->second.Description()));
    }
    return {said.empty() ? "" : StrCat("with ", Join(said, ", "), ": "), Text(0)};
  }

 private:
  // With the numbers of this round in place of named arguments; "" where the operator does not take them.
  std::string Text(int round) const {
    SampleRequest request = request_;
    Arguments& arguments = request.arguments = given_;
    std::vector<Symbol> symbols;
    for (const size_t k : named_) {
      const ArgumentSpec& spec = schema_.arguments[k];
      const double number = RareNumber(spec, k, round);
      arguments[spec.name] = NumberFor(spec, number);
      symbols.push_back({.name = SymbolOf(schema_, spec), .value = number});
    }
    const std::optional<FormulaRegion> sample = SampleFormula(schema_, request);
    return sample ? TextOf(schema_, *sample, symbols) : "";
  }

  // All numbers, if they are no more than parts of the text, or else those of them that are.
  void NameNumbers() {
    std::vector<size_t> numbers;
    for (size_t k = 0; k < schema_.arguments.size(); ++k) {
      if (IsNumber(schema_.arguments[k])) numbers.push_back(k);
    }
    named_ = numbers;
    if (AreNamed()) return;
    named_.clear();
    for (const size_t k : numbers) {
      named_.push_back(k);
      if (!AreNamed()) named_.pop_back();
    }
  }

  // Whether the arguments are where the text has their names, and nowhere else.
  bool AreNamed() const {
    const std::string text = Text(0);
    const auto is_there = [&](size_t k) {
      return text.find(SymbolOf(schema_, schema_.arguments[k])) != std::string::npos;
    };
    return std::ranges::all_of(named_, is_there) && text == Text(1);
  }

  // Finds values of required arguments; false where there are none.
  bool GiveRequired() {
    for (const ArgumentSpec& spec : schema_.arguments) {
      if (!spec.required || given_.contains(spec.name)) continue;
      for (const ArgumentValue& value : RequiredValues(spec)) {
        given_[spec.name] = value;
        if (spec.Problem(spec.name, value).empty() && IsTaken()) break;
      }
    }
    return IsTaken();
  }
  // Whether the operator takes what has been found, as far as it has been.
  bool IsTaken() const {
    const bool has_all = std::ranges::all_of(
        schema_.arguments, [&](const ArgumentSpec& spec) { return !spec.required || given_.contains(spec.name); });
    return !has_all || !Text(0).empty();
  }

  const OperatorSchema& schema_;
  const SampleRequest request_;
  Arguments given_;            // what is asked for, and what is required
  std::vector<size_t> named_;  // arguments
};

}  // namespace

std::string FormulaText(const OperatorSchema& schema) {
  const auto [said, text] = FormulaPrinter(schema).Print();
  return said + text;
}

std::vector<std::string> FormulaVariants(const OperatorSchema& schema) {
  const std::string usual = FormulaPrinter(schema).Print().second;
  std::set<std::string> seen = {"", usual};
  std::vector<std::string> variants;
  for (const ArgumentSpec& spec : schema.arguments) {
    std::vector<ArgumentValue> values;
    if (spec.type == ArgumentType::kBool) values = {{.i = 0}, {.i = 1}};
    for (const std::string& word : spec.constraint.one_of) values.push_back({.s = word});
    for (const ArgumentValue& value : values) {
      const auto [said, text] = FormulaPrinter(schema, {.arguments = {{spec.name, value}}}).Print();
      if (seen.insert(text).second) variants.push_back(said + text);
    }
  }
  std::vector<std::string> left_out;  // the last ones first: an operator has the first ones
  for (const Formal& input : schema.inputs) {
    if (input.optional && !input.variadic) left_out.insert(left_out.begin(), input.name);
  }
  for (size_t count = 1; count <= left_out.size(); ++count) {
    const auto [said, text] = FormulaPrinter(schema, {.left_out = static_cast<int>(count)}).Print();
    if (!seen.insert(text).second) continue;
    variants.push_back(StrCat("without ", Join(std::span(left_out).first(count), ", "), ": ", said, text));
  }
  const auto checks = [](const std::string& text) { return text.find("require(") != std::string::npos; };
  if (usual.empty() || checks(usual)) return variants;
  const auto [said, text] = FormulaPrinter(schema, {.dtype = DType::kInt32}).Print();
  if (checks(text)) variants.push_back(StrCat("of whole numbers: ", said, text));
  return variants;
}

std::string RepeatedGradientsText(const OperatorSchema& schema, const OperatorSchema& gradient) {
  std::vector<std::string> texts;
  for (const Formal& input : schema.inputs) {
    if (input.variadic || !IsSummed(gradient, input.name) || !IsRepeated(schema, input.name)) continue;
    texts.push_back(StrCat("d", input.name, " is summed over what ", input.name, " is repeated over"));
  }
  return Join(texts, "; ");
}

}  // namespace stepnet

// What a formula is like is found by asking for it of samples: the numbers of two that differ have names, and what
// other values of an argument make of it is said.
#include "stepnet/core/formulas/formula_text.h"

#include <algorithm>
#include <cmath>
#include <set>
#include <sstream>

#include "stepnet/core/expressions/expr_text.h"
#include "stepnet/core/formulas/formula_layout.h"
#include "stepnet/core/formulas/formula_names.h"
#include "stepnet/core/formulas/formula_sample.h"
#include "stepnet/core/index_of.h"

namespace stepnet {
namespace {

using Arguments = std::map<std::string, ArgumentValue>;

// "y_1 = ", of the output of the region.
std::string NameOfOutput(const OperatorSchema& schema, const FormulaRegion& formula, size_t i) {
  const int output = formula.outputs[i];
  const auto count = std::ranges::count(formula.outputs, output);
  const auto block =
      std::count(formula.outputs.begin(), formula.outputs.begin() + static_cast<std::ptrdiff_t>(i), output);
  const bool has_name = output < std::ssize(schema.outputs);
  return StrCat(has_name ? schema.outputs[output].name : StrCat(output), count > 1 ? StrCat("_", block) : "", " = ");
}

// The lines of the formula's expressions, each output by its name.
std::string TextOf(const OperatorSchema& schema, const FormulaRegion& formula, const NamedFormula& named) {
  std::istringstream lines(PrintExprs(named.roots));
  std::vector<std::string> items, inputs;
  size_t outputs = 0, input = 0;
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with("in ")) {
      const size_t quote = line.find('"'), colon = line.rfind(':');
      if (quote < colon) inputs.push_back(StrCat("$", input, " is ", line.substr(quote, colon - quote)));
      ++input;
      continue;
    }
    if (line.starts_with("out ")) {
      line = line.substr(4);
      if (outputs < formula.outputs.size()) {
        const bool is_sum = formula.region.outputs[outputs].kind == RegionOutputKind::kSums;
        line = NameOfOutput(schema, formula, outputs++) + (is_sum ? StrCat("sum_over_rows(", line, ")") : line);
      } else if (!line.starts_with("require(")) {
        continue;  // it stands above by a name of its own
      }
    }
    items.push_back(line);
  }
  items.insert(items.end(), inputs.begin(), inputs.end());
  std::vector<std::string> sizes;
  for (const auto& [name, value] : named.sizes) sizes.push_back(name);
  if (sizes.size() == 1) items.push_back(sizes[0] + " is a number that follows from the shapes");
  if (sizes.size() > 1) items.push_back(Join(sizes, ", ") + " are numbers that follow from the shapes");
  return Join(items, "; ");
}

bool IsNumber(const ArgumentSpec& spec) {
  return spec.type == ArgumentType::kFloat || spec.type == ArgumentType::kNumber || spec.type == ArgumentType::kInt;
}

ArgumentValue NumberFor(const ArgumentSpec& spec, double value) {
  if (spec.type == ArgumentType::kInt) return {.i = static_cast<std::int64_t>(value)};
  return {.f = value};
}

// A number for argument k that the declaration allows and nobody writes; others for another `round`, and other
// differences between those of two arguments.
double RareNumber(const ArgumentSpec& spec, size_t k, int round) {
  const auto place = static_cast<double>(k + 1);
  if (spec.type == ArgumentType::kInt) return 104729 + 2 * (place * (1 + 7 * round) + 1000 * round);
  const double low = spec.constraint.min.value_or(spec.constraint.max.value_or(1) - 1);
  const double high = spec.constraint.max.value_or(low + 1);
  return static_cast<float>(low + (high - low) * (0.2137 + 0.0113 * place * (1 + 0.31 * round) + 0.0891 * round));
}

// Values for which a formula may be another one, of those that the declaration allows.
std::vector<ArgumentValue> TriedValues(const ArgumentSpec& spec) {
  std::vector<ArgumentValue> values;
  for (const std::string& word : spec.constraint.one_of) values.push_back({.s = word});
  switch (spec.type) {
    case ArgumentType::kBool: values = {{.i = 0}, {.i = 1}}; break;
    case ArgumentType::kInt:
      for (int i = -2; i <= 16; ++i) values.push_back({.i = i});
      break;
    case ArgumentType::kFloat:
    case ArgumentType::kNumber:
      for (const double f : {-2.0, -1.0, -0.5, 0.0, 0.5, 1.0, 2.0, 3.0, 100.0}) values.push_back({.f = f});
      break;
    case ArgumentType::kInts: values = {{.ints = {0}}, {.ints = {1}}, {.ints = {-1}}, {.ints = {0, 1}}}; break;
    case ArgumentType::kString:
      if (values.empty()) values.push_back({.s = "other"});
      break;
    default: break;
  }
  std::erase_if(values, [&](const ArgumentValue& value) { return !spec.Problem(spec.name, value).empty(); });
  return values;
}

bool IsChoice(const ArgumentSpec& spec) { return spec.type == ArgumentType::kBool || !spec.constraint.one_of.empty(); }

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

// Other sizes than those of the sample, none of them 1 if `fills`.
Shape OtherShape(int rank, bool fills) {
  const Shape all = fills ? Shape({2, 5, 3, 907, 1201}) : Shape({1, 1, 1, 907, 1201});
  const std::vector<std::int64_t> sizes = all.ToVector();
  return Shape(std::vector<std::int64_t>(sizes.end() - rank, sizes.end()));
}

class FormulaPrinter {
 public:
  explicit FormulaPrinter(const OperatorSchema& schema, SampleRequest request = {})
      : schema_(schema), request_(std::move(request)), given_(request_.arguments) {
    if (!schema_.formula || !GiveRequired()) return;
    base_ = Sample(given_);
    NameArguments();
  }

  // What is said before the formula, and the formula, "" where there is none.
  std::pair<std::string, std::string> Print() const {
    if (!formula_) return {};
    std::vector<std::string> said;
    for (const ArgumentSpec& spec : schema_.arguments) {
      const auto given = given_.find(spec.name);
      if (given == given_.end() ? !IsFolded(spec) : IsNamed(spec)) continue;
      const ArgumentValue& value = given == given_.end() ? spec.default_value : given->second;
      const bool is_truth = spec.type == ArgumentType::kBool && value.i;
      said.push_back(StrCat(said.empty() ? "with " : "", spec.name, " = ",
                            is_truth        ? (*value.i != 0 ? "true" : "false")
                            : value.empty() ? "[]"
                                            : value.Description()));
    }
    if (const std::string inputs = InputsText(); !inputs.empty()) said.push_back("of " + inputs);
    if (formula_->is_of_one_rank) said.push_back(StrCat("of ", base_->shape.rank(), " dimensions"));
    return {said.empty() ? "" : Join(said, ", ") + ": ", TextOf(schema_, *base_, *formula_)};
  }

  // Values of the argument of which the formula is another one than the text says.
  std::vector<ArgumentValue> OtherForms(const ArgumentSpec& spec) const {
    std::vector<ArgumentValue> values;
    const bool has_numbers = IsNumber(spec) && !IsNamed(spec);  // which IsFolded says
    if (!formula_ || (!IsNumber(spec) && !IsChoice(spec))) return values;
    for (const ArgumentValue& value : TriedValues(spec)) {
      const Likeness likeness = With(spec, value);
      if (likeness == Likeness::kOther || (likeness == Likeness::kOtherNumbers && !has_numbers))
        values.push_back(value);
    }
    return values;
  }

 private:
  bool IsNamed(const ArgumentSpec& spec) const {
    return std::ranges::any_of(named_, [&](size_t k) { return schema_.arguments[k].name == spec.name; });
  }

  // Whether the text has the default of the argument in it, unseen. The numbers of a list may be a shape.
  bool IsFolded(const ArgumentSpec& spec) const {
    if (IsNamed(spec) || IsChoice(spec)) return false;
    return std::ranges::any_of(TriedValues(spec), [&](const ArgumentValue& value) {
      const Likeness likeness = With(spec, value);
      return likeness == Likeness::kOther || (likeness == Likeness::kOtherNumbers && IsNumber(spec));
    });
  }

  // How the formula with this value is like the one that is printed, whether other arguments have their defaults or
  // not.
  Likeness With(const ArgumentSpec& spec, const ArgumentValue& value) const {
    Arguments defaults = given_;
    for (const size_t k : named_) defaults.try_emplace(schema_.arguments[k].name, schema_.arguments[k].default_value);
    Likeness likeness = Likeness::kOther;
    for (Arguments arguments : {ArgumentsOf(named_, 0), std::move(defaults)}) {
      arguments[spec.name] = value;
      const std::optional<SampledFormula> sample = Sample(arguments, &*base_);
      if (!sample) return Likeness::kSame;  // it is not taken
      likeness = std::min(likeness, LikenessOf(*formula_, ReadingOf(*sample, named_, arguments)));
    }
    return likeness;
  }

  // "int32 lengths, bool mask": what is not float, where that has not been asked for.
  std::string InputsText() const {
    std::vector<std::string> texts;
    for (size_t i = 0; !request_.dtype && i < schema_.inputs.size(); ++i) {
      const int position = PositionOf(schema_.inputs, static_cast<int>(i), static_cast<int>(base_->dtypes.size()));
      if (position < 0 || base_->dtypes[position] == DType::kFloat) continue;
      texts.push_back(StrCat(base_->dtypes[position], " ", schema_.inputs[i].name));
    }
    return Join(texts, ", ");
  }

  std::optional<SampledFormula> Sample(const Arguments& arguments, const SampledFormula* like = nullptr,
                                       std::optional<Shape> shape = {}) const {
    SampleRequest request = request_;
    request.arguments = arguments;
    request.like = like;
    request.shape = std::move(shape);
    return SampleFormula(schema_, request);
  }

  // What is given, and numbers that nobody writes for these arguments.
  Arguments ArgumentsOf(const std::vector<size_t>& named, int round) const {
    Arguments arguments = given_;
    for (const size_t k : named) {
      const ArgumentSpec& spec = schema_.arguments[k];
      arguments[spec.name] = NumberFor(spec, RareNumber(spec, k, round));
    }
    return arguments;
  }

  FormulaReading ReadingOf(const SampledFormula& sample, const std::vector<size_t>& named,
                           const Arguments& arguments) const {
    FormulaReading reading{.roots = sample.region.Roots(), .numbers = {}};
    for (const size_t k : named) {
      const ArgumentValue& value = arguments.at(schema_.arguments[k].name);
      const double number = value.f ? *value.f : static_cast<double>(value.i.value_or(0));
      reading.numbers.emplace_back(SymbolOf(schema_, schema_.arguments[k]), number);
    }
    const Shape& over = sample.over;
    const std::int64_t row = over.rank() == 0 ? 1 : over[-1];
    for (const auto& [name, size] :
         {std::pair("num_elements", over.size()), {"row_size", row}, {"num_rows", row == 0 ? 0 : over.size() / row}}) {
      reading.numbers.emplace_back(FreeName(name), static_cast<double>(size));
    }
    return reading;
  }

  // The name, or another one where an operand or an argument has it.
  std::string FreeName(const std::string& name) const { return taken_.contains(name) ? FreeName("the_" + name) : name; }

  // The formula with the names of these arguments; nothing where one of them stands there otherwise, or not at all.
  std::optional<NamedFormula> Named(const std::vector<size_t>& named) const {
    std::vector<FormulaReading> readings;
    const auto add = [&](std::optional<Shape> shape) {
      const Arguments arguments = ArgumentsOf(named, static_cast<int>(readings.size()));
      const std::optional<SampledFormula> sample = Sample(arguments, &*base_, std::move(shape));
      if (sample) readings.push_back(ReadingOf(*sample, named, arguments));
      return sample.has_value();
    };
    const int rank = base_->shape.rank();
    if (!add(base_->shape) || !add(base_->shape)) return {};
    if (!add(OtherShape(rank, true)) && !add(OtherShape(rank, false))) return {};
    const bool has_more = add(OtherShape(rank + 1, true));
    std::optional<NamedFormula> formula = NameNumbers(readings, taken_);
    if (!formula && has_more) {
      readings.pop_back();
      formula = NameNumbers(readings, taken_);
      if (formula) formula->is_of_one_rank = true;
    }
    const auto is_there = [&](size_t k) { return formula->names.contains(SymbolOf(schema_, schema_.arguments[k])); };
    if (formula && !std::ranges::all_of(named, is_there)) return {};
    return formula;
  }

  // All that are numbers, if the formula can be written with their names, or else those of them with which it can.
  void NameArguments() {
    if (!base_) return;
    for (const auto* formals : {&schema_.inputs, &schema_.outputs}) {
      for (const Formal& formal : *formals) taken_.insert(formal.name);
    }
    std::vector<size_t> numbers;
    for (size_t k = 0; k < schema_.arguments.size(); ++k) {
      taken_.insert(SymbolOf(schema_, schema_.arguments[k]));
      if (IsNumber(schema_.arguments[k]) && !request_.arguments.contains(schema_.arguments[k].name))
        numbers.push_back(k);
    }
    formula_ = Named(numbers);
    if (formula_) named_ = numbers;
    if (formula_ || !(formula_ = Named({}))) return;
    for (const size_t k : numbers) {
      named_.push_back(k);
      if (std::optional<NamedFormula> more = Named(named_)) {
        formula_ = std::move(more);
      } else {
        named_.pop_back();
      }
    }
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
    return !has_all || Sample(given_).has_value();
  }

  const OperatorSchema& schema_;
  const SampleRequest request_;
  Arguments given_;                      // what is asked for, and what is required
  std::optional<SampledFormula> base_;   // with these alone
  std::set<std::string> taken_;          // names
  std::vector<size_t> named_;            // arguments
  std::optional<NamedFormula> formula_;  // that is printed
};

}  // namespace

std::string FormulaText(const OperatorSchema& schema) {
  const auto [said, text] = FormulaPrinter(schema).Print();
  return said + text;
}

std::vector<std::string> FormulaVariants(const OperatorSchema& schema) {
  const FormulaPrinter printer(schema);
  const std::string usual = printer.Print().second;
  std::set<std::string> seen = {"", usual};
  std::vector<std::string> variants;
  for (const ArgumentSpec& spec : schema.arguments) {
    for (const ArgumentValue& value : printer.OtherForms(spec)) {
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
  if (usual.empty() || checks(usual) || !MayDivideByZero(schema)) return variants;
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

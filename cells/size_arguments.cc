#include "stepnet/cells/size_arguments.h"

#include <algorithm>
#include <optional>
#include <set>

#include "stepnet/core/exact_number.h"
#include "stepnet/core/operator.h"

namespace stepnet {
namespace {

// Whether `text`, a value of the argument, is computed as double.
bool IsOfFloats(const ArgumentSpec& spec, const std::string& text) {
  switch (spec.type) {
    case ArgumentType::kFloat:
    case ArgumentType::kFloats: return true;
    case ArgumentType::kNumber:
    case ArgumentType::kAny: break;
    default: return false;
  }
  try {
    NamesInSize(text);
    return false;
  } catch (const Error&) {
    return true;
  }
}

// Whether the operator makes floats of a value that may be of any kind.
bool MakesFloats(const OperatorDef& op) {
  static const std::set<std::int64_t> kFloats = {TensorProto::FLOAT, TensorProto::DOUBLE, TensorProto::FLOAT16,
                                                 TensorProto::BFLOAT16};
  return std::ranges::any_of(
      op.arg(), [](const Argument& argument) { return argument.name() == "dtype" && kFloats.contains(argument.i()); });
}

std::int64_t WholeNumber(const ArgumentSpec& spec, const std::string& text, const CellSizes& sizes) {
  if (spec.type != ArgumentType::kAny || text.find('/') == std::string::npos) return EvaluateSize(text, sizes);
  try {
    return EvaluateSize(text, sizes);
  } catch (const Error& error) {
    throw Error(error.code(), StrCat(error.message(), "; ", spec.name,
                                     " may be a whole number, so a fraction has a point in it, as 1.0/H"));
  }
}

}  // namespace

IsSize SizesOf(const CellDef& cell) {
  return [&cell](const std::string& name) {
    return std::ranges::any_of(cell.size(), [&](const CellSize& size) { return size.name() == name; });
  };
}

bool IsSizeExpression(const ArgumentSpec& spec, const std::string& text, const IsSize& is_size) {
  switch (spec.type) {
    case ArgumentType::kInt:
    case ArgumentType::kInts:
    case ArgumentType::kFloat:
    case ArgumentType::kFloats:
    case ArgumentType::kNumber: return true;
    case ArgumentType::kAny: break;
    default: return false;
  }
  try {
    const std::vector<std::string> names = NamesInNumber(text);
    return !names.empty() && std::ranges::all_of(names, is_size);
  } catch (const Error&) {
    return false;
  }
}

std::vector<std::string> NamesInArgument(const ArgumentSpec& spec, const std::string& text) {
  return IsOfFloats(spec, text) ? NamesInNumber(text) : NamesInSize(text);
}

std::vector<ArgumentExpression> ExpressionsOf(const OperatorDef& op, const IsSize& is_size) {
  std::vector<ArgumentExpression> expressions;
  const OperatorSchema* const schema = FindOperator(op.type());
  if (schema == nullptr) return expressions;
  for (const Argument& argument : op.arg()) {
    const ArgumentSpec* const spec = schema->FindArgument(argument.name());
    if (spec == nullptr) continue;
    if (argument.has_s() && IsSizeExpression(*spec, argument.s(), is_size)) expressions.push_back({spec, argument.s()});
    if (spec->type != ArgumentType::kInts && spec->type != ArgumentType::kFloats) continue;
    for (const std::string& text : argument.strings()) expressions.push_back({spec, text});
  }
  return expressions;
}

void ReplaceSizes(const CellSizes& sizes, bool exact_numbers, OperatorDef* op) {
  const OperatorSchema* const schema = FindOperator(op->type());
  if (schema == nullptr) return;
  const IsSize is_size = [&](const std::string& name) { return sizes.contains(name); };
  const auto set = [&](double value, Argument* argument) {
    SetWritten(exact_numbers ? value : AsWritten(static_cast<float>(value)), argument);
  };
  for (Argument& argument : *op->mutable_arg()) {
    const ArgumentSpec* const spec = schema->FindArgument(argument.name());
    if (spec == nullptr) continue;
    if (const std::optional<double> number = DoubleOf(argument)) set(*number, &argument);
    if (const std::vector<double> numbers = DoublesOf(argument); !numbers.empty() && !exact_numbers) {
      argument.clear_t();
      for (const double number : numbers) argument.add_floats(static_cast<float>(number));
    }
    if (argument.has_s() && IsSizeExpression(*spec, argument.s(), is_size)) {
      const std::string text = argument.s();
      argument.clear_s();
      if (IsOfFloats(*spec, text) || (spec->type == ArgumentType::kAny && MakesFloats(*op))) {
        set(EvaluateNumber(text, sizes), &argument);
      } else {
        argument.set_i(WholeNumber(*spec, text, sizes));
      }
    } else if (spec->type == ArgumentType::kInts) {
      for (const std::string& text : argument.strings()) argument.add_ints(EvaluateSize(text, sizes));
      argument.clear_strings();
    } else if (spec->type == ArgumentType::kFloats) {
      for (const std::string& text : argument.strings()) {
        argument.add_floats(static_cast<float>(EvaluateNumber(text, sizes)));
      }
      argument.clear_strings();
    }
  }
}

}  // namespace stepnet

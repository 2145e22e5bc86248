#include "stepnet/cells/size_arguments.h"

#include <algorithm>

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

void ReplaceSizes(const CellSizes& sizes, OperatorDef* op) {
  const OperatorSchema* const schema = FindOperator(op->type());
  if (schema == nullptr) return;
  const IsSize is_size = [&](const std::string& name) { return sizes.contains(name); };
  for (Argument& argument : *op->mutable_arg()) {
    const ArgumentSpec* const spec = schema->FindArgument(argument.name());
    if (spec == nullptr) continue;
    if (argument.has_s() && IsSizeExpression(*spec, argument.s(), is_size)) {
      const std::string text = argument.s();
      argument.clear_s();
      if (IsOfFloats(*spec, text)) {
        argument.set_f(static_cast<float>(EvaluateNumber(text, sizes)));
      } else {
        argument.set_i(EvaluateSize(text, sizes));
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

#include "stepnet/cells/size_arguments.h"

#include <algorithm>
#include <vector>

#include "stepnet/cells/size_expression.h"
#include "stepnet/core/operator.h"

namespace stepnet {

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
    case ArgumentType::kNumber: return true;
    case ArgumentType::kAny: break;
    default: return false;
  }
  try {
    const std::vector<std::string> names = NamesInSize(text);
    return !names.empty() && std::ranges::all_of(names, is_size);
  } catch (const Error&) {
    return false;
  }
}

void ReplaceSizes(const IsSize& is_size, const std::function<std::int64_t(const Argument&, const std::string&)>& value,
                  OperatorDef* op) {
  const OperatorSchema* const schema = FindOperator(op->type());
  if (schema == nullptr) return;
  for (Argument& argument : *op->mutable_arg()) {
    const ArgumentSpec* const spec = schema->FindArgument(argument.name());
    if (spec == nullptr) continue;
    if (argument.has_s() && IsSizeExpression(*spec, argument.s(), is_size)) {
      const std::int64_t number = value(argument, argument.s());
      argument.clear_s();
      spec->type == ArgumentType::kFloat ? argument.set_f(static_cast<float>(number)) : argument.set_i(number);
    } else if (argument.strings_size() > 0 && spec->type == ArgumentType::kInts) {
      for (const std::string& text : argument.strings()) argument.add_ints(value(argument, text));
      argument.clear_strings();
    }
  }
}

}  // namespace stepnet

// Arguments of operators that cells write as expressions of sizes: `shape=[1, 4*H]`, `divisor=K`, `min=-1/sqrt(H)`.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "stepnet/cells/size_expression.h"
#include "stepnet/core/arguments.h"
#include "stepnet/proto/cell.pb.h"
#include "stepnet/proto/net.pb.h"

namespace stepnet {

using IsSize = std::function<bool(const std::string& name)>;

// Asks the sizes that the cell, which must outlive it, declares when it is asked.
IsSize SizesOf(const CellDef& cell);

// Whether a text that stands for a value of the argument is an expression of sizes and no string: where it takes
// numbers; and where it takes anything (ArgumentType::kAny) if the text is one, of sizes that there are.
bool IsSizeExpression(const ArgumentSpec& spec, const std::string& text, const IsSize& is_size);

// The names in an expression for the argument: of a number where it takes some that are no integers, of a size
// elsewhere. Throws for what is no such expression.
std::vector<std::string> NamesInArgument(const ArgumentSpec& spec, const std::string& text);

// An expression that an operator has as (a part of) an argument.
struct ArgumentExpression {
  const ArgumentSpec* spec = nullptr;
  std::string text = {};
};
std::vector<ArgumentExpression> ExpressionsOf(const OperatorDef& op, const IsSize& is_size);

// Puts numbers in place of the operator's expressions: doubles where an argument takes floats, and integers where it
// takes ints. Where it takes either, an expression with a fraction (1.0/H) or a root in it is a float, and any where
// the operator's dtype is one. Doubles, those that stand in the cell, too, are rounded unless the numbers shall be
// exact.
void ReplaceSizes(const CellSizes& sizes, bool exact_numbers, OperatorDef* op);

}  // namespace stepnet

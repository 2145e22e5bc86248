// Arguments of operators that cells write as expressions of sizes: `shape=[1, 4*H]`, `divisor=K`.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

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

// Puts numbers in place of the operator's expressions of sizes: what `value` says.
void ReplaceSizes(const IsSize& is_size,
                  const std::function<std::int64_t(const Argument& argument, const std::string& text)>& value,
                  OperatorDef* op);

}  // namespace stepnet

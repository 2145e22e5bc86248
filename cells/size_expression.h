// Expressions of named sizes in cells: sizes, which are integers, "4*H", "(D + H)/2", and numbers that need not be,
// "-1/sqrt(H)".
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace stepnet {

using CellSizes = std::map<std::string, std::int64_t>;

// The value of `text`: integers, names, + - * / (which must leave no rest) and brackets. Throws kInvalidArgument for
// text that is no such expression, a name that `sizes` lacks (with the nearest), and values beyond int64.
std::int64_t EvaluateSize(const std::string& text, const CellSizes& sizes);

// The names in `text`, each once, in their order. Throws as EvaluateSize does for text that is no expression.
std::vector<std::string> NamesInSize(const std::string& text);

// The same of expressions that are computed as double, which may have fractions and sqrt(…). The value must be one that
// a float can hold.
double EvaluateNumber(const std::string& text, const CellSizes& sizes);
std::vector<std::string> NamesInNumber(const std::string& text);

}  // namespace stepnet

// Names for the numbers of a formula. Once it has been asked they are numbers like others; so it is asked of several
// samples, and what differs between them is made of what differs between the samples.
#pragma once

#include <optional>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "stepnet/core/expressions/expr.h"

namespace stepnet {

using NumberNames = std::vector<std::pair<std::string, double>>;

// What a formula says of a sample, and the numbers of the sample that have names.
struct FormulaReading {
  std::vector<Expr> roots;
  NumberNames numbers;
};

struct NamedFormula {
  std::vector<Expr> roots;      // names of numbers are inputs, behind those that the formula has
  std::set<std::string> names;  // that stand there, also in messages of requirements
  bool is_of_one_rank = false;  // it is another one for inputs of more dimensions
  NumberNames sizes = {};       // what shapes make in a way that has no name: size1, size2, …; of the first reading
};

// The formula with names in place of numbers that differ between the readings. All have the same names in the same
// order, and the first two are of inputs of the same shapes. `taken` are names that sizes must not have. Nothing where
// readings differ by more than numbers, or the first two by one that is none of the forms of a name that are known.
std::optional<NamedFormula> NameNumbers(std::span<const FormulaReading> readings, const std::set<std::string>& taken);

// How another reading is like what the names say of its numbers.
enum class Likeness { kSame, kOtherNumbers, kOther };
Likeness LikenessOf(const NamedFormula& formula, const FormulaReading& reading);

}  // namespace stepnet

// Between which numbers the value of an expression lies.
#pragma once

#include <limits>
#include <optional>
#include <span>

#include "stepnet/core/expressions/expr.h"

namespace stepnet {

// Finite numbers. A bound that is infinite says that there is none.
struct ExprRange {
  double low = -std::numeric_limits<double>::infinity();
  double high = std::numeric_limits<double>::infinity();
  bool is_without_zero = false;  // though it may lie between the bounds

  bool HasZero() const { return !is_without_zero && low <= 0 && high >= 0; }
};

// Where all that the expression reads is finite, input i within inputs[i], or anywhere where there are fewer: numbers
// between which its value lies. Nothing where it may be infinite or NaN, or where that is not known: quotients by what
// may be 0, exponentials of what has no bound. Sums and products of numbers of usual size are taken to be finite.
// In branches of Where it is known what the condition says of one number and another. (Intervals, as in Moore,
// Interval Analysis, 1966.)
std::optional<ExprRange> RangeOf(const Expr& expr, std::span<const ExprRange> inputs);

}  // namespace stepnet

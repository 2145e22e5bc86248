// Sums over rows in formulas, added up in double: a float would lose the small terms of long sums.
#pragma once

#include <algorithm>
#include <cstdint>

#include "stepnet/core/formulas/formula.h"

namespace stepnet {

inline Expr RowSumInDouble(const Expr& value) { return Cast(value.dtype(), RowSum(Cast(DType::kDouble, value))); }

// The mean over a row of `count` elements; 0 where there are none.
inline Expr RowMean(const Expr& value, std::int64_t count) {
  return Cast(value.dtype(), RowSum(Cast(DType::kDouble, value)) / std::max<std::int64_t>(count, 1));
}

}  // namespace stepnet

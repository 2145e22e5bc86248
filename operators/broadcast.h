// Kernels over a second input, b, that is repeated over the first, a, as core/broadcast_rule.h says.
#pragma once

#include <cstdint>
#include <vector>

#include "stepnet/core/broadcast_rule.h"
#include "stepnet/core/operator.h"

namespace stepnet {

// a is [before, run, after] and b is [run]: element (i, j, k) of a meets element j of b.
struct BroadcastPlan {
  std::int64_t before = 1;
  std::int64_t run = 1;
  std::int64_t after = 1;

  // No elements in a. The other sizes may be huge then, and nobody should count to them.
  bool empty() const { return before == 0 || run == 0 || after == 0; }
};

// REQUIRES: shapes that CheckBroadcast has accepted.
BroadcastPlan PlanBroadcast(const BroadcastRule& rule, const Shape& a, const Shape& b);

// Shape rule: two inputs of one dtype, one of `dtypes`; the output has the shape of a, and its dtype or `output`.
ShapeRule BroadcastShapes(std::vector<DType> dtypes, std::optional<DType> output = {});

enum class Arithmetic { kAdd, kSubtract, kMultiply, kDivide };

// out[i, j, k] = a[i, j, k] op b[j], on the machine's widest vectors. `out` may be a or, when b has as many elements as
// a, b; otherwise it overlaps neither. Max and min of a number and NaN are NaN.
void BroadcastArithmetic(Arithmetic op, const float* a, const float* b, float* out, const BroadcastPlan& plan);
void BroadcastArithmetic(Arithmetic op, const double* a, const double* b, double* out, const BroadcastPlan& plan);

// out[j] = sum over i, k of a[i, j, k]. `out` does not overlap a, unless they are the same and a has `run` elements.
void BroadcastSum(const float* a, float* out, const BroadcastPlan& plan);
void BroadcastSum(const double* a, double* out, const BroadcastPlan& plan);

}  // namespace stepnet

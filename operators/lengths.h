// Lengths: the int tensors that say how long each sequence of a batch is. Their values are not to be trusted.
#pragma once

#include <algorithm>

#include "stepnet/core/formulas/formula.h"
#include "stepnet/operators/dtypes.h"

namespace stepnet {

enum class LengthsType { kInt32, kInt32OrInt64 };

// Shape rules call it: throws unless input i is [count] (or [any] where count is negative) and of the dtype.
void CheckLengthsInfo(const ShapeQuery& query, int i, std::int64_t count, LengthsType type = LengthsType::kInt32);

// Formulas call it: it does what Lengths does in a run, about the length that is element `element` of input `input`.
void CheckLength(Formula& f, int input, const Expr& length, const Expr& element, std::int64_t limit);

// The lengths of one run.
class Lengths {
 public:
  // Shape rules make it. Throws kInvalidArgument, naming the element, unless each is from 0 to `limit`. `name` is that
  // of the blob.
  Lengths(const TensorView& lengths, const std::string& name, std::int64_t limit);
  // Kernels make it: such an element is a fault of the run, and counts as the nearest length from 0 to `limit`.
  Lengths(const OpRun& run, int input, const std::string& name, std::int64_t limit);
  // Likewise where together they are as many as the `rows` that the data have; another sum is a fault of the run, too.
  Lengths(const OpRun& run, int input, const std::string& name, std::int64_t limit, std::int64_t rows);
  Lengths(const Lengths&) = delete;
  Lengths& operator=(const Lengths&) = delete;

  std::int64_t count() const { return lengths_.size(); }
  std::int64_t operator[](std::int64_t i) const { return std::clamp<std::int64_t>(Given(i), 0, limit_); }
  std::int64_t sum() const { return sum_; }
  std::int64_t max() const { return max_; }

 private:
  std::int64_t Given(std::int64_t i) const { return IntAt(lengths_, i); }
  // Calls `fault(element, error)` for each element that is wrong.
  template <typename FaultFn>
  void AddUp(const std::string& name, const FaultFn& fault);

  const TensorView lengths_;
  const std::int64_t limit_;
  std::int64_t sum_ = 0;
  std::int64_t max_ = 0;
};

}  // namespace stepnet

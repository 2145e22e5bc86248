// Inputs that are repeated over each other, as core/broadcast_rule.h says, and sums over what was repeated.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "stepnet/core/broadcast_rule.h"
#include "stepnet/core/cancellation.h"
#include "stepnet/core/operator.h"
#include "stepnet/core/regions/region_kernels.h"

namespace stepnet {

// Declares c of two inputs, a and b, of one dtype that is one of these; c has the shape that they are repeated to, and
// their dtype or `output`.
Operator BroadcastOperator(const std::string& type, const std::string& doc, const std::vector<DType>& dtypes,
                           std::optional<DType> output = {}, const char* file = __builtin_FILE());

// Gradient rules of operators that repeat their inputs use these, with or without the arguments of BroadcastArguments.
// Whether input i may be repeated: a is not with broadcast=1, nor are inputs that all are one blob.
bool MayBeRepeated(const GradientBuilder& g, int i);
// What the rule calls the gradient of input i in the shape of the output: that of the input where nothing is repeated.
// Names are those of nets that Caffe2 wrote.
std::string UnreducedGradient(GradientBuilder& g, int i);
// Says that the gradient of input i is that, summed over what each element of the input has met. Writes an operator
// only where something may be repeated.
void ReduceGradient(GradientBuilder& g, int i);
// The same of the gradient of output 0, which belongs to others too.
void PassGradient(GradientBuilder& g, int i);

// out[r] = the RowSum of formulas over row r of x, [rows, n]: on vectors of any width the same bits. REQUIRES: n > 0.
template <typename T>
void SumRows(const T* x, T* out, std::int64_t rows, std::int64_t n) {
  constexpr DType kDType = kDTypeOf<T>;
  if (n <= kWorkOfBlock) {
    const RowsKernel sum = RowsKernelOf(ExprOp::kRowSum, kDType);
    if (rows == 1) {  // to find out how many rows a block has takes a division
      CountWork(n);
      return sum(out, x, nullptr, {}, 1, n);
    }
    return InBlocks(rows, n, [&](std::int64_t begin, std::int64_t end) {
      sum(out + begin, x + begin * n, nullptr, {}, end - begin, n);
    });
  }
  const RowKernel add = RowKernelOf(ExprOp::kRowSum, kDType);
  for (std::int64_t row = 0; row < rows; ++row, x += n) {
    T partial[kRowPartials];
    StartRow(ExprOp::kRowSum, kDType, partial);
    InBlocks(n, 1, [&](std::int64_t begin, std::int64_t end) { add(partial, x + begin, end - begin); });
    FinishRow(ExprOp::kRowSum, kDType, partial, out + row);
  }
}

// out[j] = the sum over column j of a, [rows, n]: `in_order` one row after the other, as regions add up, and else by
// fours, which loses less. `out` does not overlap a.
void SumColumns(const float* a, std::int64_t rows, std::int64_t n, bool in_order, float* out);
void SumColumns(const double* a, std::int64_t rows, std::int64_t n, bool in_order, double* out);

// What the sum of so many elements is multiplied with, where it is to be their average; there is none of no element.
template <typename T>
T AverageFactor(bool average, std::int64_t elements) {
  return average && elements > 0 ? T{1} / static_cast<T>(elements) : T{1};
}

// out[i] = x[i] * factor; `out` may be x.
template <typename T>
void Scale(std::int64_t n, const T* x, T factor, T* out) {
  const RowOperandKernel multiply = RowOperandChainOf({.before = ChainStep::kMultiply}, kDTypeOf<T>);
  InBlocks(n, 1, [&](std::int64_t begin, std::int64_t end) {
    const void* const operands[] = {x + begin, &factor};
    multiply(out + begin, operands, {.of_rows = 0b10}, 1, end - begin);
  });
}

}  // namespace stepnet

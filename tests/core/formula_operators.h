// Operators that are a formula alone, for tests: all ways in which formulas read and write.
//
//   TestAdd(a, b) → y, TestMul    repeated over one another
//   TestTanh(x) → y, TestSigmoid
//   TestMulAdd(a, b, c) → y       likewise; a * b + c, rounded once
//   TestGates(gates, c) → c, h    of an LSTM, from blocks of [R, 4C]
//   TestSplit(x) → a, b           the halves of [R, 2C]; TestSplit4 the quarters of [R, 4C]
//   TestJoin(a, b) → y            [R, 2C]
//   TestSoftmax(x) → y, TestRowSum(x) → [R], TestRowNorm(x) → y, [R]
//   TestScaleRows(x, [R]) → y, TestAddColumn(x, [C]) → y, TestScale(x, [1]) → y
//   TestSumRows(x) → [C]
//   TestPosition(x) → y           x where the column is less than the row
//   TestPositive(x) → y           x; a fault where it is negative
// Of the first ones and of TestSoftmax there are gradients, of inputs of one shape.
#pragma once

#include <string>
#include <vector>

#include "stepnet/core/formula.h"

namespace stepnet {

// Tensors by number, and an operator call on some of them with what it gives.
struct FormulaStep {
  std::string type;
  std::vector<int> inputs;
  std::vector<int> outputs;
  FormulaRegion formula;
};

// The step "type" on tensors of these descriptions, whose outputs become further tensors. Throws what the formula
// throws.
FormulaStep AddFormulaStep(const std::string& type, const std::vector<int>& inputs, int num_outputs,
                           std::vector<TensorInfo>* tensors);

}  // namespace stepnet

// Operators that are a formula alone, for tests: all ways in which formulas read and write.
//
//   test.Add(a, b) → y, test.Mul    repeated over one another
//   test.Tanh(x) → y, test.Sigmoid
//   test.MulAdd(a, b, c) → y       likewise; a * b + c, rounded once
//   test.Gates(gates, c) → c, h    of an LSTM, from blocks of [R, 4C]
//   test.Split(x) → a, b           the halves of [R, 2C]; test.Split4 the quarters of [R, 4C]
//   test.Join(a, b) → y            [R, 2C]
//   test.Softmax(x) → y, test.RowSum(x) → [R], test.RowNorm(x) → y, [R]
//   test.ScaleRows(x, [R]) → y, test.AddColumn(x, [C]) → y, test.Scale(x, [1]) → y
//   test.SumOverRows(x) → [C]
//   test.Position(x) → y           x where the column is less than the row
//   test.Positive(x) → y           x; a fault where it is negative
// The first ones and test.Softmax have gradients, for inputs of one shape.
#pragma once

#include <string>
#include <vector>

#include "stepnet/core/formulas/formula.h"

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

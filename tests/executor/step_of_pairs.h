// A step in which every unit meets every row of a parameter.
#pragma once

#include "stepnet/tests/executor/recurrent_case.h"

namespace stepnet {

// Steps from which d, s and t need not be kept: the differences of pairs, an element of h and one of a row of p each,
// their sigmoids, and a sum of these. x is [T, B, H], p [H, N].
inline RecurrentCase StepOfPairs() {
  RecurrentCase net;
  net.Sequence("x", "x_t").State("h", "h0", "h_prev", "h_t").Captured("p");
  OperatorDef column = ParseOp("column = ExpandDims(h_prev)");
  AddInts(&column, "dims", {3});
  net.Step(column).Step("d = Sub(column, p)").Step("s = Sigmoid(d)").Step("m = Mul(s, d)");
  OperatorDef sum = ParseOp("sum = ReduceSum(m)");
  AddInts(&sum, "axes", {-1});
  AddInt(&sum, "keepdims", 0);
  net.Step(sum).Step("t = Tanh(sum)").Step("h_t = Mul(t, x_t)").Output("h_all", "h", 1);
  return net;
}

}  // namespace stepnet

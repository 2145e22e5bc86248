// Derivatives of formulas: from what gives the outputs, and a gradient for each, what gives the gradients of inputs.
//
//   const Expr x = Expr::Input(0, "x", DType::kFloat), y = Expr::Input(1, "y", DType::kFloat),
//              dy = Expr::Input(2, "dy", DType::kFloat);
//   Differentiate({{.value = Tanh(x), .gradient = dy, .stored = y}}, {x})  // dy * (1 - y * y)
//
// - The derivative is that of the sum over the region of gradient * output, in reverse: what flows back into a node is
//   added up before it flows on, so that the derivative grows with the formula, not with its paths.
// - What a selection (Where, Min, Max, Abs, RowMax) leaves out gets 0, whatever stands there: the selection is made
//   where a gradient arrives, around all of its factors, so that no 0 * NaN and no 0 * infinity comes about.
// - Ties are Caffe2's. Max and Min of two numbers that vary: each that equals the result gets the gradient, both of two
//   equal ones (MaxGradient). Where one is a constant, as in Relu and Clip, none gets it where both are equal
//   (ReluGradient, ClipGradient). Abs at 0: 0. RowMax: every element that equals it (RowwiseMaxGradient, operators/
//   reduction_ops.cc), but one that is the same for all the row gets it once.
// - Roundings are those of Caffe2's gradient operators, which read x y as a product and a sum. Where the formula says
//   MulAdd, its derivative rounds once as well: sums of products that flow together, and the slopes of tanh and
//   sigmoid, 1 - y^2 and y - y^2. What flows together as x a + x b is x (a + b), which does not cancel.
// - NaN that is selected stays NaN; Max and Min with a NaN pass nothing on, as in Caffe2.
// - No gradient flows through what is no float or double, nor through sign, floor, ceil and round, whose derivative is
//   0 where they have one.
// A derivative may read row sums where the formula has none: those of gradients of what is the same for all of a row.
#pragma once

#include <array>
#include <span>
#include <vector>

#include "stepnet/core/expressions/expr.h"
#include "stepnet/core/regions/region.h"

namespace stepnet {

// The dimensions of the region that an input moves along; along others it is repeated. A dimension of size 1 may be
// called either; that it is not repeated is cheaper.
struct ExprAccess {
  std::array<bool, kRegionDims> moves = {true, true, true, true};
};

struct DerivativeOutput {
  Expr value;
  Expr gradient;  // of the dtype of value; undefined: none arrives here
  // What the derivative reads in place of computing `value` again, where it may; of a selection also in place of what
  // is selected.
  Expr stored = {};
  bool is_row = false;  // RegionOutputKind::kRows: `value` and `gradient` count once for the row
};

struct DerivativeOptions {
  // How input k of formulas, gradients and what is stored moves; inputs beyond move along all dimensions.
  std::vector<ExprAccess> accesses = {};
  // What counts as a constant, such as the largest element that Softmax takes off and that changes no result.
  std::vector<Expr> constants = {};
};

struct InputGradient {
  enum class Reach {
    kUnread,   // the outputs that have a gradient do not depend on the input
    kStopped,  // they do, but only through what has no derivative
    kFlows,
  };
  Reach reach = Reach::kUnread;
  Expr value = {};  // defined where reach is kFlows
  // How a region puts `value` together, by where the input is repeated. Along the row the sum is taken already: then
  // it is kRows.
  RegionOutputKind kind = RegionOutputKind::kElements;
  // A kRows: the input is repeated along an earlier dimension as well, and rows that are one element of it are to be
  // added up still: a kSums that does not move along the row does that.
  bool adds_rows = false;
};

// The gradients of `inputs`, in their order; of an input that is only stored, by the float that Cast loads from it.
// Throws kTypeMismatch for a gradient or stored value of another dtype than its output, and kInvalidArgument for an
// input that is none, an undefined expression, or a row's output or gradient that varies along the row. REQUIRES: no
// literals among the expressions; what is stored has the access of its output.
std::vector<InputGradient> Differentiate(std::span<const DerivativeOutput> outputs, std::span<const Expr> inputs,
                                         const DerivativeOptions& options = {});

}  // namespace stepnet

// SigmoidCrossEntropyWithLogits: y_i = mean over j of -(t log p + (1 - t) log(1 - p)), p = sigmoid(x), written as
//   max(x, 0) - x t + log(1 + exp(-|x|)),
// which neither overflows nor takes the logarithm of 0. Arguments choose two relatives of it.
#include <algorithm>

#include "stepnet/core/declared_gradient.h"
#include "stepnet/core/formulas/formula.h"
#include "stepnet/core/input_checks.h"
#include "stepnet/operators/row_sums.h"

namespace stepnet {
namespace {

enum class Variant { kPlain, kLogD, kUnjoined };

Variant VariantOf(const OperatorCall& op) {
  if (op.Bool("unjoined_lr_loss")) return Variant::kUnjoined;
  return op.Bool("log_D_trick") ? Variant::kLogD : Variant::kPlain;
}

void CheckVariant(const OperatorCall& op, std::vector<NetProblem>* problems) {
  if (op.Bool("unjoined_lr_loss") && op.Bool("log_D_trick")) {
    problems->push_back({.message = op.type() + " has both log_D_trick and unjoined_lr_loss; needs one at most"});
  }
}

// With s = log(1 + exp(-|x|)), log p = min(x, 0) - s and log(1 - p) = -max(x, 0) - s.
Expr Loss(Variant variant, const Expr& x, const Expr& t) {
  const Expr s = Log(Exp(-Abs(x)) + 1);
  const Expr positive = Where(x < 0, 0, x);  // NaN stays NaN
  switch (variant) {
    case Variant::kPlain: return positive - x * t + s;
    case Variant::kLogD: return (2 * t - 1) * (positive - x + s);
    case Variant::kUnjoined: return (1 - t) * (positive + s) - x * t;
  }
  return 0;
}

// The derivative by x; by hand, because sigmoid(x) - t has digits that the way back through log, exp and abs loses.
Expr Derivative(Variant variant, const Expr& x, const Expr& t) {
  const Expr p = Sigmoid(x);
  switch (variant) {
    case Variant::kPlain: return p - t;
    case Variant::kLogD: return (1 - 2 * t) * (1 - p);
    case Variant::kUnjoined: return (1 - t) * p - t;
  }
  return 0;
}

const Registration sigmoid_cross_entropy =
    Operator("SigmoidCrossEntropyWithLogits")
        .Doc(
            "Cross entropy of sigmoid(x) with targets, the mean over the last dimension: "
            "y = mean of -(t log p + (1 - t) log(1 - p)), p = sigmoid(x).")
        .Input("x", OfFloats("[…, D]"))
        .Input("targets", Like("x", "each from 0 to 1"))
        .Output("y", "[…]")
        .Arg("log_D_trick", false, "y = mean of -(2 t - 1) log p")
        .Arg("unjoined_lr_loss", false,
             "y = mean of -(t log p + (1 - t) log(1 - p)) with a negative for every positive: (1 - t) (max(x, 0) + "
             "log(1 + exp(-|x|))) - x t")
        .Check(CheckVariant)
        .Gradient("SigmoidCrossEntropyWithLogitsGradient", {"dy", "x", "targets"}, {"dx"})
        .Formula([](Formula& f) {
          const Expr loss = Loss(VariantOf(f.op()), f.In("x"), f.In("targets"));
          f.Out({OfRows(RowMean(loss, f.RowsFrom("x", -1)))});
        });

const Registration sigmoid_cross_entropy_gradient =
    GradientOf("SigmoidCrossEntropyWithLogits", "dx = dy (sigmoid(x) - t) / D, or as the arguments say.")
        .CheckShapes([](const ShapeQuery& query) {
          ExpectSameType(query, 0, 1);
          const Shape& x = query.In(1).shape;
          if (query.In(0).shape.size() == (x.rank() > 0 ? x.SizeTo(x.rank() - 1) : 1)) return;
          throw WrongInputs(query, {0, 1}, "needs dy of the shape of x without its last dimension");
        })
        .Formula([](Formula& f) {
          const Expr each = f.Row("dy") / std::max<std::int64_t>(f.RowsFrom("x", -1), 1);
          f.Out({Derivative(VariantOf(f.op()), f.In("x"), f.In("targets")) * each});
        });

}  // namespace
}  // namespace stepnet

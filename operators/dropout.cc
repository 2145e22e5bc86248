// Dropout: y = x / (1 - ratio) where a random mask is set, 0 elsewhere.
// Source: Srivastava et al., "Dropout: A Simple Way to Prevent Neural Networks from Overfitting", JMLR 2014, with the
// scaling moved from testing to training.
#include "stepnet/core/formulas/formula.h"
#include "stepnet/core/input_checks.h"

namespace stepnet {
namespace {

// Selects rather than multiplies: a NaN that is dropped is gone.
Expr Kept(const Formula& f, const Expr& is_kept, const Expr& x) {
  return Where(is_kept, x * (1 / (1 - Cast(x.dtype(), f.Number("ratio")))), 0);
}

void CheckRatio(const OperatorCall& op, std::vector<NetProblem>* problems) {
  if (op.Float("ratio") < 1) return;
  problems->push_back({.message = StrCat(op.type(), ": ratio is ", op.Float("ratio"), ", must be less than 1")});
}

Operator WithArguments(Operator op) {
  return std::move(op.Arg("ratio", 0.5f, "probability that an element is dropped; less than 1", AtLeast(0))
                       .Arg("is_test", false, "y = x")
                       .Arg("same_mask_each_step", false, "in a step net, every step of a run draws the same mask")
                       .Check(CheckRatio));
}

const Registration dropout =
    WithArguments(Operator("Dropout"))
        .Doc(
            "Sets random elements to 0 and scales the others by 1 / (1 - ratio). The mask is a function of seed, "
            "operator, run, step and element alone, so that it is the same wherever and however often it is drawn.")
        .Input("x", OfFloats("any shape"))
        .Output("y", Like("x"))
        .OptionalOutput(
            "mask", OfTypes({DType::kBool}, "bool, the shape of x: true where x is kept; all true with is_test", "x"))
        .DrawsRandomNumbers([](const OperatorCall& op) { return !op.Bool("is_test"); })
        .InPlace({{0, 0}})
        .Gradient([](GradientBuilder& g) {
          GradientOp op{.type = "DropoutGrad", .inputs = {g.GO(0)}, .outputs = {g.GI(0)}};
          if (!g.op().Bool("is_test")) {
            if (g.op().num_outputs() < 2) {
              throw Error(ErrorCode::kInvalidNet, "the gradient of Dropout needs its mask, a second output");
            }
            op.inputs.push_back(g.O(1));
          }
          g.Add(std::move(op));
        })
        .Formula([](Formula& f) {
          const Expr x = f.In("x");
          if (f.Bool("is_test")) return f.Out({x, Expr(true)});
          f.RowsFrom("x", 0);
          // In double, which holds the ratio and all 32 bits of a number exactly.
          const Expr is_kept = f.Uniform(DType::kDouble, f.Bool("same_mask_each_step")) >= f.Number("ratio");
          f.Out({Kept(f, is_kept, x), is_kept});
        });

void ExpectMask(const OperatorCall& op) {
  if (op.Bool("is_test") || op.num_inputs() > 1) return;
  throw Error(ErrorCode::kInvalidArgument, "DropoutGrad needs the mask as a second input, or is_test");
}

void CheckMask(const ShapeQuery& query) {
  if (query.op().Bool("is_test")) return;
  ExpectMask(query.op());
  ExpectType(query, 1, {DType::kBool});
  if (query.In(1).shape != query.In(0).shape) throw WrongInputs(query, {0, 1}, "needs dy and mask of one shape");
}

// By hand, because the mask is not given with is_test.
const Registration dropout_grad =
    WithArguments(Operator("DropoutGrad"))
        .Doc("dx = dy / (1 - ratio) where the mask is set, 0 elsewhere; dx = dy with is_test.")
        .Input("dy", OfFloats("any shape"))
        .OptionalInput("mask", "bool, the shape of dy; not needed with is_test")
        .Output("dx", Like("dy"))
        .Check([](const OperatorCall& op, std::vector<NetProblem>* problems) {
          CheckRatio(op, problems);
          CheckBy(ExpectMask)(op, problems);
        })
        .CheckShapes(CheckMask)
        .InPlace({{0, 0}})
        .Gradient("DropoutGrad", {"ddx", "mask"}, {"ddy"})
        .Formula([](Formula& f) {
          const Expr dy = f.In("dy");
          f.Out({f.Bool("is_test") ? dy : Kept(f, f.In("mask"), dy)});
        });

}  // namespace
}  // namespace stepnet

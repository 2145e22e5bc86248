// LSTMStateClip: the cell state of RNN where it is used. Unlike Clip it lets gradients through at the bounds themselves
// and where it has replaced a NaN, as cuDNN does.
#include "stepnet/operators/activation.h"

namespace stepnet {
namespace {

const Registration lstm_state_clip =
    Activation("LSTMStateClip", "y = min where x < min, max where x > max, x elsewhere.")
        .RequiredArg("min", ArgumentType::kFloat, "no element of y is less")
        .RequiredArg("max", ArgumentType::kFloat, "no element of y is greater")
        .Arg("nan", false, "NaN becomes min")
        .Private()
        .Formula([](Formula& f) {
          const Expr x = f.In("x");
          const Expr low = Cast(x.dtype(), f.Number("min")), high = Cast(x.dtype(), f.Number("max"));
          const Expr at_least_low = f.Bool("nan") ? Where(x >= low, x, low) : Where(x < low, low, x);
          f.Out({Where(x > high, high, at_least_low)});
        });

// By hand, because the derivative would be 0 where a NaN was replaced.
const Registration lstm_state_clip_gradient =
    GradientOf("LSTMStateClip", "dx = 0 where x < min or x > max, dy elsewhere, also where x is NaN.")
        .Formula([](Formula& f) {
          const Expr x = f.In("x");
          const Expr is_low = x < f.Number("min");
          const Expr is_high = x > f.Number("max");
          f.Out({Where(Or(is_low, is_high), 0, f.In("dy"))});
        });

}  // namespace
}  // namespace stepnet

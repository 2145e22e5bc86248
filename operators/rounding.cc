// Floor, Ceil, Round: to whole numbers. Mod: what is left of a division.
#include "stepnet/operators/activation.h"

namespace stepnet {
namespace {

Operator Rounding(const char* type, const char* doc, Expr (*round)(const Expr&)) {
  return ElementFunction(type, doc).StopsGradient().Formula([round](Formula& f) { f.Out({round(f.In("x"))}); });
}

const Registration floor = Rounding("Floor", "The greatest whole number that is at most x.", Floor);
const Registration ceil = Rounding("Ceil", "The least whole number that is at least x.", Ceil);
const Registration round = Rounding("Round", "The nearest whole number; of two, the even one.", Round);

// A divisor that x's type does not hold would be rounded to another one.
template <typename T>
bool Holds(std::int64_t number) {
  const T rounded = static_cast<T>(number);
  return rounded < T{0x1p63} && static_cast<std::int64_t>(rounded) == number;
}

void CheckDivisor(const ShapeQuery& query) {
  const DType dtype = query.In(0).dtype;
  const std::int64_t divisor = query.op().Int("divisor");
  if (dtype == DType::kFloat ? Holds<float>(divisor) : dtype != DType::kDouble || Holds<double>(divisor)) return;
  throw Error(ErrorCode::kTypeMismatch, StrCat(query.op().type(), ": divisor is ", divisor, ", which is no ", dtype));
}

const Registration mod =
    Operator("Mod")
        .Doc(
            "y = x - divisor * (x / divisor, rounded towards 0), element by element. dx = dy, as of torch.fmod and "
            "torch.remainder.")
        .Input("x", OfNumbers("any shape; float, double, float16, bfloat16, int32 or int64"))
        .Output("y", Like("x"))
        .RequiredArg("divisor", ArgumentType::kInt, "at least 1", AtLeast(1))
        .Arg("sign_follow_divisor", false, "y is at least 0, also where x is less; else it has the sign of x")
        .CheckShapes(CheckDivisor)
        .InPlace({{0, 0}})
        .Gradient([](GradientBuilder& g) { g.SetDense(0, g.GO(0)); })
        .Formula([](Formula& f) {
          const Expr left = Mod(f.In("x"), f.Int("divisor"));
          f.Out({f.Bool("sign_follow_divisor") ? Where(left < 0, left + f.Int("divisor"), left) : left});
        });

}  // namespace
}  // namespace stepnet

// Sqr: y = x^2. Sqrt: y = x^(1/2). Rsqrt: y = x^(-1/2). Reciprocal: y = 1 / x. Pow: y = x^exponent.
#include <cmath>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "stepnet/operators/powers.cc"
#include <hwy/foreach_target.h>  // IWYU pragma: keep
#include <hwy/highway.h>

#include "stepnet/operators/elementwise.h"
#include "stepnet/operators/input_checks.h"
#include "stepnet/operators/vector_loops-inl.h"

HWY_BEFORE_NAMESPACE();
namespace stepnet {
namespace HWY_NAMESPACE {

// std::sqrt in a loop is one at a time, because it may set errno.
template <typename T>
HWY_INLINE void Root(const T* x, T* y, std::int64_t n) {
  ForVectors<T>(n, [&](auto d, std::int64_t i) HWY_ATTR { hn::StoreU(hn::Sqrt(hn::LoadU(d, x + i)), d, y + i); });
}

void RootFloat(const float* x, float* y, std::int64_t n) { Root(x, y, n); }
void RootDouble(const double* x, double* y, std::int64_t n) { Root(x, y, n); }

}  // namespace HWY_NAMESPACE
}  // namespace stepnet
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace stepnet {
namespace {

HWY_EXPORT(RootFloat);
HWY_EXPORT(RootDouble);

void Root(const float* x, float* y, std::int64_t n) { HWY_DYNAMIC_DISPATCH(RootFloat)(x, y, n); }
void Root(const double* x, double* y, std::int64_t n) { HWY_DYNAMIC_DISPATCH(RootDouble)(x, y, n); }

// Kernel of sqrt(x), or of its reciprocal.
RunFn MapRoot(const OperatorCall& op, bool reciprocal) {
  return [reciprocal, type = op.type()](const OpRun& run) {
    ForFloatType(run.Out(0).dtype, type, [&](auto zero) {
      using T = decltype(zero);
      T* y = run.Out(0).As<T>();
      Root(run.In(0).As<T>(), y, run.Out(0).size());
      for (std::int64_t i = 0; reciprocal && i < run.Out(0).size(); ++i) y[i] = 1 / y[i];
    });
  };
}

// Declares an operator of one input that works in place.
Operator Power(const std::string& type, const std::string& doc) {
  Operator op(type);
  op.Doc(doc)
      .Input("x", "any shape")
      .Output("y", "the shape of x")
      .Shapes(SameFloats())
      .InPlace({{0, 0}})
      .Elementwise();
  return op;
}

// Declares the operator that computes dx from y and dy.
Operator GradientOfPower(const std::string& type, const std::string& doc) {
  Operator op(type + "Gradient");
  op.Doc(doc)
      .Input("y", "output of " + type + ", any shape")
      .Input("dy", "the shape of y")
      .Output("dx", "the shape of y")
      .Shapes(SameFloats())
      .InPlace({{0, 0}, {1, 0}})
      .Elementwise();
  return op;
}

ArgumentValue Factor(float value) {
  ArgumentValue factor;
  factor.f = value;
  return factor;
}

const Registration sqr =
    Power("Sqr", "y = x * x, element by element.")
        .Gradient([](GradientBuilder& g) {
          ExpectInputsKept(g);
          const std::string doubled = g.I(0) + "_grad_doubled";
          g.Add({.type = "Scale", .inputs = {g.GO(0)}, .outputs = {doubled}, .arguments = {{"scale", Factor(2)}}});
          g.Add({.type = "Mul", .inputs = {doubled, g.I(0)}, .outputs = {g.GI(0)}});
        })
        .Cpu([](const OperatorCall& op) { return Map(op, [](auto x) { return x * x; }); });

const Registration sqrt =
    Power("Sqrt", "The square root, element by element; NaN below 0.")
        .Gradient([](GradientBuilder& g) {
          const std::string halved = g.I(0) + "_grad_halved";
          g.Add({.type = "Scale", .inputs = {g.GO(0)}, .outputs = {halved}, .arguments = {{"scale", Factor(0.5f)}}});
          g.Add({.type = "Div", .inputs = {halved, g.O(0)}, .outputs = {g.GI(0)}});
        })
        .Cpu([](const OperatorCall& op) { return MapRoot(op, /*reciprocal=*/false); });

const Registration rsqrt = Power("Rsqrt", "y = 1 / sqrt(x), element by element.")
                               .Gradient("RsqrtGradient", {"y", "dy"}, {"dx"})
                               .Cpu([](const OperatorCall& op) { return MapRoot(op, /*reciprocal=*/true); });

const Registration rsqrt_gradient = GradientOfPower("Rsqrt", "dx = -dy * y^3 / 2.").Cpu([](const OperatorCall& op) {
  return Map(op, [](auto y, auto dy) { return dy * (y * y * y) / -2; });
});

const Registration reciprocal = Power("Reciprocal", "y = 1 / x, element by element.")
                                    .Gradient("ReciprocalGradient", {"y", "dy"}, {"dx"})
                                    .Cpu([](const OperatorCall& op) { return Map(op, [](auto x) { return 1 / x; }); });

const Registration reciprocal_gradient =
    GradientOfPower("Reciprocal", "dx = -dy * y^2.").Cpu([](const OperatorCall& op) {
      return Map(op, [](auto y, auto dy) { return -dy * (y * y); });
    });

// Kernel of fn(x^exponent, dy), or of x^exponent. The powers that cells use need no std::pow.
template <typename Fn>
RunFn MapPower(const OperatorCall& op, float exponent, Fn fn) {
  const auto map = [&](auto power) {
    if constexpr (requires { fn(0.0, 0.0); }) {
      return Map(op, [power, fn](auto x, auto dy) { return fn(power(x), dy); });
    } else {
      return Map(op, [power, fn](auto x) { return fn(power(x)); });
    }
  };
  if (exponent == 0) return map([](auto x) { return decltype(x){1}; });
  if (exponent == 1) return map([](auto x) { return x; });
  if (exponent == 2) return map([](auto x) { return x * x; });
  if (exponent == 3) return map([](auto x) { return x * x * x; });
  if (exponent == -1) return map([](auto x) { return 1 / x; });
  return map([exponent](auto x) { return std::pow(x, decltype(x){exponent}); });
}

const Registration pow =
    Power("Pow", "y = x^exponent, element by element.")
        .RequiredArg("exponent", ArgumentType::kFloat, "the power that x is raised to")
        .Gradient(GradientFromInput("PowGradient"))
        .Cpu([](const OperatorCall& op) { return MapPower(op, op.Float("exponent"), [](auto y) { return y; }); });

const Registration pow_gradient = Operator("PowGradient")
                                      .Doc("dx = dy * exponent * x^(exponent - 1), and 0 where exponent is 0.")
                                      .Input("x", "input of Pow, any shape")
                                      .Input("dy", "the shape of x")
                                      .Output("dx", "the shape of x")
                                      .RequiredArg("exponent", ArgumentType::kFloat, "as in Pow")
                                      .Shapes(SameFloats())
                                      .InPlace({{0, 0}, {1, 0}})
                                      .Elementwise()
                                      .Cpu([](const OperatorCall& op) {
                                        const float exponent = op.Float("exponent");
                                        if (exponent == 0) return Map(op, [](auto x, auto) { return decltype(x){0}; });
                                        return MapPower(op, exponent - 1, [exponent](auto power, auto dy) {
                                          return dy * (decltype(dy){exponent} * power);
                                        });
                                      });

}  // namespace
}  // namespace stepnet
#endif  // HWY_ONCE

// Fills with random numbers: element i is a function of seed, operator, run, step and i alone (core/random.h).
#include <cmath>
#include <numbers>

#include "stepnet/core/formulas/formula.h"
#include "stepnet/core/input_checks.h"
#include "stepnet/operators/fill.h"

namespace stepnet {
namespace {

// Numbers are computed in double, which holds all 32 bits that are drawn, of all elements as one row.
FormulaRule Draws(Expr (*number)(Formula& f)) {
  return [number](Formula& f) {
    const TensorInfo& y = f.OutputByRule();
    f.Over(Shape({y.shape.size()}));
    f.Out({Cast(y.dtype, number(f))});
  };
}

Expr Uniform(Formula& f, double low, double high) { return low + (high - low) * f.Uniform(DType::kDouble); }

// Source: Box, Muller, "A Note on the Generation of Random Normal Deviates", Annals of Mathematical Statistics, 1958:
// two uniform numbers make two normal ones.
Expr Normal(Formula& f, double mean, double deviation) {
  const Expr in_pair = Mod(Index(3), 2), first = Index(3) - in_pair;
  const Expr radius = Sqrt(-2 * Log(f.UniformOf(DType::kDouble, first) + 0x1p-32));  // of (0, 1]: no log(0)
  const Expr angle = 2 * std::numbers::pi * f.UniformOf(DType::kDouble, first + 1);
  return mean + deviation * radius * Where(Equal(in_pair, 0), Cos(angle), Sin(angle));
}

Operator RandomFill(const char* type, const char* doc, int min_rank = 0) {
  return std::move(FloatFillOperator(type, min_rank).Doc(doc).DrawsRandomNumbers());
}

// Elements of y for each index of one of its dimensions.
double SizeWithout(const Shape& y, int dim) {
  return dim < y.rank() ? static_cast<double>(y.size()) / static_cast<double>(y[dim]) : 1;
}

// Source: Glorot, Bengio, "Understanding the difficulty of training deep feedforward neural networks", AISTATS 2010;
// as Caffe2 has it, with the fan-in alone.
const Registration xavier_fill =
    RandomFill("XavierFill", "Uniform in [-s, s], s = sqrt(3 / fan_in), fan_in being the number of elements of a row.",
               1)
        .Formula(Draws([](Formula& f) {
          const double scale = std::sqrt(3 / SizeWithout(f.OutputByRule().shape, 0));
          return Uniform(f, -scale, scale);
        }));

// Source: He, Zhang, Ren, Sun, "Delving Deep into Rectifiers", ICCV 2015, section 2.2.
const Registration msra_fill =
    RandomFill("MSRAFill",
               "Normal with mean 0 and deviation sqrt(2 / fan_out), fan_out being the number of elements over the size "
               "of dimension 1.",
               2)
        .Formula(Draws([](Formula& f) { return Normal(f, 0, std::sqrt(2 / SizeWithout(f.OutputByRule().shape, 1))); }));

const Registration gaussian_fill =
    RandomFill("GaussianFill", "Normally distributed numbers.")
        .Arg("mean", 0.0f, "mean")
        .Arg("std", 1.0f, "standard deviation", AtLeast(0))
        .Formula(Draws([](Formula& f) { return Normal(f, f.Number("mean"), f.Number("std")); }));

void CheckRange(const OperatorCall& op) {
  const auto number = [&](const char* name) {
    return op.schema().FindArgument(name)->type == ArgumentType::kInt ? static_cast<double>(op.Int(name))
                                                                      : op.Float(name);
  };
  const double low = number("min"), high = number("max");
  const bool is_finite = std::isfinite(low) && std::isfinite(high);
  if (low <= high && is_finite) return;
  throw Error(
      ErrorCode::kInvalidArgument,
      StrCat(op.type(), ": min is ", low, is_finite ? ", must not exceed max, " : ", must be finite, as max, ", high));
}

void CheckRangeFill(const OperatorCall& op, std::vector<NetProblem>* problems) {
  CheckFill(op, problems);
  CheckBy(CheckRange)(op, problems);
}

const Registration uniform_fill =
    RandomFill("UniformFill", "Numbers uniform between min and max.")
        .Arg("min", 0.0f, "least")
        .Arg("max", 1.0f, "greatest")
        .Check(CheckRangeFill)
        .Formula(Draws([](Formula& f) { return Uniform(f, f.Number("min"), f.Number("max")); }));

constexpr double kInt32Min = -0x1p31;
constexpr double kInt32Max = 0x1p31 - 1;

// The numbers from `low` on of which `count` are drawn, at most 2^32: the whole part of a product of 64 bits, which
// double holds in two pieces.
Expr UniformInt(Formula& f) {
  const auto low = static_cast<double>(f.Int("min")), count = static_cast<double>(f.Int("max")) - low + 1;
  const Expr number = 0x1p16 * f.Uniform(DType::kDouble), upper = Floor(number);
  return low + Floor(0x1p-16 * (upper * count + Floor((number - upper) * count)));
}

const Registration uniform_int_fill = FillOperator("UniformIntFill")
                                          .Doc("Integers uniform from min to max, both included.")
                                          .DrawsRandomNumbers()
                                          .Arg("min", 0, "least", Between(kInt32Min, kInt32Max))
                                          .Arg("max", 1, "greatest", Between(kInt32Min, kInt32Max))
                                          .Check(CheckRangeFill)
                                          .Shapes([](const ShapeQuery& query) -> std::vector<TensorInfo> {
                                            return {{.dtype = DType::kInt32, .shape = FillShape(query)}};
                                          })
                                          .Formula(Draws(UniformInt));

}  // namespace
}  // namespace stepnet

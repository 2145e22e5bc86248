// Fills with random numbers. They are no formulas, which are not told a shape that the elements of an input say
// (input_as_shape); the kernel for that fills without it as well. Element i is a function of seed, operator, run, step
// and i alone (core/random.h).
#include <array>
#include <cmath>
#include <numbers>

#include "stepnet/core/cancellation.h"
#include "stepnet/operators/elementwise.h"
#include "stepnet/operators/fill.h"
#include "stepnet/operators/input_checks.h"

namespace stepnet {
namespace {

using RandomWords = std::array<std::uint32_t, 4>;

// Where the numbers of an operator come from.
struct RandomSource {
  explicit RandomSource(const OperatorCall& op) : seed(op.seed()), id(op.random_id()) {}
  std::uint64_t seed, id;
};

// Element i becomes fn(words, i % 4), where words are the random words of four elements.
template <typename T, typename Fn>
void FillEach(const OpRun& run, const RandomSource& source, const Fn& fn) {
  const RandomStream random = run.Random(source.seed, source.id);
  const std::int64_t n = run.Out(0).size();
  T* out = run.Out(0).As<T>();
  constexpr std::int64_t kWorkOfGroup = 64;
  InBlocks((n + 3) / 4, kWorkOfGroup, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) {
      const RandomWords words = random.Block(static_cast<std::uint64_t>(i));
      for (size_t k = 0; k < 4 && 4 * i + static_cast<std::int64_t>(k) < n; ++k) {
        out[4 * i + static_cast<std::int64_t>(k)] = static_cast<T>(fn(words, k));
      }
    }
  });
}

double UnitInterval(std::uint32_t word) { return word * 0x1p-32; }  // [0, 1)

template <typename T>
void FillUniform(const OpRun& run, const RandomSource& source, double low, double high) {
  FillEach<T>(run, source,
              [&](const RandomWords& words, size_t k) { return low + (high - low) * UnitInterval(words[k]); });
}

// Source: Box, Muller, "A Note on the Generation of Random Normal Deviates", Annals of Mathematical Statistics, 1958:
// two uniform words make two normal numbers.
template <typename T>
void FillGaussian(const OpRun& run, const RandomSource& source, double mean, double std) {
  FillEach<T>(run, source, [&](const RandomWords& words, size_t k) {
    const size_t pair = k - k % 2;
    const double radius = std::sqrt(-2 * std::log((words[pair] + 1.0) * 0x1p-32));  // of (0, 1]: no log(0)
    const double angle = 2 * std::numbers::pi * UnitInterval(words[pair + 1]);
    return mean + std * radius * (k % 2 == 0 ? std::cos(angle) : std::sin(angle));
  });
}

ShapeRule RandomFillShapes(int min_rank) {
  return [min_rank](const ShapeQuery& query) -> std::vector<TensorInfo> {
    TensorInfo y{.dtype = FillDType(query, DType::kFloat), .shape = FillShape(query)};
    if (y.dtype != DType::kFloat && y.dtype != DType::kDouble) {
      throw Error(ErrorCode::kTypeMismatch, StrCat(query.op().type(), " makes float or double, not ", y.dtype));
    }
    if (y.shape.rank() < min_rank) {
      throw Error(ErrorCode::kShapeMismatch,
                  StrCat(query.op().type(), " needs a shape of at least ", min_rank, " dimensions, has ", y.shape));
    }
    return {std::move(y)};
  };
}

Operator RandomFill(const char* type, const char* doc, int min_rank = 0) {
  Operator op = FillOperator(type);
  op.Doc(doc).DrawsRandomNumbers().Check(CheckFill).Shapes(RandomFillShapes(min_rank));
  return DTypeArg(op, "1 float, 13 double. Default: that of an input of float or double whose shape y takes, or float");
}

// Size of y in units of one of its dimensions.
double SizeWithout(const TensorView& y, int dim) {
  return static_cast<double>(y.size()) / static_cast<double>(y.dim(dim));
}

// Source: Glorot, Bengio, "Understanding the difficulty of training deep feedforward neural networks", AISTATS 2010;
// as Caffe2 has it, with the fan-in alone.
const Registration xavier_fill =
    RandomFill("XavierFill", "Uniform in [-s, s], s = sqrt(3 / fan_in), fan_in being the number of elements of a row.",
               1)
        .Cpu([](const OperatorCall& op) {
          return FloatKernel(op, [source = RandomSource(op)]<typename T>(const OpRun& run) {
            if (run.Out(0).size() == 0) return;
            const double scale = std::sqrt(3 / SizeWithout(run.Out(0), 0));
            FillUniform<T>(run, source, -scale, scale);
          });
        });

// Source: He, Zhang, Ren, Sun, "Delving Deep into Rectifiers", ICCV 2015, section 2.2.
const Registration msra_fill =
    RandomFill("MSRAFill",
               "Normal with mean 0 and deviation sqrt(2 / fan_out), fan_out being the number of elements over the size "
               "of dimension 1.",
               2)
        .Cpu([](const OperatorCall& op) {
          return FloatKernel(op, [source = RandomSource(op)]<typename T>(const OpRun& run) {
            if (run.Out(0).size() == 0) return;
            FillGaussian<T>(run, source, 0, std::sqrt(2 / SizeWithout(run.Out(0), 1)));
          });
        });

const Registration gaussian_fill = RandomFill("GaussianFill", "Normally distributed numbers.")
                                       .Arg("mean", 0.0f, "mean")
                                       .Arg("std", 1.0f, "standard deviation", AtLeast(0))
                                       .Cpu([](const OperatorCall& op) {
                                         return FloatKernel(op, [source = RandomSource(op), mean = op.Float("mean"),
                                                                 std = op.Float("std")]<typename T>(const OpRun& run) {
                                           FillGaussian<T>(run, source, mean, std);
                                         });
                                       });

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
        .Cpu([](const OperatorCall& op) {
          return FloatKernel(op, [source = RandomSource(op), low = op.Float("min"), high = op.Float("max")]<typename T>(
                                     const OpRun& run) { FillUniform<T>(run, source, low, high); });
        });

constexpr double kInt32Min = -0x1p31;
constexpr double kInt32Max = 0x1p31 - 1;

const Registration uniform_int_fill =
    FillOperator("UniformIntFill")
        .Doc("Integers uniform from min to max, both included.")
        .DrawsRandomNumbers()
        .Arg("min", 0, "least", Between(kInt32Min, kInt32Max))
        .Arg("max", 1, "greatest", Between(kInt32Min, kInt32Max))
        .Check(CheckRangeFill)
        .Shapes([](const ShapeQuery& query) -> std::vector<TensorInfo> {
          return {{.dtype = DType::kInt32, .shape = FillShape(query)}};
        })
        .Cpu([](const OperatorCall& op) -> RunFn {
          const std::int64_t low = op.Int("min");
          const auto count = static_cast<std::uint64_t>(op.Int("max") - low + 1);  // at most 2^32
          return [source = RandomSource(op), low, count](const OpRun& run) {
            FillEach<std::int32_t>(run, source, [&](const RandomWords& words, size_t k) {
              return low + static_cast<std::int64_t>(words[k] * count >> 32);
            });
          };
        });

}  // namespace
}  // namespace stepnet

// Fills with random numbers, which are no formulas: they run once, to make parameters, and formulas do not know a shape
// that the elements of an input say. Element i is a function of seed, operator, run, step and i alone (core/random.h).
#include <cmath>
#include <numbers>

#include "stepnet/core/cancellation.h"
#include "stepnet/operators/elementwise.h"
#include "stepnet/operators/fill.h"

namespace stepnet {
namespace {

// Calls fn(i, words) for each group of up to four elements, words holding four random words.
template <typename Fn>
void ForEachBlock(const OpRun& run, std::uint64_t seed, std::uint64_t id, std::int64_t n, Fn fn) {
  const RandomStream random = run.Random(seed, id);
  constexpr std::int64_t kWorkOfGroup = 64;
  InBlocks((n + 3) / 4, kWorkOfGroup, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) fn(4 * i, random.Block(static_cast<std::uint64_t>(i)));
  });
}

double UnitInterval(std::uint32_t word) { return word * 0x1p-32; }  // [0, 1)

void FillUniform(const OpRun& run, std::uint64_t seed, std::uint64_t id, double low, double high) {
  const TensorView& y = run.Out(0);
  ForFloatType(y.dtype, "a random fill", [&](auto zero) {
    using T = decltype(zero);
    T* out = y.As<T>();
    ForEachBlock(run, seed, id, y.size(), [&](std::int64_t i, const auto& words) {
      for (std::int64_t k = 0; k < 4 && i + k < y.size(); ++k) {
        out[i + k] = static_cast<T>(low + (high - low) * UnitInterval(words[static_cast<size_t>(k)]));
      }
    });
  });
}

// Source: Box, Muller, "A Note on the Generation of Random Normal Deviates", Annals of Mathematical Statistics, 1958:
// two uniform words make two normal numbers.
void FillGaussian(const OpRun& run, std::uint64_t seed, std::uint64_t id, double mean, double std) {
  const TensorView& y = run.Out(0);
  ForFloatType(y.dtype, "a random fill", [&](auto zero) {
    using T = decltype(zero);
    T* out = y.As<T>();
    ForEachBlock(run, seed, id, y.size(), [&](std::int64_t i, const auto& words) {
      for (std::int64_t k = 0; k < 4 && i + k < y.size(); ++k) {
        const auto pair = static_cast<size_t>(k - k % 2);
        const double radius = std::sqrt(-2 * std::log((words[pair] + 1.0) * 0x1p-32));  // of (0, 1]: no log(0)
        const double angle = 2 * std::numbers::pi * UnitInterval(words[pair + 1]);
        out[i + k] = static_cast<T>(mean + std * radius * (k % 2 == 0 ? std::cos(angle) : std::sin(angle)));
      }
    });
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
  op.Doc(doc).Check(CheckFill).Shapes(RandomFillShapes(min_rank));
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
        .Cpu([](const OperatorCall& op) -> RunFn {
          return [seed = op.seed(), id = op.random_id()](const OpRun& run) {
            if (run.Out(0).size() == 0) return;
            const double scale = std::sqrt(3 / SizeWithout(run.Out(0), 0));
            FillUniform(run, seed, id, -scale, scale);
          };
        });

// Source: He, Zhang, Ren, Sun, "Delving Deep into Rectifiers", ICCV 2015, section 2.2.
const Registration msra_fill =
    RandomFill("MSRAFill",
               "Normal with mean 0 and deviation sqrt(2 / fan_out), fan_out being the number of elements over the size "
               "of dimension 1.",
               2)
        .Cpu([](const OperatorCall& op) -> RunFn {
          return [seed = op.seed(), id = op.random_id()](const OpRun& run) {
            if (run.Out(0).size() == 0) return;
            FillGaussian(run, seed, id, 0, std::sqrt(2 / SizeWithout(run.Out(0), 1)));
          };
        });

const Registration gaussian_fill =
    RandomFill("GaussianFill", "Normally distributed numbers.")
        .Arg("mean", 0.0f, "mean")
        .Arg("std", 1.0f, "standard deviation", AtLeast(0))
        .Cpu([](const OperatorCall& op) -> RunFn {
          return [seed = op.seed(), id = op.random_id(), mean = op.Float("mean"),
                  std = op.Float("std")](const OpRun& run) { FillGaussian(run, seed, id, mean, std); };
        });

void CheckRange(double low, double high, const OperatorCall& op) {
  const bool is_finite = std::isfinite(low) && std::isfinite(high);
  if (low <= high && is_finite) return;
  throw Error(
      ErrorCode::kInvalidArgument,
      StrCat(op.type(), ": min is ", low, is_finite ? ", must not exceed max, " : ", must be finite, as max, ", high));
}

const Registration uniform_fill =
    RandomFill("UniformFill", "Numbers uniform between min and max.")
        .Arg("min", 0.0f, "least")
        .Arg("max", 1.0f, "greatest")
        .Cpu([](const OperatorCall& op) -> RunFn {
          CheckRange(op.Float("min"), op.Float("max"), op);
          return [seed = op.seed(), id = op.random_id(), low = op.Float("min"),
                  high = op.Float("max")](const OpRun& run) { FillUniform(run, seed, id, low, high); };
        });

constexpr double kInt32Min = -0x1p31;
constexpr double kInt32Max = 0x1p31 - 1;

const Registration uniform_int_fill =
    FillOperator("UniformIntFill")
        .Doc("Integers uniform from min to max, both included.")
        .Arg("min", 0, "least", Between(kInt32Min, kInt32Max))
        .Arg("max", 1, "greatest", Between(kInt32Min, kInt32Max))
        .Check(CheckFill)
        .Shapes([](const ShapeQuery& query) -> std::vector<TensorInfo> {
          return {{.dtype = DType::kInt32, .shape = FillShape(query)}};
        })
        .Cpu([](const OperatorCall& op) -> RunFn {
          CheckRange(static_cast<double>(op.Int("min")), static_cast<double>(op.Int("max")), op);
          const std::int64_t low = op.Int("min");
          const auto count = static_cast<std::uint64_t>(op.Int("max") - low + 1);  // at most 2^32
          return [seed = op.seed(), id = op.random_id(), low, count](const OpRun& run) {
            auto* out = run.Out(0).As<std::int32_t>();
            const std::int64_t n = run.Out(0).size();
            ForEachBlock(run, seed, id, n, [&](std::int64_t i, const auto& words) {
              for (std::int64_t k = 0; k < 4 && i + k < n; ++k) {
                const auto offset = static_cast<std::int64_t>(words[static_cast<size_t>(k)] * count >> 32);
                out[i + k] = static_cast<std::int32_t>(low + offset);
              }
            });
          };
        });

}  // namespace
}  // namespace stepnet

// SigmoidCrossEntropyWithLogits: y_i = mean over j of -(t log p + (1 - t) log(1 - p)), p = sigmoid(x), written as
//   max(x, 0) - x t + log(1 + exp(-|x|)),
// which neither overflows nor takes the logarithm of 0. Arguments choose two relatives of it.
#include <algorithm>
#include <cmath>

#include "stepnet/core/cancellation.h"
#include "stepnet/core/operator.h"
#include "stepnet/core/vector_math.h"
#include "stepnet/operators/elementwise.h"
#include "stepnet/operators/input_checks.h"

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

// s = log(1 + exp(-|x|)), so that log p = min(x, 0) - s and log(1 - p) = -max(x, 0) - s.
template <typename T>
T Loss(Variant variant, T x, T t, T s) {
  const T positive = x < 0 ? T{0} : x;  // NaN stays NaN
  switch (variant) {
    case Variant::kPlain: return positive - x * t + s;
    case Variant::kLogD: return (2 * t - 1) * (positive - x + s);
    case Variant::kUnjoined: return (1 - t) * (positive + s) - x * t;
  }
  return 0;
}

// The derivative by x; p = sigmoid(x).
template <typename T>
T Derivative(Variant variant, T t, T p) {
  switch (variant) {
    case Variant::kPlain: return p - t;
    case Variant::kLogD: return (1 - 2 * t) * (1 - p);
    case Variant::kUnjoined: return (1 - t) * p - t;
  }
  return 0;
}

Shape RowsOf(const Shape& x) { return x.rank() > 0 ? x.Without(-1) : x; }

template <typename T>
void RunForward(Variant variant, const OpRun& run) {
  const std::int64_t rows = run.Out(0).size();
  const std::int64_t length = rows > 0 ? run.In(0).size() / rows : 0;
  T* s = run.ScratchOf<T>(length);
  for (std::int64_t i = 0; i < rows; ++i) {
    const T* x = run.In(0).As<T>() + i * length;
    const T* t = run.In(1).As<T>() + i * length;
    for (std::int64_t j = 0; j < length; ++j) s[j] = -std::abs(x[j]);
    VectorExp(s, s, length);
    for (std::int64_t j = 0; j < length; ++j) s[j] += 1;
    VectorLog(s, s, length);
    double sum = 0;
    InBlocks(length, 1, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t j = begin; j < end; ++j) sum += Loss(variant, x[j], t[j], s[j]);
    });
    run.Out(0).As<T>()[i] = length > 0 ? static_cast<T>(sum / static_cast<double>(length)) : T{0};
  }
}

template <typename T>
void RunBackward(Variant variant, const OpRun& run) {
  const std::int64_t rows = run.In(0).size();
  const std::int64_t length = rows > 0 ? run.In(1).size() / rows : 0;
  T* dx = run.Out(0).As<T>();
  VectorSigmoid(run.In(1).As<T>(), dx, run.Out(0).size());
  for (std::int64_t i = 0; i < rows; ++i) {
    const T each = run.In(0).As<T>()[i] / static_cast<T>(std::max<std::int64_t>(length, 1));
    const T* t = run.In(2).As<T>() + i * length;
    T* row = dx + i * length;
    InBlocks(length, 1, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t j = begin; j < end; ++j) row[j] = Derivative(variant, t[j], row[j]) * each;
    });
  }
}

std::vector<ArgumentSpec> VariantArgs() {
  return {{.name = "log_D_trick", .type = ArgumentType::kBool, .doc = "y = mean of -(2 t - 1) log p"},
          {.name = "unjoined_lr_loss",
           .type = ArgumentType::kBool,
           .doc = "y = mean of -(t log p + (1 - t) log(1 - p)) with a negative for every positive: "
                  "(1 - t) (max(x, 0) + log(1 + exp(-|x|))) - x t"}};
}

const Registration sigmoid_cross_entropy =
    Operator("SigmoidCrossEntropyWithLogits")
        .Doc(
            "Cross entropy of sigmoid(x) with targets, the mean over the last dimension: "
            "y = mean of -(t log p + (1 - t) log(1 - p)), p = sigmoid(x).")
        .Input("x", "[…, D], float or double")
        .Input("targets", "the shape of x, each from 0 to 1")
        .Output("y", "[…]")
        .Args(VariantArgs())
        .Check(CheckVariant)
        .Shapes([](const ShapeQuery& query) -> std::vector<TensorInfo> {
          ExpectFloat(query, 0);
          ExpectAlike(query, 0, 1);
          return {{.dtype = query.In(0).dtype, .shape = RowsOf(query.In(0).shape)}};
        })
        .Gradient("SigmoidCrossEntropyWithLogitsGradient", {"dy", "x", "targets"}, {"dx"})
        .Cpu([](const OperatorCall& op) -> RunFn {
          return [variant = VariantOf(op)](const OpRun& run) {
            ForFloatType(run.Out(0).dtype, "SigmoidCrossEntropyWithLogits",
                         [&](auto zero) { RunForward<decltype(zero)>(variant, run); });
          };
        });

const Registration sigmoid_cross_entropy_gradient =
    Operator("SigmoidCrossEntropyWithLogitsGradient")
        .Doc("dx = dy (sigmoid(x) - t) / D, or as the arguments say.")
        .Input("dy", "[…]")
        .Input("x", "[…, D], float or double")
        .Input("targets", "the shape of x")
        .Output("dx", "the shape of x")
        .Args(VariantArgs())
        .Check(CheckVariant)
        .Shapes([](const ShapeQuery& query) -> std::vector<TensorInfo> {
          ExpectFloats(query);
          ExpectAlike(query, 1, 2);
          if (query.In(0).shape.size() != RowsOf(query.In(1).shape).size()) {
            throw Error(ErrorCode::kShapeMismatch,
                        StrCat(InputText(query, 0), " and ", InputText(query, 1), "; ", query.op().type(),
                               " needs dy of the shape of x without its last dimension"));
          }
          return {{.dtype = query.In(1).dtype, .shape = query.In(1).shape}};
        })
        .Cpu([](const OperatorCall& op) -> RunFn {
          return [variant = VariantOf(op)](const OpRun& run) {
            ForFloatType(run.Out(0).dtype, "SigmoidCrossEntropyWithLogitsGradient",
                         [&](auto zero) { RunBackward<decltype(zero)>(variant, run); });
          };
        });

}  // namespace
}  // namespace stepnet

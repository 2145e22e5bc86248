// SoftmaxWithLoss: p = softmax(x) over each row, loss = scale * sum_i w_i l_i / sum_i w_i with
//   l_i = -log p_{i, label_i}, or -sum_j label_ij log p_ij where labels are probabilities.
// log p is taken from x, not from p: log p_ij = (x_ij - max_i) - log sum_k exp(x_ik - max_i).
//
// These are kernels: the loss is one number of all rows, which no output of a formula is, and so is what weighted
// gradients are divided by; for the label, a formula would compare each place of a row with it
// (docs/add_an_operator.md, "Where a kernel stays").
#include <algorithm>
#include <cmath>
#include <limits>

#include "stepnet/core/cancellation.h"
#include "stepnet/core/expressions/expr_text.h"
#include "stepnet/core/input_checks.h"
#include "stepnet/core/operator.h"
#include "stepnet/core/vector_math.h"
#include "stepnet/operators/elementwise.h"
#include "stepnet/operators/labels.h"

namespace stepnet {
namespace {

struct LossArgs {
  explicit LossArgs(const OperatorCall& op)
      : axis(op.Int("axis")), label_prob(op.Bool("label_prob")), scale(op.Number("scale")) {}

  Rows RowsOf(const Shape& x) const {
    const int first = x.CanonicalAxis(axis);
    return {x.SizeTo(first), x.SizeFrom(first)};
  }

  std::int64_t axis;
  bool label_prob;
  double scale;
};

// Checks inputs 0 (x), 1 (labels) and, where has_weights, 2.
void CheckInputs(const ShapeQuery& query, bool has_weights) {
  ExpectFloat(query, 0);
  const LossArgs args(query.op());
  const Rows rows = args.RowsOf(query.In(0).shape);
  if (!args.label_prob) {
    CheckLabelsInfo(query, 1, rows);
  } else {
    ExpectAlike(query, 0, 1);
  }
  if (!has_weights) return;
  ExpectSameType(query, 0, 2);
  if (query.In(2).shape.size() != rows.count) {
    throw WrongInputs(query, {2}, StrCat("on ", rows.count, " rows needs as many weights"));
  }
}

// Writes exp(x - max) to p and the sum of that; returns max.
template <typename T>
T ExpOfRow(const T* x, std::int64_t n, T* p, T* sum) {
  T max = -std::numeric_limits<T>::infinity();
  for (std::int64_t j = 0; j < n; ++j) max = std::max(max, x[j]);
  for (std::int64_t j = 0; j < n; ++j) p[j] = x[j] - max;
  VectorExp(p, p, n);
  double total = 0;
  for (std::int64_t j = 0; j < n; ++j) total += p[j];
  *sum = static_cast<T>(total);
  return max;
}

// Labels that are probabilities must be: none negative, together 1.
template <typename T>
void CheckProbabilities(const OpRun& run, const T* labels, std::int64_t row, std::int64_t n) {
  double sum = 0;
  for (std::int64_t j = 0; j < n; ++j) {
    if (!(labels[j] >= 0)) {
      return run.Fault(1, row * n + j, [&](std::int64_t element) {
        return Error(ErrorCode::kInvalidArgument,
                     StrCat("label [", element / n, ", ", element % n, "] is ", ScalarText(ScalarOf(labels[j])),
                            "; probabilities are not negative"));
      });
    }
    sum += labels[j];
  }
  constexpr double kTolerance = 1e-5;
  if (std::abs(sum - 1) < kTolerance) return;
  run.Fault(1, row * n, [&](std::int64_t element) {
    return Error(ErrorCode::kInvalidArgument,
                 StrCat("the labels of row ", n > 0 ? element / n : row, " add up to ",
                        ScalarText(ScalarOf(static_cast<float>(sum))), "; probabilities add up to 1"));
  });
}

// l_i as (sum of labels) * log(sum of exp) - this.
template <typename T>
double PickedLogit(const LossArgs& args, const OpRun& run, std::int64_t i, std::int64_t n, T max) {
  const T* x = run.In(0).As<T>() + i * n;
  if (!args.label_prob) {
    const std::int64_t label = LabelAt(run, 1, i, n);
    return label == kNoClass ? 0 : static_cast<double>(x[label]) - max;
  }
  const T* labels = run.In(1).As<T>() + i * n;
  CheckProbabilities(run, labels, i, n);
  double picked = 0;
  for (std::int64_t j = 0; j < n; ++j) {
    if (labels[j] != 0) picked += static_cast<double>(labels[j]) * (static_cast<double>(x[j]) - max);
  }
  return picked;
}

template <typename T>
void RunForward(const LossArgs& args, const OpRun& run) {
  const Rows rows = args.RowsOf(*run.In(0).shape);
  const T* weights = run.num_inputs() > 2 ? run.In(2).As<T>() : nullptr;
  T* sums = run.ScratchOf<T>(rows.count);
  T* picked = run.ScratchOf<T>(rows.count);
  for (std::int64_t i = 0; i < rows.count; ++i) {
    CountWork(4 * rows.size);
    T* p = run.Out(0).As<T>() + i * rows.size;
    const T max = ExpOfRow(run.In(0).As<T>() + i * rows.size, rows.size, p, &sums[i]);
    for (std::int64_t j = 0; j < rows.size; ++j) p[j] /= sums[i];
    picked[i] = static_cast<T>(PickedLogit(args, run, i, rows.size, max));
  }
  VectorLog(sums, sums, rows.count);
  double loss = 0;
  double total_weight = 0;
  for (std::int64_t i = 0; i < rows.count; ++i) {
    const double weight = weights != nullptr ? weights[i] : 1;
    if (weight == 0) continue;  // whatever the row holds, NaN included
    loss += weight * (static_cast<double>(sums[i]) - picked[i]);
    total_weight += weight;
  }
  run.Out(1).As<T>()[0] = total_weight != 0 ? static_cast<T>(loss * args.scale / total_weight) : T{0};
}

// dx = (p - label) * w_i * scale * dloss / sum of w.
template <typename T>
void RunBackward(const LossArgs& args, const OpRun& run) {
  const Rows rows = args.RowsOf(*run.In(0).shape);
  const T* weights = run.num_inputs() > 4 ? run.In(2).As<T>() : nullptr;
  double total_weight = static_cast<double>(rows.count);
  if (weights != nullptr) {
    total_weight = 0;
    for (std::int64_t i = 0; i < rows.count; ++i) total_weight += weights[i];
  }
  const double dloss = run.In(run.num_inputs() - 1).As<T>()[0];
  for (std::int64_t i = 0; i < rows.count; ++i) {
    const T* p = run.In(run.num_inputs() - 2).As<T>() + i * rows.size;
    CountWork(rows.size);
    T* dx = run.Out(0).As<T>() + i * rows.size;
    const double weight = weights != nullptr ? weights[i] : 1;
    const std::int64_t label = args.label_prob ? 0 : LabelAt(run, 1, i, rows.size);
    if (weight == 0 || total_weight == 0 || label == kNoClass) {
      std::fill_n(dx, rows.size, T{0});
      continue;
    }
    const T factor = static_cast<T>(weight * args.scale * dloss / total_weight);
    if (args.label_prob) {
      const T* labels = run.In(1).As<T>() + i * rows.size;
      for (std::int64_t j = 0; j < rows.size; ++j) dx[j] = (p[j] - labels[j]) * factor;
    } else {
      for (std::int64_t j = 0; j < rows.size; ++j) dx[j] = p[j] * factor;
      dx[label] = (p[label] - 1) * factor;
    }
  }
}

Operator WithArguments(Operator op) {
  return std::move(op.Arg("axis", 1, "first dimension of the classes; negative counts from the end")
                       .Arg("label_prob", false, "labels are probabilities")
                       .Arg("scale", 1.0f, "factor of the loss", AtLeast(0)));
}

constexpr const char* kLabelsDoc =
    "int32 or int64 [N…], from 0 to D-1; with label_prob the shape and dtype of x, rows that add up to 1";

const Registration softmax_with_loss =
    WithArguments(Operator("SoftmaxWithLoss"))
        .Doc(
            "Softmax over each row of x, and the mean of minus the logarithm of the probability of its label, "
            "weighted by w. Rows of weight 0 count for nothing.")
        .Input("x", "[N…, D…], the dimensions from axis on being the classes; float or double")
        .Input("labels", kLabelsDoc)
        .OptionalInput("weights", "[N…], of the dtype of x")
        .Output("softmax", "the shape of x")
        .Output("loss", "[]; 0 where all weights are 0")
        .Shapes([](const ShapeQuery& query) -> std::vector<TensorInfo> {
          CheckInputs(query, query.num_inputs() > 2);
          return {{.dtype = query.In(0).dtype, .shape = query.In(0).shape}, {.dtype = query.In(0).dtype, .shape = {}}};
        })
        .Gradient([](GradientBuilder& g) {
          if (g.HasGO(0)) {
            throw Error(ErrorCode::kInvalidNet,
                        StrCat("something differentiates \"", g.O(0),
                               "\"; SoftmaxWithLoss has a gradient through its loss alone (Softmax has one)"));
          }
          GradientOp op{.type = "SoftmaxWithLossGradient", .inputs = g.op().inputs(), .outputs = {g.GI(0)}};
          op.inputs.push_back(g.O(0));
          op.inputs.push_back(g.GO(1));
          g.Add(std::move(op));
        })
        .Cpu({.make = [](const OperatorCall& op) -> RunFn {
                return FloatKernel(op,
                                   [args = LossArgs(op)]<typename T>(const OpRun& run) { RunForward<T>(args, run); });
              },
              .checks_values = true});

const Registration softmax_with_loss_gradient =
    WithArguments(Operator("SoftmaxWithLossGradient"))
        .Doc(
            "dx = (softmax - label) * w_i * scale * dloss / sum of w, label being 1 at the label and 0 elsewhere. "
            "Inputs: x, labels, softmax, dloss; or x, labels, weights, softmax, dloss.")
        .Input("x", "as in SoftmaxWithLoss; only its shape matters")
        .Input("labels", kLabelsDoc)
        .Inputs("others", "weights [N…] where there are any; softmax, the shape of x; dloss []")
        .Output("dx", "the shape of x")
        .Check([](const OperatorCall& op, std::vector<NetProblem>* problems) {
          if (op.num_inputs() != 4 && op.num_inputs() != 5) {
            problems->push_back(
                {.message = StrCat("SoftmaxWithLossGradient takes 4 or 5 inputs, has ", op.num_inputs())});
          }
        })
        .Shapes([](const ShapeQuery& query) -> std::vector<TensorInfo> {
          const int last = query.num_inputs() - 1;
          CheckInputs(query, last == 4);
          ExpectAlike(query, 0, last - 1);
          ExpectSameType(query, 0, last);
          ExpectOneElement(query, last, "dloss");
          return {{.dtype = query.In(0).dtype, .shape = query.In(0).shape}};
        })
        .Cpu({.make = [](const OperatorCall& op) -> RunFn {
                return FloatKernel(op,
                                   [args = LossArgs(op)]<typename T>(const OpRun& run) { RunBackward<T>(args, run); });
              },
              .checks_values = true});

}  // namespace
}  // namespace stepnet

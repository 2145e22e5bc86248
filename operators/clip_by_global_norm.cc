// ClipByGlobalNorm: gradients of all parameters, made shorter together where they are too long as one vector.
//
//   norm = sqrt(the sum of all elements of all gradients, squared)      y_i = g_i min(1, max_norm / (norm + 1e-6))
// as torch.nn.utils.clip_grad_norm_. It is no formula: each element depends on all of all gradients.
// Source: Pascanu, Mikolov, Bengio, "On the difficulty of training recurrent neural networks", ICML 2013, algorithm 1.
#include <algorithm>
#include <cmath>

#include "stepnet/core/cancellation.h"
#include "stepnet/core/input_checks.h"
#include "stepnet/operators/broadcast.h"
#include "stepnet/operators/elementwise.h"

namespace stepnet {
namespace {

template <typename T>
double SumOfSquares(const T* x, std::int64_t n) {
  const RowsKernel sum = SumOfWideSquaresKernelOf(kDTypeOf<T>);
  double squares = 0;
  InBlocks(n, 1, [&](std::int64_t begin, std::int64_t end) {
    double of_block = 0;
    sum(&of_block, x + begin, nullptr, {}, 1, end - begin);
    squares += of_block;
  });
  return squares;
}

template <typename T>
void Clip(const OpRun& run, double max_norm) {
  double squares = 0;
  for (int i = 0; i < run.num_inputs(); ++i) squares += SumOfSquares(run.In(i).As<T>(), run.In(i).size());
  const double norm = std::sqrt(squares);
  *run.Out(run.num_outputs() - 1).As<T>() = static_cast<T>(norm);
  const T scale = static_cast<T>(std::min(1.0, max_norm / (norm + 1e-6)));
  for (int i = 0; i < run.num_inputs(); ++i) {
    const T* gradient = run.In(i).As<T>();
    T* y = run.Out(i).As<T>();
    const std::int64_t n = run.Out(i).size();
    if (!std::isfinite(norm)) {
      std::fill_n(y, n, T{0});
    } else if (scale < 1 || y != gradient) {
      Scale(n, gradient, scale, y);
    }
  }
}

const Registration clip_by_global_norm =
    Operator("ClipByGlobalNorm")
        .Doc(
            "Clips gradients by their norm, all of them seen as one vector: norm = sqrt(sum of squares), y_i = g_i "
            "min(1, max_norm / (norm + 1e-6)). Where norm is infinite or NaN, so that no direction is left, all y_i "
            "are 0: a step that follows changes parameters by their momentum alone, and the net sees why in norm.")
        .Inputs("g", "gradients, each of any shape, all float or all double")
        .Outputs("y_and_norm", "y0, y1, …: the shapes of g0, g1, …; last norm [1], of the same type")
        .RequiredArg("max_norm", ArgumentType::kFloat, "the greatest norm that the outputs have", AtLeast(0))
        .Check([](const OperatorCall& op, std::vector<NetProblem>* problems) {
          if (op.num_outputs() == op.num_inputs() + 1) return;
          problems->push_back({.message = StrCat("ClipByGlobalNorm has ", op.num_inputs(), " inputs and ",
                                                 op.num_outputs(), " outputs, needs one output more than inputs")});
        })
        .OneToOneInPlace()
        .Shapes([](const ShapeQuery& query) {
          ExpectFloats(query);
          std::vector<TensorInfo> outputs;
          for (int i = 0; i < query.num_inputs(); ++i) {
            outputs.push_back({.dtype = query.In(i).dtype, .shape = query.In(i).shape});
          }
          outputs.push_back({.dtype = query.In(0).dtype, .shape = Shape({1})});
          return outputs;
        })
        .Cpu([](const OperatorCall& op) {
          return FloatKernel(
              op, [max_norm = op.Number("max_norm")]<typename T>(const OpRun& run) { Clip<T>(run, max_norm); });
        });

}  // namespace
}  // namespace stepnet

#include "stepnet/cells/finite_gradients.h"

#include <algorithm>
#include <set>
#include <string>

#include "stepnet/cells/cell_advice.h"
#include "stepnet/nets/op_arguments.h"

namespace stepnet {
namespace {

// Exp is none of them: it is infinite from 89 on.
const std::set<std::string>& FiniteTypes() {
  static const std::set<std::string> types = {
      // sums and products
      "Add", "BatchMatMul", "Conv", "ElementwiseLinear", "FC", "FCTransposed", "MatMul", "Mul", "Negative", "ReduceL1",
      "ReduceL2", "ReduceMean", "ReduceSum", "Scale", "Sqr", "Sub", "Sum", "SumElements", "SumReduceLike",
      "WeightedSum",
      // functions
      "Abs", "Asinh", "Atan", "Clip", "Cos", "Elu", "Erf", "GRUUnit", "Gelu", "HardSigmoid", "LSTMStateClip",
      "LSTMUnit", "LeakyRelu", "LogSoftmax", "Max", "Min", "Mish", "ReduceMax", "ReduceMin", "Relu", "Selu", "Sigmoid",
      "Sign", "Silu", "Sin", "Softmax", "Softplus", "Softsign", "Swish", "Tanh",
      // what moves and chooses elements
      "Alias", "Cast", "Concat", "Copy", "Dropout", "ExpandDims", "Flatten", "FlattenToVec", "Gather", "Reshape",
      "ResizeLike", "Slice", "Split", "Squeeze", "Tile", "TopK", "Transpose", "Where",
      // what has no gradient
      "And", "ArgMax", "ArgMin", "Ceil", "ConstantFill", "EQ", "Floor", "GE", "GT", "LE", "LT", "NE", "Not", "Or",
      "RangeFill", "Round", "Shape", "Size", "StopGradient", "Xor"};
  return types;
}

bool IsFinite(const OperatorDef& op) {
  if (op.type() == "LayerNorm") {  // by a root of what is 0 where all elements of a row are the same
    const Argument* const epsilon = FindArgument(op, "epsilon");
    return epsilon == nullptr || epsilon->f() > 0;
  }
  return FiniteTypes().contains(op.type());
}

}  // namespace

bool HasFiniteGradients(const CellDef& cell) {
  const std::set<std::string> of_step = BlobsOfTheStep(cell);
  return std::ranges::all_of(cell.op(), [&](const OperatorDef& op) {
    const auto is_of_step = [&](const std::string& input) { return of_step.contains(input); };
    return IsFinite(op) || std::ranges::none_of(op.input(), is_of_step);
  });
}

}  // namespace stepnet

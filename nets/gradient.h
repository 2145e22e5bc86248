// The operators that compute the gradients of one operator, as its registration says.
#pragma once

#include <vector>

#include "stepnet/core/operator.h"
#include "stepnet/proto/net.pb.h"

namespace stepnet {

struct OperatorGradient {
  std::vector<OperatorDef> ops;                // in program order, is_gradient_op set
  std::vector<GradientBlobs> input_gradients;  // one an input of the operator
};

// `output_gradients` holds the gradient of each output, absent where nothing needs one. Device, engine and (unless the
// rule says otherwise) arguments are those of `op`. Throws kInvalidNet for an operator that declares no gradient and
// when the rule needs a gradient that is absent. Operators that stop gradients give no operators and absent gradients.
// What is written is called otherwise than the blobs of `op`, which holds no nets, and the gradients of its outputs.
OperatorGradient MakeGradient(const OperatorDef& op, const std::vector<GradientBlobs>& output_gradients);

}  // namespace stepnet

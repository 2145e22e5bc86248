// Operators that lay tensors side by side, take such a tensor apart again, and multiply by such matrices.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "stepnet/proto/net.pb.h"

namespace stepnet {

// `joined` is the inputs one behind the other along dimension `axis`; `sizes` are those that they have there, int32.
OperatorDef JoinOperator(const std::vector<std::string>& inputs, int axis, const std::string& joined,
                         const std::string& sizes);

// The parts of `joined` along dimension `axis`, which have these sizes there.
OperatorDef PartOperator(const std::string& joined, int axis, const std::vector<std::string>& parts,
                         const std::vector<std::int64_t>& sizes);

// The product of the rows of `left` and a matrix, or its transpose.
OperatorDef ProductOperator(const std::string& left, const std::string& matrix, bool transposed,
                            const std::string& product);

// The products of the rows of `left` and the transposes of some matrices, side by side; with a bias, unless that is "".
OperatorDef ProductOfParts(const std::string& left, const std::vector<std::string>& matrices, const std::string& bias,
                           const std::string& product);

// The gradient of a product that has no bias as that of one with a bias, which gives `bias_gradient` behind the
// gradient of the matrix; nothing of other operators.
std::optional<OperatorDef> WithBiasGradient(const OperatorDef& gradient, const std::string& bias_gradient);

}  // namespace stepnet

// Values from which shapes follow: sizes that operators compute, or that are given to a net as small tensors. Where
// they are known before anything runs, so are the shapes.
#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "stepnet/core/operator.h"

namespace stepnet {

class NetDef;
class OperatorDef;

// Larger tensors are data, not sizes, and are not worth a copy at each inference.
inline constexpr std::int64_t kMaxKnownElements = 64;

// The blobs of a net whose elements decide about shapes: those that shape rules read, and those from which operators
// compute these. Types that are not registered decide about nothing.
std::set<std::string> BlobsOfSizes(const NetDef& net);

// What an operator gives for these values of its inputs, computed on the host; `outputs` is what its shape rule says.
// Nothing where that is not known before a run: a value is undefined, or too large, or the operator does more than
// compute its outputs, or it fails for these values.
std::vector<Tensor> ValuesOfOutputs(const OperatorDef& op, const std::vector<Tensor>& inputs,
                                    const std::vector<TensorInfo>& outputs);

}  // namespace stepnet

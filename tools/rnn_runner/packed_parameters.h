// Parameters of recurrent layers between the one vector of MXNet and cuDNN and tensors with names (`convert --packed`).
#pragma once

#include <string>

#include "stepnet/io/tensor_io.h"
#include "stepnet/nets/packed_layers.h"

namespace stepnet::runner {

// What --packed says, "lstm:2,128,bidirectional,projection=64": mode, layers, H, and words in any order. The size of
// the input is not said: the parameters tell. Throws UsageError.
PackedLayers ParsePackedLayers(const std::string& text);

// Where `tensors` are the parameters of such layers by their names, the vector, called "parameters"; where it is one
// vector, the parameters. Throws kInvalidArgument where they are neither, kShapeMismatch for tensors and vectors of
// other sizes, kTypeMismatch for tensors of several dtypes.
NamedTensors SplitOrJoined(const NamedTensors& tensors, PackedLayers layers);

}  // namespace stepnet::runner

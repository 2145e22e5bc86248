// Parameters of any file that gives some, and files of them.
#pragma once

#include <string>
#include <vector>

#include "stepnet/io/tensor_io.h"
#include "stepnet/proto/net.pb.h"

namespace stepnet::runner {

// What a file of tensors holds, or what a net that fills parameters gives, which is run once, with `names` only those;
// of a model that brings its parameters, these. Throws kInvalidArgument for a file that gives none, for a name that it
// does not give, and what reading and running throw.
NamedTensors ReadParameterFile(const std::string& path, const std::vector<std::string>& names);

// A net that fills `tensors`, and whose outputs they are. Throws kInvalidArgument where an element of a double tensor
// is no float, as which nets hold numbers.
NetDef NetThatFills(const NamedTensors& tensors);

}  // namespace stepnet::runner

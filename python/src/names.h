// Names of blobs that Python can have.
#pragma once

#include <string>

#include "stepnet/proto/net.pb.h"

namespace stepnet::python {

// Throws kInvalidNet for the name of a blob that Python cannot have: other text than UTF-8, and what C ends at.
void CheckBlobName(const std::string& blob);

// Checks the names of a net and its step nets.
void CheckBlobNames(const NetDef& net);

}  // namespace stepnet::python

// Names of the blobs of a net, and which of them Python can have.
#pragma once

#include <set>
#include <string>

#include "stepnet/proto/net.pb.h"

namespace stepnet::python {

// What a net reads or writes, its step nets, too, which see blobs of the net around them.
std::set<std::string> BlobsOf(const NetDef& net);

// Throws kInvalidNet for the name of a blob that Python cannot have: other text than UTF-8, and what C ends at.
void CheckBlobName(const std::string& blob);

// Checks the names of a net and its step nets.
void CheckBlobNames(const NetDef& net);

}  // namespace stepnet::python

// What goes into a net and what comes out of it, by its operators alone.
#pragma once

#include <string>
#include <vector>

namespace stepnet {

class NetDef;

// The blobs that `net` reads before it writes them, sorted.
std::vector<std::string> BlobsReadFirst(const NetDef& net);

// Those of them of which all operators that read them read but the shape: the second input of SumReduceLike.
// Their elements need not be kept for them.
std::vector<std::string> BlobsReadForShape(const NetDef& net);

}  // namespace stepnet

// What goes into a net and what comes out of it, by its operators alone.
#pragma once

#include <string>
#include <vector>

namespace stepnet {

class NetDef;

// The blobs that `net` reads before it writes them, sorted.
std::vector<std::string> BlobsReadFirst(const NetDef& net);

}  // namespace stepnet

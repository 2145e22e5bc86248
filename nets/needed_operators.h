// Dead operators: what a net computes that nobody needs.
#pragma once

#include <set>
#include <string>

namespace stepnet {

class NetDef;

// The net with the first `num_kept` operators and of the others only those on which `blobs`, as they are in the end,
// depend, or which have side effects.
NetDef WithNeededOperators(NetDef net, std::set<std::string> blobs, int num_kept = 0);

}  // namespace stepnet

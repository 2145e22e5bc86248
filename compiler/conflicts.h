// Conflicts: which accesses of which steps share a byte, one of them writing.
//
// In the order in which a serial run touches a byte, only neighbours are looked at (core/access_order.h), so there are
// about as many conflicts as accesses, however many instructions use the same memory.
#pragma once

#include <cstdint>
#include <limits>
#include <vector>

#include "stepnet/compiler/dependencies.h"

namespace stepnet {

// More steps than a run has, and more bytes than there are.
inline constexpr std::int64_t kEver = std::numeric_limits<std::int64_t>::max() / 4;

// Edges that imply the order of any two accesses that conflict, by from, delta, to; each once, by way of the accesses
// that come first among those of its first kind. Memory that is looked at in more than 64 ways (rows that begin or end
// elsewhere; wide windows that are written) counts as one row that all steps touch whole: its edges then order more
// than conflicts.
std::vector<Dependency> FindConflicts(const std::vector<std::vector<MemoryAccess>>& accesses);

}  // namespace stepnet

// In which order a step reads weights.
#pragma once

#include <cstdint>

namespace stepnet {

// Whether a step begins with the last of its weights, as every other one does: the caches hold what the step before
// read last. Where weights are larger than a cache, a step that begins where the one before did finds nothing in it.
constexpr bool ReadsFromLast(std::int64_t step) { return step % 2 != 0; }

}  // namespace stepnet

// test.FailsInStep: y = x, or an exception in one step.
#pragma once

#include <atomic>
#include <cstdint>

namespace stepnet {

// The step in which it throws, counted in the direction of the run; -1: in none.
extern std::atomic<std::int64_t> fails_at;

}  // namespace stepnet

// test.FailsInStep: y = x, or an exception in one step. On a device it is thrown when the kernel is put in.
#pragma once

#include <atomic>
#include <cstdint>

namespace stepnet {

// The step in which it throws, counted in the direction of the run; -1: in none.
extern std::atomic<std::int64_t> fails_at;

enum class Thrown { kRuntimeError, kError, kBadAlloc, kInt };
extern std::atomic<Thrown> fails_with;

}  // namespace stepnet

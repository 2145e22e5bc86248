// A pattern in memory that nobody has written: a result that depends on it was computed from nothing.
//
// Tensors, arenas and scratch start with any bytes. Where the environment variable STEPNET_FILL_MEMORY holds a number
// from 0 to 255, they start with bytes of that value, each time they are given out; runs with two such numbers must
// give the same results. 255 makes every float a NaN, 127 a large number.
#pragma once

#include <cstdint>
#include <optional>

namespace stepnet {

// Instead of what the environment says; nullopt: memory is left as it is. Not while anything runs.
void SetMemoryFill(std::optional<std::uint8_t> byte);
std::optional<std::uint8_t> MemoryFill();

// Fills memory whose values nobody may read any more.
void FillUnwritten(void* data, std::int64_t bytes);

}  // namespace stepnet

// Many words of a RandomStream at once, on vectors.
#pragma once

#include <cstdint>

#include "stepnet/core/random.h"

namespace stepnet {

// What a RandomStream is made of.
struct RandomKeys {
  std::uint64_t seed = 0;
  std::uint64_t op = 0;
  std::uint64_t run = 0;
  std::int64_t step = 0;
};

// The words of its blocks [first, first + count), four each.
void RandomWords(const RandomKeys& keys, std::uint64_t first, std::int64_t count, std::uint32_t* words);

}  // namespace stepnet

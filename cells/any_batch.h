// Errors about shapes where nobody gave a batch: they say B.
#pragma once

#include <cstdint>

#include "stepnet/core/error.h"

namespace stepnet {

// A batch that no cell has, for shapes from which messages are made.
inline constexpr std::int64_t kAnyBatch = 1'234'567'891;

// `error`, about shapes of kAnyBatch, with B in its place: [1, B, 8], B*16 elements, B + 1 rows.
Error OfAnyBatch(const Error& error);

}  // namespace stepnet

#include "stepnet/compiler/step_plan.h"

#include <limits>

namespace stepnet {

std::int64_t StepPlan::ArenaBytes(std::int64_t num_steps) const {
  std::int64_t total = 0;
  for (const ArenaPiece& piece : arena) {
    std::int64_t bytes = piece.row_bytes;
    const bool overflow = __builtin_mul_overflow(bytes, piece.rows == 0 ? num_steps : piece.rows, &bytes) ||
                          bytes > std::numeric_limits<std::int64_t>::max() - 63 ||
                          __builtin_add_overflow(total, AlignedBytes(bytes), &total);
    if (overflow) {
      throw Error(ErrorCode::kOutOfMemory, StrCat("the values of ", num_steps, " steps need more than 2^63 bytes"))
          .At({.net = name});
    }
  }
  return total;
}

}  // namespace stepnet

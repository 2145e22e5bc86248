#include "stepnet/compiler/step_plan.h"

#include <algorithm>
#include <limits>

namespace stepnet {

std::int64_t ArenaPiece::BytesFor(std::int64_t num_steps) const {
  if (num_steps < min_steps) return 0;
  std::int64_t bytes = 0;
  const std::int64_t of_run = of_block ? std::min(rows, num_steps) : rows == 0 ? num_steps : rows;
  const bool overflows = __builtin_mul_overflow(row_bytes, of_run, &bytes) ||
                         bytes > std::numeric_limits<std::int64_t>::max() - (kLineBytes - 1);
  if (overflows)
    throw Error(ErrorCode::kOutOfMemory, StrCat("the values of ", num_steps, " steps need more than 2^63 bytes"));
  return bytes;
}

namespace {

template <typename Counts>
std::int64_t BytesOfPieces(const StepPlan& plan, std::int64_t num_steps, const Counts& counts) try {
  std::int64_t total = 0;
  for (const ArenaPiece& piece : plan.arena) {
    if (!counts(piece)) continue;
    if (__builtin_add_overflow(total, StepPlan::AlignedBytes(piece.BytesFor(num_steps)), &total)) {
      throw Error(ErrorCode::kOutOfMemory, StrCat("the values of ", num_steps, " steps need more than 2^63 bytes"));
    }
  }
  return total;
} catch (Error& error) {
  error.At({.net = plan.name});
  throw;
}

}  // namespace

std::int64_t StepPlan::ArenaBytes(std::int64_t num_steps) const {
  return BytesOfPieces(*this, num_steps, [](const ArenaPiece&) { return true; });
}

std::int64_t StepPlan::TemporaryBytes(std::int64_t num_steps) const {
  return BytesOfPieces(*this, num_steps, [](const ArenaPiece& piece) { return piece.is_temporary; });
}

}  // namespace stepnet

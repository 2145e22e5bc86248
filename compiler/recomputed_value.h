// RecomputedValue: what a run forward need not keep for its gradient, as the run back can compute it again.
#pragma once

#include <algorithm>
#include <cstdint>
#include <set>
#include <span>
#include <string>
#include <vector>

namespace stepnet {

// What one operator of the step net gives, or what several do for which the same products are needed.
struct RecomputedValue {
  std::vector<std::string> blobs = {};      // that would be kept
  std::vector<std::string> along_way = {};  // blobs that are not kept anyway, and computed again for these
  std::int64_t bytes = 0;                   // of `blobs`, of one step
  double microseconds = 0;                  // that one step takes to compute them again, by estimate
  // They follow, by a few operators, from much less of the step than they are, as the sum of a row and a column: in
  // long runs it takes longer to keep them than to compute them again.
  bool follows_from_less = false;

  // What is gained: bytes for each microsecond.
  double BytesForTime() const { return static_cast<double>(bytes) / std::max(microseconds, 1e-6); }
};

// All blobs that the steps back compute again.
std::set<std::string> BlobsOf(std::span<const RecomputedValue> values);

// Bytes of one step that are not kept.
std::int64_t BytesOf(std::span<const RecomputedValue> values);

}  // namespace stepnet

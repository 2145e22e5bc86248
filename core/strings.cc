#include "stepnet/core/strings.h"

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <cstdlib>

namespace stepnet {
namespace {

// Optimal string alignment distance, case-insensitive in the last resort (a pure change of case costs nothing).
int EditDistance(std::string_view a, std::string_view b) {
  const auto lower = [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; };
  const int n = static_cast<int>(a.size());
  const int m = static_cast<int>(b.size());
  std::vector<int> before(m + 1), previous(m + 1), row(m + 1);
  for (int j = 0; j <= m; ++j) previous[j] = j;
  for (int i = 1; i <= n; ++i) {
    row[0] = i;
    for (int j = 1; j <= m; ++j) {
      const bool same = lower(a[i - 1]) == lower(b[j - 1]);
      row[j] = std::min({previous[j] + 1, row[j - 1] + 1, previous[j - 1] + (same ? 0 : 1)});
      if (i > 1 && j > 1 && lower(a[i - 1]) == lower(b[j - 2]) && lower(a[i - 2]) == lower(b[j - 1])) {
        row[j] = std::min(row[j], before[j - 2] + 1);
      }
    }
    std::swap(before, previous);
    std::swap(previous, row);
  }
  return previous[m];
}

template <typename T>
std::string ShortestTextOf(T value) {
  char text[32];  // a double has 24 characters at most
  return {text, std::to_chars(text, text + sizeof(text), value).ptr};
}

}  // namespace

std::string ShortestText(float value) { return ShortestTextOf(value); }
std::string ShortestText(double value) { return ShortestTextOf(value); }

std::string NearestName(std::string_view name, const std::vector<std::string>& candidates) {
  // Names come from untrusted files: nobody misspells a name of this length, or among so many.
  constexpr size_t kMaxNameBytes = 100;
  constexpr size_t kMaxCandidates = 10000;
  if (name.empty() || name.size() > kMaxNameBytes || candidates.size() > kMaxCandidates) return "";
  std::string nearest;
  // At most a third of the name, and never all of it.
  int best = static_cast<int>(std::min(std::max<size_t>(1, name.size() / 3), name.size() - 1)) + 1;
  for (const std::string& candidate : candidates) {
    const auto difference = static_cast<std::int64_t>(candidate.size()) - static_cast<std::int64_t>(name.size());
    if (candidate == name || std::abs(difference) > best) continue;
    const int distance = EditDistance(name, candidate);
    const bool comes_first = !nearest.empty() && candidate < nearest;  // whatever order they have
    if (distance < best || (distance == best && comes_first)) {
      best = distance;
      nearest = candidate;
    }
  }
  return nearest;
}

std::string DidYouMean(std::string_view name, const std::vector<std::string>& candidates) {
  const std::string nearest = NearestName(name, candidates);
  return nearest.empty() ? "" : StrCat("; did you mean \"", nearest, "\"?");
}

std::string_view WithoutByteOrderMark(std::string_view text) {
  constexpr std::string_view kByteOrderMark = "\xef\xbb\xbf";
  return text.starts_with(kByteOrderMark) ? text.substr(kByteOrderMark.size()) : text;
}

}  // namespace stepnet

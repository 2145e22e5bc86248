#include "stepnet/cells/source_line.h"

#include <algorithm>

#include "stepnet/core/cancellation.h"
#include "stepnet/core/strings.h"

namespace stepnet {
namespace {

bool StartsCharacter(char c) { return (c & 0xc0) != 0x80; }  // of UTF-8

// Every character as wide as the caret: a tab as a blank, other control characters as '?'.
std::string Shown(const std::string& text) {
  std::string shown;
  for (const char c : text) {
    const auto code = static_cast<unsigned char>(c);
    shown += c == '\t' ? ' ' : code < 0x20 || code == 0x7f ? '?' : c;
  }
  return shown;
}

}  // namespace

std::string SourceLine(const std::string& text, int line, int column) {
  constexpr size_t kMax = 90, kMaxBefore = 60;  // bytes
  size_t begin = 0;
  CountWork(line);
  for (int i = 1; i < line; ++i) {
    begin = text.find('\n', begin);
    if (begin == std::string::npos) return "";
    ++begin;
  }
  const size_t end = std::min(text.find('\n', begin), text.size());
  if (line < 1 || column < 1 || begin + static_cast<size_t>(column) > end + 1) return "";
  const size_t at = begin + static_cast<size_t>(column) - 1;
  const bool is_whole = end - begin <= kMax;
  size_t first = !is_whole && at - begin > kMaxBefore ? at - kMaxBefore : begin;
  size_t last = std::min(end, first + kMax);
  while (first < at && !StartsCharacter(text[first])) ++first;
  while (last < end && !StartsCharacter(text[last])) --last;
  if (last > first && text[last - 1] == '\r') --last;
  const std::string before = (first > begin ? "…" : "") + Shown(text.substr(first, at - first));
  const std::string behind = last > at ? Shown(text.substr(at, last - at)) : "";
  const std::string number = StrCat(line);
  const auto width = static_cast<size_t>(std::ranges::count_if(before, StartsCharacter));
  return StrCat("\n  ", number, " | ", before, behind, last < end && text[last] != '\r' ? "…" : "", "\n  ",
                std::string(number.size(), ' '), " | ", std::string(width, ' '), "^");
}

}  // namespace stepnet

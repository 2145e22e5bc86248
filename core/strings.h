// Small text helpers used by messages: concatenation, joining and "did you mean".
#pragma once

#include <sstream>
#include <string>
#include <string_view>
#include <vector>

namespace stepnet {

// Throws when there is no memory for the text; a plain stream goes on with a part of it.
class TextStream : public std::ostringstream {
 public:
  TextStream() { exceptions(std::ios::badbit); }
};

// The arguments as `operator<<` prints them, one after the other.
template <typename... Args>
std::string StrCat(const Args&... args) {
  TextStream out;
  (out << ... << args);
  return std::move(out).str();
}

template <typename Container>
std::string Join(const Container& items, std::string_view separator) {
  TextStream out;
  std::string_view before;
  for (const auto& item : items) {
    out << before << item;
    before = separator;
  }
  return std::move(out).str();
}

// The shortest text that reads as the same number.
std::string ShortestText(float value);
std::string ShortestText(double value);

// The candidate that is closest to `name` in edits (insert, delete, replace, swap of neighbours), or "" when none is
// close enough to be a likely misspelling. Where several are as close, the first by its letters is returned.
std::string NearestName(std::string_view name, const std::vector<std::string>& candidates);

// `; did you mean "X"?` with the nearest candidate, or "".
std::string DidYouMean(std::string_view name, const std::vector<std::string>& candidates);
// For so many problems of a file at most, which people read: a hostile one may have a million, each with a million
// names to compare.
inline constexpr size_t kMaxSuggestions = 20;

// Behind the mark with which some editors begin a text.
std::string_view WithoutByteOrderMark(std::string_view text);

}  // namespace stepnet

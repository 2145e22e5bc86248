#include "stepnet/cells/any_batch.h"

#include <algorithm>
#include <charconv>
#include <string>
#include <string_view>

#include "stepnet/core/name_characters.h"
#include "stepnet/core/strings.h"

namespace stepnet {
namespace {

// The number in terms of B, when it comes from it: a multiple, and a few more or less. Otherwise as it is.
std::string InTermsOfBatch(std::string_view digits) {
  constexpr std::int64_t kMaxBeside = 4096;
  std::int64_t number = 0;
  const auto [end, failure] = std::from_chars(digits.data(), digits.data() + digits.size(), number);
  const std::int64_t rest = number % kAnyBatch;
  const bool is_less = rest > kAnyBatch / 2;
  const std::int64_t times = number / kAnyBatch + (is_less ? 1 : 0), beside = is_less ? rest - kAnyBatch : rest;
  if (failure != std::errc() || times == 0) return std::string(digits);
  if (beside > kMaxBeside || beside < -kMaxBeside) return std::string(digits);
  return StrCat("B", times == 1 ? "" : StrCat("*", times),
                beside > 0   ? StrCat(" + ", beside)
                : beside < 0 ? StrCat(" - ", -beside)
                             : "");
}

std::string WithLetter(const std::string& text) {
  std::string result;
  for (size_t i = 0; i < text.size();) {
    size_t end = i;
    while (end < text.size() && IsNamePart(text[end])) ++end;  // names with digits stay as they are
    const std::string_view word = std::string_view(text).substr(i, end - i);
    const bool is_number = !word.empty() && word.find_first_not_of("0123456789") == std::string_view::npos;
    result += is_number ? InTermsOfBatch(word) : std::string(word);
    if (word.empty()) result += text[end++];
    i = end;
  }
  return result;
}

}  // namespace

Error OfAnyBatch(const Error& error) {
  // What follows the first line is the user's text.
  const std::string& message = error.message();
  const size_t line = std::min(message.find('\n'), message.size());
  Error told(error.code(), WithLetter(message.substr(0, line)) + message.substr(line));
  for (Place place : error.places()) {
    place.blobs = WithLetter(place.blobs);
    told.At(std::move(place));
  }
  return told;
}

}  // namespace stepnet

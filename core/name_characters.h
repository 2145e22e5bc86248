// The characters of names and numbers, the same in every locale.
#pragma once

#include <string>

namespace stepnet {

constexpr bool IsDigit(char c) { return c >= '0' && c <= '9'; }
constexpr bool IsNameStart(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; }
// Names of sizes and fields of messages consist of these.
constexpr bool IsWordPart(char c) { return IsNameStart(c) || IsDigit(c); }
// Names of blobs and operator types consist of these.
constexpr bool IsNamePart(char c) { return IsWordPart(c) || c == '.'; }

inline std::string InLowerCase(std::string text) {
  for (char& c : text) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  return text;
}

}  // namespace stepnet

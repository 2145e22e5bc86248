// The characters of names and numbers, the same in every locale.
#pragma once

namespace stepnet {

constexpr bool IsDigit(char c) { return c >= '0' && c <= '9'; }
constexpr bool IsNameStart(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; }
// Of the names of sizes, and of fields of messages.
constexpr bool IsWordPart(char c) { return IsNameStart(c) || IsDigit(c); }
// Of the names of blobs and operator types.
constexpr bool IsNamePart(char c) { return IsWordPart(c) || c == '.'; }

}  // namespace stepnet

// LineReader: a line of the text of a step graph, from left to right.
#pragma once

#include <cctype>
#include <charconv>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

#include "stepnet/core/error.h"
#include "stepnet/core/strings.h"

namespace stepnet {

// Throws kSyntaxError, with the line's number and what stands there, for what is not as it is asked for.
class LineReader {
 public:
  LineReader(std::string_view text, int number) : text_(text), number_(number) {}

  bool AtEnd() const { return text_.empty(); }
  bool StartsWith(std::string_view word) const { return text_.starts_with(word); }
  bool Skip(std::string_view word) {
    if (!StartsWith(word)) return false;
    text_.remove_prefix(word.size());
    return true;
  }
  void Expect(std::string_view word) {
    if (!Skip(word)) Throw(StrCat("\"", word, "\" is missing"));
  }
  bool AtNumber() const {
    return !text_.empty() && (text_.front() == '-' || std::isdigit(static_cast<unsigned char>(text_.front())) != 0);
  }
  std::string_view Rest() { return std::exchange(text_, {}); }

  std::int64_t Integer() {
    std::int64_t value = 0;
    const auto [end, error] = std::from_chars(text_.data(), text_.data() + text_.size(), value);
    if (error != std::errc()) Throw("a number is missing");
    text_.remove_prefix(static_cast<size_t>(end - text_.data()));
    return value;
  }
  // Throws where it is negative or larger.
  std::int64_t IntegerUpTo(std::int64_t max) {
    const std::int64_t value = Integer();
    if (value < 0 || value > max) Throw(StrCat(value, " is out of range"));
    return value;
  }
  // The number of a node, base, list or version: what the program counts in int.
  int Index() { return static_cast<int>(IntegerUpTo(kMaxIndex)); }

  // `is_type`: of an operator, which may have dots.
  std::string Word(bool is_type = false) {
    std::string word;
    if (Skip("\"")) {
      while (!Skip("\"")) word += QuotedCharacter();
      return word;
    }
    const auto is_word = [&](char c) {
      return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_' || c == '/' || (is_type && c == '.');
    };
    while (!(word.empty() && AtNumber()) && !text_.empty() && is_word(text_.front())) word += Take();
    if (word.empty()) Throw("a name is missing");
    return word;
  }

  [[noreturn]] void Throw(const std::string& what) const {
    throw Error(ErrorCode::kSyntaxError, StrCat("line ", number_, " of a step graph: ", what,
                                                text_.empty() ? "" : StrCat(" before \"", text_.substr(0, 40), "\"")));
  }

 private:
  static constexpr std::int64_t kMaxIndex = 1'000'000'000;

  char Take() {
    if (text_.empty()) Throw("the line ends");
    const char c = text_.front();
    text_.remove_prefix(1);
    return c;
  }

  char QuotedCharacter() {
    const char c = Take();
    if (c != '\\') return c;
    if (!Skip("x")) {
      if (!StartsWith("\"") && !StartsWith("\\")) Throw("\\ stands before what is none of \\, \" and x");
      return Take();
    }
    int byte = 0;
    const char digits[] = {Take(), Take()};
    const auto [end, error] = std::from_chars(digits, digits + 2, byte, 16);
    if (error != std::errc() || end != digits + 2) Throw("\\x stands without two digits");
    return static_cast<char>(byte);
  }

  std::string_view text_;
  int number_;
};

}  // namespace stepnet

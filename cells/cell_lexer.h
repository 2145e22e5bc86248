// The words of the short form of cells.
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace stepnet {

struct CellToken {
  enum Kind { kName, kNumber, kString, kPunctuation, kNewline, kEnd };
  Kind kind = kEnd;
  std::string text = {};  // of a string, without quotes and escapes
  int line = 1;
  int column = 1;

  bool Is(char c) const { return kind == kPunctuation && text.size() == 1 && text[0] == c; }
  bool IsName(const char* name) const { return kind == kName && text == name; }
  std::string Description() const;  // for messages: "'@'", "the end of the line"
};

// A bracket that is not closed before another or the cell ends, which shows where the text has gone on.
struct NotClosed {
  CellToken token;
  int line = 0;  // and where that was found
  int column = 0;
  std::string message;
};

struct CellTokens {
  std::vector<CellToken> tokens;        // the last is kEnd; lines that are empty or in brackets leave no kNewline
  std::optional<NotClosed> not_closed;  // the first one
  std::string doc;                      // the comment before the first word
};

// Splits text into words. Throws kSyntaxError as "WHAT:LINE:COLUMN: …", with the line, for characters that have no
// meaning and strings that do not end.
CellTokens LexCell(const std::string& text, const std::string& what);

}  // namespace stepnet

#include "stepnet/cells/cell_lexer.h"

#include <cctype>
#include <string_view>

#include "stepnet/cells/source_line.h"
#include "stepnet/core/error.h"
#include "stepnet/core/strings.h"

namespace stepnet {
namespace {

bool IsDigit(char c) { return std::isdigit(static_cast<unsigned char>(c)) != 0; }
bool IsNameStart(char c) { return std::isalpha(static_cast<unsigned char>(c)) != 0 || c == '_'; }
bool IsNamePart(char c) { return IsNameStart(c) || IsDigit(c) || c == '.'; }

class Lexer {
 public:
  Lexer(const std::string& text, const std::string& what) : text_(text), what_(what) {}

  CellTokens Run() {
    while (at_ < text_.size()) Step();
    AddNewline();
    Add(CellToken::kEnd, "", 0);
    return std::move(result_);
  }

 private:
  [[noreturn]] void Fail(const std::string& why) const {
    throw Error(ErrorCode::kSyntaxError,
                StrCat(what_, ":", line_, ":", Column(), ": ", why, SourceLine(text_, line_, Column())));
  }
  int Column() const { return static_cast<int>(at_ - line_start_) + 1; }

  void Add(CellToken::Kind kind, std::string text, size_t length) {
    result_.tokens.push_back({.kind = kind, .text = std::move(text), .line = line_, .column = Column()});
    at_ += length;
  }

  void AddNewline() {
    if (open_brackets_ > 0 || result_.tokens.empty() || result_.tokens.back().kind == CellToken::kNewline) return;
    Add(CellToken::kNewline, "", 0);
  }

  void Step() {
    const char c = text_[at_];
    if (c == '\n') {
      AddNewline();
      ++at_;
      ++line_;
      line_start_ = at_;
    } else if (c == ' ' || c == '\t' || c == '\r') {
      ++at_;
    } else if (c == '#') {
      Comment();
    } else if (c == '"') {
      String();
    } else if (IsNameStart(c)) {
      size_t length = 1;
      while (at_ + length < text_.size() && IsNamePart(text_[at_ + length])) ++length;
      Add(CellToken::kName, text_.substr(at_, length), length);
    } else if (IsDigit(c) || (c == '.' && at_ + 1 < text_.size() && IsDigit(text_[at_ + 1]))) {
      Number();
    } else if (std::string_view("()[]{},;=+-*/@").find(c) != std::string_view::npos) {
      if (c == '(' || c == '[') ++open_brackets_;
      if ((c == ')' || c == ']') && open_brackets_ > 0) --open_brackets_;
      Add(CellToken::kPunctuation, std::string(1, c), 1);
    } else {
      Fail(std::isprint(static_cast<unsigned char>(c)) != 0
               ? StrCat("'", c, "' has no meaning here")
               : StrCat("the byte ", static_cast<int>(static_cast<unsigned char>(c)), " has no meaning here"));
    }
  }

  void Comment() {
    size_t end = text_.find('\n', at_);
    if (end == std::string::npos) end = text_.size();
    if (result_.tokens.empty()) {
      size_t begin = at_ + 1;
      if (begin < end && text_[begin] == ' ') ++begin;
      size_t last = end;
      while (last > begin && (text_[last - 1] == ' ' || text_[last - 1] == '\r')) --last;
      if (!result_.doc.empty()) result_.doc += '\n';
      result_.doc += text_.substr(begin, last - begin);
    }
    at_ = end;
  }

  void String() {
    std::string value;
    size_t i = at_ + 1;
    while (i < text_.size() && text_[i] != '"' && text_[i] != '\n') {
      if (text_[i] == '\\' && i + 1 < text_.size()) ++i;
      value += text_[i++];
    }
    if (i >= text_.size() || text_[i] != '"') Fail("the string does not end on its line");
    Add(CellToken::kString, value, i + 1 - at_);
  }

  void Number() {
    size_t end = at_;
    const auto digits = [&] {
      while (end < text_.size() && IsDigit(text_[end])) ++end;
    };
    digits();
    if (end < text_.size() && text_[end] == '.') {
      ++end;
      digits();
    }
    if (end < text_.size() && (text_[end] == 'e' || text_[end] == 'E')) {
      const size_t sign = end + 1 < text_.size() && (text_[end + 1] == '-' || text_[end + 1] == '+') ? 1 : 0;
      if (end + 1 + sign < text_.size() && IsDigit(text_[end + 1 + sign])) {
        end += 1 + sign;
        digits();
      }
    }
    if (end < text_.size() && IsNameStart(text_[end])) Fail("a name cannot start with a digit");
    Add(CellToken::kNumber, text_.substr(at_, end - at_), end - at_);
  }

  const std::string& text_;
  const std::string& what_;
  CellTokens result_;
  size_t at_ = 0;
  size_t line_start_ = 0;
  int line_ = 1;
  int open_brackets_ = 0;
};

}  // namespace

std::string CellToken::Description() const {
  switch (kind) {
    case kNewline: return "the end of the line";
    case kEnd: return "the end of the text";
    case kString: return StrCat("\"", text, "\"");
    default: return StrCat("'", text, "'");
  }
}

CellTokens LexCell(const std::string& text, const std::string& what) { return Lexer(text, what).Run(); }

}  // namespace stepnet

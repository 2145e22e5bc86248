#include "stepnet/cells/cell_lexer.h"

#include <cctype>
#include <string_view>

#include "stepnet/cells/cell_advice.h"
#include "stepnet/cells/source_line.h"
#include "stepnet/core/error.h"
#include "stepnet/core/name_characters.h"
#include "stepnet/core/printable.h"
#include "stepnet/core/strings.h"

namespace stepnet {
namespace {

// What word processors and keyboards write in place of a character of the grammar; in place of none where `meant` is
// "".
struct Lookalike {
  std::uint32_t code;
  const char* name;
  const char* meant;
};
constexpr Lookalike kLookalikes[] = {{0x00a0, "a no-break space", "a space"},
                                     {0x00ab, "a quotation mark «", "\""},
                                     {0x00b4, "an acute accent", "\""},
                                     {0x00b7, "a middle dot", "*"},
                                     {0x00bb, "a quotation mark »", "\""},
                                     {0x00d7, "a multiplication sign", "*"},
                                     {0x00f7, "a division sign", "/"},
                                     {0x200b, "a zero width space", ""},
                                     {0x2010, "a hyphen that is not ASCII", "-"},
                                     {0x2011, "a hyphen that is not ASCII", "-"},
                                     {0x2013, "an en dash", "-"},
                                     {0x2014, "an em dash", "-"},
                                     {0x2018, "a curly quote", "\""},
                                     {0x2019, "a curly quote", "\""},
                                     {0x201c, "a curly quote", "\""},
                                     {0x201d, "a curly quote", "\""},
                                     {0x201e, "a low quote", "\""},
                                     {0x2022, "a bullet", "*"},
                                     {0x2212, "a minus sign that is not ASCII", "-"},
                                     {0x2215, "a division slash", "/"},
                                     {0x22c5, "a dot operator", "*"},
                                     {0x2299, "a circled dot", "*"},
                                     {0xfeff, "a byte order mark", ""}};

// What is wrong with a character where no word can begin; `text`, which starts with it, is not empty.
std::string NoMeaning(std::string_view text, const SignPlace& place) {
  const Utf8Character character = FirstCharacter(text);
  if (character.bytes == 0) {
    return StrCat("the byte ", static_cast<int>(static_cast<unsigned char>(text[0])), " has no meaning here");
  }
  std::string name = StrCat("'", std::string(text.substr(0, character.bytes)), "'");
  if (DrivesTerminals(character.code)) name = "the control character";
  std::string remedy;
  if (character.code >= 0x80 && !DrivesTerminals(character.code))
    remedy = "; names are made of a to z, A to Z, 0 to 9 and _";
  for (const Lookalike& lookalike : kLookalikes) {
    if (lookalike.code != character.code) continue;
    name = lookalike.name;
    remedy = *lookalike.meant == '\0' ? "; remove it" : StrCat("; write ", lookalike.meant);
  }
  if (std::string advice = AdviceOnSign(text[0], place); !advice.empty()) remedy = std::move(advice);
  std::string number;
  if (name[0] != '\'' || character.code >= 0x80) {
    number = " (U+";
    for (int shift = character.code > 0xffff ? 20 : 12; shift >= 0; shift -= 4) {
      number += "0123456789ABCDEF"[character.code >> shift & 15];
    }
    number += ")";
  }
  return StrCat(name, number, " has no meaning here", remedy);
}

class Lexer {
 public:
  Lexer(const std::string& text, const std::string& what) : text_(text), what_(what) {}

  CellTokens Run() {
    while (at_ < text_.size()) Step();
    ExpectNoneOpen();
    if (!open_.empty()) SetNotClosed("; '}' is missing");
    AddNewline();
    Add(CellToken::kEnd, "", 0);
    return std::move(result_);
  }

 private:
  [[noreturn]] void Fail(const std::string& why) const {
    throw Error(ErrorCode::kSyntaxError,
                StrCat(what_, ":", line_, ":", Column(), ": ", why, SourceLine(text_, line_, Column())));
  }
  SignPlace Here() const {
    return {.line = std::string_view(text_).substr(line_start_, at_ - line_start_),
            .behind = std::string_view(text_).substr(at_ + 1),
            .is_in_index = !open_.empty() && open_.back().bracket == '[',
            .is_in_header = open_.empty()};
  }
  int Column() const { return static_cast<int>(at_ - line_start_) + 1; }

  void Add(CellToken::Kind kind, std::string text, size_t length) {
    result_.tokens.push_back({.kind = kind, .text = std::move(text), .line = line_, .column = Column()});
    at_ += length;
  }

  void AddNewline() {
    if (IsInBrackets() || result_.tokens.empty() || result_.tokens.back().kind == CellToken::kNewline) return;
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
      Bracket(c);
      Add(CellToken::kPunctuation, std::string(1, c), 1);
    } else {
      Fail(NoMeaning(std::string_view(text_).substr(at_), Here()));
    }
  }

  bool IsInBrackets() const { return !open_.empty() && open_.back().bracket != '{'; }

  // Brackets are closed by their like, and before the cell's braces open or close.
  void Bracket(char c) {
    if (c == '{' || c == '}') ExpectNoneOpen();
    if (c == '(' || c == '[' || c == '{') open_.push_back({.bracket = c, .line = line_, .column = Column()});
    const bool closes_bracket = c == ')' || c == ']';
    if (closes_bracket && IsInBrackets()) {
      if (c != Closing(open_.back().bracket)) SetNotClosed(StrCat("; '", c, "' comes first, in line ", line_));
      open_.pop_back();
    }
    if (c == '}' && !open_.empty()) open_.pop_back();
  }

  // Forgets what is open but the brace of the cell.
  void ExpectNoneOpen() {
    if (IsInBrackets()) SetNotClosed(StrCat("; '", Closing(open_.back().bracket), "' is missing"));
    while (IsInBrackets()) open_.pop_back();
  }

  // The last bracket that is open is not closed where the text is now.
  void SetNotClosed(const std::string& why) {
    if (result_.not_closed) return;
    const Open& open = open_.back();
    NotClosed& fault = result_.not_closed.emplace();
    fault.token = {.kind = CellToken::kPunctuation, .line = open.line, .column = open.column};
    fault.token.text = open.bracket;
    fault.line = line_;
    fault.column = Column();
    fault.message = StrCat("'", open.bracket, "' is not closed", why);
  }

  static char Closing(char open) { return open == '(' ? ')' : open == '[' ? ']' : '}'; }

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
  struct Open {
    char bracket;
    int line;
    int column;
  };
  std::vector<Open> open_;
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

// CellReader: takes the words of the short form of cells one after the other, and complains about them in their place.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "stepnet/cells/cell_lexer.h"
#include "stepnet/core/error.h"

namespace stepnet {

// What is expected and not found throws kSyntaxError as "WHAT:LINE:COLUMN: …", with the line. `text` must outlive it.
class CellReader {
 public:
  CellReader(const std::string& text, std::string what)
      : text_(text), what_(std::move(what)), tokens_(LexCell(text, what_)) {}

  const std::string& text() const { return text_; }
  const std::string& what() const { return what_; }
  const std::string& doc() const { return tokens_.doc; }

  // The word that is `ahead` of the one to be taken next; behind the last comes the end, again and again.
  const CellToken& Next(size_t ahead = 0) const;
  const CellToken& Take();
  bool TakeIf(char c);
  void SkipNewlines();    // and semicolons
  void TakeSeparator();   // the end of a statement
  void SkipLineBreaks();  // behind an operator, where an expression goes on

  void Expect(char c);
  std::string ExpectName(const char* what);
  std::string ExpectNumber();  // as it is written, with its sign
  std::int64_t ExpectInteger();
  float ExpectFloat();
  double ToDouble(const CellToken& token) const;

  std::vector<std::string> Dimensions();  // [2*H, D]
  std::string SizeText();                 // the words of a size, up to the first that cannot be of it
  std::string ValueText();                // a number or an expression of sizes, as it is written

  [[noreturn]] void Fail(const std::string& why) const { FailAt(Next(), why); }
  [[noreturn]] void FailAt(const CellToken& token, const std::string& why) const;
  // Calls `body`; what it throws is a fault at `token`.
  template <typename Body>
  auto At(const CellToken& token, const Body& body) const {
    try {
      return body();
    } catch (const Error& error) {
      FailAt(token, error.message());
    }
  }

 private:
  std::string ExpressionText();
  [[noreturn]] void Throw(const CellToken& token, const std::string& why) const;

  const std::string& text_;
  const std::string what_;
  const CellTokens tokens_;
  size_t at_ = 0;
};

// The number that the whole text is; nothing for other text and for what the type cannot hold.
std::optional<std::int64_t> IntegerOf(const std::string& text);
std::optional<float> FloatOf(const std::string& text);
std::optional<double> RealOf(const std::string& text);

}  // namespace stepnet

#include "stepnet/tools/rnn_runner/error_text.h"

#include <unistd.h>

#include <cstdlib>
#include <iostream>
#include <sstream>
#include <string_view>

#include "stepnet/core/strings.h"
#include "stepnet/report/text.h"

namespace stepnet::runner {
namespace {

std::string Red(const std::string& text) { return "\033[1;31m" + text + "\033[0m"; }

// Whether a line shows nothing but the place in the line above it: "   |      ^".
bool IsCaret(const std::string& line) {
  return line.size() > 1 && line.find(" | ") != std::string::npos && line.find_first_not_of(" |") == line.size() - 1 &&
         line.back() == '^';
}

}  // namespace

std::string ErrorText(const std::string& who, const Error& error) {
  const char* const no_colour = std::getenv("NO_COLOR");
  return ErrorText(who, error, isatty(STDERR_FILENO) == 1 && (no_colour == nullptr || *no_colour == '\0'));
}

std::string ErrorText(const std::string& who, const Error& error, bool in_colour) {
  const std::string text = Printable(error.what());
  if (!in_colour) return StrCat(Printable(who), ": ", text, "\n");
  const std::string code = ErrorCodeName(error.code());
  std::string coloured = StrCat(Printable(who), ": ", Red(code));
  std::istringstream lines(text.substr(code.size()));
  lines.exceptions(std::ios::badbit);
  for (std::string line; std::getline(lines, line);) {
    coloured += IsCaret(line) ? line.substr(0, line.size() - 1) + Red("^") : line;
    coloured += "\n";
  }
  return coloured;
}

void PrintCurrentError(const std::string& who) noexcept {
  try {
    std::cerr << ErrorText(who, CurrentError());
  } catch (...) {
    constexpr std::string_view kMessage = "rnn_runner: out of memory: the system has no more memory to give\n";
    static_cast<void>(!write(STDERR_FILENO, kMessage.data(), kMessage.size()));
  }
}

}  // namespace stepnet::runner

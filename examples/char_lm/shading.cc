#include "shading.h"

#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <string_view>

#include "stepnet/core/error.h"
#include "stepnet/core/strings.h"

using stepnet::StrCat;

namespace {

// From well expected to a surprise. A character belongs to the first level whose probability it reaches.
struct Level {
  float min_probability;
  const char* range;
  char mark;
  int color256;
  int red, green, blue;
  const char* page_color;  // pages are black on white, terminals mostly the other way round
};
constexpr Level kLevels[] = {
    {0.5f, "50% and more", ' ', 22, 16, 68, 42, "#fff"},  {0.2f, "20-50%", '.', 58, 74, 84, 24, "#fff3c4"},
    {0.05f, "5-20%", ':', 94, 120, 84, 10, "#ffdd85"},    {0.01f, "1-5%", 'o', 130, 160, 72, 8, "#ffb55e"},
    {0.001f, "0.1-1%", 'X', 124, 170, 32, 24, "#ff8552"}, {0.0f, "less than 0.1%", '#', 197, 230, 0, 60, "#ff4f6d"},
};

const Level& LevelOf(float probability) {
  return *std::ranges::find_if(kLevels, [&](const Level& level) { return !(probability < level.min_probability); });
}

constexpr std::string_view kReset = "\x1b[0m";

// White letters on the colour of the level.
std::string ColorCode(const Level& level, ColorMode mode) {
  if (mode == ColorMode::k256) return StrCat("\x1b[38;5;231;48;5;", level.color256, "m");
  return StrCat("\x1b[38;2;255;255;255;48;2;", level.red, ";", level.green, ";", level.blue, "m");
}

std::string Percent(float probability) {
  char text[32];
  std::snprintf(text, sizeof text, probability < 0.01f ? "%.2f%%" : "%.0f%%", 100.0 * probability);
  return text;
}

std::string HtmlEscaped(std::string_view text) {
  std::string escaped;
  for (const char c : text) {
    switch (c) {
      case '&': escaped += "&amp;"; break;
      case '<': escaped += "&lt;"; break;
      case '>': escaped += "&gt;"; break;
      case '"': escaped += "&quot;"; break;
      default: escaped += c;
    }
  }
  return escaped;
}

}  // namespace

ColorMode ChooseColorMode(const std::string& choice) {
  const char* depth = std::getenv("COLORTERM");
  const bool true_color =
      depth != nullptr && (depth == std::string_view("truecolor") || depth == std::string_view("24bit"));
  const ColorMode colored = true_color ? ColorMode::kTrueColor : ColorMode::k256;
  if (choice == "always") return colored;
  if (choice == "never") return ColorMode::kNone;
  if (choice == "auto") return isatty(STDOUT_FILENO) && std::getenv("NO_COLOR") == nullptr ? colored : ColorMode::kNone;
  throw stepnet::Error(stepnet::ErrorCode::kInvalidArgument,
                       StrCat("--color is \"", choice, "\", must be auto, always or never"));
}

std::string ShadedText(const std::vector<SeenCharacter>& text, ColorMode mode) {
  std::string result;
  std::string marks;
  const Level* current = nullptr;
  const auto end_line = [&] {
    if (current != nullptr) result += kReset;
    current = nullptr;
    result += '\n';
    marks.erase(marks.find_last_not_of(' ') + 1);
    if (!marks.empty()) result += marks + "\n";
    marks.clear();
  };
  for (const SeenCharacter& seen : text) {
    const Level& level = LevelOf(seen.probability);
    const bool line_end = seen.character == '\n';
    if (mode == ColorMode::kNone) {
      marks += level.mark;
      if (!line_end) result += seen.character;
    } else {
      if (current != &level) result += ColorCode(level, mode);
      current = &level;
      result += line_end ? ' ' : seen.character;  // how well the end of the line was expected is seen behind it
    }
    if (line_end) end_line();
  }
  if (!text.empty() && text.back().character != '\n') end_line();
  return result;
}

std::string ShadingLegend(ColorMode mode) {
  std::string legend;
  for (const Level& level : kLevels) {
    if (!legend.empty()) legend += mode == ColorMode::kNone ? ", " : " ";
    if (mode == ColorMode::kNone) {
      legend += StrCat("'", level.mark, "' ", level.range);
    } else {
      legend += StrCat(ColorCode(level, mode), " ", level.range, " ", kReset);
    }
  }
  return legend;
}

std::string ShadedPage(const std::vector<SeenCharacter>& text, const std::string& title) {
  std::string page = StrCat(R"(<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width">
<title>)",
                            HtmlEscaped(title), R"(</title>
<style>
body { font: 16px/1.5 sans-serif; margin: 2em; color: black; background: white; }
h1 { font-size: 1.4em; overflow-wrap: anywhere; }
pre { font: 16px/1.6 monospace; white-space: pre-wrap; }
li { display: inline-block; padding: 0 .5em; border: 1px solid silver; }
ul { padding: 0; }
i { font-style: normal; color: gray; }
)");
  for (const Level& level : kLevels) {
    page += StrCat(".l", &level - kLevels, " { background: ", level.page_color, "; }\n");
  }
  page += StrCat(
      "</style>\n</head>\n<body>\n<h1>", HtmlEscaped(title),
      "</h1>\n<p>How probable it found each character; rest the mouse on one to see what it expected.</p>\n<ul>\n");
  for (const Level& level : kLevels) {
    page += StrCat("<li class=\"l", &level - kLevels, "\">", level.range, "</li>\n");
  }
  page += "</ul>\n<pre>";
  for (const SeenCharacter& seen : text) {
    std::string hint = StrCat(Visible(seen.character), " ", Percent(seen.probability));
    if (!seen.guesses.empty()) hint += "; expected";
    for (const auto& [guess, probability] : seen.guesses) {
      hint += StrCat(" ", Visible(guess), " ", Percent(probability));
    }
    page += StrCat("<span class=\"l", &LevelOf(seen.probability) - kLevels, "\" title=\"", HtmlEscaped(hint), "\">",
                   seen.character == '\n' ? "<i>↵</i>" : HtmlEscaped({&seen.character, 1}), "</span>");
    if (seen.character == '\n') page += '\n';
  }
  return page + "</pre>\n</body>\n</html>\n";
}

std::string Visible(char c) {
  if (c == '\n') return "\\n";
  if (c == ' ') return "space";
  return {c};
}

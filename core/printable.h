// Text for people, of names that anybody may have chosen: nothing in a file shall drive a terminal, or look like what
// it is not. Whoever prints calls this; values in memory stay as they are.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace stepnet {

// `text` with \xNN, byte by byte, in place of control characters (those beyond ASCII included), marks that turn the
// direction of writing, characters that nobody sees, and bytes that are no UTF-8. Line feeds and everything else stay.
std::string Printable(std::string_view text);
// Gives what Printable does, without line feeds: for a name within a line.
std::string PrintableLine(std::string_view text);

// Gives what PrintableLine does, quoted: a string of the language DOT, which Graphviz draws graphs from.
std::string DotText(std::string_view text);

// "1 operator", "2 operators".
std::string Count(std::int64_t n, std::string_view what);

// The name of the file that something called `name` is written to: `/` becomes `__`, so that it stays in its folder,
// and what PrintableLine does not show \xNN.
std::string FileNameOf(std::string_view name);

// The UTF-8 character that `text`, which is not empty, starts with: how many bytes it has, none where there is no such
// character, and its number.
struct Utf8Character {
  size_t bytes = 0;
  std::uint32_t code = 0;
};
Utf8Character FirstCharacter(std::string_view text);
// Whether a character is a control character, a mark that turns the direction of writing, or one that nobody sees and
// that makes two texts look the same: Unicode's categories Cc and Cf, but for the signs of numbers, which show, and the
// joiners (U+200C, U+200D), which words of some languages are written with.
bool DrivesTerminals(std::uint32_t code);

}  // namespace stepnet

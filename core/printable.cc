#include "stepnet/core/printable.h"

#include <algorithm>

#include "stepnet/core/strings.h"

namespace stepnet {
namespace {

std::string Escaped(std::string_view text, bool keeps_lines) {
  constexpr char kDigits[] = "0123456789abcdef";
  std::string result;
  while (!text.empty()) {
    const Utf8Character character = FirstCharacter(text);
    const size_t bytes = std::max<size_t>(1, character.bytes);
    const bool shows =
        character.bytes > 0 && (!DrivesTerminals(character.code) || (keeps_lines && character.code == '\n'));
    for (const char c : text.substr(0, bytes)) {
      const auto byte = static_cast<unsigned char>(c);
      result += shows ? std::string(1, c) : std::string{'\\', 'x', kDigits[byte >> 4], kDigits[byte & 15]};
    }
    text.remove_prefix(bytes);
  }
  return result;
}

}  // namespace

Utf8Character FirstCharacter(std::string_view text) {
  const auto byte = [&](size_t i) { return static_cast<std::uint32_t>(static_cast<unsigned char>(text[i])); };
  if (byte(0) < 0x80) return {.bytes = 1, .code = byte(0)};
  const size_t bytes = byte(0) >= 0xf0 ? 4 : byte(0) >= 0xe0 ? 3 : 2;
  constexpr std::uint32_t kMin[] = {0, 0, 0x80, 0x800, 0x10000};  // shorter forms say the same
  if (byte(0) < 0xc0 || byte(0) >= 0xf8 || text.size() < bytes) return {};
  std::uint32_t code = byte(0) & (0x7fU >> bytes);
  for (size_t i = 1; i < bytes; ++i) {
    if ((byte(i) & 0xc0) != 0x80) return {};
    code = code << 6 | (byte(i) & 0x3f);
  }
  const bool is_surrogate = code >= 0xd800 && code < 0xe000;
  return code < kMin[bytes] || code > 0x10ffff || is_surrogate ? Utf8Character{}
                                                               : Utf8Character{.bytes = bytes, .code = code};
}

bool DrivesTerminals(std::uint32_t code) {
  const auto within = [&](std::uint32_t first, std::uint32_t last) { return first <= code && code <= last; };
  return code < 0x20 || within(0x7f, 0x9f) || code == 0xad || code == 0x61c || code == 0x180e || code == 0x200b ||
         within(0x200e, 0x200f) || within(0x2028, 0x202e) || within(0x2060, 0x206f) || code == 0xfeff ||
         within(0xfff9, 0xfffb) || within(0x13430, 0x1343f) || within(0x1bca0, 0x1bca3) || within(0x1d173, 0x1d17a) ||
         within(0xe0000, 0xe007f);
}

std::string Printable(std::string_view text) { return Escaped(text, /*keeps_lines=*/true); }
std::string PrintableLine(std::string_view text) { return Escaped(text, /*keeps_lines=*/false); }

std::string DotText(std::string_view text) {
  std::string quoted = "\"";
  for (const char c : PrintableLine(text)) {
    if (c == '"' || c == '\\') quoted += '\\';
    quoted += c;
  }
  return quoted + "\"";
}

std::string Count(std::int64_t n, std::string_view what) { return StrCat(n, " ", what, n == 1 ? "" : "s"); }

std::string FileNameOf(std::string_view name) {
  std::string file;
  for (const char c : PrintableLine(name)) file += c == '/' ? "__" : std::string(1, c);
  return file;
}

}  // namespace stepnet

#include "stepnet/report/text.h"

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "stepnet/core/strings.h"

namespace stepnet {
namespace {

// Columns that UTF-8 text takes, near enough: bytes that start a character.
size_t Width(const std::string& text) {
  return static_cast<size_t>(std::ranges::count_if(text, [](char c) { return (c & 0xc0) != 0x80; }));
}

bool IsNumber(const std::string& cell) {
  return cell.empty() || cell.find_first_not_of("0123456789.+-e%") == std::string::npos || cell == "nan" ||
         cell == "inf" || cell == "-inf";
}

std::string Printf(const char* format, int digits, double value) {
  char buffer[64];
  std::snprintf(buffer, sizeof(buffer), format, digits, value);
  return buffer;
}

}  // namespace

std::string HtmlText(const std::string& text) {
  std::string result;
  for (const char c : Printable(text)) {
    switch (c) {
      case '<': result += "&lt;"; break;
      case '>': result += "&gt;"; break;
      case '&': result += "&amp;"; break;
      case '"': result += "&quot;"; break;
      default: result += c;
    }
  }
  return result;
}

std::string Quoted(const std::string& text) {
  std::string result = "\"";
  for (const char c : text) {
    if (c == '\n') {
      result += "\\n";
    } else {
      result += c == '"' || c == '\\' ? std::string("\\") + c : std::string(1, c);
    }
  }
  return PrintableLine(result) + "\"";
}

std::string NameText(const std::string& name) {
  const auto usual = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
           std::string_view("_/.:#@+-").find(c) != std::string_view::npos || (c & 0x80) != 0;
  };
  const bool is_plain = !name.empty() && std::ranges::all_of(name, usual) && PrintableLine(name) == name;
  return is_plain ? name : Quoted(name);
}

std::string Shortened(const std::string& text, std::size_t bytes) {
  if (text.size() <= bytes) return text;
  while (bytes > 0 && (text[bytes] & 0xc0) == 0x80) --bytes;  // within a character
  return text.substr(0, bytes) + "…";
}

std::string Table::Text(const std::string& indent) const {
  const size_t columns = std::ranges::max(rows_, {}, [](const auto& row) { return row.size(); }).size();
  std::vector<size_t> widths(columns, 0);
  std::vector<bool> numbers(columns, true);
  for (size_t r = 0; r < rows_.size(); ++r) {
    for (size_t c = 0; c < rows_[r].size(); ++c) {
      widths[c] = std::max(widths[c], Width(rows_[r][c]));
      if (r > 0) numbers[c] = numbers[c] && IsNumber(rows_[r][c]);
    }
  }
  std::string text;
  for (size_t r = rows_.front().empty() ? 1 : 0; r < rows_.size(); ++r) {
    std::string line = indent;
    for (size_t c = 0; c < rows_[r].size(); ++c) {
      const std::string padding(widths[c] - Width(rows_[r][c]), ' ');
      line += (c > 0 ? "  " : "") + (numbers[c] ? padding + rows_[r][c] : rows_[r][c] + padding);
    }
    text += line.substr(0, line.find_last_not_of(' ') + 1) + "\n";
  }
  return text;
}

std::string Number(double value, int digits) { return Printf("%.*g", digits, value); }

std::string Figure(double value) { return std::abs(value) < 999.5 ? Number(value, 3) : Printf("%.*f", 0, value); }

std::string Milliseconds(double seconds) {
  const double ms = seconds * 1e3;
  return Printf("%.*f", ms < 1 ? 4 : ms < 100 ? 3 : 1, ms);
}

std::string Bytes(double bytes) {
  const char* units[] = {"B", "KB", "MB", "GB", "TB"};
  int unit = 0;
  while (bytes >= 1024 && unit < 4) {
    bytes /= 1024;
    ++unit;
  }
  return StrCat(Printf("%.*f", unit == 0 || bytes >= 100 ? 0 : 1, bytes), " ", units[unit]);
}

}  // namespace stepnet

// How an operator is called in messages, traces and tables.
#pragma once

#include <algorithm>
#include <string>

namespace stepnet {

// Appends the first names of a list that take up to 60 bytes, one at least, and how many more there are: a
// RecurrentNetwork has dozens.
template <typename Names>
void AppendFirstNames(const Names& names, std::string* text) {
  constexpr size_t kMaxBytes = 60;
  const size_t begin = text->size();
  int left = static_cast<int>(names.size());
  for (const std::string& name : names) {
    const size_t bytes = text->size() - begin;
    if (bytes > 0 && bytes + name.size() > kMaxBytes) break;
    size_t shown = std::min(name.size(), kMaxBytes);
    while (shown > 0 && shown < name.size() && (name[shown] & 0xc0) == 0x80) --shown;  // within a character
    text->append(bytes == 0 ? "" : ", ").append(name, 0, shown).append(shown < name.size() ? "…" : "");
    --left;
  }
  if (left > 0) text->append(", … (").append(std::to_string(left)).append(" more)");
}

// "y = FC(x, w, b)"; of long lists the first names. Without a stream, which would be a tenth of the time that a net of
// many operators takes to create.
template <typename Names>
std::string OperatorText(const std::string& type, const Names& inputs, const Names& outputs) {
  std::string text;
  AppendFirstNames(outputs, &text);
  text.append(outputs.empty() ? "" : " = ").append(type).append("(");
  AppendFirstNames(inputs, &text);
  return text.append(")");
}

}  // namespace stepnet

// How an operator is called in messages, traces and tables.
#pragma once

#include <algorithm>
#include <string>

namespace stepnet {

// The first names of a list that take up to 60 bytes, one at least, and how many more there are: a RecurrentNetwork
// has dozens.
template <typename Names>
std::string FirstNames(const Names& names) {
  constexpr size_t kMaxBytes = 60;
  std::string text;
  int left = static_cast<int>(names.size());
  for (const std::string& name : names) {
    if (!text.empty() && text.size() + name.size() > kMaxBytes) break;
    text.append(text.empty() ? "" : ", ");
    size_t shown = std::min(name.size(), kMaxBytes);
    while (shown > 0 && shown < name.size() && (name[shown] & 0xc0) == 0x80) --shown;  // within a character
    text.append(name, 0, shown).append(shown < name.size() ? "…" : "");
    --left;
  }
  return left == 0 ? text : text.append(", … (").append(std::to_string(left)).append(" more)");
}

// "y = FC(x, w, b)"; of long lists the first names. Without a stream, which would be a tenth of the time that a net of
// many operators takes to create.
template <typename Names>
std::string OperatorText(const std::string& type, const Names& inputs, const Names& outputs) {
  std::string text = FirstNames(outputs);
  text.append(outputs.empty() ? "" : " = ").append(type).append("(").append(FirstNames(inputs));
  return text.append(")");
}

}  // namespace stepnet

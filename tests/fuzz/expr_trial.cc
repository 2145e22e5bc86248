#include <algorithm>
#include <sstream>
#include <vector>

#include "stepnet/core/error.h"
#include "stepnet/core/expressions/expr_text.h"
#include "stepnet/core/strings.h"
#include "trials.h"

namespace stepnet {
namespace {

// Texts may not grow by more than their names and bytes take to be written out.
constexpr size_t kMaxGrowth = 64;

// A name or number that the text may not have in place of another one: each is refused, in the line where it stands.
// Otherwise the text would compute with something else than people read there.
std::string WrongNameFault(const std::string& printed) {
  std::vector<std::string> lines;
  std::istringstream all(printed);
  for (std::string line; std::getline(all, line);) lines.push_back(line);
  const auto is_read_with = [&](size_t at, const std::string& line) {
    std::vector<std::string> wrong = lines;
    wrong[at] = line;
    try {
      ParseExprs(Join(wrong, "\n"));
      return true;
    } catch (const Error& error) {
      return !error.message().starts_with(StrCat(at + 1, ":"));
    }
  };
  constexpr const char* kNumbers[] = {"inf", "nan", "true", "false"};
  std::string first_input;
  for (size_t at = 0; at < lines.size(); ++at) {
    const std::string& line = lines[at];
    if (line.starts_with("out ")) continue;
    const bool is_input = line.starts_with("in ");
    const size_t name = is_input ? line.find(' ', 3) + 1 : 0;
    if (line[name] == '"') continue;
    const size_t end = line.find(is_input ? ':' : ' ', name);
    const std::string wrong = line.substr(0, name) + kNumbers[at % std::size(kNumbers)] + line.substr(end);
    if (is_read_with(at, wrong)) return StrCat("is read with the line \"", wrong, "\"");
    if (!is_input) break;
    const std::string another = first_input + line.substr(name - 1);
    if (!first_input.empty() && is_read_with(at, another)) return StrCat("is read with the line \"", another, "\"");
    first_input = line.substr(0, name - 1);
  }
  return "";
}

std::string RoundTripFault(const std::string& text) {
  const std::vector<Expr> exprs = ParseExprs(text);
  const std::string printed = PrintExprs(exprs);
  if (printed.size() / kMaxGrowth > text.size()) return StrCat("is printed as ", printed.size(), " characters");
  std::vector<Expr> again;
  try {
    again = ParseExprs(printed);
  } catch (const Error& error) {
    return StrCat("is printed as what is refused: ", error.what());
  }
  if (!std::ranges::equal(exprs, again, &Expr::Is)) return "is printed as other expressions";
  return PrintExprs(again) == printed ? WrongNameFault(printed) : "is printed in two ways";
}

}  // namespace

TrialResult TryExprs(const std::string& text) {
  const std::int64_t nodes = NumExprNodes();
  try {
    std::string fault = RoundTripFault(text);
    if (fault.empty() && NumExprNodes() != nodes) fault = "leaves expressions behind";
    return {.fault = std::move(fault), .ran = true};
  } catch (const Error& error) {
    return RefusedBy(error);
  }
}

}  // namespace stepnet

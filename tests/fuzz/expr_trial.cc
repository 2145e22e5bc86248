#include <algorithm>

#include "stepnet/core/error.h"
#include "stepnet/core/expressions/expr_text.h"
#include "stepnet/core/strings.h"
#include "trials.h"

namespace stepnet {
namespace {

// Texts may not grow by more than their names and bytes take to be written out.
constexpr size_t kMaxGrowth = 64;

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
  return PrintExprs(again) == printed ? "" : "is printed in two ways";
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

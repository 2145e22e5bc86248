// What tests of the faults of cells share.
#pragma once

#include <regex>
#include <string>

#include "stepnet/cells/cell.h"
#include "stepnet/cells/cell_expand.h"
#include "stepnet/core/error.h"
#include "stepnet/tests/operators/op_test.h"

namespace stepnet {

// Leaves out the lines of the source that it shows.
inline Error WithoutSource(const Error& error) {
  static const std::regex kSource("\n *[0-9]* \\| .*");
  Error result(error.code(), std::regex_replace(error.message(), kSource, ""));
  for (const Place& place : error.places()) result.At(place);
  return result;
}

// The error of reading and expanding the text as a file "c", but for the lines of it that are shown.
inline void ExpectFault(const std::string& text, const std::string& error) {
  SCOPED_TRACE(text.substr(0, 500));
  const auto fault = [&] {
    try {
      ExpandCell(ParseCell(text, "c"));
    } catch (const Error& thrown) {
      throw WithoutSource(thrown);
    }
  };
  ExpectError(fault, error);
}

// A cell of sizes D = 2 and H = 3 with the lines in it, the first of which is line 4.
inline std::string CellOf(const std::string& lines) {
  return "cell c(x[D]; h[H]) {\n  size D = 2\n  size H = 3\n" + lines + "\n}\n";
}
inline void ExpectSyntaxFault(const std::string& lines, const std::string& error) {
  ExpectFault(CellOf(lines), "syntax error: c:" + error);
}

// Lines that make a cell of it.
inline constexpr char kStep[] = "param w[H, D]\nh = Tanh(x @ w)\noutput h\n";

}  // namespace stepnet

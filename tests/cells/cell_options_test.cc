// Options that are given from outside of a cell's text.
#include "stepnet/cells/cell_options.h"

#include <gtest/gtest.h>

#include "stepnet/tests/cells/cell_faults.h"

namespace stepnet {
namespace {

CellSource Cell(const std::string& option_lines) { return ParseCell(CellOf(kStep + option_lines), "c"); }

CellSource With(const std::string& option_lines, const std::string& options) {
  return WithOptions(Cell(option_lines), ParseCellOptions(options, "outside"));
}

TEST(CellOptions, FromOutsideAreThoseOfTheText) {
  const CellNet expected =
      ExpandCell(Cell("option layers = 2\noption direction = bidirectional\noption dropout = 0.5"));
  const CellNet given = ExpandCell(With("", "layers=2, direction = bidirectional,dropout=0.5"));
  EXPECT_EQ(given.net.SerializeAsString(), expected.net.SerializeAsString());
  EXPECT_EQ(given.parameters.size(), 4U);
}

TEST(CellOptions, FromOutsideReplaceThoseOfTheTextAlone) {
  const CellOptions options = With("option layers = 3\noption residual = true", "layers=2").def.options();
  EXPECT_EQ(options.layers(), 2);
  EXPECT_TRUE(options.residual());
}

TEST(CellOptions, FaultsAreToldWhereTheyStand) {
  const auto expect = [](const std::string& options, const std::string& error) {
    SCOPED_TRACE(options);
    ExpectError([&] { With("", options); }, "invalid argument: outside:" + error);
  };
  expect("layer=2", "1:1: there is no option \"layer\"; did you mean \"layers\"?\n  1 | layer=2\n    | ^");
  expect(
      "depth=2",
      "1:1: there is no option \"depth\"; there are layers, residual, direction, dropout, recurrent_dropout, zoneout, "
      "lengths, mask, beyond_length, batch_major\n  1 | depth=2\n    | ^");
  expect("layers=2,layers=3", "1:10: the option layers is given twice\n  1 | layers=2,layers=3\n    |          ^");
  expect("layers=2 dropout=1", "1:10: ',' is expected, not 'dropout'\n  1 | layers=2 dropout=1\n    |          ^");
  expect("layers", "1:7: '=' is expected, not the end of the line\n  1 | layers\n    |       ^");
  expect("residual=true, layers=0",
         "1:16: layers is 0, must be between 1 and 1000\n  1 | residual=true, layers=0\n    |                ^");
}

TEST(CellOptions, OfTheTextHaveToBeRightByThemselves) {
  ExpectError([] { With("option layers = 0", "layers=2"); },
              "syntax error: c:7:8: layers is 0, must be between 1 and 1000\n  7 | option layers = 0\n    |        ^");
}

}  // namespace
}  // namespace stepnet

// Options of cells: a statement of their text, and what is said of them from outside.
#pragma once

#include <string>
#include <vector>

#include "stepnet/cells/cell.h"
#include "stepnet/cells/cell_reader.h"

namespace stepnet {

// Takes `layers = 2` and sets that option of the cell, with its place. Throws kSyntaxError, with line and column, for
// names and values that no option has, and for an option that the cell has already.
void TakeCellOption(CellReader& reader, CellSource* cell);

// Options alone, "layers=2, direction=reverse", in the `def` of what is given; `what` names the text in errors. Throws
// kInvalidArgument where TakeCellOption throws.
CellSource ParseCellOptions(const std::string& text, const std::string& what);

// The cell with these options in place of its own; faults of options are then told where these stand. Throws what
// CheckCell throws: kSyntaxError for the cell as it was, kInvalidArgument for it with these options.
CellSource WithOptions(CellSource cell, const CellSource& options);

// The names of all options, in the order of their declaration.
std::vector<std::string> CellOptionNames();

}  // namespace stepnet

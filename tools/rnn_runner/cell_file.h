// Files that hold cells, wherever a command takes a net.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "stepnet/compiler/cell_expand.h"
#include "stepnet/core/model.h"
#include "stepnet/tools/rnn_runner/command.h"
#include "stepnet/tools/rnn_runner/model_file.h"

namespace stepnet::runner {

// --size.
FlagUse CellSizeFlag();
// --size, and --steps and --batch of generated inputs.
std::vector<FlagUse> CellFlags();

// As ReadAnyMessage, of a cell the net that it stands for. Throws what ExpandCell throws.
AnyMessage ReadNetFile(const std::string& path);

// The nets of the cell in `path`, with sizes from --size; nothing when the file holds no cell.
std::optional<CellNet> ExpandCellFile(const std::string& path, CellUse use = {});

Model CellModel(const CellNet& cell);

// Fills those inputs that `workspace` does not hold, and says so on standard error: random numbers, lengths from 0 to
// --steps, random masks.
void FeedCellInputs(const CellNet& cell, Workspace& workspace);

}  // namespace stepnet::runner

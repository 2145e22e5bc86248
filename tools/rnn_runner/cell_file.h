// Files that hold cells, wherever a command takes a net.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "stepnet/cells/cell_expand.h"
#include "stepnet/io/tensor_io.h"
#include "stepnet/nets/model.h"
#include "stepnet/tools/rnn_runner/command.h"
#include "stepnet/tools/rnn_runner/model_file.h"

namespace stepnet::runner {

// --size, and --option.
FlagUse CellSizeFlag();
FlagUse CellOptionFlag();
// --training: the form of a cell that dropout and zoneout are for.
FlagUse CellTrainingFlag();
// --dtype: float or double.
FlagUse CellDTypeFlag();
// --size, --option, --training, --dtype, and --steps and --batch of generated inputs.
std::vector<FlagUse> CellFlags();

// Command::unknown_flag is this where a command takes cells. Says how the option of a cell is given that was taken for
// a flag; "" for other flags.
std::string AdviceOnOptions(const std::string& flag);

// Throws UsageError where one of them is given: `path` is no cell.
void RefuseCellFlags(const std::string& path);

// Gives what ReadAnyMessage does, of a cell the net that it stands for. Throws what ExpandCell throws.
AnyMessage ReadNetFile(const std::string& path);

// The nets of the cell in `path`, with what --size and --option say, as --training says; nothing when the file holds no
// cell. Messages name the batch of `fed`, where the cell's first input is among them. What it throws names the file.
std::optional<CellNet> ExpandCellFile(const std::string& path, CellUse use = {}, const NamedTensors& fed = {});

// Prints WarningsOf the cell in `path`, where it holds one, on standard error.
void PrintCellWarnings(const std::string& path);

Model CellModel(const CellNet& cell);

// LoadParameters for --init_net. Throws kInvalidArgument, too, for what fills no parameters: a cell, and a net that
// reads what nothing fills, as the model itself does.
Model ReadParameters(const std::string& path);

// What the cell's own init_net fills: parameters, and constants that states start from.
std::vector<std::string> FilledByCell(const CellNet& cell);

// Replaces what the cell's own init_net has put into `workspace` by what `path` gives, a net that fills parameters or a
// file of tensors. Throws kInvalidArgument that lists parameters that are missing, names that the cell does not have,
// and other dtypes and shapes; kInputOutput, and what running the net throws. float16 and bfloat16 will do for float,
// and are to be widened (WidenParameters). Returns the names that it gives.
std::vector<std::string> TakeCellParameters(const CellNet& cell, const std::string& path, Workspace& workspace,
                                            const RunOptions& options);

// Throws kShapeMismatch where what is given for a parameter has another shape than what `workspace` holds.
void CheckParameter(const CellNet& cell, const std::string& name, const Tensor& given, const Workspace& workspace);

// Throws kTypeMismatch where something that `workspace` holds has not the dtype that the cell declares. A cell computes
// in double where all that it is filled with and given is double, and where the caller makes it so (`becomes_double`).
void CheckCellTypes(const CellNet& cell, const Workspace& workspace, bool becomes_double);

// What lengths and masks are that nobody gives: of whole sequences or, but for the first one, random, from 0 to the
// number of steps.
enum class MadeUpLengths { kWhole, kRandom };

// What inputs that are made up have.
struct SequenceSizes {
  std::int64_t steps = 0;
  std::int64_t batch = 0;
};

// Looks at the inputs and initial states that `workspace` holds. Returns what they say of the others: what they leave
// open is as --steps and --batch say. Throws UsageError where one of these is given and an input says otherwise, and
// kShapeMismatch where one has not the shape that the cell declares.
SequenceSizes CheckCellInputs(const CellNet& cell, const Workspace& workspace);

// What an input has that nobody gives.
TensorInfo MadeUpInfo(const CellNetInput& input, const SequenceSizes& sizes);

// Fills those inputs that `workspace` does not hold, and says so on standard error: random numbers, lengths and masks
// as `lengths` says. Returns their names. Throws as CheckCellInputs does.
std::vector<std::string> FeedCellInputs(const CellNet& cell, MadeUpLengths lengths, Workspace& workspace);

}  // namespace stepnet::runner

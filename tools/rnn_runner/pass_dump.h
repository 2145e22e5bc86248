// --disable_pass and --dump_passes: how plans of step nets come about.
#pragma once

#include <string>
#include <vector>

#include "stepnet/core/operator.h"
#include "stepnet/tools/rnn_runner/command.h"

namespace stepnet::runner {

std::vector<FlagUse> PassFlags();

// Sets what the flags say. The first call empties the folder of the files of an earlier dump. Throws UsageError for
// passes that do not exist or cannot be left out, kInputOutput where no file can be written into the folder.
void ApplyPassFlags(RunOptions* options);

// Warns, when a command has ended, where --dump_passes was given and there was nothing to dump.
void RemarkOnEmptyDump();

}  // namespace stepnet::runner

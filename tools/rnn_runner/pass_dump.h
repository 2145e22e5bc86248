// --disable_pass and --dump_passes: how plans of step nets come about.
#pragma once

#include <string>
#include <vector>

#include "stepnet/core/operator.h"
#include "stepnet/tools/rnn_runner/command.h"

namespace stepnet::runner {

std::vector<FlagUse> PassFlags();

// Sets what the flags say. Throws UsageError for passes that do not exist or cannot be left out; the folder is made
// when the first plan is.
void ApplyPassFlags(RunOptions* options);

}  // namespace stepnet::runner

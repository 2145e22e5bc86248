// Completion of command lines for shells, from the tables of commands: their names, flags, and values where those are a
// list; otherwise files or folders where a value names some. What is written asks nothing of the program when it is
// used.
#pragma once

#include <string>
#include <vector>

#include "stepnet/tools/rnn_runner/command.h"

namespace stepnet::runner {

std::string BashCompletion(const std::vector<const Command*>& commands);
std::string ZshCompletion(const std::vector<const Command*>& commands);
std::string FishCompletion(const std::vector<const Command*>& commands);

}  // namespace stepnet::runner

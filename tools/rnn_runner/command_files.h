// The files of a command: what it reads and what it writes. None that it reads may be written over.
//
// Flags and operands say by their ValueKind which they are, so that a new one is looked at as all others are; a command
// says here which files are named elsewhere, as by a config, and which of a folder it writes.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "stepnet/tools/rnn_runner/command.h"

namespace stepnet::runner {

// Notes the files that the operands and flags of the command name. Throws UsageError where one is read and written.
void NoteFiles(const Command& command, const std::vector<std::string>& operands);

// The command reads the file. Throws UsageError where it writes it, too.
void NoteRead(const std::string& path);

// The command writes those files of a folder whose names are so, and says by `flag` which folder it is. The folder and
// the files need not be there. Throws UsageError where one is read, or written by another flag.
void NoteWritten(const std::string& folder, const std::string& flag,
                 const std::function<bool(const std::string& name)>& is_written);

}  // namespace stepnet::runner

// What the tables of commands say, for people: the texts of `help`, and the parts of which pages of man and completion
// for shells are made as well.
#pragma once

#include <string>
#include <vector>

#include "stepnet/tools/rnn_runner/command.h"

namespace stepnet::runner {

std::string HelpText(const Command& command);
std::string HelpText(const std::vector<const Command*>& commands);

// "rnn_runner run [--flag=value …] F"
std::string Usage(const Command& command);

// "=F"; "[=PASS]" where the flag may stand alone; "" for one that is true or false.
std::string ValueText(const FlagUse& flag);

// "(or the operand)", "(default 5)" or "".
std::string RemarkOnDefault(const FlagUse& flag);

// What the flag means; lines.
std::string DocText(const FlagUse& flag);

// All that the flag can be, empty where that is no list.
std::vector<std::string> ChoicesOf(const FlagUse& flag);

inline constexpr char kProgramDoc[] = "runs recurrent networks whose cells are step nets, and looks into them";
inline constexpr char kExitStatusDoc[] = "0 ok, 1 a fault in the input or the run, 2 wrong usage";
inline constexpr char kHelpFlagDoc[] = "tell all about the command";
inline constexpr char kVersionFlagDoc[] = "print the version";

}  // namespace stepnet::runner

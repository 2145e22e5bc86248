// Pages of the manual for `man`, from the tables of commands: in the macros of man(7), as groff and mandoc read them.
#pragma once

#include <string>
#include <vector>

#include "stepnet/tools/rnn_runner/command.h"

namespace stepnet::runner {

// "rnn_runner-run"; its page is the file rnn_runner-run.1.
std::string ManPageName(const Command& command);

std::string ManPage(const Command& command);
// That of the program, which leads to the others.
std::string ManPage(const std::vector<const Command*>& commands);

}  // namespace stepnet::runner

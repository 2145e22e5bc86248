// Errors for people.
#pragma once

#include <string>

#include "stepnet/core/error.h"

namespace stepnet::runner {

// "rnn_runner check: syntax error: …" with the line feed behind it; safe for terminals. In colour where standard error
// is a terminal and the environment does not say NO_COLOR (no-color.org).
std::string ErrorText(const std::string& who, const Error& error);

// The same, in colour or not.
std::string ErrorText(const std::string& who, const Error& error, bool in_colour);

// Prints the exception in flight as ErrorText says it or, where there is no memory for that, that there is none. For
// catch blocks.
void PrintCurrentError(const std::string& who) noexcept;

}  // namespace stepnet::runner

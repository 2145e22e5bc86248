// What the compiler has made of a program, for people.
#pragma once

#include <string>
#include <vector>

#include "stepnet/python/src/program.h"

namespace stepnet::python {

// Runs the program once, on a copy of what it keeps, and says what its step nets have become; `format`: text, html or
// json. Throws kInvalidArgument for other formats, kInvalidNet where there is no step net, and what runs throw.
std::string ExplanationOf(ProgramDef def, const std::vector<Tensor>& inputs, const std::string& format,
                          const std::string& title);

}  // namespace stepnet::python
